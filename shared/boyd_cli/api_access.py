"""Access of a command to the state: over the API, whose lists it pages through, or to Redis."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

import click
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from boyd import models
from boyd.embedded.state_folder import read_key, read_runtime, with_redis
from boyd.errors import ApiProblem, ConfigError, UnknownAgent
from boyd.models.investigation import Investigation, InvestigationPage, Logged, LogPage
from boyd.settings.traces_settings import TracesSettings
from boyd.settings.validation import config_folder, read_text, read_toml
from boyd.text.formatting import one_line, printable
from boyd_cli.output import FAILED, NOT_FOUND, SHORT, command_name, note, stop

if TYPE_CHECKING:
    from boyd.settings.process_settings import Settings
    from boyd.store import AgentEntry, AgentStore, Store
    from boyd_cli.client import Client

_M = TypeVar("_M", bound=models.Model)
_I = TypeVar("_I", models.Run, Investigation, models.ApprovalItem)
_P = TypeVar("_P", models.RunPage, InvestigationPage, models.ExecutionPage, models.ApprovalQueue)

DEFAULT = "default"


class Profile(BaseModel):
    """A named API.

    Attributes:
        url: of the API.
        key: the text of a key.
        key_file: a file with the key, relative to the user's home or this file.
        agent: the default agent of commands.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    key: str | None = Field(default=None, repr=False)
    key_file: str | None = None
    agent: str | None = None


def profiles_file() -> Path:
    """The path of the file with the profiles."""
    return config_folder() / "profiles.toml"


def profile_names() -> list[str]:
    """The names of all profiles."""
    path = profiles_file()
    return list(read_toml(path)) if path.exists() else []


def read_profile(name: str | None) -> Profile | None:
    """Read the profile of that name, or `default` if it exists.

    Raises:
        ConfigError: it does not exist, is not valid, or other users can read its key.
    """
    path = profiles_file()
    if not path.exists():
        if name is None:
            return None
        raise ConfigError(f"no profile {name!r}: {path} does not exist; make it, with [{name}]")
    tables = read_toml(path)
    if (name or DEFAULT) not in tables:
        if name is None:
            return None
        raise ConfigError(f"{path} has no profile {name!r}; known: {', '.join(tables) or 'none'}")
    try:
        profile = Profile.model_validate(tables[name or DEFAULT])
    except ValidationError as error:
        raise ConfigError(f"{path}: profile {name or DEFAULT!r}: {models.explain(error)}") from None
    if any(isinstance(table, dict) and "key" in table for table in tables.values()):
        _check_private(path)
    return _with_key(profile, path.parent)


def _with_key(profile: Profile, folder: Path) -> Profile:
    if profile.key_file is None:
        return profile
    if profile.key is not None:
        raise ConfigError("set either key or key_file in a profile, not both")
    path = folder / Path(profile.key_file).expanduser()
    try:
        text = read_text(path).strip()
    except ConfigError as error:
        raise ConfigError(f"key_file {error}") from None
    _check_private(path)
    return profile.model_copy(update={"key": text})


def _check_private(path: Path) -> None:
    if path.stat().st_mode & 0o077:
        raise ConfigError(f"other users can read the key in {path}: run chmod 600 {path}")


@dataclass(frozen=True)
class Flags:
    """The options about the API on the command line, or what another source says of them."""

    url: str | None = None
    key: str | None = field(default=None, repr=False)
    profile: str | None = None
    agent: str | None = None


class Api:
    """Clients for the deployment and for the chosen agent."""

    def __init__(
        self, url: str, key: str | None, agent: str | None, traces: TracesSettings
    ) -> None:
        from boyd_cli.client import Client

        self.traces = traces
        self.url = url.rstrip("/")
        self.has_key = key is not None
        self.deployment: Client = Client(url, key)
        command = click.get_current_context(silent=True)
        if command is not None:
            command.call_on_close(self.deployment.close)
        self.agent: Client = self.deployment.of(agent)

    @cached_property
    def agent_id(self) -> str:
        """The id of the chosen agent.

        Raises:
            ApiProblem: it does not exist, or several could be meant.
        """
        return self.agent.agent or self.agent.get("/loop/status", models.LoopStatus).agent_id


def open_api(settings: Settings, flags: Flags) -> Api:
    """Connect to the chosen API.

    Raises:
        ConfigError: no URL is known.
    """
    api = find_api(settings, flags)
    if api is None:
        raise ConfigError(
            f"no API address is known: start everything with `{command_name()} up`"
            f" (nothing is running in {settings.state_dir}), pass --url, set BOYD_URL, or add a"
            f" profile to {profiles_file()}"
        )
    return api


def find_api(settings: Settings, flags: Flags, *, running: bool = True) -> Api | None:
    """Connect to the chosen API; None if no URL is known.

    With *running*, a `boyd up` on this machine counts as well.
    """
    sources = list(_sources(settings, flags, running))
    url = next((source.url for source in sources if source.url), None)
    if url is None:
        return None
    # A key given along with a URL is sent to that URL only.
    fitting = [source for source in sources if source.url is None or is_same(source.url, url)]
    key = next((source.key for source in fitting if source.key), None)
    agent = next((source.agent for source in fitting if source.agent), None)
    if key is not None and not key.isascii():
        raise ConfigError("the API key has characters that are in no key; copy it again")
    return Api(url, key, agent, settings.traces)


