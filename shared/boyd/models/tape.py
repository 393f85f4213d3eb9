"""The tape of an iteration, inputs of a decision that its record lacks; and its replay."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Literal, Self, TypeAlias

from pydantic import Field

from boyd.models.action import Autonomy, Budget, Reversibility
from boyd.models.approval import ApprovalPolicy
from boyd.models.base import Json, JsonObject, Level, Model, Timestamp
from boyd.models.effect import Holdout, TrackRecord
from boyd.models.situation import Anomaly


class PluginVersion(Model):
    """A plugin that took part: its version, or else a digest of its file.

    Attributes:
        id: the plugin.
        version: its own, or that of its package.
        digest: of its file.
        observers: a digest of the code and options of its observers; absent: it has none.
        judges: one of those that judge what was observed by what they remember; absent: none does.
    """

    id: str
    version: str | None = None
    digest: str | None = None
    observers: str | None = None
    judges: str | None = None

    @property
    def text(self) -> str:
        """The plugin and what tells its code apart, in one line."""
        return f"{self.id} {self.version or self.digest or 'of unknown code'}"


class AgentBuild(Model):
    """The agent as a worker ran it.

    Attributes:
        id: a digest of all the rest.
        settings: a digest of the agent's settings and the options of its plugins, with defaults.
        boyd: the release of Boyd.
        plugins: in their order.
    """

    id: str
    settings: str
    boyd: str
    plugins: list[PluginVersion]

    @classmethod
    def of(cls, settings: str, boyd: str, plugins: Sequence[PluginVersion]) -> Self:
        """A build with its id."""
        build = cls(id="", settings=settings, boyd=boyd, plugins=list(plugins))
        return build.patched({"id": digest_of(build.to_json())})


GateOutcome = Literal["automatic", "asked", "refused"]


class Gate(Model):
    """The fate of a decided action before it was executed, and why.

    Attributes:
        outcome: `automatic`: it was executed without a person; `asked`: a person has to approve it;
            `refused`: it was not executed.
        reason: in one line.
        autonomy: of the action; absent: no such action exists.
        risk: of the action, as it declares it.
        reversibility: of the action, likewise.
        budget: of the action.
        used: executions that counted against the budget before this one.
        required: the policy for its approval, if a person was asked.
        at: the time at which windows and conditions were evaluated; absent: none was.
        record: the track record of the action in this class of situation, so far.
        at_least: the share of effective executions that it has to have shown to run alone; absent:
            it needs none.
        grant: by which it ran alone, if it needed one.
        holdout: the draw that decided if its case waits first; absent: nothing was drawn.
    """

    outcome: GateOutcome
    reason: str
    autonomy: Autonomy | None = None
    risk: Level | None = None
    reversibility: Reversibility | None = None
    budget: Budget | None = None
    used: int | None = Field(default=None, ge=0)
    required: ApprovalPolicy | None = None
    at: Timestamp | None = None
    record: TrackRecord | None = None
    at_least: float | None = None
    grant: str | None = None
    holdout: Holdout | None = None


ReadSource = Literal["state", "graph", "approvals", "model", "playbooks", "http", "holds"]
#: Why a read has no value, or not all of it.
ReadNote = Literal["absent", "redacted", "too large", "not JSON"]
#: The phases in which reads are recorded; in act, only those of hooks before the action.
TapedPhase = Literal["orient", "decide", "act"]


class Read(Model):
    """Something that a component or hook read besides what it was given.

    Attributes:
        of: where it was read; of `http` only the use is known.
        key: of the state, or the function that was called with its arguments or their digest.
        value: what was read.
        note: `absent`: there was none; `redacted`: it lacks secrets; `too large`: only its digest
            is kept; `not JSON`: it cannot be kept.
        digest: of a value that is too large.
    """

    of: ReadSource
    key: str
    value: Json = None
    note: ReadNote | None = None
    digest: str | None = None


class PluginReads(Model):
    """The reads of one component or hook in a phase.

    Attributes:
        by: the component's id, or `plugin.hook`; that of the plugin, for state that its strategies
            may read and did not.
        phase: in which it ran.
        clock: the times that `ctx.now()` gave.
        reads: each once, in their order.
        writes: digests of what it left in its state, by key; `absent`: it deleted the key.
        omitted: the number of further reads and writes, which are not kept.
    """

    by: str
    phase: TapedPhase
    clock: list[Timestamp] = Field(default_factory=list)
    reads: list[Read] = Field(default_factory=list)
    writes: dict[str, str] = Field(default_factory=dict)
    omitted: int = 0


def digest_of(text: str) -> str:
    """A digest of *text* that tells different texts apart."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


