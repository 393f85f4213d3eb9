"""The results of a replay so far, so that it goes on where it was interrupted."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from boyd.embedded.state_folder import private_folder, write_private
from boyd.models.tape import ReplayedIteration

#: Seconds after which the results of a replay that nobody went on with are removed.
_OLD = 7 * 86_400.0


class PartialResults:
    """Judgements in files, one for each portion, named by digests of what they depend on."""

    def __init__(self, folder: Path, key: str) -> None:
        """Keep results below *folder*; *key* names the agent that is replayed.

        Raises:
            ConfigError: the folder cannot be used.
        """
        _remove_old(folder)
        self._folder = private_folder(folder / key)

    def find(self, records: Sequence[str]) -> list[ReplayedIteration] | None:
        """The judgements of a portion, if they were kept."""
        try:
            lines = self._path(records).read_text("utf-8").split("\n")
            judgements = [ReplayedIteration.from_json(line) for line in lines if line]
        except (OSError, ValueError, ValidationError):
            return None
        return judgements if len(judgements) == len(records) else None

    def keep(self, records: Sequence[str], judgements: Sequence[ReplayedIteration]) -> None:
        """Keep the judgements of a portion.

        Raises:
            ConfigError: the file cannot be written.
        """
        write_private(
            self._path(records), "".join(f"{judgement.to_json()}\n" for judgement in judgements)
        )

    def remove(self) -> None:
        """Remove all of them: the replay is complete."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, records: Sequence[str]) -> Path:
        digest = hashlib.sha256()
        for record in records:
            digest.update(record.encode("utf-8", "surrogatepass") + b"\n")
        return self._folder / f"{digest.hexdigest()[:32]}.jsonl"


def _remove_old(folder: Path) -> None:
    for old in _folders(folder):
        with suppress(OSError):
            if old.stat().st_mtime < time.time() - _OLD:
                shutil.rmtree(old, ignore_errors=True)


def _folders(folder: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from [path for path in folder.iterdir() if path.is_dir()]
