"""Old files are deleted or moved to a trash, exactly those that somebody has agreed to."""

from __future__ import annotations

import heapq
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from boyd.models import JsonObject
from boyd_connectors.files.file_set import (
    DOOMED,
    FilesError,
    FileSet,
    FoundFile,
    SetScan,
    file_at,
    opened,
    path_of,
    shown,
)
from boyd_connectors.files.open_files import open_files
from boyd_connectors.files.trash import Trash, linked, moved

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

    def leave(self, path: object, why: object) -> None:
        """Count a file that stays."""
        self.stayed += 1
        if self.stayed <= MAX_REASONS:
            self.left.append(f"{path}: {why}")


def old_files(of: FileSet, most: int) -> OldFiles:
    """Look for the *most* oldest files, and for big ones; raises `FilesError`."""
    scan, found = SetScan(of), OldFiles()

    def old() -> Iterable[FoundFile]:
        for file in scan.files():
            if of.max_bytes is not None and file.size > of.max_bytes:
                heapq.heappush(found.big, (file.size, file))
                if len(found.big) > MAX_BIG:
                    heapq.heappop(found.big)
            if file.age >= of.old_after:
                found.number += 1
                found.size += file.blocks
                yield file

    paths = 0
    for file in heapq.nsmallest(most, old(), key=lambda one: one.modified):
        paths += len(file.path)
        if paths <= MAX_PATHS:
            found.oldest.append(file)
    found.cut, found.unreadable = scan.cut, scan.unreadable
    return found


def delete(of: FileSet, agreed: Sequence[JsonObject]) -> Removal:
    """Delete the files of *agreed* that are still the same, old, and not open.

    Each one first gets another name and is looked at again: what has taken its place in the last
    moment gets its name back.

    Raises:
        FilesError: the root of the set cannot be read.
    """
    with of.opened() as root:

        def take(parent: int, parts: list[str], file: FoundFile) -> None:
            doomed = f"{DOOMED}{secrets.token_hex(8)}"
            moved(parent, parts[-1], parent, doomed, file)
            try:
                os.unlink(doomed, dir_fd=parent)
            except OSError:
                linked(parent, doomed, parent, parts[-1])
                raise

        return _each(of, root, agreed, take)


def set_aside(of: FileSet, agreed: Sequence[JsonObject]) -> Removal:
    """Move them to the trash instead; raises `FilesError` like `delete`."""
    with of.opened() as root, Trash(of, root) as trash:
        removal = _each(of, root, agreed, trash.put)
        removal.batch = trash.batch
        return removal


def put_back(of: FileSet, batch: str, files: Sequence[JsonObject]) -> Removal:
    """Move files from the trash to where they were; nothing is overwritten. Raises `FilesError`."""
    removal = Removal(batch=batch)
    with of.opened() as root, Trash(of, root) as trash:
        for told in files:
            path = str(told["path"])
            try:
                parts = path_of(path)[len(str(of.root)) + 1 :].split("/")
                removal.done.append(trash.restore(batch, parts, told))
            except FileNotFoundError:
                removal.leave(path, "is not in the trash any more")
            except (FilesError, OSError) as error:
                removal.leave(path, _why(error))
    return removal


def still_there(of: FileSet, files: Iterable[Any]) -> tuple[list[str], dict[tuple[int, int], str]]:
    """The paths of *files* that are still those, and the processes that have the others open.

    Raises:
        FilesError: the root of the set cannot be read, or another file system is there.
    """
    there, gone = [], set()
    with of.opened() as root:
        device = os.fstat(root).st_dev
        for told in files:
            if not str(told["inode"]).startswith(f"{device}:"):
                raise FilesError(f"{of.root} is not on the file system of {told['path']} any more")
            path = path_of(told["path"])
            parts = of.below(path)
            try:
                with opened(root, parts[:-1], path) as parent:
                    same = file_at(parent, parts[-1], path).told() == told
            except (OSError, FilesError):
                same = False
            if same:
                there.append(shown(path))
            else:
                gone.add((device, int(told["inode"].partition(":")[2])))
    return there, open_files(gone, of.old_after).by if gone else {}


def _each(of: FileSet, root: int, agreed: Sequence[JsonObject], take: _Take) -> Removal:
    removal = Removal()
    inodes = [str(told["inode"]).split(":") for told in agreed]
    busy = open_files({(int(device), int(inode)) for device, inode in inodes})
    for told in agreed:
        try:
            path = path_of(str(told["path"]))
            parts = of.below(path)
            with opened(root, parts[:-1], path) as parent:
                file = file_at(parent, parts[-1], path)
                _check(of, file, told, busy.by)
                take(parent, parts, file)
            removal.done.append(file)
        except FileNotFoundError:
            removal.leave(told["path"], "is gone already")
        except (FilesError, OSError) as error:
            removal.leave(told["path"], _why(error))
    return removal


def _check(
    of: FileSet, file: FoundFile, told: JsonObject, busy: dict[tuple[int, int], str]
) -> None:
    if file.told() != told:
        raise FilesError("it has changed since it was agreed to")
    if file.age < of.old_after:
        raise FilesError("it is not old")
    if file.key in busy:
        raise FilesError(f"{busy[file.key]} has it open")


def _why(error: Exception) -> object:
    return error.strerror if isinstance(error, OSError) else error
