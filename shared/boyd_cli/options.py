"""Options that commands share: settings, API, agent and store."""

from __future__ import annotations

import functools
import getpass
import inspect
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from boyd.embedded.state_folder import read_runtime, with_redis
from boyd.errors import UnknownAgent
from boyd.models import Actor, ApprovalItem, Run
from boyd.models.investigation import Investigation
from boyd.settings.process_settings import Settings, load_settings
from boyd_cli import completion, output
from boyd_cli.api_access import Api, Flags, find_api, open_api
from boyd_cli.completion import Offers, completer
from boyd_cli.parameter_types import Number

if TYPE_CHECKING:
    from boyd.store import AgentEntry, AgentStore, Store

_Command = Callable[..., Any]
_Decorator = Callable[[_Command], _Command]
_T = TypeVar("_T", Run, Investigation, ApprovalItem)

#: Characters of a whole id.
WHOLE = 36


def _refuse_empty(complaint: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    def check(_ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
        for text in value if isinstance(value, tuple) else (value,):
            if text is not None and not text.strip():
                raise click.BadParameter(complaint)
        return value

    return check


#: Refuses empty values: an unset shell variable must not select the default.
not_empty = _refuse_empty("it is empty: give a value, or omit the option")
_not_empty_id = _refuse_empty("the id is empty: give an id or a prefix of one")


def id_argument(name: str, offers: Callable[[Api], Offers], **options: Any) -> _Decorator:
    """An argument for an id or a prefix of one; completion offers *offers*."""
    complete = completer(offers)
    return click.argument(name, callback=_not_empty_id, shell_complete=complete, **options)


def resolve_prefix(noun: str, beginning: str, ids: Iterable[str]) -> str:
    """Find the only id with that prefix; exit with an error otherwise."""
    matches = []
    for id in dict.fromkeys(ids):
        if id == beginning:
            return id
        if id.startswith(beginning):
            matches.append(id)
    if not matches:
        output.stop(output.NOT_FOUND, f"no {noun} {beginning!r}")
    if len(matches) > 1:
        some = ", ".join(id[: output.SHORT + 4] for id in matches[:5])
        more = ", …" if len(matches) > 5 else ""
        output.stop(output.FAILED, f"{beginning!r} matches {len(matches)} {noun}s: {some}{more}")
    return matches[0]


def find_by_prefix(
    api: Api, noun: str, prefix: str, kind: type[_T], newest: Callable[[Api], Iterable[_T]]
) -> _T:
    """Read the item with that id, or find it among the newest by a unique prefix."""
    if len(prefix) == WHOLE:
        return api.agent.get(f"/{noun}s/{prefix}", kind)
    items_by_id = {item.id: item for item in newest(api)}
    return items_by_id[resolve_prefix(noun, prefix, items_by_id)]


#: Names an agent; an empty name is refused and does not select the default.
agent_option = click.option(
    "--agent",
    callback=not_empty,
    shell_complete=completion.completer(completion.agents),
    help="The agent; required if there are several.",
)


def gives(name: str, load: Callable[..., object], *options: _Decorator) -> _Decorator:
    """Give a command *options*, and what *load* makes of their values as the argument *name*."""
    names = inspect.signature(load).parameters

    def decorate(command: _Command) -> _Command:
        @functools.wraps(command)
        def wrapper(*args: Any, **params: Any) -> Any:
            values = {key: params.pop(key) for key in names if key in params}
            return command(*args, **{name: load(**values)}, **params)

        decorated: _Command = wrapper
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


_config = click.option("--config", type=click.Path(path_type=Path), help="Settings file (TOML).")
_redis_url = click.option("--redis-url", callback=not_empty, help="The Redis that holds the state.")
_log_level = click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Log level."
)
_api_flags = (
    click.option("--url", callback=not_empty, help="URL of the API."),
    click.option(
        "--key", help="API key. `ps` shows it to other users; BOYD_API_KEY_FILE does not."
    ),
    click.option(
        "--profile",
        callback=not_empty,
        shell_complete=completion.profiles,
        help="Take URL and key from this profile.",
    ),
)
_direct = click.option(
    "--redis", "direct", is_flag=True, help="Use Redis directly instead of the API."
)


def _load(config: Path | None, **options: str | None) -> Settings:
    flags = {key: value for key, value in options.items() if value is not None}
    if config is not None:
        os.environ["BOYD_CONFIG"] = str(config.resolve())  # for the processes that we start
    return load_settings(flags, config)


def _settings(config: Path | None, redis_url: str | None, log_level: str | None) -> Settings:
    return _load(config, redis_url=redis_url, log_level=log_level)


def _api(
    config: Path | None,
    url: str | None,
    key: str | None,
    profile: str | None,
    agent: str | None = None,
) -> Api:
    return open_api(_load(config), Flags(url, key, profile, agent))


@dataclass(frozen=True)
class CommandAccess:
    """Access to the state over the API, or directly on Redis.

    Attributes:
        settings: of the process.
        flags: the API options.
        direct: whether Redis was requested.
    """

    settings: Settings
    flags: Flags
    direct: bool

    def api(self, agent: str | None = None, *, running: bool = False) -> Api | None:
        """The API, if it should be used: with a key, or if requested.

        With *running*, a local `boyd up` counts as a request.
        """
        if self.direct:
            return None
        api = find_api(self.settings, replace(self.flags, agent=agent), running=running)
        is_requested = running or self.flags.url or self.flags.profile
        return api if api is not None and (api.has_key or is_requested) else None


def _access(
    config: Path | None,
    url: str | None,
    key: str | None,
    profile: str | None,
    direct: bool,
    redis_url: str | None,
) -> CommandAccess:
    settings = _load(config, redis_url=redis_url)
    return CommandAccess(settings, Flags(url, key, profile), direct or redis_url is not None)


#: `--config`, `--redis-url` and `--log-level`, as `settings`.
settings_options = gives("settings", _settings, _config, _redis_url, _log_level)
#: The options for the API, as `api`, which heeds an `--agent` that the command may have.
deployment_api_options = gives("api", _api, _config, *_api_flags)
#: The options for API and agent, as `api`.
api_options = gives("api", _api, agent_option, _config, *_api_flags)
#: The options for the API or Redis, as `access`.
access_options = gives("access", _access, _config, *_api_flags, _direct, _redis_url)


#: Agents to load, as `agents`.
agents_option = click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="FILE|MODULE:NAME",
    help="Agent to load; repeatable. Default: the setting `agents`.",
)


