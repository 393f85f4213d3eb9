"""The trash of a set: a folder in its root, on the same file system, which only Boyd may enter."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from boyd.models import JsonObject
from boyd_connectors.files.file_set import OWN, FilesError, FileSet, FoundFile, file_at, opened

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

    def told(self) -> JsonObject:
        """The entry that a person agrees to."""
        return {
            "batch": self.name,
            "files": self.files,
            "bytes": self.size,
            "inode": str(self.inode),
        }


class Trash:
    """The trash of a set whose root is open as *root*; a batch is made for the first file."""

    def __init__(self, of: FileSet, root: int) -> None:
        self.batch = ""
        self._root = root
        self._path = f"{of.root}/{TRASH}"
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
                folder = folders.enter_context(opened(folder, [name], self._path))
            moved(parent, parts[-1], folder, parts[-1], file)

    def restore(self, batch: str, parts: Sequence[str], told: JsonObject) -> FoundFile:
        """Move a file of a batch back; *told* is how it was before.

        Raises:
            FilesError: it has changed, or its folder is gone.
            OSError: it is not there, there is a file in its place, or it cannot be moved.
        """
        names, path = [TRASH, batch, *parts[:-1]], f"{self._path}/{batch}"
        with (
            opened(self._root, names, path) as source,
            opened(self._root, parts[:-1], path) as target,
        ):
            file = file_at(source, parts[-1], path)
            now = {**file.told(), "path": told["path"]}
            if now != told:
                raise FilesError("it was changed in the trash")
            linked(source, parts[-1], target, parts[-1])
        return file

    def batches(self) -> list[TrashBatch]:
        """The batches, oldest first."""
        try:
            with opened(self._root, [TRASH], self._path) as folder:
                names = sorted(os.listdir(folder))[:MAX_BATCHES]  # noqa: PTH208 - of an open folder
                return [found for name in names if (found := _batch(folder, name))]
        except FilesError:
            if not _exists(self._root, TRASH):
                return []
            raise

    def delete(self, batch: TrashBatch) -> None:
        """Delete a batch; no link in it is followed. Raises `OSError`."""
        with opened(self._root, [TRASH], self._path) as folder:
            shutil.rmtree(batch.name, dir_fd=folder)

    def _begin(self) -> None:
        with suppress(FileExistsError):
            os.mkdir(TRASH, 0o700, dir_fd=self._root)
        self.batch = f"{datetime.now(UTC):{_STAMP}}-{secrets.token_hex(4)}"
        folder = self._open.enter_context(opened(self._root, [TRASH], self._path))
        os.mkdir(self.batch, 0o700, dir_fd=folder)
        self._folder = self._open.enter_context(opened(folder, [self.batch], self._path))


def moved(source: int, name: str, target: int, new: str, file: FoundFile) -> None:
    """Rename a file of an open folder, and look at it again.

    Raises:
        FilesError: it is another one or has changed; it has its name back.
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


def linked(source: int, name: str, target: int, new: str) -> None:
    """Rename without overwriting anything; raises `OSError`."""
    os.link(name, new, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    os.unlink(name, dir_fd=source)


def _return(source: int, name: str, target: int, new: str) -> None:
    if stat.S_ISDIR(os.stat(name, dir_fd=source, follow_symlinks=False).st_mode):
        os.rename(name, new, src_dir_fd=source, dst_dir_fd=target)  # it overwrites no file
    else:
        linked(source, name, target, new)


def _batch(folder: int, name: str) -> TrashBatch | None:
    try:
        at = datetime.strptime(name.partition("-")[0], _STAMP).replace(tzinfo=UTC).timestamp()
        inode, files, size = os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino, 0, 0
        for _, _, names, inside in os.fwalk(name, dir_fd=folder):
            for one in names[: MAX_FILES - files]:
                size += os.stat(one, dir_fd=inside, follow_symlinks=False).st_blocks * 512
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
