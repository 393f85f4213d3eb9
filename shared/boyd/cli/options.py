"""Options that commands share: settings, API, agent and store."""

from __future__ import annotations

import functools
import getpass
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from boyd.cli import completion, output
from boyd.cli.api_access import Api, Flags, find_api, open_api
from boyd.cli.completion import Offers, completer
from boyd.embedded.state_folder import read_runtime, with_redis
from boyd.errors import UnknownAgent
from boyd.models import Actor, Run
from boyd.models.investigation import Investigation
from boyd.settings.process_settings import Settings, load_settings

if TYPE_CHECKING:
    from boyd.store import AgentEntry, AgentStore, Store

_Command = Callable[..., Any]
_T = TypeVar("_T", Run, Investigation)

#: Characters of a whole id, and how many of the newest items are searched for a prefix of one.
WHOLE = 36
_NEWEST = 5000


def short(whole: str) -> str:
    """Shorten an id for tables."""
    return whole[: output.SHORT]


def not_empty(_ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
    """Refuse empty values: an unset shell variable must not select the default."""
    return _refuse_empty(value, "it is empty: give a value, or omit the option")


def _refuse_empty_id(_ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
    return _refuse_empty(value, "the id is empty: give an id or a prefix of one")


def _refuse_empty(value: Any, complaint: str) -> Any:
    for one in value if isinstance(value, tuple) else (value,):
        if one is not None and not one.strip():
            raise click.BadParameter(complaint)
    return value


def id_argument(
    name: str, offers: Callable[[Api], Offers], **how: Any
) -> Callable[[_Command], _Command]:
    """An argument for an id or a prefix of one; completion offers *offers*."""
    complete = completer(offers)
    return click.argument(name, callback=_refuse_empty_id, shell_complete=complete, **how)


def resolve_prefix(noun: str, beginning: str, ids: Iterable[str]) -> str:
    """Find the only id with that prefix; exit with an error otherwise."""
    found = []
    for one in dict.fromkeys(ids):
        if one == beginning:
            return one
        if one.startswith(beginning):
            found.append(one)
    if not found:
        output.stop(output.NOT_FOUND, f"no {noun} {beginning!r}")
    if len(found) > 1:
        some = ", ".join(one[: output.SHORT + 4] for one in found[:5])
        more = ", …" if len(found) > 5 else ""
        output.stop(output.FAILED, f"{beginning!r} matches {len(found)} {noun}s: {some}{more}")
    return found[0]


def find_by_prefix(noun: str, prefix: str, read: Callable[[], _T], every: Iterable[_T]) -> _T:
    """Read the item with that id, or find it among the newest by a unique prefix."""
    if len(prefix) == WHOLE:
        return read()
    known = {one.id: one for one in islice(every, _NEWEST)}
    return known[resolve_prefix(noun, prefix, known)]


#: Names an agent; an empty name is refused and does not select the default.
agent_option: Callable[[_Command], _Command] = click.option(
    "--agent",
    callback=not_empty,
    shell_complete=completion.completer(completion.agents),
    help="The agent; required if there are several.",
)


def settings_options(command: _Command) -> _Command:
    """Give *command* `--config`, `--redis-url` and `--log-level`, and the settings."""

    @_config
    @_redis_url
    @click.option(
        "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Log level."
    )
    @functools.wraps(command)
    def wrapped(
        *args: Any, config: Path | None, redis_url: str | None, log_level: str | None, **more: Any
    ) -> Any:
        given = {"redis_url": redis_url, "log_level": log_level}
        return command(*args, settings=_load(given, config), **more)

    return wrapped


def api_options(command: _Command) -> _Command:
    """Give *command* the options for API and agent, and the API as `api`."""

    @agent_option
    @deployment_api_options
    @functools.wraps(command)
    def wrapped(
        *args: Any, api: Callable[[str | None], Api], agent: str | None, **more: Any
    ) -> Any:
        return command(*args, api=api(agent), **more)

    return wrapped


def agents_api_options(command: _Command) -> _Command:
    """Give *command* the options for the API, and the API as `api`."""

    @deployment_api_options
    @functools.wraps(command)
    def wrapped(*args: Any, api: Callable[[str | None], Api], **more: Any) -> Any:
        return command(*args, api=api(None), **more)

    return wrapped


def deployment_api_options(command: _Command) -> _Command:
    """The same, where `api` is a function that opens the API for an agent."""

    @_config
    @_url
    @_key
    @_profile
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        config: Path | None,
        url: str | None,
        key: str | None,
        profile: str | None,
        **more: Any,
    ) -> Any:
        settings = _load({}, config)

        def opened(agent: str | None) -> Api:
            return open_api(settings, Flags(url, key, profile, agent))

        return command(*args, api=opened, **more)

    return wrapped


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
        flags = Flags(self.flags.url, self.flags.key, self.flags.profile, agent)
        api = find_api(self.settings, flags, running=running)
        asked = running or flags.url or flags.profile
        return api if api is not None and (api.has_key or asked) else None


def access_options(command: _Command) -> _Command:
    """Give *command* the options for the API or Redis, as `access`."""

    @_config
    @_url
    @_key
    @_profile
    @click.option("--redis", "direct", is_flag=True, help="Use Redis directly instead of the API.")
    @_redis_url
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        config: Path | None,
        url: str | None,
        key: str | None,
        profile: str | None,
        direct: bool,
        redis_url: str | None,
        **more: Any,
    ) -> Any:
        settings = _load({"redis_url": redis_url}, config)
        access = CommandAccess(settings, Flags(url, key, profile), direct or redis_url is not None)
        return command(*args, access=access, **more)

    return wrapped


