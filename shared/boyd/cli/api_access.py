"""Which API commands ask, and with which key."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click
import platformdirs
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from boyd.cli.output import command_name
from boyd.embedded.state_folder import read_key, read_runtime
from boyd.errors import ConfigError
from boyd.models import (
    ApprovalQueue,
    ExecutionEntry,
    ExecutionPage,
    LoopStatus,
    Run,
    RunPage,
    explain,
)
from boyd.models.investigation import Investigation, InvestigationPage, Logged, LogPage
from boyd.settings.files import read_toml

if TYPE_CHECKING:
    from boyd.client import Client
    from boyd.settings.process import Settings

DEFAULT = "default"


class Profile(BaseModel):
    """An API, and who we are there.

    Attributes:
        url: where the API is.
        key: the text of a key.
        key_file: a file to read it from, relative to the user's home or this file.
        agent: the agent that commands mean when they name none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    key: str | None = Field(default=None, repr=False)
    key_file: str | None = None
    agent: str | None = None


def profiles_file() -> Path:
    """Where the profiles are."""
    return platformdirs.user_config_path("boyd") / "profiles.toml"


def profile_names() -> list[str]:
    """The names of all profiles.

    Raises:
        ConfigError: the file cannot be read.
    """
    path = profiles_file()
    return list(read_toml(path)) if path.exists() else []


def read_profile(name: str | None) -> Profile | None:
    """The profile of that name; without one `default`, if there is such a profile.

    Raises:
        ConfigError: there is none of that name, it makes no sense, or others can read its key.
    """
    path = profiles_file()
    if name is None and not path.exists():
        return None
    tables = read_toml(path)
    if (name or DEFAULT) not in tables:
        if name is None:
            return None
        raise ConfigError(f"{path} has no profile {name!r}; it has: {', '.join(tables) or 'none'}")
    try:
        profile = Profile.model_validate(tables[name or DEFAULT])
    except ValidationError as error:
        raise ConfigError(f"{path}: profile {name or DEFAULT!r}: {explain(error)}") from None
    if any(isinstance(table, dict) and "key" in table for table in tables.values()):
        _check_private(path)
    return _with_key(profile, path.parent)


def _with_key(profile: Profile, folder: Path) -> Profile:
    if profile.key_file is None:
        return profile
    if profile.key is not None:
        raise ConfigError("a profile has a key or a key_file, not both")
    path = folder / Path(profile.key_file).expanduser()
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"key_file {path} cannot be read: {error}") from None
    _check_private(path)
    return profile.model_copy(update={"key": text})


def _check_private(path: Path) -> None:
    if path.stat().st_mode & 0o077:
        raise ConfigError(f"others can read the key in {path}: chmod 600 {path}")


@dataclass(frozen=True)
class Flags:
    """What the command line says about the API."""

    url: str | None = None
    key: str | None = field(default=None, repr=False)
    profile: str | None = None
    agent: str | None = None


@dataclass(frozen=True)
class Place:
    """An API, the key for it and the agent that is meant there, as far as somebody said so."""

    url: str | None = None
    key: str | None = field(default=None, repr=False)
    agent: str | None = None


class Api:
    """The API as commands use it: a client for the deployment, and one for the agent."""

    def __init__(self, url: str, key: str | None, agent: str | None) -> None:
        from boyd.client import Client

        self.has_key = key is not None
        self.deployment: Client = Client(url, key)
        command = click.get_current_context(silent=True)
        if command is not None:
            command.call_on_close(self.deployment.close)
        self.agent: Client = self.deployment.of(agent)

    @cached_property
    def agent_id(self) -> str:
        """The id of the agent that is meant.

        Raises:
            ApiProblem: it does not exist, or there are several to choose from.
        """
        return self.agent.agent or self.agent.get("/loop/status", LoopStatus).agent_id


