"""The state of the archive, announced under one key for everybody who reports on it."""

from __future__ import annotations

from pydantic import ValidationError

from boyd.models.archived import ArchiveStatus
from boyd.store.connection import Client, translated
from boyd.store.keys import ARCHIVE
from boyd.store.timing import milliseconds

#: Seconds to remember an archive that says nothing any more.
REMEMBERED = 7 * 86_400.0


def announce_archive(client: Client, status: ArchiveStatus) -> None:
    """Announce the state; a process that works is not replaced by one that does not."""
    other = read_archive_status(client) if status.down_since is not None else None
    if other is not None and other.name != status.name and other.works_at(status.at):
        return
    with translated():
        client.set(ARCHIVE, status.to_json(), px=milliseconds(REMEMBERED))


def read_archive_status(client: Client) -> ArchiveStatus | None:
    """The last announcement; None when no archive has run for a week, or it cannot be read."""
    with translated():
        text = client.get(ARCHIVE)
    return parse_archive_status(text)


def parse_archive_status(text: str | None) -> ArchiveStatus | None:
    """An announcement; None for none, and for one of a later release that cannot be read."""
    try:
        return ArchiveStatus.from_json(text) if text else None
    except ValidationError:
        return None