def _load(given: dict[str, str | None], config: Path | None) -> Settings:
    flags = {key: value for key, value in given.items() if value is not None}
    if config is not None:
        os.environ["BOYD_CONFIG"] = str(config.resolve())  # for the processes that we start
    return load_settings(flags, config)


def _config(command: _Command) -> _Command:
    path = click.Path(path_type=Path)
    return click.option("--config", type=path, help="Settings file (TOML).")(command)


def _redis_url(command: _Command) -> _Command:
    help_ = "The Redis that holds the state."
    return click.option("--redis-url", callback=not_empty, help=help_)(command)


def _url(command: _Command) -> _Command:
    return click.option("--url", callback=not_empty, help="URL of the API.")(command)


def _key(command: _Command) -> _Command:
    help_ = "API key. `ps` shows it to other users; BOYD_API_KEY_FILE does not."
    return click.option("--key", help=help_)(command)


def _profile(command: _Command) -> _Command:
    help_ = "Take URL and key from this profile."
    return click.option(
        "--profile", callback=not_empty, shell_complete=completion.profiles, help=help_
    )(command)


def agents_option(command: _Command) -> _Command:
    """Give *command* the repeatable option `--agent`: agents to load."""
    return click.option(
        "--agent",
        "agents",
        multiple=True,
        metavar="FILE|MODULE:NAME",
        help="Agent to load; repeatable. Default: the setting `agents`.",
    )(command)


def with_agents(settings: Settings, agents: tuple[str, ...]) -> Settings:
    """The settings, with the agents of the command line if there are any."""
    return settings.model_copy(update={"agents": agents}) if agents else settings


def open_store(settings: Settings) -> Store:
    """The store, once Redis has answered.

    Raises:
        ConfigError: no Redis is known.
        StoreUnavailable: it does not answer.
    """
    from boyd.store import Sealing, Store, connect, translated

    redis_url = with_redis(settings).redis_url
    assert redis_url is not None
    sealing = Sealing.of(settings.audit_key, settings.audit_keep)
    store = Store(connect(redis_url), sealing=sealing)
    with translated():
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

    known = store.fleet.agents()
    running = _running_agent(settings)
    default = running if running in known else None
    serving = in_service(known)
    only = serving[0] if len(serving) == 1 else None
    wanted = name or settings.agent or default or only
    if not known:
        raise UnknownAgent("no agent has been started against this Redis yet")
    if wanted is None:
        raise UnknownAgent(f"choose an agent with --agent NAME: {', '.join(serving)}")
    if wanted not in known:
        raise UnknownAgent(f"no agent {wanted!r}; known: {', '.join(known)}")
    return known[wanted], store.agent(wanted)


def _running_agent(settings: Settings) -> str | None:
    """The agent of the local `boyd up`, if it uses the chosen Redis."""
    running = read_runtime(settings.state_dir)
    if running is None or settings.redis_url not in (None, running.redis_url):
        return None
    return running.agent


def user() -> str:
    """The user of the operating system, as a principal."""
    try:
        return "-".join(getpass.getuser().split()) or "unknown"
    except (KeyError, OSError):  # no name for this user id, as in many containers
        return "unknown"


def actor() -> Actor:
    """The user as an actor for the audit trail."""
    return Actor(principal=f"cli:{user()}", person=True)
