"""Deletes old files or moves them to a trash, exactly those that a person has approved."""

from __future__ import annotations

import heapq
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

from boyd.models import JsonObject
from boyd_connectors.files.file_set import (
    DOOMED,
    OWN,
    FilesError,
    FileSet,
    FoundFile,
    SetScan,
    escape,
    file_at,
    open_folder,
    path_of,
)
from boyd_connectors.files.open_files import open_files

TRASH = f"{OWN}trash"
#: The most batches, and files of each of them, that are looked at.
MAX_BATCHES = 200
MAX_FILES = 20_000
_STAMP = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True)
class TrashBatch:
    """The files that one execution has moved to the trash."""

    name: str
    inode: int
    files: int
    size: int
    age: float

    def approval_entry(self) -> JsonObject:
        """The batch as the approver saw it; differs once it changes."""
        return {
            "batch": self.name,
            "files": self.files,
            "bytes": self.size,
            "inode": str(self.inode),
        }


class Trash:
    """The trash of a set whose root is open as *root*; a batch is made for the first file."""

    def __init__(self, file_set: FileSet, root: int) -> None:
        self.batch = ""
        self._root = root
        self._path = f"{file_set.root}/{TRASH}"
        self._open = ExitStack()
        self._folder = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def put(self, parent: int, parts: list[str], file: FoundFile) -> None:
        """Move a file of the open folder *parent* to the same place below the batch.

        Raises:
            FilesError: another file has taken its place meanwhile.
            OSError: it cannot be moved.
        """
        if not self.batch:
            self._begin()
        with ExitStack() as folders:
            folder = self._folder
            for name in parts[:-1]:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=folder)
                folder = folders.enter_context(open_folder(folder, [name], self._path))
            move_unchanged(parent, parts[-1], folder, parts[-1], file)

    def restore(self, batch: str, parts: Sequence[str], entry: JsonObject) -> FoundFile:
        """Move a file of a batch back; *entry* is its `approval_entry` from before.

        Raises:
            FilesError: it has changed, or its folder is gone.
            OSError: it is not there, there is a file in its place, or it cannot be moved.
        """
        names, path = [TRASH, batch, *parts[:-1]], f"{self._path}/{batch}"
        with (
            open_folder(self._root, names, path) as source,
            open_folder(self._root, parts[:-1], path) as target,
        ):
            file = file_at(source, parts[-1], path)
            current = {**file.approval_entry(), "path": entry["path"]}
            if current != entry:
                raise FilesError("it was changed in the trash")
            rename_no_replace(source, parts[-1], target, parts[-1])
        return file

    def batches(self) -> list[TrashBatch]:
        """The batches, oldest first."""
        try:
            with open_folder(self._root, [TRASH], self._path) as folder:
                names = sorted(os.listdir(folder))[:MAX_BATCHES]  # noqa: PTH208 - of an open folder
                return [batch for name in names if (batch := _batch(folder, name))]
        except FilesError:
            if not _exists(self._root, TRASH):
                return []
            raise

    def delete(self, batch: TrashBatch) -> None:
        """Delete a batch; no link in it is followed. Raises `OSError`."""
        with open_folder(self._root, [TRASH], self._path) as folder:
            shutil.rmtree(batch.name, dir_fd=folder)

    def _begin(self) -> None:
        with suppress(FileExistsError):
            os.mkdir(TRASH, 0o700, dir_fd=self._root)
        self.batch = f"{datetime.now(UTC):{_STAMP}}-{secrets.token_hex(4)}"
        folder = self._open.enter_context(open_folder(self._root, [TRASH], self._path))
        os.mkdir(self.batch, 0o700, dir_fd=folder)
        self._folder = self._open.enter_context(open_folder(folder, [self.batch], self._path))


def move_unchanged(source: int, name: str, target: int, new: str, file: FoundFile) -> None:
    """Rename a file of an open folder, and check that it is still the same.

    Raises:
        FilesError: it has changed; it got its name back.
        OSError: it cannot be renamed.
    """
    os.rename(name, new, src_dir_fd=source, dst_dir_fd=target)
    try:
        same = file_at(target, new, file.path)[:5] == file[:5]
    except FilesError:
        same = False
    if not same:
        _return(target, new, source, name)
        raise FilesError("it was changed at the last moment")


