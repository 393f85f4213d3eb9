"""Batches: the parts of an observe phase that workers take separately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from boyd.store.server.scripts import KeyedScripts, flat
from boyd.store.timing import Timing


@dataclass(frozen=True)
class StuckBatch:
    """An overdue batch: `lost` with its worker, or still waiting for one for `waited` seconds."""

    iteration: int
    batch: int
    attempt: int
    payload: str
    worker: str
    lost: bool
    waited: float
    send: bool


@dataclass(frozen=True)
class BatchEntry:
    """A batch that a worker has entered, `offset` ms after the iteration began under a `build`."""

    payload: str
    offset: int
    build: str


class Batches:
    """The batches of one agent's observe phase; `Iterations.plan` opens them."""

    def __init__(self, scripts: KeyedScripts, timing: Timing) -> None:
        self._scripts = scripts
        self._resend_after = timing.resend_after_ms
        self._lease = timing.lease_ms

    def enter(self, iteration: int, batch: int, attempt: int, worker: str) -> BatchEntry | None:
        """Enter a batch; None when it is not open under this attempt."""
        reply = self._scripts.run(
            "enter_batch",
            n=iteration,
            number=batch,
            attempt=attempt,
            worker=worker,
            lease=self._lease,
        )
        if reply[0] != "ok":
            return None
        return BatchEntry(str(reply[1]), int(reply[2]), str(reply[3]))

    def renew(self, iteration: int, batch: int, attempt: int, worker: str) -> bool:
        """Renew the lease of a batch; False when it is lost."""
        renewed = self._scripts.run(
            "renew_lease",
            n=iteration,
            member=f"batch:{batch}",
            fence=attempt,
            worker=worker,
            lease=self._lease,
        )
        return bool(renewed)

    def complete_batch(
        self,
        iteration: int,
        batch: int,
        attempt: int,
        worker: str,
        fields: Mapping[str, str],
        given_up: bool = False,
    ) -> tuple[int, int] | None:
        """Complete a batch; return the open batches' number and the epoch, or None if it was lost.

        For one *given_up*, pass the *worker* that lost it, or an empty one if nobody entered it.
        """
        reply = self._scripts.run(
            "complete_batch",
            n=iteration,
            number=batch,
            attempt=attempt,
            worker=worker,
            resend_after=self._resend_after,
            given_up=given_up,
            fields=flat(fields),
        )
        return (int(reply[1]), int(reply[2])) if reply[0] == "ok" else None

    def replace(
        self, iteration: int, batch: int, attempt: int, payloads: Sequence[str]
    ) -> tuple[int, int] | None:
        """Replace a lost batch by others; return the number of the first and their attempt."""
        reply = self._scripts.run(
            "replace_batch",
            n=iteration,
            number=batch,
            attempt=attempt,
            resend_after=self._resend_after,
            batches=payloads,
        )
        return (int(reply[1]), int(reply[2])) if reply[0] == "ok" else None

    def retry(self, batch: int, proof: str) -> StuckBatch | None:
        """Find out why a batch is overdue; None when it has completed or moved on since."""
        reply = self._scripts.run(
            "retry_batch", number=batch, resend_after=self._resend_after, score=proof
        )
        if reply[0] == "none":
            return None
        state, iteration, attempt, payload, worker, waited = reply
        lost = state == "lost"
        return StuckBatch(
            int(iteration),
            batch,
            int(attempt),
            payload,
            worker,
            lost,
            int(waited) / 1000,
            send=state == "waiting",
        )
