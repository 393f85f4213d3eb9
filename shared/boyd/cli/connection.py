"""Which API commands ask, and with which key."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import click

from boyd.cli.profiles import profiles_file, read_profile
from boyd.cli.typed import boyd_here
from boyd.embedded.runtime import read_key, read_runtime
from boyd.errors import ConfigError
from boyd.models import LoopStatus

if TYPE_CHECKING:
    from boyd.client import Client
    from boyd.settings import Settings


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
            f"no API is known: start everything with `{boyd_here()} up`"
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
