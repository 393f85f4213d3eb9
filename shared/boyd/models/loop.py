"""Iterations: phases, problems and results; filters of history, and states of its copies."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pydantic import Field, JsonValue

from boyd.models.action import ActionResult
from boyd.models.base import Model, Timestamp
from boyd.models.decision import Change, Decision, DecisionTrace
from boyd.models.investigation import Investigation, Logged
from boyd.models.situation import Observation, Situation
from boyd.models.tape import AgentBuild, Gate, PluginReads

Mode = Literal["manual", "continuous", "event-driven"]

#: The steps of an iteration in order, and `idle` between iterations.
Phase = Literal["idle", "start", "observe", "orient", "decide", "act", "complete"]


@dataclass(frozen=True)
class Ticks:
    """The times of an agent's ticks, in ms: the slot *n* begins at *offset* + *n* * *length*."""

    length: int
    offset: int

    @classmethod
    def of(cls, agent_id: str, interval: float, offset: float | None = None) -> Ticks:
        """Ticks every *interval* seconds, *offset* seconds after its whole multiples.

        By default the offset depends on the id, so that agents do not all tick at once.
        """
        length = round(interval * 1000)
        if offset is None:
            digest = hashlib.sha256(agent_id.encode()).digest()
            return cls(length, int.from_bytes(digest[:8]) % length)
        return cls(length, round(offset * 1000))

    def slot(self, at: float) -> int:
        """Return the number of the slot at a time in ms."""
        return int((at - self.offset) // self.length)

    def begin(self, slot: int) -> int:
        """Return the time when a slot begins."""
        return self.offset + slot * self.length

    def following(self, at: float) -> int:
        """Return the time of the next tick after a time in ms."""
        return self.begin(self.slot(at) + 1)


class DeclaredAgent(Model):
    """An agent by its file: its name, its plugins, and when its iterations start.

    It ticks `loop_offset` seconds after whole multiples of `loop_interval`.
    """

    id: str
    name: str
    mode: Mode
    loop_interval: float
    loop_offset: float = 0.0
    schedule: list[str] = Field(default_factory=list)
    timezone: str = "UTC"
    plugins: list[str]


class Problem(Model):
    """A component or hook that failed and was skipped; `duration` is in milliseconds.

    `host` is the host of an observer.
    """

    id: str
    phase: Phase
    error: str
    duration: float = 0.0
    host: str | None = None


class ObserverRun(Model):
    """One run of an observer or of one of its shards, as a task of a batch.

    `duration` is in milliseconds; `worker` names the process, `host` where that runs. `offset` has
    the milliseconds since the iteration began, and `attempt` is 2 after a worker was lost. `build`
    is the id of the worker's build of the agent, if it is not the first of the iteration's builds.
    """

    id: str
    host: str
    worker: str
    duration: float
    observations: int
    offset: float | None = None
    batch: int | None = None
    attempt: int | None = None
    build: str | None = None


class PhaseRun(Model):
    """One attempt of a worker at a phase.

    `offset` has the milliseconds since the iteration began, `duration` is in milliseconds. A `lost`
    attempt does not count: its worker was lost, or somebody abandoned the iteration; with `batch`,
    it was at a batch of observe. The observe phase as a whole has no worker. `build` as for runs of
    observers.
    """

    phase: Phase
    offset: float
    duration: float
    attempt: int = 1
    host: str | None = None
    worker: str | None = None
    lost: bool = False
    batch: int | None = None
    build: str | None = None


class NotDue(Model):
    """An observer that an iteration skipped because its interval had not passed."""

    id: str
    due_at: Timestamp


class ObserverHealth(Model):
    """The health of an observer."""

    failures: int = 0
    last_success_at: Timestamp | None = None
    last_error: str | None = None
    last_error_at: Timestamp | None = None
    backoff_until: Timestamp | None = None


class IterationOutcome(Model):
    """The outcome of an iteration: its situation, decision and results."""

    id: str
    agent_id: str
    iteration: int
    trigger: str
    observations: list[Observation] = Field(default_factory=list)
    situation: Situation | None = None
    decision: Decision | None = None
    trace: DecisionTrace | None = None
    action_results: list[ActionResult] = Field(default_factory=list)
    runs: list[str] = Field(default_factory=list)
    success: bool
    error: str | None = None
    duration: float
    started_at: Timestamp
    ended_at: Timestamp

    @property
    def waits_for(self) -> str | None:
        """The approval that its action waits for, if any."""
        return next((item.waits_for for item in self.action_results if item.waits_for), None)


class LoopResult(IterationOutcome):
    """Everything one iteration produced, and what its decision depended on; times in milliseconds.

    `blind` are the plugins that could not look: what they do not see may still be there. The first
    of `builds` is that of the worker that started it. `situation_changes` are those that hooks
    made; those of the decision are in its trace.
    """

    phases: dict[str, float] = Field(default_factory=dict)
    phase_runs: list[PhaseRun] = Field(default_factory=list)
    observer_errors: list[Problem] = Field(default_factory=list)
    observer_runs: list[ObserverRun] = Field(default_factory=list)
    not_due: list[NotDue] = Field(default_factory=list)
    blind: list[str] = Field(default_factory=list)
    problems: list[Problem] = Field(default_factory=list)
    retries: int = 0
    builds: list[AgentBuild] = Field(default_factory=list)
    situation_changes: list[Change] = Field(default_factory=list)
    gate: Gate | None = None
    reads: list[PluginReads] = Field(default_factory=list)


class LoopStatus(Model):
    """The current state of an agent's loop."""

    agent_id: str
    phase: Phase
    iteration: int
    start_time: Timestamp | None = None
    paused: str | None = None
    frozen: str | None = None
    revoked: str | None = None
    pending_runs: int = 0
    pending_approvals: int = 0
    stopped_procedures: int = 0
    worker: str | None = None


class Event(Model):
    """A line of an agent's event stream."""

    id: str
    kind: str
    at: Timestamp
    data: dict[str, JsonValue]


#: Seconds of silence after which such a process counts as dead.
SILENT = 10.0

OutcomeFilter = Literal["ok", "failed"]


class HistoryFilter(Model):
    """A filter for iterations; absent fields match anything.

    Attributes:
        since: ended then or later.
        until: ended before that.
        host: a host where an observer or action ran.
        worker: a process that ran one.
        action: the action decided or executed; with a host or worker, the action that ran there.
        target: a resource of an anomaly, or the name of something in an alert.
        source: an observer, or the source of an observation.
        trigger: what began it.
        status: how it ended.
        q: words in situation, decision or errors; words of three letters or more match beginnings.
    """

    since: Timestamp | None = None
    until: Timestamp | None = None
    host: str | None = Field(default=None, min_length=1, max_length=255)
    worker: str | None = Field(default=None, min_length=1, max_length=300)
    action: str | None = Field(default=None, min_length=1, max_length=200)
    target: str | None = Field(default=None, min_length=1, max_length=1000)
    source: str | None = Field(default=None, min_length=1, max_length=500)
    trigger: str | None = Field(default=None, min_length=1, max_length=200)
    status: OutcomeFilter | None = None
    q: str | None = Field(default=None, min_length=1, max_length=500)

    @property
    def is_open(self) -> bool:
        """True if it matches every iteration."""
        return not any(getattr(self, name) for name in HistoryFilter.model_fields)


class InvestigationRecord(Model):
    """An ended investigation with all of its log."""

    investigation: Investigation
    log: list[Logged]


class FollowerStatus(Model):
    """The state of a process that follows ended work, as it announces it every few seconds.

    Attributes:
        name: the process.
        at: the time of the announcement.
        copied_at: the time up to which everything was copied; absent before the first round.
        down_since: since when the database or collector has not answered; absent while it answers.
        error: why.
        copied: the records, or spans, that the process has copied since its start.
    """

    name: str
    at: Timestamp
    copied_at: Timestamp | None = None
    down_since: Timestamp | None = None
    error: str | None = None
    copied: int = 0

    def works_at(self, now: datetime) -> bool:
        """Check whether the process is alive, and its database or collector answers."""
        return self.down_since is None and not self.is_silent_at(now)

    def is_silent_at(self, now: datetime) -> bool:
        """Check whether the process has announced nothing for too long to be alive."""
        return (now - self.at).total_seconds() >= SILENT


class ArchiveStatus(FollowerStatus):
    """The state of the archive."""


class TraceStatus(FollowerStatus):
    """The state of the export of traces.

    Attributes:
        refused: the spans that the collector refused for what they are.
        standby: whether another process exports.
    """

    refused: int = 0
    standby: bool = False
