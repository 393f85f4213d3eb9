"""Sets of files: what of a folder may be touched, found without following a link anywhere."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from boyd.models import JsonObject

#: The most entries of folders that one scan looks at, and its seconds.
MAX_ENTRIES = 200_000
SCAN_TIME = 5.0
#: What Boyd makes beside the files begins with this, and belongs to no set.
OWN = ".boyd-"
#: A file on its way to be deleted; one that was left behind is deleted the next time.
DOOMED = f"{OWN}delete-"

_ESCAPE = re.compile(rb"\\(\\|x[0-9a-f]{2})")
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class FilesError(Exception):
    """Files cannot be read or changed as it was wanted."""


def _plain(path: Path) -> Path:
    if not path.is_absolute() or ".." in path.parts or len(path.parts) < 2:
        raise ValueError("needs an absolute path below / without `..`")
    return path


class Rotation(BaseModel):
    """A way to rotate files: by another name and a signal, or by a copy.

    Attributes:
        pid_file: the file with the id of the process that writes the files.
        process: the name of that process, so that no other one gets the signal.
        signal: has it open its files anew.
        copy_truncate: copy the file and empty it, for programs that cannot open it anew; what they
            write in between is lost.
        compress: compress rotated files once nobody writes them any more.
        keep: how many rotated files stay; older ones go to the trash. By default all stay.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    pid_file: Path | None = None
    process: str | None = None
    signal: Literal["HUP", "USR1", "USR2"] = "HUP"
    copy_truncate: bool = False
    compress: bool = True
    keep: int | None = Field(default=None, ge=1, le=1000)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.pid_file is None) != (self.process is None):
            raise ValueError("pid_file and process need each other")
        if self.pid_file and self.copy_truncate:
            raise ValueError("either pid_file or copy_truncate: a copy needs no signal")
        return self