def rename_no_replace(source: int, name: str, target: int, new: str) -> None:
    """Rename without overwriting anything; raises `OSError`."""
    os.link(name, new, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    os.unlink(name, dir_fd=source)


def _return(source: int, name: str, target: int, new: str) -> None:
    if stat.S_ISDIR(os.stat(name, dir_fd=source, follow_symlinks=False).st_mode):
        os.rename(name, new, src_dir_fd=source, dst_dir_fd=target)  # it overwrites no file
    else:
        rename_no_replace(source, name, target, new)


def _batch(folder: int, name: str) -> TrashBatch | None:
    try:
        at = datetime.strptime(name.partition("-")[0], _STAMP).replace(tzinfo=UTC).timestamp()
        inode, files, size = os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino, 0, 0
        for _, _, names, inside in os.fwalk(name, dir_fd=folder):
            for file_name in names[: MAX_FILES - files]:
                size += os.stat(file_name, dir_fd=inside, follow_symlinks=False).st_blocks * 512
            files += len(names)
    except (ValueError, OSError):  # not Boyd's, or gone
        return None
    return TrashBatch(name, inode, files, size, time.time() - at)


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


#: The most reasons that are told of files that stayed.
MAX_REASONS = 20
#: The most big files that are remembered.
MAX_BIG = 200
#: The most characters of the paths in a list.
MAX_PATHS = 300_000

_Take = Callable[[int, list[str], FoundFile], None]


@dataclass
class OldFiles:
    """The oldest files of a set; `number` and `size` (bytes on disk) are of all old ones."""

    oldest: list[FoundFile] = field(default_factory=list)
    number: int = 0
    size: int = 0
    #: The size and name of the largest of those beyond what the set permits.
    big: list[tuple[int, FoundFile]] = field(default_factory=list)
    cut: bool = False
    unreadable: int = 0


@dataclass
class Removal:
    """The files that are gone, and why others stay; `batch` is their folder in the trash."""

    done: list[FoundFile] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    stayed: int = 0
    batch: str = ""

    def leave(self, path: object, reason: object) -> None:
        """Count a file that stays."""
        self.stayed += 1
        if self.stayed <= MAX_REASONS:
            self.left.append(f"{path}: {reason}")


def old_files(file_set: FileSet, most: int) -> OldFiles:
    """Look for the *most* oldest files, and for big ones; raises `FilesError`."""
    scan, result = SetScan(file_set), OldFiles()

    def old() -> Iterable[FoundFile]:
        for file in scan.files():
            if file_set.max_bytes is not None and file.size > file_set.max_bytes:
                heapq.heappush(result.big, (file.size, file))
                if len(result.big) > MAX_BIG:
                    heapq.heappop(result.big)
            if file.age >= file_set.old_after:
                result.number += 1
                result.size += file.blocks
                yield file

    paths = 0
    for file in heapq.nsmallest(most, old(), key=lambda item: item.modified):
        paths += len(file.path)
        if paths <= MAX_PATHS:
            result.oldest.append(file)
    result.cut, result.unreadable = scan.cut, scan.unreadable
    return result


def delete(file_set: FileSet, agreed: Sequence[JsonObject]) -> Removal:
    """Delete the files of *agreed* that are still the same, old, and not open.

    Each one first gets another name and is looked at again: what has taken its place in the last
    moment gets its name back.

    Raises:
        FilesError: the root of the set cannot be read.
    """
    with file_set.open_root() as root:

        def take(parent: int, parts: list[str], file: FoundFile) -> None:
            doomed = f"{DOOMED}{secrets.token_hex(8)}"
            move_unchanged(parent, parts[-1], parent, doomed, file)
            try:
                os.unlink(doomed, dir_fd=parent)
            except OSError:
                rename_no_replace(parent, doomed, parent, parts[-1])
                raise

        return _each(file_set, root, agreed, take)


def set_aside(file_set: FileSet, agreed: Sequence[JsonObject]) -> Removal:
    """Move them to the trash instead; raises `FilesError` like `delete`."""
    with file_set.open_root() as root, Trash(file_set, root) as trash:
        removal = _each(file_set, root, agreed, trash.put)
        removal.batch = trash.batch
        return removal


def put_back(file_set: FileSet, batch: str, files: Sequence[JsonObject]) -> Removal:
    """Move files from the trash to where they were; nothing is overwritten. Raises `FilesError`."""
    removal = Removal(batch=batch)
    with file_set.open_root() as root, Trash(file_set, root) as trash:
        for entry in files:
            path = str(entry["path"])
            try:
                parts = path_of(path)[len(str(file_set.root)) + 1 :].split("/")
                removal.done.append(trash.restore(batch, parts, entry))
            except FileNotFoundError:
                removal.leave(path, "is not in the trash any more")
            except (FilesError, OSError) as error:
                removal.leave(path, _why(error))
    return removal


def still_there(
    file_set: FileSet, files: Iterable[Any]
) -> tuple[list[str], dict[tuple[int, int], str]]:
    """The paths of *files* that are still those, and the processes that have the others open.

    Raises:
        FilesError: the root of the set cannot be read, or another file system is there.
    """
    there, missing = [], set()
    with file_set.open_root() as root:
        device = os.fstat(root).st_dev
        for entry in files:
            if not str(entry["inode"]).startswith(f"{device}:"):
                raise FilesError(
                    f"{file_set.root} is not on the file system of {entry['path']} any more"
                )
            path = path_of(entry["path"])
            parts = file_set.below(path)
            try:
                with open_folder(root, parts[:-1], path) as parent:
                    same = file_at(parent, parts[-1], path).approval_entry() == entry
            except (OSError, FilesError):
                same = False
            if same:
                there.append(escape(path))
            else:
                missing.add((device, int(entry["inode"].partition(":")[2])))
    return there, open_files(missing, file_set.old_after).by if missing else {}


def _each(file_set: FileSet, root: int, agreed: Sequence[JsonObject], take: _Take) -> Removal:
    removal = Removal()
    inodes = [str(entry["inode"]).split(":") for entry in agreed]
    busy = open_files({(int(device), int(inode)) for device, inode in inodes})
    for entry in agreed:
        try:
            path = path_of(str(entry["path"]))
            parts = file_set.below(path)
            with open_folder(root, parts[:-1], path) as parent:
                file = file_at(parent, parts[-1], path)
                _check(file_set, file, entry, busy.by)
                take(parent, parts, file)
            removal.done.append(file)
        except FileNotFoundError:
            removal.leave(entry["path"], "is gone already")
        except (FilesError, OSError) as error:
            removal.leave(entry["path"], _why(error))
    return removal


def _check(
    file_set: FileSet, file: FoundFile, entry: JsonObject, busy: dict[tuple[int, int], str]
) -> None:
    if file.approval_entry() != entry:
        raise FilesError("it has changed since it was agreed to")
    if file.age < file_set.old_after:
        raise FilesError("it is not old")
    if file.key in busy:
        raise FilesError(f"{busy[file.key]} has it open")


def _why(error: Exception) -> object:
    return error.strerror if isinstance(error, OSError) else error