def open_api(settings: Settings, flags: Flags) -> Api:
    """The API that is meant.

    Raises:
        ConfigError: nothing says which one.
    """
    api = find_api(settings, flags)
    if api is None:
        raise ConfigError(
            f"no API is known: start everything with `{command_name()} up`"
            f" (nothing runs in {settings.state_dir}), give --url, set BOYD_URL, or write a"
            f" profile into {profiles_file()}"
        )
    return api


def find_api(settings: Settings, flags: Flags, *, running: bool = True) -> Api | None:
    """The API that is meant, if something says which one.

    Args:
        settings: of the process.
        flags: of the command line.
        running: whether a `boyd up` that runs here says so.
    """
    places = list(_places(settings, flags, running))
    url = next((place.url for place in places if place.url), None)
    if url is None:
        return None
    # A key that came with a URL is for that one; nobody else gets to see it.
    fitting = [place for place in places if place.url is None or is_same(place.url, url)]
    key = next((place.key for place in fitting if place.key), None)
    agent = next((place.agent for place in fitting if place.agent), None)
    return Api(url, key, agent)


def _places(settings: Settings, flags: Flags, running: bool) -> Iterator[Place]:
    """Who says something, the first to be believed first; URL and key may come from two of them."""
    yield Place(flags.url, None, flags.agent)
    yield Place(None, flags.key)
    if flags.profile:
        yield _profile(flags.profile)
    yield Place(os.environ.get("BOYD_URL"))
    yield Place(None, os.environ.get("BOYD_API_KEY"), settings.agent)
    if not flags.profile:
        yield _profile(os.environ.get("BOYD_PROFILE") or None)
    if running:
        yield _running(settings)


def _profile(name: str | None) -> Place:
    profile = read_profile(name)
    return Place(profile.url, profile.key, profile.agent) if profile else Place()


def _running(settings: Settings) -> Place:
    runtime = read_runtime(settings.state_dir)
    if runtime is None or runtime.api_url is None:
        return Place()
    return Place(runtime.api_url, read_key(settings.state_dir), runtime.agent)


def is_same(one: str, other: str) -> bool:
    """Whether both URLs are of one API."""
    return one.rstrip("/") == other.rstrip("/")


#: The most that one page may hold.
PAGE = 500


def runs(api: Api, **query: object) -> Iterator[Run]:
    """Runs, newest first, as many as there are."""
    cursor: str | None = None
    while True:
        page = api.agent.get("/runs", RunPage, **query, cursor=cursor)
        yield from page.runs
        cursor = page.next_cursor
        if cursor is None:
            return


def investigations(api: Api, **query: object) -> Iterator[Investigation]:
    """Investigations, newest first, as many as there are."""
    cursor: str | None = None
    while True:
        page = api.agent.get("/investigations", InvestigationPage, **query, cursor=cursor)
        yield from page.investigations
        cursor = page.next_cursor
        if cursor is None:
            return


def entries(api: Api, investigation: str, after: str | None = None) -> Iterator[Logged]:
    """What the log of an investigation has by now after *after*, oldest first."""
    path = f"/investigations/{quote(investigation, safe='')}/log"
    last: str | None = after
    while True:
        page = api.agent.get(path, LogPage, after=last, limit=PAGE)
        yield from page.entries
        last = page.next_after
        if last is None:
            return


def executions(api: Api, limit: int, **query: object) -> list[ExecutionEntry]:
    """The newest executions that fit, so many at most."""
    found: list[ExecutionEntry] = []
    cursor: str | None = None
    while True:
        wanted = min(limit - len(found), PAGE)
        page = api.agent.get("/executions", ExecutionPage, **query, limit=wanted, cursor=cursor)
        found += page.executions
        cursor = page.next_cursor
        if cursor is None or len(found) >= limit:
            return found


def approvals(api: Api, *, history: bool) -> Iterator[ApprovalQueue]:
    """The queue of approvals, page by page."""
    cursor: str | None = None
    while True:
        query = {"includeHistory": history, "limit": PAGE, "cursor": cursor}
        page = api.agent.get("/approvals", ApprovalQueue, **query)
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return
