"""The files that processes have open, as far as this process may see them."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from boyd.text.redaction import clean
from boyd_connectors.files.file_set import escape

#: Seconds, and the most open files that are looked at.
TIME = 3.0
MAX_OPEN = 200_000


@dataclass
class OpenFiles:
    """By device and inode, the process that has a file open; if not `complete`, others may, too."""

    by: dict[tuple[int, int], str] = field(default_factory=dict)
    complete: bool = True


def open_files(files: Collection[tuple[int, int]], deleted_after: float | None = None) -> OpenFiles:
    """Look for processes that have one of *files* open.

    With *deleted_after*, only deleted files count that were not changed for that many seconds:
    inodes of deleted files are reused.
    """
    result, until, left = OpenFiles(), time.monotonic() + TIME, MAX_OPEN
    for process in Path("/proc").glob("[0-9]*"):
        try:
            handles = list((process / "fd").iterdir())
        except PermissionError:
            result.complete = False
            continue
        except OSError:  # it has ended
            continue
        for handle in handles:
            left -= 1
            if left < 0 or time.monotonic() > until:
                result.complete = False
                return result
            with suppress(OSError):
                stats = handle.stat()
                key = (stats.st_dev, stats.st_ino)
                age = time.time() - stats.st_mtime
                counts = deleted_after is None or (not stats.st_nlink and age >= deleted_after)
                if counts and key in files:
                    result.by[key] = _name(process)
    return result


def _name(process: Path) -> str:
    with suppress(OSError):
        name = (process / "comm").read_text(errors="replace").strip()
        return f"{escape(clean(name))} ({process.name})"
    return process.name
