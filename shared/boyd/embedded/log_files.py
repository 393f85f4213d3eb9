"""Log files of children: appended to, rotated by copying, quoted when something fails."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from boyd.embedded.state_folder import private_folder

ROTATE_BYTES = 10 * 1024 * 1024
TAIL_BYTES = 16 * 1024


def log_path(state: Path, name: str) -> Path:
    """Where the child *name* logs; makes the folder.

    Raises:
        ConfigError: the folder cannot be used.
    """
    return private_folder(state / "logs") / f"{name}.log"


def open_log(path: Path) -> int:
    """A descriptor that appends to *path*, whatever else writes there or truncates it."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def size(path: Path) -> int:
    """Bytes in *path*, 0 when there is none."""
    with suppress(OSError):
        return path.stat().st_size
    return 0


def rotate(path: Path, limit: int = ROTATE_BYTES) -> None:
    """Move what *path* holds to `<path>.1` once it has more than *limit* bytes.

    The child keeps its descriptor, so the file is copied and emptied; what is written between the
    two steps is lost. On a full disk nothing happens.
    """
    if size(path) <= limit:
        return
    copy = path.with_name(f"{path.name}.1")
    try:
        shutil.copyfile(path, copy)
        copy.chmod(0o600)
        os.truncate(path, 0)
    except OSError:
        copy.unlink(missing_ok=True)


def last_lines(path: Path, count: int = 10, since: int = 0) -> list[str]:
    """The last *count* lines that are not blank, of what came after *since* bytes."""
    end = size(path)
    since = since if since <= end else 0  # it has been rotated
    try:
        with path.open("rb") as file:
            file.seek(max(since, end - TAIL_BYTES))
            text = file.read(TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()][-count:]
