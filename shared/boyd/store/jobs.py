"""Jobs: the work besides iterations, each with a lease and an attempt as fencing token.

A job is a hash with its own fields and those of its execution, and a member of the due set. Its
name gives its kind and key, as `approval:<id>`; `boyd.runtime.job_runner` names the kinds. A dead
worker or a lost message delays it by one lease.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boyd.models import Fence, JobExecution, RunResult, RunStatus, from_ms
from boyd.store.fleet import Retention
from boyd.store.keys import Keys
from boyd.store.server.connection import Client, pairs
from boyd.store.server.scripts import KeyedScripts, flat, milliseconds
from boyd.store.timing import Timing
from boyd.text import queues

#: A run that ends with a job: its id, new status and result.
RunEnding = tuple[str, RunStatus, RunResult]


@dataclass(frozen=True)
class StuckJob:
    """An overdue job, to send again on `queue` or to give up.

    It is given up when too many workers lost it, `worker` last, or when nobody took it in time.
    """

    attempt: int
    queue: str | None
    worker: str
    give_up: bool

    @property
    def reason(self) -> str:
        """The reason for which it is given up."""
        worker = self.worker.partition("/")[0]
        if worker:
            return f"its workers were lost repeatedly, the last one was {worker}"
        return f"no worker took it from queue {self.queue or queues.ACT!r}"


class Jobs:
    """The jobs of one agent."""

    def __init__(self, client: Client, scripts: KeyedScripts, keys: Keys, timing: Timing) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys
        self._attempts = timing.attempts
        self._resend_after = timing.resend_after_ms
        self._lease = timing.lease_ms
        self._queue_timeout = timing.queue_timeout_ms

    def enter(self, name: str, attempt: int, worker: str) -> dict[str, str] | None:
        """Enter a job; return its fields, or None when it is not queued under this attempt."""
        reply = self._scripts.run(
            "enter_job", **self._owner(Fence(name, attempt, worker)), lease=self._lease
        )
        return pairs(reply[1]) if reply[0] == "ok" else None

    def renew(self, fence: Fence) -> bool:
        """Renew the lease of a job; False when the job is lost."""
        held = self._owner(fence)
        return bool(
            self._scripts.run("renew_job", **held, wait=self._lease, give_back=0, fields=[])
        )

    def put_back(
        self, fence: Fence, seconds: float, fields: Mapping[str, str] | None = None
    ) -> int:
        """Queue a job again for so many *seconds* later; with 0, the caller sends its message now.

        Returns:
            The job's new attempt; 0 when the job was lost.
        """
        attempt = self._scripts.run(
            "renew_job",
            **self._owner(fence),
            wait=milliseconds(seconds) if seconds else self._resend_after,
            give_back=1 if seconds else 2,
            fields=flat(fields or {}),
        )
        return int(attempt)

    def leave(
        self,
        fence: Fence,
        state: str,
        fields: Mapping[str, str],
        keep: float,
        runs: Sequence[RunEnding] = (),
        retention: Retention | None = None,
    ) -> bool:
        """End a job and the runs that waited for it; False when the job was lost.

        Args:
            fence: the job as its worker entered it; without a worker, end it for any.
            state: `succeeded`, `failed` or `unknown`.
            fields: fields to store with it.
            keep: seconds to keep it; 0: delete it at once.
            runs: the runs that end with it.
            retention: the limits for finished runs.
        """
        left = self._scripts.run(
            "leave_job",
            **self._owner(fence),
            state=state,
            keep=milliseconds(keep),
            retention=(retention or Retention()).limits(),
            ends=[(run, status, result.to_json()) for run, status, result in runs],
            fields=flat(fields),
        )
        return bool(left)

    def retry(self, name: str, proof: str, patient: bool = False) -> StuckJob | None:
        """Decide how to go on with an overdue job; None when it has moved on since.

        A *patient* job waits for a worker without a time limit.
        """
        reply = self._scripts.run(
            "retry_job",
            job=self._keys.job(name),
            name=name,
            resend_after=self._resend_after,
            max_attempts=self._attempts,
            queue_timeout=None if patient else self._queue_timeout,
            score=proof,
        )
        if reply[0] == "none":
            return None
        return StuckJob(int(reply[1]), reply[2] or None, reply[3], reply[0] == "give up")

    def _owner(self, fence: Fence) -> dict[str, Any]:
        name = str(fence.origin)
        job = self._keys.job(name)
        return {"job": job, "name": name, "attempt": fence.token, "worker": fence.entered}


def read_execution(fields: Mapping[str, str]) -> JobExecution | None:
    """The state of a job's execution; None when it was never queued."""
    if "executionState" not in fields:
        return None
    state = fields["executionState"]
    queued = state == "queued"
    by = "" if queued else fields.get("executionClaimedBy") or fields.get("executionBy", "")
    # The claim of its execution may be older than the last worker's entry.
    started = "executionClaimedAt" if "executionClaimedAt" in fields else "executionStartedAt"
    return JobExecution.model_validate(
        {
            "state": state,
            "worker": by.partition("/")[0] or None,
            "started_at": None if queued else _time(fields, started),
            "ended_at": _time(fields, "executionEndedAt"),
            "held_until": _time(fields, "heldUntil") if queued else None,
        }
    )


def _time(fields: Mapping[str, str], name: str) -> object:
    return from_ms(float(fields[name])) if name in fields else None
