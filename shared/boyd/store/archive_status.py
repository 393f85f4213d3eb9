"""The states of archive and traces, each under one key for everybody who reports on it."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError

from boyd.models.archived import ArchiveStatus, FollowerStatus, TraceStatus
from boyd.store.keys import ARCHIVE, TRACES
from boyd.store.server.connection import Client, translated
from boyd.store.timing import milliseconds

_S = TypeVar("_S", bound=FollowerStatus)

#: Seconds to remember a process that says nothing any more.
REMEMBERED = 7 * 86_400.0


def announce_archive(client: Client, status: ArchiveStatus) -> None:
    """Announce the state; a process that works is not replaced by one that does not."""
    _announce(client, ARCHIVE, status, gives_way=status.down_since is not None)


def announce_traces(client: Client, status: TraceStatus) -> None:
    """Announce the state; a process that works is not replaced by one that does not, or waits."""
    _announce(client, TRACES, status, gives_way=status.standby or status.down_since is not None)


def read_archive_status(client: Client) -> ArchiveStatus | None:
    """The last announcement; None when no archive has run for a week, or it cannot be read."""
    with translated():
        text = client.get(ARCHIVE)
    return parse_status(ArchiveStatus, text)


def read_trace_status(client: Client) -> TraceStatus | None:
    """The last announcement; None when no process has run for a week, or it cannot be read."""
    with translated():
        text = client.get(TRACES)
    return parse_status(TraceStatus, text)


def parse_status(kind: type[_S], text: str | None) -> _S | None:
    """An announcement; None for none, and for one of a later release that cannot be read."""
    try:
        return kind.from_json(text) if text else None
    except ValidationError:
        return None


def _announce(client: Client, key: str, status: FollowerStatus, *, gives_way: bool) -> None:
    with translated():
        other = parse_status(type(status), client.get(key)) if gives_way else None
        if other is not None and other.name != status.name and other.works_at(status.at):
            return
        client.set(key, status.to_json(), px=milliseconds(REMEMBERED))
