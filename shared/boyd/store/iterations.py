"""The iteration in flight and its phases.

Every transition is one script. Methods return the outcome instead of raising, because duplicate and
late messages are normal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, Literal

from boyd.models import (
    LEVELS,
    Acknowledgement,
    ActionResult,
    Actor,
    Fence,
    LoopResult,
    ObserverHealth,
    OpenAnomaly,
    Phase,
    RunOutcome,
    RunResult,
    Situation,
    from_ms,
)
from boyd.store.fleet import Retention
from boyd.store.iteration_record import (
    Record,
    dump_problems,
    dump_results,
    summary_of,
)
from boyd.store.keys import Keys
from boyd.store.phase_entries import BatchEntry, PhaseEnd, PhaseEntry, read_entry
from boyd.store.server.connection import Client, pairs, translate_errors
from boyd.store.server.scripts import KeyedScripts, ScriptCall, actor_fields, flat, milliseconds
from boyd.store.timing import Timing

#: The fields of an open anomaly as scripts take and keep them; the time of its beginning follows.
_ROW = ("plugin_id", "symptom", "resource", "type", "severity", "description")
#: The most open anomalies that are remembered; with more, holds end by their time only.
MAX_SYMPTOMS = 1000


@dataclass(frozen=True)
class Retry:
    """An overdue phase.

    With `send`, its message must be sent again. With `finish`, all attempts to complete the
    iteration failed, and the sweeper must end it.
    """

    iteration: int
    epoch: int
    phase: Phase
    queue: str | None
    send: bool = True
    finish: bool = False


@dataclass(frozen=True)
class Lost:
    """The remains of an iteration whose record is gone."""

    iteration: int
    why: str
    runs: Sequence[str] = ()
    results: Sequence[ActionResult] = ()


@dataclass(frozen=True)
class Repair:
    """The iteration that a repair came upon, if any.

    Attributes:
        lost: number and timeline of an iteration whose record is gone.
        ended: number and epoch of an iteration that was ended.
    """

    lost: tuple[int, str] | None = None
    ended: tuple[int, int] | None = None


class Iterations:
    """The iteration in flight of one agent; `loop_control.py` begins it, `history.py` keeps it."""

    def __init__(self, client: Client, scripts: KeyedScripts, keys: Keys, timing: Timing) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys
        self._add_record = methodcaller("hgetall", keys.iteration)
        self._timing = timing
        self._resend_after = timing.resend_after_ms
        self._lease = timing.lease_ms

    def enter(
        self, iteration: int, epoch: int, phase: Phase, worker: str, fields: Sequence[str] = ()
    ) -> PhaseEntry | None:
        """Enter a phase; None when it is not due under this epoch, or already entered.

        The entry has only the named *fields* of the record, or all if none are named.
        """
        call = self._scripts.call(
            "enter_phase",
            n=iteration,
            epoch=epoch,
            phase=phase,
            worker=worker,
            lease=self._lease,
            fields=fields,
        )
        if not fields:
            reply, [record] = self._scripts.run_and_read(call, self._add_record)
            return read_entry(reply, record, iteration, epoch, phase, worker)
        reply = self._scripts.run_call(call)
        if reply[0] != "ok":
            return None
        return PhaseEntry(iteration, epoch, phase, worker, from_ms(reply[1]), pairs(reply[2]))

    def enter_orient(self, iteration: int, epoch: int, worker: str) -> PhaseEntry | None:
        """Enter orient and claim the waiting runs and intake events."""
        call = self._scripts.call(
            "enter_orient", n=iteration, epoch=epoch, worker=worker, lease=self._lease
        )
        reply, [record] = self._scripts.run_and_read(call, self._add_record)
        return read_entry(reply, record, iteration, epoch, "orient", worker)

    def leave(
        self,
        entry: PhaseEntry,
        following: Phase,
        fields: Mapping[str, str],
        queue: str = "",
        successor: str = "",
    ) -> PhaseEnd | None:
        """Leave a phase and store its output *fields*; None when the entry was lost.

        *queue* overrides the usual queue of the following phase, and a *successor* enters that
        phase in the same step.
        """
        call = self._scripts.call(
            "leave_phase",
            **_fence(entry),
            phase=entry.phase,
            following=following,
            queue=queue,
            wait=self._timing.wait_ms(successor),
            successor=successor,
            fields=flat(fields),
        )
        if successor and following == "complete":
            return self._hand_over_whole(call, entry, following, successor)
        return _hand_over(self._scripts.run_call(call), entry, following, successor, fields)

    def put_back(
        self, entry: PhaseEntry, seconds: float, fields: Mapping[str, str] | None = None
    ) -> None:
        """Put a phase back for so many *seconds*, without counting an attempt; store *fields*."""
        self._scripts.run(
            "put_back_phase",
            **_fence(entry),
            phase=entry.phase,
            wait=milliseconds(seconds),
            fields=flat(fields or {}),
        )

    def leave_start(
        self,
        entry: PhaseEntry,
        observers: Sequence[str],
        batches: Sequence[str],
        fields: Mapping[str, str],
        successor: str = "",
    ) -> PhaseEnd | None:
        """Leave start and open the batches of observe; None when the entry was lost.

        A *successor* enters orient, or the only batch: several batches are for several workers.
        """
        successor = successor if len(batches) <= 1 else ""
        call = self._scripts.call(
            "leave_start",
            **_fence(entry),
            wait=self._timing.wait_ms(successor),
            successor=successor,
            ran=list(dict.fromkeys(observers)),
            batches=batches,
            fields=flat({"observers": json.dumps(list(observers)), **fields}),
        )
        if successor and not batches:
            return self._hand_over_whole(call, entry, "orient", successor)
        reply = self._scripts.run_call(call)
        if reply[0] != "ok":
            return None
        if not successor:
            return PhaseEnd()
        offset = reply[1] - int(entry.fields["startedAt"])
        batch = BatchEntry(entry.iteration, 1, 1, successor, batches[0], offset, fields["build"])
        return PhaseEnd(batch)

    def leave_orient(
        self,
        entry: PhaseEntry,
        situation: Situation,
        health: Mapping[str, ObserverHealth],
        fields: Mapping[str, str],
        blind: Iterable[str] = (),
        successor: str = "",
    ) -> PhaseEnd | None:
        """Leave orient with the situation; None when the entry was lost.

        *blind* are the plugins that could not look, whose symptoms stay. A *successor* enters
        decide in the same step.
        """
        own = {"situation": situation.to_json(), "summary": situation.summary}
        if absent := sorted(blind):
            own["blind"] = " ".join(absent)
        reply = self._scripts.run(
            "leave_orient",
            **_fence(entry),
            wait=self._timing.wait_ms(successor),
            successor=successor,
            health=flat({name: value.to_json() for name, value in health.items()}),
            sight=_sight(situation, absent),
            fields=flat({**own, **fields}),
        )
        return _hand_over(reply, entry, "decide", successor, {**own, **fields})

    def renew(self, iteration: int, epoch: int, worker: str) -> bool:
        """Renew the lease of the phase; False when it is lost."""
        renewed = self._scripts.run(
            "renew_lease",
            n=iteration,
            member="phase",
            fence=epoch,
            worker=worker,
            lease=self._lease,
        )
        return bool(renewed)

    def finish(
        self,
        fence: Fence,
        result: LoopResult,
        runs: Iterable[RunOutcome],
        unclaimed_result: RunResult,
        retention: Retention,
        store_results: bool = False,
    ) -> int | None:
        """End the iteration; return the follow-up's number or 0, or None when the entry was lost.

        Args:
            fence: `complete` as its worker entered it; without a worker when the sweeper ends it.
            result: the complete result.
            runs: the outcomes of its runs.
            unclaimed_result: the result of runs that two iterations in a row failed to claim.
            retention: the limits for iterations and finished runs.
            store_results: store the action results of *result*; otherwise the act phase did.
        """
        ends = [
            item
            for run in runs
            for item in (run.run_id, run.status or "", run.result.to_json(), run.approval_id or "")
        ]
        options = {
            "success": result.success,
            "error": result.error or "",
            "action": result.decision.action if result.decision else "",
            "summary": result.situation.summary[:200] if result.situation else "",
            "resend_after": self._resend_after,
        }
        reply = self._scripts.run(
            "finish_iteration",
            past=self._keys.past_iteration(int(fence.origin)),
            n=fence.origin,
            epoch=fence.token,
            worker=fence.entered,
            options=options,
            retention=retention.limits(),
            problems=dump_problems(result.problems),
            outline=summary_of(result).to_json(),
            results=dump_results(result.action_results) if store_results else "",
            unclaimed_result=unclaimed_result.to_json(),
            ends=ends,
        )
        return int(reply[1]) if reply[0] == "ok" else None

    def retry(self, proof: str) -> Retry | None:
        """Decide how to go on with an overdue phase; None when it has moved on since."""
        reply = self._scripts.run(
            "retry_phase",
            resend_after=self._resend_after,
            max_attempts=self._timing.attempts,
            queue_timeout=self._timing.queue_timeout_ms,
            score=proof,
        )
        if reply[0] == "none":
            return None
        if reply[0] == "finish":
            return Retry(int(reply[1]), int(reply[2]), "complete", None, finish=True)
        return Retry(int(reply[1]), int(reply[2]), reply[3], reply[4] or None, reply[0] == "send")

    def settle_act(
        self, iteration: int, epoch: int, reason: str, execution: str, patience: float
    ) -> int:
        """Take the act phase away from a queue that nobody serves.

        If *execution* was started and may run again, the phase first waits *patience* seconds for
        a worker. The worker that takes it from the queue `loop` executes nothing. Return the new
        epoch, or 0 when the phase has moved on since.
        """
        settled = self._scripts.run(
            "settle_act",
            execution=self._keys.execution(execution),
            n=iteration,
            epoch=epoch,
            why=reason,
            resend_after=self._resend_after,
            patience=milliseconds(patience),
        )
        return int(settled)

    def abandon(
        self, reason: str, actor: Actor, iteration: int | None = None, last: bool = False
    ) -> tuple[Literal["abandoned", "over", "idle"], int, int]:
        """Abandon the iteration in flight: its worker loses it, and it only completes.

        With *last*, no other iteration follows, and waiting work goes on waiting.

        Returns:
            `abandoned` with its number and new epoch; `over` with the number of the iteration in
            flight when it is not *iteration*; `idle`.
        """
        outcome, *rest = self._scripts.run(
            "abandon_iteration",
            meant=iteration,
            why=reason,
            resend_after=self._resend_after,
            last=last,
            actor=actor_fields(actor),
        )
        number, epoch, *_ = [*map(int, rest), 0, 0]
        return outcome, number, epoch

    def repair_agent(self, lost: Lost | None = None) -> Repair:
        """Repair inconsistent state: work in flight becomes due, and work without a record ends.

        A second call with the remains of a *lost* iteration ends that one.
        """
        outcome, *rest = self._scripts.run(
            "repair_agent",
            resend_after=self._resend_after,
            lost=lost.iteration if lost else None,
            why=lost.why if lost else None,
            run_ids=" ".join(lost.runs) if lost else None,
            results=dump_results(list(lost.results)) if lost else None,
        )
        return Repair(
            lost=(int(rest[0]), rest[1]) if outcome == "lost" else None,
            ended=(int(rest[0]), int(rest[1])) if outcome == "ended" else None,
        )

    def _hand_over_whole(
        self, call: ScriptCall, entry: PhaseEntry, following: Phase, successor: str
    ) -> PhaseEnd | None:
        """Leave a phase for one that needs the whole record, and read it."""
        reply, [record] = self._scripts.run_and_read(call, self._add_record)
        whole = read_entry(reply, record, entry.iteration, entry.epoch, following, successor)
        return PhaseEnd(whole) if whole else None

    def current(self) -> Record | None:
        """The record of the iteration in flight; None when the agent is idle."""
        with translate_errors():
            fields = self._client.hgetall(self._keys.iteration)
        return Record(fields) if fields else None


def _hand_over(
    reply: Sequence[Any],
    entry: PhaseEntry,
    following: Phase,
    successor: str,
    stored: Mapping[str, str],
) -> PhaseEnd | None:
    if reply[0] != "ok":
        return None
    return PhaseEnd(entry.following(following, successor, reply[1], stored) if successor else None)


def _fence(entry: PhaseEntry) -> dict[str, Any]:
    return {"n": entry.iteration, "epoch": entry.epoch, "worker": entry.worker}


def read_anomalies(text: str | None) -> tuple[OpenAnomaly, ...]:
    """The open anomalies that `update_symptoms` keeps, worst first, the oldest of equal ones first.

    Empty if they cannot be read.
    """
    try:
        # An empty list from Lua is an object.
        rows = json.loads(text or "{}").get("open") or []
        return tuple(sorted(map(_open_anomaly, rows), key=_urgency))
    except (ValueError, TypeError, AttributeError):
        return ()


def _urgency(anomaly: OpenAnomaly) -> tuple[int, float]:
    assert anomaly.since is not None
    return -LEVELS.index(anomaly.severity), anomaly.since.timestamp()


def _open_anomaly(row: Sequence[Any]) -> OpenAnomaly:
    texts, began, *acknowledgement = row[: len(_ROW)], *row[len(_ROW) :]
    fields = dict(zip(_ROW, texts, strict=True))
    keeper = None
    if any(acknowledgement):
        keeper = Acknowledgement.model_validate(acknowledgement[0], extra="ignore")
    name = hashlib.sha256("\n".join(texts[:2]).encode()).hexdigest()[:8]
    return OpenAnomaly(id=name, **fields, since=from_ms(began), acknowledgement=keeper)


def _sight(situation: Situation, blind: Sequence[str]) -> dict[str, Any]:
    """The open anomalies, worst first, and the blind plugins, for the script."""
    anomalies = situation.open_anomalies
    rows = [[getattr(it, name) for name in _ROW] for it in anomalies[:MAX_SYMPTOMS]]
    more = max(0, len(anomalies) - MAX_SYMPTOMS)
    return {"open": rows, "more": more, "blind": blind}