def _sources(settings: Settings, flags: Flags, running: bool) -> Iterator[Flags]:
    """Yield the sources in order of precedence; URL and key may come from different ones."""
    yield Flags(url=flags.url, agent=flags.agent)
    yield Flags(key=flags.key)
    if flags.profile:
        yield _of_profile(flags.profile)
    yield Flags(url=os.environ.get("BOYD_URL"))
    yield Flags(key=os.environ.get("BOYD_API_KEY"), agent=settings.agent)
    if not flags.profile:
        yield _of_profile(os.environ.get("BOYD_PROFILE") or None)
    runtime = read_runtime(settings.state_dir) if running else None
    if runtime is not None and runtime.api_url is not None:
        key = read_key(settings.state_dir)
        yield Flags(url=runtime.api_url, key=key, agent=runtime.agent)


def _of_profile(name: str | None) -> Flags:
    profile = read_profile(name)
    return Flags(profile.url, profile.key, agent=profile.agent) if profile else Flags()


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


def is_same(url: str, other: str) -> bool:
    """Compare the URLs of two APIs, ignoring a trailing slash."""
    return url.rstrip("/") == other.rstrip("/")


#: The largest page.
PAGE = 500


def _pages(api: Api, path: str, kind: type[_P], **query: object) -> Iterator[_P]:
    cursor: str | None = None
    while True:
        page = api.agent.get(path, kind, **query, cursor=cursor)
        if page.missing:
            note_missing(page.missing)
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return


@cache
def note_missing(reason: str) -> None:
    """Say once that the archive has older items which are not listed, and why."""
    note(f"boyd: older items are missing: {one_line(reason)}")


#: Items that are searched for a prefix of an id.
_NEWEST = 5000


def runs(api: Api, limit: int = _NEWEST, **query: object) -> list[models.Run]:
    """Read at most *limit* runs, newest first."""
    pages = _pages(api, "/runs", models.RunPage, **query, limit=min(limit, PAGE))
    return list(islice((run for page in pages for run in page.runs), limit))


def investigations(api: Api, limit: int = _NEWEST) -> list[Investigation]:
    """Read at most *limit* investigations, newest first."""
    pages = _pages(api, "/investigations", InvestigationPage, limit=min(limit, PAGE))
    return list(islice((item for page in pages for item in page.investigations), limit))


def executions(api: Api, limit: int, **query: object) -> list[models.ExecutionEntry]:
    """Read at most *limit* executions, newest first."""
    pages = _pages(api, "/executions", models.ExecutionPage, **query, limit=min(limit, PAGE))
    return list(islice((entry for page in pages for entry in page.executions), limit))


def approvals(api: Api, *, history: bool) -> Iterator[models.ApprovalQueue]:
    """Read the queue of approvals page by page."""
    return _pages(api, "/approvals", models.ApprovalQueue, includeHistory=history, limit=PAGE)


def every_approval(api: Api) -> Iterator[models.ApprovalItem]:
    """Read all approvals, also resolved ones."""
    for page in approvals(api, history=True):
        yield from (*page.pending, *page.history)


def entries(api: Api, investigation: str, after: str | None = None) -> Iterator[Logged]:
    """Read the log of an investigation after the entry *after*, oldest first."""
    path = f"/investigations/{quote(investigation, safe='')}/log"
    while True:
        page = api.agent.get(path, LogPage, after=after, limit=PAGE)
        yield from page.entries
        after = page.next_after
        if after is None:
            return


def past_iteration(api: Api, iteration: int) -> models.LoopResult | None:
    """Read a past iteration; None if it has not ended, or is not kept any more."""
    return find_item(api, f"/loop/history/{iteration}", models.LoopResult)


def find_item(api: Api, path: str, kind: type[_M]) -> _M | None:
    """Read an item; None if it does not exist."""
    try:
        return api.agent.get(path, kind)
    except ApiProblem as problem:
        if problem.status != 404:
            raise
        return None


#: Characters of a whole id.
WHOLE = 36


def resolve_prefix(noun: str, beginning: str, ids: Iterable[str]) -> str:
    """Find the only id with that prefix; exit with an error otherwise."""
    matches = []
    for id in dict.fromkeys(ids):
        if id == beginning:
            return id
        if id.startswith(beginning):
            matches.append(id)
    if not matches:
        stop(NOT_FOUND, f"no {noun} {beginning!r}")
    if len(matches) > 1:
        some = ", ".join(id[: SHORT + 4] for id in matches[:5])
        more = ", …" if len(matches) > 5 else ""
        count = len(matches)
        stop(FAILED, f"{noun} {beginning!r} is ambiguous, {count} ids begin so: {some}{more}")
    return matches[0]


def find_by_prefix(
    api: Api,
    prefix: str,
    noun: str,
    path: str,
    kind: type[_I],
    newest: Callable[[Api], Iterable[_I]],
) -> _I:
    """Read the item with that id below *path*, or find it among the newest by a unique prefix."""
    if len(prefix) == WHOLE:
        return api.agent.get(f"{path}/{prefix}", kind)
    items_by_id = {item.id: item for item in newest(api)}
    return items_by_id[resolve_prefix(noun, prefix, items_by_id)]


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
        return "-".join(printable(getpass.getuser()).split()) or "unknown"
    except (KeyError, OSError):  # no name for this user id, as in many containers
        return "unknown"


def actor() -> models.Actor:
    """The user as an actor for the audit trail."""
    return models.Actor(principal=f"cli:{user()}", person=True)
