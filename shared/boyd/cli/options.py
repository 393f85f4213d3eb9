"""Options that commands share, and what they lead to: settings, and a store to look into."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from boyd.embedded.runtime import read_runtime
from boyd.errors import ConfigError, UnknownAgent
from boyd.settings import Settings, load_settings
from boyd.store import AgentEntry, AgentStore, Sealing, Store, connect, translated

_Command = Callable[..., Any]


def settings_options(command: _Command) -> _Command:
    """Give *command* the options `--config`, `--redis-url`, `--log-level`, and its settings."""

    @click.option("--config", type=click.Path(path_type=Path), help="Settings file (TOML).")
    @click.option("--redis-url", help="The Redis that holds the state.")
    @click.option(
        "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="What to log."
    )
    @functools.wraps(command)
    def wrapped(
        *args: Any, config: Path | None, redis_url: str | None, log_level: str | None, **more: Any
    ) -> Any:
        given = {"redis_url": redis_url, "log_level": log_level}
        flags = {key: value for key, value in given.items() if value is not None}
        if config is not None:
            os.environ["BOYD_CONFIG"] = str(config.resolve())  # for the processes that we start
        return command(*args, settings=load_settings(flags, config), **more)

    return wrapped


def agents_option(command: _Command) -> _Command:
    """Give *command* the option `--agent`, any number of times: agents to load."""
    return click.option(
        "--agent",
        "agents",
        multiple=True,
        metavar="FILE|MODULE:NAME",
        help="An agent to load; may be given again. Default: the setting `agents`.",
    )(command)


def with_agents(settings: Settings, agents: tuple[str, ...]) -> Settings:
    """The settings with the agents of the command line, if it names any."""
    return settings.model_copy(update={"agents": agents}) if agents else settings


def with_redis(settings: Settings) -> Settings:
    """The settings with a Redis URL: the one that is set, or that of a running `boyd up`.

    Raises:
        ConfigError: there is neither.
    """
    if settings.redis_url:
        return settings
    running = read_runtime(settings.state_dir)
    if running is None:
        raise ConfigError(
            "no Redis: set BOYD_REDIS_URL, or start everything with `boyd up`"
            f" (nothing runs in {settings.state_dir})"
        )
    return settings.model_copy(update={"redis_url": running.redis_url})


def open_store(settings: Settings) -> Store:
    """The store, once Redis has answered.

    Raises:
        ConfigError: no Redis is known.
        StoreUnavailable: it does not answer.
    """
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
    """The agent that is meant: *name*, the setting `agent`, or the only one there is.

    Raises:
        UnknownAgent: it does not exist, or there are several to choose from.
    """
    known = store.fleet.agents()
    wanted = name or settings.agent or (next(iter(known)) if len(known) == 1 else None)
    if not known:
        raise UnknownAgent("no agent has been started against this Redis yet")
    if wanted is None:
        raise UnknownAgent(f"name one of the agents: {', '.join(known)}")
    if wanted not in known:
        raise UnknownAgent(f"no agent {wanted!r}; there are: {', '.join(known)}")
    return known[wanted], store.agent(wanted)
