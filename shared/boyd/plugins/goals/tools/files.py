"""Files below some folders, and nothing else: no link and no `..` leads out of them."""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

#: The most bytes that are read or written at once.
MOST = 256 * 1024
#: The most names of a folder that are told.
NAMES = 500

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK a pipe would be waited for.
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class Files:
    """Reads and writes below those folders, which are opened part by part, following no link."""

    def __init__(self, roots: Sequence[Path]) -> None:
        """Allow what lies below *roots*, which themselves may be links."""
        self._roots = [(Path(os.path.abspath(root)), os.path.realpath(root)) for root in roots]  # noqa: PTH100 - a link stays one

    def read(self, path: str) -> str:
        """The text of a file; of a long one its beginning.

        Raises:
            ValueError: it lies elsewhere, or is no file.
            OSError: it cannot be read.
        """
        folder, name = self._folder_of(path)
        try:
            handle = os.open(name, os.O_RDONLY | _FILE, dir_fd=folder)
        finally:
            os.close(folder)
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise ValueError(f"{path!r} is no file")
            if found.st_nlink > 1:
                raise ValueError(f"{path!r} has other names, which may lie elsewhere (hard links)")
            data = _bytes(handle, MOST + 1)
        finally:
            os.close(handle)
        text = data[:MOST].decode("utf-8", "replace")
        return f"{text}\n[the rest is left out]" if len(data) > MOST else text

    def write(self, path: str, content: str) -> int:
        """Write a file, whole or not at all; how many bytes.

        One that is there is replaced, and keeps its permissions.

        Raises:
            ValueError: it lies elsewhere, is too long, or something is there that is no file.
            OSError: it cannot be written.
        """
        data = content.encode()
        if len(data) > MOST:
            raise ValueError(f"more than {MOST} bytes")
        folder, name = self._folder_of(path)
        try:
            mode = _mode(folder, name)
            if not stat.S_ISREG(mode):
                raise ValueError(f"{path!r} is no file")
            _replace(folder, name, data, stat.S_IMODE(mode) & 0o777)
        finally:
            os.close(folder)
        return len(data)

    def names(self, path: str) -> list[str]:
        """What lies in a folder.

        Raises:
            ValueError: it lies elsewhere.
            OSError: it cannot be read.
        """
        folder = self._walk(self._parts(path))
        try:
            found = sorted(os.listdir(folder))[:NAMES]  # noqa: PTH208 - it is a descriptor
        finally:
            os.close(folder)
        return [os.fsencode(name).decode("utf-8", "replace") for name in found]

    def allows(self, path: str) -> bool:
        """Whether a path lies below one of the folders."""
        try:
            self._parts(path)
        except ValueError:
            return False
        return True

    def _folder_of(self, path: str) -> tuple[int, str]:
        root, *parts = self._parts(path)
        if not parts:
            raise ValueError(f"{path!r} is a folder")
        return self._walk([root, *parts[:-1]]), parts[-1]

    def _parts(self, path: str) -> list[str]:
        """The root that a path lies below, and what follows it."""
        if not self._roots:
            raise ValueError("no folder is allowed: set the option `roots`")
        if "\0" in path:
            raise ValueError("a path holds no null character")
        given = Path(path)
        whole = given if given.is_absolute() else Path(self._roots[0][1]) / given
        if ".." in whole.parts:
            raise ValueError(f"{path!r} must not hold `..`")
        for named, real in self._roots:
            for root in (named, Path(real)):
                if whole.is_relative_to(root):
                    return [real, *whole.relative_to(root).parts]
        raise ValueError(f"{path!r} lies in none of the allowed folders")

    def _walk(self, parts: Sequence[str]) -> int:
        handle = os.open(parts[0], _FOLDER)
        for part in parts[1:]:
            try:
                following = os.open(part, _FOLDER, dir_fd=handle)
            finally:
                os.close(handle)
            handle = following
        return handle


def _bytes(handle: int, most: int) -> bytes:
    found = b""
    while len(found) < most and (chunk := os.read(handle, most - len(found))):
        found += chunk
    return found


def _mode(folder: int, name: str) -> int:
    """The mode of what is there; of a file that anybody may read, if nothing is."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return stat.S_IFREG | 0o644


def _replace(folder: int, name: str, data: bytes, mode: int) -> None:
    draft = f".boyd-{uuid.uuid4().hex}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE
    handle = os.open(draft, flags, 0o600, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(handle, mode)
            os.fsync(handle)
        os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft, dir_fd=folder)
        raise
