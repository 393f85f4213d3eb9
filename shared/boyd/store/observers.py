"""The observers of an agent: the batches that workers take, last runs, and health."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boyd.models import ObserverHealth
from boyd.store.hashes import readable
from boyd.store.keys import Keys
from boyd.store.phase_entries import BatchEnd, BatchEntry, read_entry
from boyd.store.server.connection import Client, translate_errors
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


class Observers:
    """The observers of one agent; `Iterations.leave_start` opens their batches."""

    def __init__(self, client: Client, scripts: KeyedScripts, keys: Keys, timing: Timing) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys
        self._timing = timing
        self._resend_after = timing.resend_after_ms
        self._lease = timing.lease_ms

    def enter_batch(
        self, iteration: int, batch: int, attempt: int, worker: str
    ) -> BatchEntry | None:
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
        _, payload, offset, build = reply
        return BatchEntry(iteration, batch, attempt, worker, payload, offset, build)

    def renew_batch(self, entry: BatchEntry) -> bool:
        """Renew the lease of a batch; False when it is lost."""
        renewed = self._scripts.run(
            "renew_lease",
            n=entry.iteration,
            member=f"batch:{entry.batch}",
            fence=entry.attempt,
            worker=entry.worker,
            lease=self._lease,
        )
        return bool(renewed)

    def complete_batch(
        self, entry: BatchEntry, fields: Mapping[str, str], successor: str = ""
    ) -> BatchEnd | None:
        """Complete a batch with what its observers saw; None if it was lost.

        After the last one, a *successor* enters orient in the same step.
        """
        return self._complete(
            n=entry.iteration,
            number=entry.batch,
            attempt=entry.attempt,
            worker=entry.worker,
            wait=self._timing.wait_ms(successor),
            successor=successor,
            given_up=False,
            fields=flat(fields),
        )

    def give_up_batch(self, stuck: StuckBatch, fields: Mapping[str, str]) -> BatchEnd | None:
        """Complete a batch that nobody takes or whose worker was lost; None if it has moved on."""
        return self._complete(
            n=stuck.iteration,
            number=stuck.batch,
            attempt=stuck.attempt,
            worker=stuck.worker,
            wait=self._resend_after,
            successor="",
            given_up=True,
            fields=flat(fields),
        )

    def _complete(self, **values: Any) -> BatchEnd | None:
        reply = self._scripts.run("complete_batch", **values)
        if reply[0] != "ok":
            return None
        _, still_open, epoch, *claim = reply
        if not claim:
            return BatchEnd(still_open, epoch)
        with translate_errors():
            record = self._client.hgetall(self._keys.iteration)
        entry = read_entry(
            ["ok", *claim], record, values["n"], epoch, "orient", values["successor"]
        )
        return BatchEnd(still_open, epoch, entry) if entry else None

    def replace_batch(
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

    def retry_batch(self, batch: int, proof: str) -> StuckBatch | None:
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

    def last_runs(self) -> tuple[dict[str, float], dict[str, ObserverHealth]]:
        """The last run of each observer, in seconds since the epoch, and its health."""
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            pipe.hgetall(self._keys.observers_ran)
            pipe.hgetall(self._keys.observers_health)
            ran, health = pipe.execute()
        return {name: float(ms) / 1000 for name, ms in ran.items()}, _read(health)

    def health(self, observers: Sequence[str]) -> dict[str, ObserverHealth]:
        """The health of these *observers*."""
        if not observers:
            return {}
        with translate_errors():
            texts = self._client.hmget(self._keys.observers_health, list(observers))
        pairs = zip(observers, texts, strict=True)
        return _read({name: text for name, text in pairs if text})


def _read(texts: Mapping[str, str]) -> dict[str, ObserverHealth]:
    read = {
        name: readable(f"the health of observer {name}", ObserverHealth.from_json, text)
        for name, text in texts.items()
    }
    return {name: health for name, health in read.items() if health is not None}