class FileSet(BaseModel):
    """Files of a folder that are watched together, and that actions may touch.

    Attributes:
        name: names it in observations and actions.
        root: the folder, without links in its path; other file systems below it do not belong to
            it.
        patterns: those of the names.
        depth: how many folders deep to look.
        old_after: seconds without a change after which a file is old.
        max_bytes: larger files are reported.
        trash_keep: seconds for which the trash keeps files at least.
        rotation: how to rotate its files.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,59}$")
    root: Annotated[Path, AfterValidator(_plain)]
    patterns: list[str] = Field(min_length=1, max_length=50)
    depth: int = Field(default=0, ge=0, le=20)
    old_after: float = Field(default=604_800.0, ge=1)
    max_bytes: int | None = Field(default=None, ge=1)
    trash_keep: float = Field(default=604_800.0, ge=0)
    rotation: Rotation | None = None

    @model_validator(mode="after")
    def _names(self) -> Self:
        if any("/" in pattern for pattern in self.patterns):
            raise ValueError("patterns are those of names, without `/`")
        return self

    def matches(self, name: str) -> bool:
        """True if a file with that name belongs to the set."""
        return not name.startswith(OWN) and any(
            fnmatchcase(name, pattern) for pattern in self.patterns
        )

    def below(self, path: str) -> list[str]:
        """The folders and the name that lead from the root to an absolute *path*.

        Raises:
            FilesError: it does not belong to the set.
        """
        root = f"{self.root}/"
        parts = path.removeprefix(root).split("/")
        strange = {"", ".", ".."} & set(parts) or any(part.startswith(OWN) for part in parts[:-1])
        doomed = parts[-1].startswith(DOOMED)
        if not path.startswith(root) or strange or not (self.matches(parts[-1]) or doomed):
            raise FilesError(f"{escape(path)} is not among the files of the set {self.name}")
        if len(parts) > self.depth + 1:
            raise FilesError(f"{escape(path)} is deeper than the set {self.name} goes")
        return parts

    @contextmanager
    def open_root(self) -> Iterator[int]:
        """Its root as an open folder.

        Raises:
            FilesError: there is no such folder, a link leads to it, or it may not be read.
        """
        with open_folder(None, self.root.parts[1:], str(self.root)) as folder:
            yield folder


class FoundFile(NamedTuple):
    """A file as it was seen; `blocks` are the bytes that it occupies, as the only name of it."""

    path: str
    size: int
    modified: int
    device: int
    inode: int
    blocks: int

    @property
    def key(self) -> tuple[int, int]:
        """Its identity among all open files."""
        return self.device, self.inode

    @property
    def age(self) -> float:
        """Seconds since its last change."""
        return time.time() - self.modified / 1e9

    def approval_entry(self) -> JsonObject:
        """The file as the approver saw it; differs once the file changes."""
        seconds, rest = divmod(self.modified, 10**9)
        try:
            at = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"
        except (ValueError, OverflowError):
            at = f"{self.modified} ns"
        inode = f"{self.device}:{self.inode}"
        return {"path": escape(self.path), "bytes": self.size, "modified": at, "inode": inode}


def file_at(folder: int, name: str, path: str) -> FoundFile:
    """A file of an open folder.

    Raises:
        FilesError: it is no regular file.
        OSError: it cannot be seen.
    """
    return _file_of(os.stat(name, dir_fd=folder, follow_symlinks=False), path)


def _file_of(stats: os.stat_result, path: str) -> FoundFile:
    if not stat.S_ISREG(stats.st_mode):
        raise FilesError(f"{escape(path)} is no regular file")
    blocks = stats.st_blocks * 512 if stats.st_nlink == 1 else 0
    size, modified = stats.st_size, stats.st_mtime_ns
    return FoundFile(path, size, modified, stats.st_dev, stats.st_ino, blocks)


class SetScan:
    """One look at the files of a set, bounded in time and number.

    Attributes:
        cut: whether there was more than the bounds permit.
        unreadable: the number of folders that could not be read.
    """

    def __init__(self, file_set: FileSet) -> None:
        self.cut = False
        self.unreadable = 0
        self._set = file_set
        self._left = MAX_ENTRIES
        self._until = time.monotonic() + SCAN_TIME

    def files(self) -> Iterator[FoundFile]:
        """The files, in no order, with those that an interrupted deletion has left.

        Raises:
            FilesError: its root cannot be read.
        """
        path = str(self._set.root)
        with self._set.open_root() as root:
            try:
                device = os.fstat(root).st_dev
                yield from self._folder(root, path, device, self._set.depth)
            except OSError as error:
                raise FilesError(f"{escape(path)}: {error.strerror}") from None

    def _folder(self, folder: int, path: str, device: int, depth: int) -> Iterator[FoundFile]:
        with os.scandir(folder) as entries:
            for entry in entries:
                if self._is_over():
                    return
                below = f"{path}/{entry.name}"
                if self._set.matches(entry.name) or entry.name.startswith(DOOMED):
                    with suppress(OSError, FilesError):  # it is gone, or no file
                        yield _file_of(entry.stat(follow_symlinks=False), below)
                if depth and not entry.name.startswith(OWN) and entry.is_dir(follow_symlinks=False):
                    yield from self._below(folder, entry.name, below, device, depth - 1)

    def _below(
        self, folder: int, name: str, path: str, device: int, depth: int
    ) -> Iterator[FoundFile]:
        try:
            with open_folder(folder, [name], path) as child:
                if os.fstat(child).st_dev == device:
                    yield from self._folder(child, path, device, depth)
        except (FilesError, OSError):
            self.unreadable += 1

    def _is_over(self) -> bool:
        self._left -= 1
        self.cut = self.cut or self._left < 0 or time.monotonic() > self._until
        return self.cut


@contextmanager
def open_folder(start: int | None, names: Sequence[str], path: str) -> Iterator[int]:
    """The folder that *names* lead to from *start*, or from /, without following a link.

    Raises:
        FilesError: it cannot be opened; *path* is what to call it.
    """
    handle = os.open("/", _FOLDER | os.O_PATH) if start is None else os.dup(start)
    try:
        for number, name in enumerate(names, 1):
            # Folders on the way need not be readable.
            flags = _FOLDER | (os.O_PATH if number < len(names) else os.O_RDONLY)
            above, handle = handle, os.open(name, flags, dir_fd=handle)
            os.close(above)
    except OSError as error:
        os.close(handle)
        reason = (
            "is no folder, or a link" if isinstance(error, NotADirectoryError) else error.strerror
        )
        raise FilesError(f"{escape(path)}: {reason}") from None
    try:
        yield handle
    finally:
        os.close(handle)


def escape(path: str) -> str:
    r"""A path as text: what cannot be printed is escaped as `\xNN`, a backslash as `\\`."""
    return "".join(_escape(char) for char in path)


def _escape(char: str) -> str:
    if char == "\\":
        return "\\\\"
    return char if char.isprintable() else "".join(f"\\x{byte:02x}" for byte in os.fsencode(char))


def path_of(text: str) -> str:
    """Undo `escape`; raises `FilesError` if the text cannot come from it."""
    try:
        raw = _ESCAPE.sub(lambda match: _byte(match[1]), text.encode())
        path = os.fsdecode(raw)
    except ValueError:
        path = ""
    if escape(path) != text:
        raise FilesError(f"{text!r} is no path as observations name it")
    return path


def _byte(escape: bytes) -> bytes:
    return b"\\" if escape == b"\\" else bytes([int(escape[1:], 16)])
