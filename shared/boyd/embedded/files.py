"""Folders and files that only their owner may read."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from boyd.errors import ConfigError


def private_folder(folder: Path) -> Path:
    """Make *folder* (mode 0700) and its parents where they are missing; give it back absolute.

    A folder that exists keeps its mode: whoever made it decided.

    Raises:
        ConfigError: it cannot be made or written to.
    """
    folder = folder.absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(folder, _reason(folder, error)) from None
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise _unusable(folder, "it is read-only or belongs to someone else")
    return folder


def write_private(path: Path, text: str) -> None:
    """Put *text* into *path* (mode 0600) so that a reader sees all of it or what was before.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        _replace(path, text)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None


def _replace(path: Path, text: str) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _reason(folder: Path, error: OSError) -> str:
    blocking = next((one for one in (folder, *folder.parents) if one.exists()), folder)
    if not blocking.is_dir():
        return f"{blocking} is not a folder"
    return error.strerror or str(error)


def _unusable(folder: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"cannot keep data in {folder}: {reason}; choose a folder that you may write to"
    )
