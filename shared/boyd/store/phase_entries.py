"""The entries of workers into phases and batches: their right to do the work, and to store it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from boyd.models import Fence, Phase, from_ms
from boyd.store.iteration_record import Record
from boyd.store.server.connection import pairs


@dataclass(frozen=True)
class PhaseEntry:
    """A phase that a worker has entered; `fields` are those read of the iteration's record."""

    iteration: int
    epoch: int
    phase: Phase
    worker: str
    now: datetime
    fields: Mapping[str, str]
    runs: Sequence[Mapping[str, str]] = ()

    @property
    def fence(self) -> Fence:
        """The proof that its worker holds the phase."""
        return Fence(self.iteration, self.epoch, self.worker)

    @property
    def record(self) -> Record:
        """The record in `fields`."""
        return Record(self.fields)

    def following(
        self, phase: Phase, worker: str, now: float, stored: Mapping[str, str]
    ) -> PhaseEntry:
        """The entry of *worker* into the phase after this one, which has *stored* these fields.

        *now* is in milliseconds. Nobody else writes what the phases of an iteration store, so the
        record need not be read again.
        """
        fields = {**self.fields, **stored}
        return replace(self, phase=phase, worker=worker, now=from_ms(now), fields=fields, runs=())


@dataclass(frozen=True)
class BatchEntry:
    """A batch that a worker has entered, `offset` ms after the iteration began under a `build`."""

    iteration: int
    batch: int
    attempt: int
    worker: str
    payload: str
    offset: int
    build: str


@dataclass(frozen=True)
class PhaseEnd:
    """The end of a phase, and the entry of the same worker into what follows, if it goes on."""

    entry: PhaseEntry | BatchEntry | None = None


@dataclass(frozen=True)
class BatchEnd:
    """The end of a batch.

    Attributes:
        open_batches: the number of the iteration's batches that are still open.
        epoch: of the phase that follows the last one.
        entry: of the same worker into that phase, if it goes on.
    """

    open_batches: int
    epoch: int
    entry: PhaseEntry | None = None


def read_entry(
    reply: Sequence[Any],
    record: Mapping[str, str] | None,
    iteration: int,
    epoch: int,
    phase: Phase,
    worker: str,
) -> PhaseEntry | None:
    """An entry whose record was read in a separate step; None when it was lost in between.

    The *reply* of the script is `ok`, the time in milliseconds, and the runs that orient claims.
    While the record names the entry, only its worker has written the phases' output.
    """
    ours = {"iteration": str(iteration), "epoch": str(epoch), "phase": phase, "entered": worker}
    if reply[0] != "ok" or record is None or not ours.items() <= record.items():
        return None
    _, now, *claim = reply
    runs = [pairs(run) for runs in claim for run in runs]
    return PhaseEntry(iteration, epoch, phase, worker, from_ms(now), record, runs)
