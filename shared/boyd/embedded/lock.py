"""One `boyd up` per state folder.

The lock is the kernel's (flock): it goes away with the process however that dies, so a file left
behind never stands in the way.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from boyd.embedded.files import private_folder
from boyd.errors import ConfigError

LOCK_FILE = "boyd.lock"
# Long enough for a reader's short test of the lock, or for a killed predecessor to be gone.
PATIENCE_SECONDS = 0.5


@contextmanager
def state_lock(state: Path) -> Iterator[None]:
    """Hold the state folder for this process; makes the folder if need be.

    Raises:
        ConfigError: another `boyd up` holds it, or the folder cannot be used.
    """
    folder = private_folder(state)
    path = folder / LOCK_FILE
    lock = open_locked(path, PATIENCE_SECONDS)
    if lock is None:
        pid = _written_pid(path)
        whose = f" (pid {pid})" if pid else ""
        raise ConfigError(f"boyd up is already running in {folder}{whose}")
    try:
        os.ftruncate(lock, 0)
        os.write(lock, f"{os.getpid()}\n".encode())
        yield
    finally:
        # Emptied, not removed: a removed file could be locked twice, once by its old name.
        with suppress(OSError):
            os.ftruncate(lock, 0)
        os.close(lock)


def lock_holder(state: Path) -> int | None:
    """The pid of the `boyd up` that holds the state folder; None when there is none."""
    path = state / LOCK_FILE
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return None if _lock(descriptor, fcntl.LOCK_SH) else _written_pid(path)
    finally:
        os.close(descriptor)


def open_locked(path: Path, patience: float) -> int | None:
    """Open *path* and lock it; None when someone else holds it for *patience* seconds.

    The lock lives as long as the descriptor and all its copies in children.

    Raises:
        ConfigError: the file cannot be opened or locked.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot open {path}: {error.strerror}") from None
    deadline = time.monotonic() + patience
    try:
        while not _lock(descriptor, fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return None
            time.sleep(0.02)
    except OSError as error:
        os.close(descriptor)
        raise ConfigError(f"cannot lock {path}: {error.strerror}") from None
    return descriptor


def _lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _written_pid(path: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii"))
    return None
