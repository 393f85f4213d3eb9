"""The files of an Ansible project: their digest, and the lock of what runs."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

#: The most files of a project, and the most bytes of all.
MAX_FILES, MAX_BYTES = 10_000, 67_108_864
#: Folders that have no part in what a playbook does.
_IGNORED = (".git", "__pycache__")
#: Seconds between two looks at a lock that somebody holds.
_PAUSE = 0.2


class AnsibleFailure(Exception):
    """Ansible cannot be run, or did not do what it was asked for."""


def digest_of(folders: Iterable[Path], unpinned: Iterable[str], hosts: Iterable[str]) -> str:
    """A digest of the names and contents of all files in *folders*, and of the names of *hosts*.

    Files whose names match a pattern of *unpinned* are left out.

    Raises:
        AnsibleFailure: a file cannot be read, or there is too much.
    """
    found = hashlib.sha256("\n".join(sorted(hosts)).encode())
    count = size = 0
    patterns = tuple(unpinned)
    for folder in folders:
        for path in _files(folder, patterns):
            count += 1
            try:
                size += path.stat().st_size
                if count > MAX_FILES or size > MAX_BYTES:
                    limits = f"more than {MAX_FILES} files or {MAX_BYTES} bytes"
                    raise AnsibleFailure(f"{folder}: holds {limits}; give it a folder of its own")
                content = hashlib.sha256(path.read_bytes()).digest()
            except OSError as error:
                raise AnsibleFailure(f"{path}: {error.strerror}") from None
            found.update(os.fsencode(path.relative_to(folder)) + b"\0" + content)
    return f"sha256:{found.hexdigest()}"


def _files(folder: Path, unpinned: tuple[str, ...]) -> Iterator[Path]:
    if not folder.is_dir():
        if not folder.exists():
            raise AnsibleFailure(f"{folder}: does not exist")
        yield folder
        return
    seen = set()
    for here, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(here)
        if real in seen:  # a link to a folder above it
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if name not in _IGNORED)
        for name in sorted(names):
            path = Path(here, name)
            if path.is_file() and not any(fnmatchcase(name, one) for one in unpinned):
                yield path


@contextmanager
def running_lock(folder: Path, patience: float = 0.0) -> Iterator[int]:
    """The lock of what runs in *folder* on this host, as the descriptor of a file.

    It is waited for during *patience* seconds.

    A process that inherits the descriptor keeps the lock, so that it outlives a worker that was
    killed as long as its playbook does.

    Raises:
        AnsibleFailure: something runs there.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise AnsibleFailure(f"{folder}: {error.strerror}") from None
    try:
        until = time.monotonic() + patience
        while not _locked(descriptor):
            if time.monotonic() >= until:
                raise AnsibleFailure(f"a playbook of {folder} still runs; wait for its end")
            time.sleep(_PAUSE)
        yield descriptor
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
