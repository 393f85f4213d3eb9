"""Runs jobs, the work of workers besides iterations.

A worker enters a job, works on it under a lease, and leaves it with its result in one step. If the
worker dies, the sweeper sends the job again under a new attempt, which fences off the old one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from boyd import naming
from boyd.errors import StoreUnavailable
from boyd.models import Fence
from boyd.phases.phase_context import describe
from boyd.plugin import Action
from boyd.plugin.plugin_boundary import contain
from boyd.runtime.engine import Engine
from boyd.runtime.leases import PUT_BACK_MARGIN
from boyd.store import RunEnding, Stale, StillRunning, StuckJob
from boyd.text import queues

log = logging.getLogger("boyd.runtime")

Fields = Mapping[str, str]


@dataclass(frozen=True)
class Done:
    """The end of a job.

    Attributes:
        state: `succeeded`, `failed` or `unknown`.
        keep: seconds until it is deleted.
        fields: fields to store with it.
        runs: the runs that end with it.
    """

    state: str
    keep: float
    fields: Fields = field(default_factory=dict)
    runs: Sequence[RunEnding] = ()


@dataclass(frozen=True)
class Later:
    """A job to continue in *seconds*, with *fields* stored, on *queue* or where it is."""

    seconds: float
    fields: Fields = field(default_factory=dict)
    queue: str | None = None


def requeue(queue: str | None, fields: Fields | None = None) -> Later:
    """A job to continue at once, on any worker of *queue*."""
    return Later(0, fields or {}, queue)


@dataclass(frozen=True)
class JobFailure:
    """An error of `perform`: its *reason*, the *errors* in a row by now, and the job's fence."""

    reason: str
    errors: int
    fence: Fence


#: The field of a job with the number of errors since `perform` has returned last.
ERRORS = "executionErrors"
#: How often in a row a job may be handed over, and the seconds between, after the first time.
#: During an upgrade, workers with different plugins disagree about the queue of an action.
MAX_HANDOVERS, _HANDOVER = 12, 5.0
#: The field of a job or iteration with its handovers since it last got on: each a line of queue and
#: worker.
HANDOVERS = "executionHandovers"
#: How often work may be put back for a worker whose plugins have its action, and the seconds
#: between. In a large deployment most workers may be older ones.
MAX_SEARCHES, SEARCH = 60, 1.0
#: Seconds between attempts of a plugin to notify people, and their number after the first one.
_NOTICE_RETRY, _NOTICE_TRIES = 60.0, 30
#: The queue in the handovers of workers that do not have the action.
_UNKNOWN = "?"


class Elsewhere(Exception):
    """Raised to hand work over to the workers of the queue that an action has.

    If *unknown*, this worker does not have the action, but another one of the queue may.
    """

    def __init__(self, action: str, queue: str, unknown: bool = False) -> None:
        super().__init__(action, queue)
        self.action = action
        self.queue = queue
        self.unknown = unknown

    def note(self, fields: Fields, worker: str) -> Fields:
        """The field to store when *worker* hands work with these *fields* over."""
        belief = _UNKNOWN if self.unknown else self.queue
        return {HANDOVERS: f"{fields.get(HANDOVERS, '')}{belief} {worker}\n"}


def find_action(engine: Engine, id: str, fields: Fields) -> Action | None:
    """Look up an action for the job or act phase with these *fields*; None if it is unknown.

    Raises:
        Elsewhere: a live worker with other plugins may have it, as during an upgrade.
    """
    leave_to_others(engine, id, fields)
    return engine.agent.host.actions.get(id)


def leave_to_others(engine: Engine, action: str, fields: Fields) -> None:
    """Leave work to a live worker with other plugins if only that one may have the *action*.

    Raises:
        Elsewhere: there is such a worker, and the work was not put back too often for it.
    """
    searches = fields.get(HANDOVERS, "").count(f"{_UNKNOWN} ")
    if action in engine.agent.host.actions or searches >= MAX_SEARCHES:
        return
    if engine.fleet.has_others(fields.get("queue") or queues.ACT, engine.agent.fingerprint):
        raise Elsewhere(action, fields.get("queue") or queues.ACT, unknown=True)


def notify_plugins(
    engine: Engine, hook_name: str, fields: Fields, about: str, **values: Any
) -> Later | None:
    """Run a hook of each plugin until it has succeeded; None when nothing is left to do.

    What has succeeded is noted in the job's *fields*, so that it is not repeated because another
    one fails. Each *about* is an event of its own.
    """
    ctx, counts = engine.act_context(), {}
    for hook in ctx.host.hooks(hook_name):
        field = f"{hook_name}:{about}:{hook.plugin_id}"
        tries, problems = int(fields.get(field, 0)), len(ctx.problems)
        if tries <= _NOTICE_TRIES:
            ctx.hook(hook, **values)
            counts[field] = tries + 1 if len(ctx.problems) > problems else _NOTICE_TRIES + 1
    if not counts:
        return None
    wait = _NOTICE_RETRY if min(counts.values()) <= _NOTICE_TRIES else 0
    noted = {field: str(count) for field, count in counts.items()}
    return Later(wait, noted, fields.get("queue"))


