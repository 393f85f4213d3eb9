"""A message queue as the plugin sees it, whatever keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from boyd.models import JsonObject
from boyd.plugin import Context

#: The most bytes of a message that a preview shows.
SHOWN = 200


class QueueError(Exception):
    """The server cannot be reached, or refused something."""


class ChangeLost(QueueError):
    """The connection ended during a change, which may have been made."""


@dataclass(frozen=True)
class MessageQueue:
    """A queue.

    Attributes:
        name: with its virtual host, if there are several: `vhost/queue`.
        depth: messages that wait.
        unacked: messages that consumers have taken and not acknowledged.
        consumers: None if the server does not know.
        age: seconds that the oldest message waits; None if nobody knows.
        head: of a list, a digest of its oldest message, by which others tell its age.
        down: the state of a queue that does not work, whose figures nobody knows; else empty.
    """

    name: str
    depth: int
    unacked: int | None = None
    consumers: int | None = None
    age: float | None = None
    head: str = ""
    down: str = ""

    def data(self) -> JsonObject:
        """The queue as observations and tools show it; what is not known is left out."""
        figures = {"depth": self.depth, "unacked": self.unacked, "consumers": self.consumers}
        age = None if self.age is None else round(self.age)
        data = {"queue": self.name, **figures, "ageSeconds": age, "state": self.down or None}
        return {key: value for key, value in data.items() if value is not None}


class MessageServer(Protocol):
    """A server with queues."""

    def queues(self, ctx: Context) -> Sequence[MessageQueue]:
        """The queues; raises `QueueError`."""

    def samples(self, queue: str, number: int, ctx: Context) -> list[str]:
        """The beginnings of some messages, oldest first; raises `QueueError`."""

    def check_purge(self, queue: str) -> None:
        """Refuse what `purge` would refuse; raises `QueueError`."""

    def check_requeue(self, queue: str, to: str | None, ctx: Context) -> None:
        """Refuse what `requeue` would refuse; raises `QueueError`."""

    def purge(self, queue: str, ctx: Context) -> int | None:
        """Delete all messages that wait; how many, if the server says. Raises `QueueError`."""

    def requeue(self, queue: str, to: str | None, most: int, ctx: Context) -> int:
        """Move messages to another queue; how many. Raises `QueueError`."""


def excerpt(message: bytes | str) -> str:
    """The beginning of a message."""
    text = message if isinstance(message, str) else message.decode("utf-8", "replace")
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
