"""Log files of children: opened for appending, rotated by copying, quoted in errors."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from boyd.embedded.state_folder import private_folder

ROTATE_BYTES = 10 * 1024 * 1024
TAIL_BYTES = 16 * 1024


def log_path(state: Path, name: str) -> Path:
    """The log file of child *name*; creates its folder.

    Raises:
        ConfigError: the folder cannot be used.
    """
    return private_folder(state / "logs") / f"{name}.log"


def open_log(path: Path) -> int:
    """A descriptor that appends to *path*, even after truncation."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def size(path: Path) -> int:
    """The size of *path* in bytes; 0 if it does not exist."""
    with suppress(OSError):
        return path.stat().st_size
    return 0


def rotate(path: Path, limit: int = ROTATE_BYTES) -> None:
    """Move the content of *path* to `<path>.1` if it exceeds *limit* bytes.

    The child keeps its descriptor, so the file is copied and emptied; lines written between the two
    steps are lost. Nothing happens on a full disk.
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
    """The last *count* non-blank lines behind offset *since*."""
    end = size(path)
    since = since if since <= end else 0  # it was rotated
    try:
        with path.open("rb") as file:
            file.seek(max(since, end - TAIL_BYTES))
            text = file.read(TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()][-count:]