class JobHandler(Protocol):
    """Handles the jobs of one kind.

    `patient` jobs wait indefinitely for a worker; others are given up after `queue_timeout`.
    """

    patient: bool = False

    def limit(self, fields: Fields) -> float:
        """Seconds after which its worker counts as hanging."""

    def perform(self, id: str, fields: Fields, fence: Fence, retry: bool) -> Done | Later:
        """Work on it; *retry* after an earlier attempt was lost."""

    def handle_error(self, id: str, fields: Fields, failure: JobFailure) -> Done | Later:
        """Decide how it continues after `perform` raised an error."""

    def handle_loss(self, id: str, stuck: StuckJob) -> Done | None:
        """Decide how it ended after losing its worker, or return None to let another continue.

        Raises:
            StillRunning: the worker's claim on an execution has not lapsed.
        """
        return None

    def give_up(self, id: str, stuck: StuckJob) -> Done | Later:
        """Decide how it goes on or ended when no worker took it or every one was lost."""


class JobRunner:
    """Runs the jobs of one agent."""

    def __init__(self, engine: Engine, handlers: Mapping[str, JobHandler]) -> None:
        self._engine = engine
        self._jobs = engine.store.jobs
        self._handlers = handlers

    def execute(self, name: str, attempt: int) -> None:
        """Run the job of that name if it is queued under this attempt."""
        kind, id = naming.parts(name)
        handler = self._handlers.get(kind)
        if handler is None:
            log.error("ignoring a job of unknown kind %r", name)
            return
        attempt_name = self._engine.attempt_name()
        fields = self._jobs.enter(name, attempt, attempt_name)
        if fields is None:
            return
        fence = Fence(name, attempt, attempt_name)

        def renew() -> bool:
            return self._jobs.renew(fence)

        with self._engine.leases.renewing(renew, handler.limit(fields)):
            try:
                outcome = contain(lambda: handler.perform(id, fields, fence, attempt > 1))
                if ERRORS in fields:
                    outcome = _count(outcome, 0)
            except StillRunning as running:
                outcome = Later(running.seconds + PUT_BACK_MARGIN)
            except Elsewhere as other:
                outcome = self._hand_over(other, fields) or _after_error(
                    handler, fence, fields, _disagreement(other, fields)
                )
            except (StoreUnavailable, Stale):
                raise  # the sweeper sends it again, or already has
            except Exception as error:
                log.exception("%s failed", name)
                outcome = _after_error(handler, fence, fields, describe(error))
        self._leave(fence, outcome)

    def retry(self, name: str, proof: str) -> None:
        """Recover an overdue job; *proof* is what the sweeper read of its deadline."""
        kind, id = naming.parts(name)
        handler = self._handlers.get(kind)
        if handler is None:
            return  # from a later release, whose workers recover it
        stuck = self._jobs.retry(name, proof, handler.patient)
        if stuck is None:
            return
        if stuck.give_up:
            log.warning("%s: giving up %s", self._engine.agent.id, name)
            self._leave(Fence(name, stuck.attempt, stuck.worker), handler.give_up(id, stuck))
            return
        try:
            over = handler.handle_loss(id, stuck) if stuck.attempt > 1 else None
        except StillRunning:
            return  # it is due again when the claim lapses
        if over is not None:
            log.warning("%s: %s has lost its worker: %s", self._engine.agent.id, name, over.state)
            self._leave(Fence(name, stuck.attempt, ""), over)
        elif self._engine.fleet.serving(stuck.queue or queues.ACT):
            self._engine.dispatcher.job(self._engine.agent.id, name, stuck.attempt, stuck.queue)

    def _hand_over(self, other: Elsewhere, fields: Fields) -> Later | None:
        """Hand a job over, or return None if its workers only pass it back and forth."""
        handovers = fields.get(HANDOVERS, "")
        beliefs = handovers.count("\n") - handovers.count(f"{_UNKNOWN} ")
        if not other.unknown and beliefs >= MAX_HANDOVERS:
            return None
        noted = other.note(fields, self._engine.settings.worker)
        wait = SEARCH if other.unknown else _HANDOVER if beliefs else 0
        return Later(wait, noted, other.queue)

    def _put_back(self, fence: Fence, outcome: Later) -> None:
        fields = {**outcome.fields, **({"queue": outcome.queue} if outcome.queue else {})}
        following = self._jobs.put_back(fence, outcome.seconds, fields)
        if following and outcome.seconds == 0:
            agent_id, name = self._engine.agent.id, str(fence.origin)
            self._engine.dispatcher.job(agent_id, name, following, outcome.queue)

    def _leave(self, fence: Fence, outcome: Done | Later) -> None:
        if isinstance(outcome, Later):
            self._put_back(fence, outcome)
            return
        self._jobs.leave(
            fence,
            state=outcome.state,
            fields=outcome.fields,
            keep=outcome.keep,
            runs=outcome.runs,
            retention=self._engine.retention,
        )


def _after_error(handler: JobHandler, fence: Fence, fields: Fields, reason: str) -> Done | Later:
    """Let the handler decide, and count the error."""
    failure = JobFailure(reason, int(fields.get(ERRORS, 0)) + 1, fence)
    _, id = naming.parts(str(fence.origin))
    return _count(handler.handle_error(id, fields, failure), failure.errors)


def _count(outcome: Done | Later, errors: int) -> Done | Later:
    """Store the number of errors in a row with a job that continues."""
    if isinstance(outcome, Done):
        return outcome
    return replace(outcome, fields={**outcome.fields, ERRORS: str(errors)})


def _disagreement(other: Elsewhere, fields: Fields) -> str:
    """Say which queue each worker that handed the job over believes in."""
    beliefs = sorted(set(fields[HANDOVERS].splitlines()))
    pairs = [belief.split(" ", 1) for belief in beliefs]
    listed = ", ".join(f"{queue!r} on {worker}" for queue, worker in pairs if queue != _UNKNOWN)
    return (
        f"Not executed: the workers disagree about the queue of {other.action}: {listed}; "
        "restart those that have an older plugin"
    )
