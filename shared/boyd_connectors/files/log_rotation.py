"""One rotation of a file, and its reversal.

Copies, packed or plain, are made within the open folder; what is half done is removed again.
"""

from __future__ import annotations

import fcntl
import gzip
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any

import psutil

from boyd.models import JsonObject
from boyd_connectors.files.file_set import (
    OWN,
    FilesError,
    FileSet,
    FoundFile,
    Rotation,
    escape,
    file_at,
    open_folder,
    path_of,
)
from boyd_connectors.files.open_files import open_files
from boyd_connectors.files.removal import Trash, rename_no_replace

_STAMP = "%Y%m%dT%H%M%SZ"
#: Seconds for a process to open its files anew, until its file is left to the next rotation.
REOPEN = 5.0
#: The most files that one rotation compresses.
MAX_COMPRESSED = 5
#: Seconds by which the start of a process may seem later than its pid file.
_SLACK = 2.0
_CHUNK = 1_048_576
_LINKLESS = os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class RotationPlan:
    """The state before a rotation: the file, its rotated ones (oldest first), and who writes it."""

    file: FoundFile
    rotated: list[str]
    writer: psutil.Process | None


class LogRotation:
    """The rotation of the file of a set at *path*, which has options for it."""

    def __init__(self, file_set: FileSet, options: Rotation, path: str) -> None:
        self._set = file_set
        self._options = options
        self._path = path
        self._parts = file_set.below(path)
        self._name = self._parts[-1]

    def plan(self) -> RotationPlan:
        """Look at everything; raises `FilesError` if it cannot be rotated now."""
        with self._lock() as (_, folder):
            return self._plan(folder)

    def rotate(self, agreed: JsonObject | None) -> JsonObject:
        """Rotate the file, if it is still the one that was *agreed* to.

        Raises:
            FilesError: nothing was changed.
        """
        with self._lock() as (root, folder):
            plan = self._plan(folder)
            if agreed and agreed.get("inode") != plan.file.approval_entry()["inode"]:
                raise FilesError(f"{escape(self._path)} is another file than was agreed to")
            new = f"{self._name}-{datetime.now(UTC):{_STAMP}}"
            if self._options.copy_truncate:
                self._copy(folder, new)
            else:
                self._rename(folder, new, plan)
            notes: list[str] = []
            packed = self._compress(folder, [*plan.rotated, new], plan.file, notes)
            batch, dropped = self._drop(root, folder, notes)
        done = f"{new}.gz" if new in packed else new
        return {
            "path": escape(self._path),
            "inode": plan.file.approval_entry()["inode"],
            "bytes": plan.file.size,
            "rotated": escape(self._beside(done)),
            "compressed": [escape(self._beside(f"{name}.gz")) for name in packed],
            "batch": batch,
            "dropped": list(dropped),
            "notes": list(notes),
        }

    def undo(self, done: Any) -> JsonObject:
        """Put the rotated file back; what was written since stays beside it.

        Raises:
            FilesError: it cannot be put back.
        """
        rotated, aside, notes = _last(done["rotated"]), "", list[str]()
        with self._lock() as (root, folder):
            try:
                with _plain_copy(folder, rotated) as name:
                    if self._options.copy_truncate:
                        _copy_back(folder, name, self._name)
                    else:
                        aside = self._rename_back(folder, name)
                with suppress(FileNotFoundError):
                    os.unlink(rotated, dir_fd=folder)
            except OSError as error:
                raise FilesError(f"{escape(self._path)}: {error.strerror or error}") from None
            self._take_back(root, done, notes)
        try:
            self._signal(self._writer())
        except FilesError as error:
            notes.append(f"the process may go on writing to another file: {error}")
        return {"path": escape(self._path), "aside": aside, "notes": list(notes)}

    def _take_back(self, root: int, done: Any, notes: list[str]) -> None:
        with Trash(self._set, root) as trash:
            for entry in done["dropped"]:
                try:
                    trash.restore(done["batch"], [*self._parts[:-1], _last(entry["path"])], entry)
                except (FilesError, OSError) as error:
                    notes.append(f"{entry['path']} stays in the trash: {error}")

    def effect(self, done: Any) -> tuple[bool, str]:
        """Check that the file was rotated; returns the result and the evidence.

        *done* is the output of the rotation or, without it, of its dry run.

        Raises:
            FilesError: its folder cannot be read.
        """
        if self._options.copy_truncate and "rotated" not in done:
            raise FilesError("the name of the copy is not known")
        device, inode = map(int, str(done["inode"]).split(":"))
        with (
            self._set.open_root() as root,
            open_folder(root, self._parts[:-1], self._path) as folder,
        ):
            current = self._find(folder, self._name)
            # Without the result only the inode tells.
            rotated = _last(done["rotated"]) if "rotated" in done else ""
            rotated = rotated or self._by_inode(folder, (device, inode))
            rotated_file = self._find(folder, rotated) if rotated else None
        if rotated_file is None:
            return False, f"{escape(self._path)} was not rotated"
        text = f"{escape(rotated)} is there"
        if self._options.copy_truncate:
            emptied = current is not None and current.size < int(done["bytes"])
            return (
                emptied,
                f"{text}, and {escape(self._path)} was {'' if emptied else 'not '}emptied",
            )
        holder = open_files([(device, inode)]).by.get((device, inode))
        if holder and rotated_file.key == (device, inode):
            return False, f"{text}, but {holder} still has it open"
        return True, f"{text}, and a new file {'is' if current else 'will be made'}"

    def _plan(self, folder: int) -> RotationPlan:
        try:
            file = file_at(folder, self._name, self._path)
        except OSError as error:
            raise FilesError(f"{escape(self._path)}: {error.strerror}") from None
        if file.size == 0:
            raise FilesError(f"{escape(self._path)} is empty")
        return RotationPlan(file, self._archives(folder), self._writer())

    def _writer(self) -> psutil.Process | None:
        """The process that the pid file names, never another one that has its id now."""
        path, name = self._options.pid_file, self._options.process
        if path is None:
            return None
        try:
            with path.open("rb") as file:
                process = psutil.Process(int(file.read(32)))
            if process.name() != name:
                raise FilesError(f"{path} names a process {process.name()!r}, not {name!r}")
            if process.create_time() > path.stat().st_mtime + _SLACK:
                raise FilesError(f"{path} is older than the process that it names")
        except (OSError, ValueError, psutil.Error) as error:
            raise FilesError(f"{path}: names no process that runs: {error}") from None
        return process

    def _signal(self, writer: psutil.Process | None) -> None:
        """Signal it; `psutil` never hits another process that has its id meanwhile."""
        if writer is None:
            return
        try:
            writer.send_signal(getattr(signal, f"SIG{self._options.signal}"))
        except psutil.Error as error:
            raise FilesError(f"{self._options.process} cannot be signalled: {error}") from None

    def _rename(self, folder: int, new: str, plan: RotationPlan) -> None:
        if self._find(folder, new):
            raise FilesError(f"{escape(self._beside(new))} is there already")
        try:
            os.rename(self._name, new, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as error:
            raise FilesError(f"{escape(self._path)} cannot be renamed: {error.strerror}") from None
        try:
            self._signal(plan.writer)
        except FilesError as error:
            rename_no_replace(folder, new, folder, self._name)
            raise FilesError(f"nothing was changed: {error}") from None

    def _copy(self, folder: int, new: str) -> None:
        try:
            _copy_and_empty(folder, self._name, new)
        except OSError as error:
            reason = error.strerror
            raise FilesError(f"nothing was changed: {escape(self._path)}: {reason}") from None

    def _compress(
        self, folder: int, names: list[str], file: FoundFile, notes: list[str]
    ) -> list[str]:
        """Compress rotated files that nobody has open; those that it has compressed."""
        if not self._options.compress:
            return []
        plain = [name for name in names if not name.endswith(".gz")][-MAX_COMPRESSED:]
        packed = []
        for name in plain:
            last = name == names[-1] and not self._options.copy_truncate
            if last and not self._is_closed(file.key):
                notes.append(f"{escape(name)} is compressed with the next rotation: it may be open")
                continue
            try:
                _compress_file(folder, name)
            except (OSError, FilesError) as error:
                notes.append(f"{escape(name)} was not compressed: {error}")
            else:
                packed.append(name)
        return packed

    def _is_closed(self, key: tuple[int, int]) -> bool:
        """Wait for the process to open its file anew; false also if that cannot be seen."""
        until = time.monotonic() + REOPEN
        while (holders := open_files([key])).by and time.monotonic() < until:
            time.sleep(0.05)
        return holders.complete and not holders.by

    def _drop(self, root: int, folder: int, notes: list[str]) -> tuple[str, list[JsonObject]]:
        """Move rotated files to the trash that are more than those to keep."""
        keep, dropped = self._options.keep, []
        with Trash(self._set, root) as trash:
            for name in self._archives(folder)[:-keep] if keep else ():
                try:
                    file = file_at(folder, name, self._beside(name))
                    trash.put(folder, [*self._parts[:-1], name], file)
                    dropped.append(file.approval_entry())
                except (OSError, FilesError) as error:
                    notes.append(f"{escape(name)} stays: {error}")
            return trash.batch, dropped

    def excess(self, plan: RotationPlan) -> list[str]:
        """The rotated files that a rotation moves to the trash."""
        keep = self._options.keep
        dropped = plan.rotated[: max(0, len(plan.rotated) + 1 - keep)] if keep else []
        return [escape(self._beside(name)) for name in dropped]

    def _rename_back(self, folder: int, name: str) -> str:
        """Give the file its name back; the name of the file that has it now."""
        aside = ""
        if self._find(folder, self._name):
            aside = f"{self._name}-{datetime.now(UTC):{_STAMP}}"
            rename_no_replace(folder, self._name, folder, aside)
        rename_no_replace(folder, name, folder, self._name)
        return escape(self._beside(aside)) if aside else ""

    @contextmanager
    def _lock(self) -> Iterator[tuple[int, int]]:
        """The root and the folder of the file; one rotation in a folder at a time."""
        with (
            self._set.open_root() as root,
            open_folder(root, self._parts[:-1], self._path) as folder,
        ):
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise FilesError(f"{escape(self._path)}: another rotation goes on") from None
            yield root, folder

    def _archives(self, folder: int) -> list[str]:
        return sorted(name for name in os.listdir(folder) if self._is_rotated(name))

    def _is_rotated(self, name: str) -> bool:
        stamp = name.removeprefix(f"{self._name}-").removesuffix(".gz")
        with suppress(ValueError):
            return name.startswith(f"{self._name}-") and bool(datetime.strptime(stamp, _STAMP))
        return False

    def _by_inode(self, folder: int, inode: tuple[int, int]) -> str:
        names = self._archives(folder)
        matches = (
            name for name in names if (file := self._find(folder, name)) and file.key == inode
        )
        return next(matches, "")

    def _find(self, folder: int, name: str) -> FoundFile | None:
        try:
            return file_at(folder, name, self._beside(name))
        except FileNotFoundError:
            return None

    def _beside(self, name: str) -> str:
        return f"{self._path.rpartition('/')[0]}/{name}"


def _last(path: Any) -> str:
    """The name at the end of a path as observations name it."""
    return path_of(str(path)).rpartition("/")[2]


def _copy_and_empty(folder: int, name: str, new: str) -> None:
    """Copy a file and empty it; raises `OSError` if it cannot be copied, and leaves it alone."""
    with os.fdopen(os.open(name, os.O_RDWR | _LINKLESS, dir_fd=folder), "r+b") as source:
        _write_like(folder, new, lambda target: _copy_content(source, target), source.fileno())
        source.truncate(0)


def _copy_back(folder: int, name: str, emptied: str) -> None:
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
            _copy_content(source, target)
        except OSError:
            target.truncate(0)
            raise
    os.unlink(name, dir_fd=folder)


def _compress_file(folder: int, name: str) -> None:
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
        _write_like(folder, draft, lambda target: _pack_content(source, target), source.fileno())
        after = os.fstat(source.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        os.unlink(draft, dir_fd=folder)
        raise FilesError("it was written to meanwhile")
    rename_no_replace(folder, draft, folder, f"{name}.gz")
    os.unlink(name, dir_fd=folder)


@contextmanager
def _plain_copy(folder: int, name: str) -> Iterator[str]:
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
        _write_like(folder, draft, lambda target: _copy_content(source, target), packed.fileno())
    try:
        yield draft
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=folder)


def _write_like(folder: int, new: str, fill: Callable[[IO[bytes]], None], like: int) -> None:
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


def _copy_content(source: Any, target: IO[bytes]) -> None:
    shutil.copyfileobj(source, target, _CHUNK)


def _pack_content(source: IO[bytes], target: IO[bytes]) -> None:
    with gzip.GzipFile("", "wb", fileobj=target) as packed:
        shutil.copyfileobj(source, packed, _CHUNK)
