"""Jobs: what workers do besides iterations, each under a lease and the fence of an attempt.

A job is a hash with fields of its own and those of its execution, a name that says its kind
(`approval:<id>`, `call:<id>`, `callback:<id>`, `notice:<id>`, `investigation:<id>`) and finds its
key, and a place among what is due. A worker that dies with it, or a message that is lost, costs
one lease.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from boyd.models import JobExecution, RunResult, RunStatus, from_ms
from boyd.store.connection import Client, pairs
from boyd.store.keys import Keys
from boyd.store.scripts import Scripts
from boyd.store.timing import Timing, milliseconds

#: A run that ends with a job: its id, what it becomes, and its result.
Ending = tuple[str, RunStatus, RunResult]


@dataclass(frozen=True)
class StuckJob:
    """A job to send again on *queue*, or one that *worker* was the last to lose."""

    attempt: int
    queue: str | None
    worker: str
    give_up: bool


class Jobs:
    """The jobs of one agent."""

    def __init__(self, client: Client, scripts: Scripts, keys: Keys, timing: Timing) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys
        self._attempts = timing.attempts
        self._resend_after = timing.resend_after_ms
        self._lease = timing.lease_ms
        self._queue_timeout = timing.queue_timeout_ms

    def enter(self, name: str, attempt: int, worker: str) -> dict[str, str] | None:
        """Enter a job; its fields, or None when it is not queued under this attempt."""
        args = [name, attempt, worker, self._lease]
        reply = self._scripts.run("enter_job", self._names(name), args)
        return pairs(reply[1]) if reply[0] == "ok" else None

    def renew(self, name: str, attempt: int, worker: str) -> bool:
        """Renew the lease of a job; False when it is lost."""
        args = [name, attempt, worker, self._lease, 0]
        return bool(self._scripts.run("renew_job", self._names(name), args))

    def put_back(
        self,
        name: str,
        attempt: int,
        worker: str,
        seconds: float,
        fields: Mapping[str, str] | None = None,
    ) -> int:
        """Queue a job again that is not to be worked on for so many *seconds*.

        With 0 seconds the caller sends its message now.

        Returns:
            The attempt that it has from then on; 0 when it was lost.
        """
        flat = [item for pair in (fields or {}).items() for item in pair]
        wait = [milliseconds(seconds), 1] if seconds else [self._resend_after, 2]
        args = [name, attempt, worker, *wait, *flat]
        return int(self._scripts.run("renew_job", self._names(name), args))

    def leave(
        self,
        name: str,
        attempt: int,
        worker: str,
        state: str,
        fields: Mapping[str, str],
        keep: float,
        runs: Sequence[Ending] = (),
        keep_runs: Sequence[int] = (0, 1),
    ) -> bool:
        """End a job, and the runs that waited for it; False when it was lost.

        Args:
            name: the job's.
            attempt: its fencing token.
            worker: as it entered; empty: it is ended for whoever had it.
            state: `succeeded`, `failed` or `unknown`.
            fields: what to store with it.
            keep: seconds until it is forgotten; 0: at once.
            runs: the runs that end with it.
            keep_runs: milliseconds and number that finished runs are kept.
        """
        keys = self._keys
        flat = [item for pair in fields.items() for item in pair]
        ends = [item for run, status, what in runs for item in (run, status, what.to_json())]
        args = [
            *(name, attempt, worker, state, keys.prefix, *keep_runs, milliseconds(keep)),
            *(len(flat), *flat, *ends),
        ]
        names = [
            *(*self._names(name), keys.events, keys.runs, keys.runs_finished),
            *(keys.audit_open, keys.usage),
        ]
        return bool(self._scripts.run("leave_job", names, args))

    def retry(self, name: str, proof: str, patient: bool = False) -> StuckJob | None:
        """Decide what becomes of a job that passed its deadline; None when it moved on.

        A *patient* one waits for a worker as long as it takes.
        """
        queue_timeout = "" if patient else self._queue_timeout
        args = [name, self._resend_after, self._attempts, queue_timeout, proof]
        reply = self._scripts.run("retry_job", self._names(name), args)
        if reply[0] == "none":
            return None
        return StuckJob(int(reply[1]), reply[2] or None, reply[3], reply[0] == "give up")

    def _names(self, name: str) -> list[str]:
        return [self._keys.job(name), self._keys.due]


def read_execution(fields: Mapping[str, str]) -> JobExecution | None:
    """How far a job is; None when it has not been placed."""
    if "executionState" not in fields:
        return None
    state = fields["executionState"]
    queued = state == "queued"
    by = "" if queued else fields.get("executionClaimedBy") or fields.get("executionBy", "")
    # What it executes was claimed then, perhaps by an earlier worker than entered it last.
    started = "executionClaimedAt" if "executionClaimedAt" in fields else "executionStartedAt"
    return JobExecution.model_validate(
        {
            "state": state,
            "worker": by.partition("/")[0] or None,
            "started_at": None if queued else _time(fields, started),
            "ended_at": _time(fields, "executionEndedAt"),
        }
    )


def _time(fields: Mapping[str, str], name: str) -> object:
    return from_ms(float(fields[name])) if name in fields else None
