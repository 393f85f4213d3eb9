"""The files that processes have open, as far as this process may see them."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from boyd.text.redaction import clean
from boyd_connectors.files.file_set import shown

#: Seconds, and the most open files that are looked at.
TIME = 3.0
MAX_OPEN = 200_000


@dataclass
class OpenFiles:
    """By device and inode, the process that has a file open; not `complete`: others may, too."""

    by: dict[tuple[int, int], str] = field(default_factory=dict)
    complete: bool = True


def open_files(
    wanted: Collection[tuple[int, int]], deleted_after: float | None = None
) -> OpenFiles:
    """Look for processes that have one of the *wanted* files open.

    With *deleted_after* only deleted files count that were not changed for so many seconds: others
    have got the inodes of deleted ones.
    """
    found, until, left = OpenFiles(), time.monotonic() + TIME, MAX_OPEN
    for process in Path("/proc").glob("[0-9]*"):
        try:
            handles = list((process / "fd").iterdir())
        except PermissionError:
            found.complete = False
            continue
        except OSError:  # it has ended
            continue
        for handle in handles:
            left -= 1
            if left < 0 or time.monotonic() > until:
                found.complete = False
                return found
            with suppress(OSError):
                seen = handle.stat()
                key = (seen.st_dev, seen.st_ino)
                age = time.time() - seen.st_mtime
                gone = deleted_after is None or (not seen.st_nlink and age >= deleted_after)
                if gone and key in wanted:
                    found.by[key] = _name(process)
    return found


def _name(process: Path) -> str:
    with suppress(OSError):
        name = (process / "comm").read_text(errors="replace").strip()
        return f"{shown(clean(name))} ({process.name})"
    return process.name