#: `none`: nothing is to be done; the others as for `Gate`.
Fate = Literal["none", "automatic", "asked", "refused"]
#: A difference to what was recorded. `flipped`: another action, other params, or none; `acts less`:
#: none; `other params`: the same action on the same target; `missing action`: the agent has no such
#: action; `other approval`: a person is asked under another policy; `error`: a component or hook
#: failed that did not.
Difference: TypeAlias = Literal[
    "flipped",
    "newly automatic",
    "newly asked",
    "newly refused",
    "other approval",
    "other params",
    "missing action",
    "acts less",
    "error",
    "cannot tell",
]


class Course(Model):
    """The decision of an iteration, and what the gate makes of it.

    `reason` is that of the gate or of the plugin that refused; `target` is what the action acts on,
    and `required` the policy for its approval.
    """

    action: str
    params: JsonObject = Field(default_factory=dict)
    target: str = ""
    fate: Fate
    reason: str = ""
    required: ApprovalPolicy | None = None


class ReplayedIteration(Model):
    """A recorded iteration as it was and as it would be now.

    Attributes:
        iteration: its id.
        at: when it ended.
        before: as recorded; absent: that cannot be told.
        after: as replayed; absent: that cannot be told.
        differences: none, if it is as recorded.
        why: the reason why it cannot be told, or else the error.
        ended: the end of the recorded action.
        anomalies: those of the situation as replayed; absent: that cannot be told.
        diverged: what it rests on besides the record, as the agent would have left it; in a closed
            loop only.
    """

    iteration: str
    at: Timestamp
    before: Course | None = None
    after: Course | None = None
    differences: list[Difference] = Field(default_factory=list)
    why: str | None = None
    ended: str = ""
    anomalies: list[Anomaly] | None = None
    diverged: str | None = None

    @property
    def action(self) -> str:
        """The action that it is about: the new one, or else the recorded one."""
        courses = [course for course in (self.after, self.before) if course is not None]
        acting = [course.action for course in courses if course.fate != "none"]
        return next(iter(acting), "no-op" if courses else "")


class ActionDifferences(Model):
    """The number of iterations with each difference, for one action."""

    action: str
    counts: dict[Difference, int]


class ReplayReport(Model):
    """The differences that a replay found.

    Attributes:
        agent_id: the agent.
        build: the id of the build that was replayed.
        iterations: the number of iterations that were replayed.
        unchanged: those without a difference.
        first: the id of the first one.
        last: the id of the last one.
        actions: the differences by action.
        findings: the iterations that are different, or of which it cannot be told.
        diverged: the number of those that rest on more than the record, in a closed loop.
        confined_by: what kept the replay from acting.
    """

    agent_id: str
    build: str
    iterations: int
    unchanged: int
    first: str | None = None
    last: str | None = None
    actions: list[ActionDifferences] = Field(default_factory=list)
    findings: list[ReplayedIteration] = Field(default_factory=list)
    diverged: int = 0
    confined_by: list[str] = Field(default_factory=list)

    @property
    def changes(self) -> int:
        """The number of iterations that are different, or of which it cannot be told."""
        return self.iterations - self.unchanged

    def count(self, difference: Difference) -> int:
        """The number of iterations with that difference."""
        return sum(row.counts.get(difference, 0) for row in self.actions)


#: The findings of a report that are published.
PUBLISHED_FINDINGS = 200


class PublishedReplay(Model):
    """A report in the console: who published it, and when; it may lack findings."""

    report: ReplayReport
    by: str
    at: Timestamp

    @classmethod
    def of(cls, report: ReplayReport, by: str, at: datetime) -> Self:
        """A report with its first findings."""
        excerpt = report.patched({"findings": report.findings[:PUBLISHED_FINDINGS]})
        return cls(report=excerpt, by=by, at=at)
