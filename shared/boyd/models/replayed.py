"""Replays: what an agent decides on recorded iterations, and what is different from then."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from boyd.models.approval import ApprovalPolicy
from boyd.models.base import JsonObject, Model, Timestamp

#: `none`: nothing is to be done; the others as for `Gate`.
Fate = Literal["none", "automatic", "asked", "refused"]
#: A difference to what was recorded. `flipped`: another action, other params, or none;
#: `other approval`: a person is asked under another policy.
Difference: TypeAlias = Literal[
    "flipped",
    "newly automatic",
    "newly asked",
    "newly refused",
    "other approval",
    "cannot tell",
]


class Course(Model):
    """The decision of an iteration, and what the gate makes of it.

    `reason` is that of the gate or of whoever refused; `target` is what the action acts on, and
    `required` the policy for its approval.
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
        why: the reason why it cannot be told.
        ended: the end of the recorded action.
    """

    iteration: str
    at: Timestamp
    before: Course | None = None
    after: Course | None = None
    differences: list[Difference] = Field(default_factory=list)
    why: str | None = None
    ended: str = ""

    @property
    def action(self) -> str:
        """The action that it is about: the new one, or else the recorded one."""
        courses = [one for one in (self.after, self.before) if one is not None]
        acting = [one.action for one in courses if one.fate != "none"]
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
    confined_by: list[str] = Field(default_factory=list)

    @property
    def changed(self) -> int:
        """The number of iterations that are different, or of which it cannot be told."""
        return self.iterations - self.unchanged

    def count(self, difference: Difference) -> int:
        """The number of iterations with that difference."""
        return sum(one.counts.get(difference, 0) for one in self.actions)


class PublishedReplay(Model):
    """A report in the console: who published it, and when; it may lack findings."""

    report: ReplayReport
    by: str
    at: Timestamp