wait_option = click.option(
    "--wait",
    type=Number(0),
    default=30.0,
    show_default=True,
    help="Seconds to wait for the result; 0: do not wait.",
)


def data_options(command: _Command) -> _Command:
    """Give *command* `-o`, as `form`, and the options for API and agent, as `api`."""
    return output.output_option(api_options(command))


def with_agents(settings: Settings, agents: tuple[str, ...]) -> Settings:
    """The settings, with the agents of the command line if there are any."""
    return settings.model_copy(update={"agents": agents}) if agents else settings


def open_store(settings: Settings) -> Store:
    """The store, once Redis has answered.

    Raises:
        ConfigError: no Redis is known.
        StoreUnavailable: it does not answer.
    """
    from boyd.store import Sealing, Store, connect, translate_errors

    redis_url = with_redis(settings).redis_url
    assert redis_url is not None
    sealing = Sealing.of(settings.audit_key, settings.audit_keep)
    store = Store(connect(redis_url), sealing=sealing)
    with translate_errors():
        store.client.ping()
    return store


def choose_agent(
    store: Store, settings: Settings, name: str | None
) -> tuple[AgentEntry, AgentStore]:
    """Choose an agent: *name*, the setting `agent`, or the only one.

    Raises:
        UnknownAgent: it does not exist, or there are several to choose from.
    """
    from boyd.store import in_service

    entries = store.fleet.agents()
    running = read_runtime(settings.state_dir)
    default = None
    if running is not None and settings.redis_url in (None, running.redis_url):
        default = running.agent if running.agent in entries else None
    serving = in_service(entries)
    only = serving[0] if len(serving) == 1 else None
    choice = name or settings.agent or default or only
    if not entries:
        raise UnknownAgent("no agent has been started against this Redis yet")
    if choice is None:
        raise UnknownAgent(f"choose an agent with --agent NAME: {', '.join(serving)}")
    if choice not in entries:
        raise UnknownAgent(f"no agent {choice!r}; known: {', '.join(entries)}")
    return entries[choice], store.agent(choice)


def user() -> str:
    """The user of the operating system, as a principal."""
    try:
        return "-".join(getpass.getuser().split()) or "unknown"
    except (KeyError, OSError):  # no name for this user id, as in many containers
        return "unknown"


def actor() -> Actor:
    """The user as an actor for the audit trail."""
    return Actor(principal=f"cli:{user()}", person=True)
