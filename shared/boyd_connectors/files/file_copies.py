"""Copies of files within an open folder, packed or plain; what is half done is removed again."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

from boyd_connectors.files.file_set import OWN, FilesError, escape
from boyd_connectors.files.removal import rename_no_replace

_CHUNK = 1_048_576
_LINKLESS = os.O_NOFOLLOW | os.O_CLOEXEC


def copy_and_empty(folder: int, name: str, new: str) -> None:
    """Copy a file and empty it; raises `OSError` if it cannot be copied, and leaves it alone."""
    with os.fdopen(os.open(name, os.O_RDWR | _LINKLESS, dir_fd=folder), "r+b") as source:
        _write(folder, new, lambda target: _copy(source, target), source.fileno())
        source.truncate(0)


def copy_back(folder: int, name: str, emptied: str) -> None:
    """Write a copy back to the file that was emptied, and remove the copy.

    Raises:
        FilesError: something has been written to that file since.
        OSError: it cannot be written.
    """
    handle = os.open(emptied, os.O_RDWR | os.O_APPEND | _LINKLESS, dir_fd=folder)
    with (
        os.fdopen(handle, "r+b", buffering=0) as target,
        os.fdopen(os.open(name, os.O_RDONLY | _LINKLESS, dir_fd=folder), "rb") as source,
    ):
        if os.fstat(handle).st_size:
            raise FilesError(f"{escape(emptied)} was written to since: it stays")
        try:
            _copy(source, target)
        except OSError:
            target.truncate(0)
            raise
    os.unlink(name, dir_fd=folder)


def compress(folder: int, name: str) -> None:
    """Replace a file by `name.gz`.

    Raises:
        FilesError: it was written to meanwhile.
        OSError: it cannot be read, or there is no room.
    """
    draft = f"{OWN}{name}.gz"
    with suppress(FileNotFoundError):  # of one that was interrupted
        os.unlink(draft, dir_fd=folder)
    with os.fdopen(os.open(name, os.O_RDONLY | _LINKLESS, dir_fd=folder), "rb") as source:
        before = os.fstat(source.fileno())
        _write(folder, draft, lambda target: _pack(source, target), source.fileno())
        after = os.fstat(source.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        os.unlink(draft, dir_fd=folder)
        raise FilesError("it was written to meanwhile")
    rename_no_replace(folder, draft, folder, f"{name}.gz")
    os.unlink(name, dir_fd=folder)


@contextmanager
def plain_copy(folder: int, name: str) -> Iterator[str]:
    """The name of a file with its plain content; a file that is made for it does not stay.

    Raises:
        OSError: it cannot be read, or there is no room.
    """
    if not name.endswith(".gz"):
        yield name
        return
    draft = f"{OWN}{name}.plain"
    with suppress(FileNotFoundError):
        os.unlink(draft, dir_fd=folder)
    with (
        os.fdopen(os.open(name, os.O_RDONLY | _LINKLESS, dir_fd=folder), "rb") as packed,
        gzip.open(packed) as source,
    ):
        _write(folder, draft, lambda target: _copy(source, target), packed.fileno())
    try:
        yield draft
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=folder)


def _write(folder: int, new: str, fill: Callable[[IO[bytes]], None], like: int) -> None:
    """Have *fill* write a new file; its times, mode and owner are those of the open file *like*."""
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _LINKLESS, 0o600, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as target:
            fill(target)
            target.flush()
            stats = os.fstat(like)
            with suppress(PermissionError):
                os.fchown(handle, stats.st_uid, stats.st_gid)
            os.fchmod(handle, stats.st_mode & 0o777)
            os.utime(handle, ns=(stats.st_atime_ns, stats.st_mtime_ns))
            os.fsync(handle)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(new, dir_fd=folder)
        raise


def _copy(source: Any, target: IO[bytes]) -> None:
    shutil.copyfileobj(source, target, _CHUNK)


def _pack(source: IO[bytes], target: IO[bytes]) -> None:
    with gzip.GzipFile("", "wb", fileobj=target) as packed:
        shutil.copyfileobj(source, packed, _CHUNK)
