"""Takes jobs: what workers do besides iterations, whatever its kind (A4, A6).

A job is entered, worked on under a lease, and left in one step with what came of it. If its
worker dies, the sweeper sends it again under another attempt, which shuts the first one out.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from boyd import naming, queues
from boyd.errors import StoreUnavailable
from boyd.phases.phase_context import describe
from boyd.runtime.engine import Engine
from boyd.runtime.leases import PUT_BACK_MARGIN
from boyd.store import Ending, Fence, Stale, StillRunning, StuckJob

log = logging.getLogger("boyd.runtime")

Fields = Mapping[str, str]


@dataclass(frozen=True)
class Done:
    """How a job ended.

    Attributes:
        state: `succeeded`, `failed` or `unknown`.
        keep: seconds it is kept; 0: it goes at once.
        fields: what is stored with it.
        runs: the runs that end with it.
    """

    state: str
    keep: float
    fields: Fields = field(default_factory=dict)
    runs: Sequence[Ending] = ()


@dataclass(frozen=True)
class Later:
    """Not over: to be taken up again in so many *seconds*, with those fields stored.

    After 0 seconds it goes on at once, on *queue* if one is named.
    """

    seconds: float
    fields: Fields = field(default_factory=dict)
    queue: str | None = None


class JobHandler(Protocol):
    """What is to be done for jobs of one kind.

    `patient` jobs wait for a worker as long as it takes; the others are given up.
    """

    patient: bool

    def limit(self, fields: Fields) -> float:
        """Seconds after which working on it counts as hanging."""

    def perform(self, id: str, fields: Fields, fence: Fence, retry: bool) -> Done | Later:
        """Do it; *retry* when an earlier attempt was lost."""

    def broken(self, id: str, fields: Fields, why: str) -> Done | Later:
        """Say what becomes of it when doing it has raised."""

    def lost(self, id: str, stuck: StuckJob) -> Done | None:
        """Say how it ended, now that it has lost a worker; None when another one may go on.

        Raises:
            StillRunning: what the worker executes for it is still its own.
        """

    def given_up(self, id: str, stuck: StuckJob) -> Done:
        """Say how it ended when no worker took it, or every worker that did was lost."""


class JobRunner:
    """The jobs of one agent, as a worker takes them."""

    def __init__(self, engine: Engine, handlers: Mapping[str, JobHandler]) -> None:
        self._engine = engine
        self._jobs = engine.store.jobs
        self._handlers = handlers

    def execute(self, name: str, attempt: int) -> None:
        """Take the job of that name, if it is queued under this attempt."""
        kind, id = naming.parts(name)
        handler = self._handlers.get(kind)
        if handler is None:
            log.error("a job was ignored: no worker knows what %r is", name)
            return
        worker = self._engine.token()
        fields = self._jobs.enter(name, attempt, worker)
        if fields is None:
            return

        def renew() -> bool:
            return self._jobs.renew(name, attempt, worker)

        with self._engine.leases.hold(renew, handler.limit(fields)):
            try:
                came = handler.perform(id, fields, Fence(name, attempt, worker), attempt > 1)
            except StillRunning as running:
                came = Later(running.seconds + PUT_BACK_MARGIN)
            except (StoreUnavailable, Stale):
                raise  # the sweeper sends it again, or has done so
            except Exception as error:
                log.exception("%s failed", name)
                came = handler.broken(id, fields, describe(error))
        self._leave(name, attempt, worker, came)

    def retry(self, name: str, proof: str) -> None:
        """Look after a job that has passed its deadline; *proof* is the sweeper's."""
        kind, id = naming.parts(name)
        handler = self._handlers.get(kind)
        if handler is None:
            return  # of a later release: a worker of that one looks after it
        stuck = self._jobs.retry(name, proof, handler.patient)
        if stuck is None:
            return
        if stuck.give_up:
            log.warning("%s: %s is given up", self._engine.agent.id, name)
            self._leave(name, stuck.attempt, "", handler.given_up(id, stuck))
            return
        try:
            over = handler.lost(id, stuck) if stuck.attempt > 1 else None
        except StillRunning:
            return  # it is due again when the claim lapses
        if over is not None:
            log.warning("%s: %s has lost its worker: %s", self._engine.agent.id, name, over.state)
            self._leave(name, stuck.attempt, "", over)
        elif self._engine.fleet.serving(stuck.queue or queues.ACT):
            self._engine.dispatcher.job(self._engine.agent.id, name, stuck.attempt, stuck.queue)

    def _put_back(self, name: str, attempt: int, worker: str, came: Later) -> None:
        fields = {**came.fields, **({"queue": came.queue} if came.queue else {})}
        following = self._jobs.put_back(name, attempt, worker, came.seconds, fields)
        if following and came.seconds == 0:
            self._engine.dispatcher.job(self._engine.agent.id, name, following, came.queue)

    def _leave(self, name: str, attempt: int, worker: str, came: Done | Later) -> None:
        if isinstance(came, Later):
            self._put_back(name, attempt, worker, came)
            return
        self._jobs.leave(
            name,
            attempt,
            worker,
            state=came.state,
            fields=came.fields,
            keep=came.keep,
            runs=came.runs,
            keep_runs=self._engine.retention.of_runs(),
        )
