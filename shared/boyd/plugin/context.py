"""What a plugin's functions are given: the agent, a logger, shared state, HTTP and the time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from boyd.models import Mode, utc_now

if TYPE_CHECKING:
    from boyd.plugin.http import Session

_sessions = threading.local()


class State(Protocol):
    """A plugin's key-value state, shared by all workers; values are anything JSON can hold.

    Every value has a time to live in seconds (a week unless given): state that nobody writes any
    more goes away by itself.
    """

    def get(self, key: str, default: Any = None) -> Any:
        """The value of *key*, or *default*."""

    def get_many(self, keys: list[str]) -> dict[str, Any]:
        """The values of those *keys* that are set, in one round trip."""

    def set(self, key: str, value: Any, ttl: float | None = None) -> None:
        """Set *key*, whoever wrote it last."""

    def compare_and_set(
        self, key: str, expected: Any, value: Any, ttl: float | None = None
    ) -> bool:
        """Set *key* only if it still is *expected* (None: absent); say whether that was so."""

    def update(self, key: str, change: Callable[[Any], Any], ttl: float | None = None) -> Any:
        """Replace *key* by `change(current)` until no other worker came between; the new value."""

    def delete(self, key: str) -> None:
        """Remove *key*."""


@dataclass(frozen=True)
class AgentInfo:
    """Whose plugin this is."""

    id: str
    name: str
    mode: Mode


class _Logger(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        extra = {**(self.extra or {}), **kwargs.get("extra", {})}
        return msg, {**kwargs, "extra": extra}


@dataclass(frozen=True)
class Context:
    """Handed to every function of a plugin as `ctx`.

    `iteration` is None where no iteration is running (`init`, an action a person started).
    """

    agent: AgentInfo
    plugin_id: str
    state: State
    iteration: int | None = None
    now: Callable[[], datetime] = field(default=utc_now)

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines carry agent, plugin and iteration."""
        extra: Mapping[str, object] = {
            "agent": self.agent.id,
            "plugin": self.plugin_id,
            "iteration": self.iteration,
        }
        return _Logger(logging.getLogger(f"boyd.plugin.{self.plugin_id}"), extra)

    @property
    def http(self) -> Session:
        """An HTTP session with time limits, one per thread."""
        if not hasattr(_sessions, "session"):
            from boyd.plugin.http import Session

            _sessions.session = Session()
        session: Session = _sessions.session
        return session
