"""Verification: what an action has achieved, and why it may not be repeated yet."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from boyd import naming
from boyd.models.base import Model, Timestamp
from boyd.models.situation import Situation
from boyd.text.formatting import seconds

#: What an action has achieved. "ok" alone means only that its call returned.
EffectName = Literal["effective", "no effect", "worse", "cannot tell"]
#: What Boyd did after an action had made it worse.
CompensationState = Literal["rolled back", "asked", "failed", "none"]
#: Why an action is held: as many executions of it as may be in flight are queued, running or being
#: verified (`open`); or it had no effect; or it has done harm, which was rolled back or not.
HoldKind = Literal["queued", "running", "open", "no effect", "rolled back", "suspended"]
#: The kinds of holds that end with an execution.
IN_FLIGHT = ("queued", "running", "open")
_STAGES = {"queued": "is queued", "running": "is running", "open": "is being verified"}


class VerificationSettings(Model):
    """The verification of an action in the agent file; times in seconds, absent as by the action.

    Attributes:
        within: the time in which the action has to show its effect.
        every: the time between two checks.
        hold: whether the action waits for its verdict on the same target before it is repeated.
        repeat_after: the time after which an action without effect may be repeated although the
            situation is the same; absent: the window of its budget, or else an hour.
        roll_back: whether Boyd undoes an action that has made it worse, if it has a rollback.
    """

    within: float | None = Field(default=None, gt=0, le=86400)
    every: float | None = Field(default=None, ge=0.1, le=3600)
    hold: bool = True
    repeat_after: float | None = Field(default=None, gt=0)
    roll_back: bool = True


class VerificationPlan(Model):
    """The verification of an action, from its own settings and the agent's; times in seconds."""

    within: float
    every: float
    hold: bool
    repeat_after: float
    roll_back: bool


class EffectVerdict(Model):
    """A result of `verify`: a verdict, and the evidence for it in one line.

    A `final` one ends the verification at once; another one counts if no check gives a final one.
    """

    verdict: EffectName
    evidence: str = ""
    final: bool = True


class Compensation(Model):
    """The fate of an action that had made it worse.

    Attributes:
        state: `rolled back`; `asked`: a person has to approve the rollback; `failed`: the rollback
            failed; `none`: it has no rollback, or the policy forbids it.
        detail: in one line.
        execution: of the rollback.
        approval: that the rollback waits for.
    """

    state: CompensationState
    detail: str = ""
    execution: str | None = None
    approval: str | None = None


class EffectVerification(Model):
    """The check of an execution's effect.

    Attributes:
        verdict: None while it is open.
        evidence: for the verdict, or what the last check saw.
        until: the end of the time in which the effect has to show.
        checks: the number of checks so far.
        ended_at: the time of the verdict.
        compensation: after *worse*.
    """

    verdict: EffectName | None = None
    evidence: str | None = None
    until: Timestamp
    checks: int = 0
    ended_at: Timestamp | None = None
    compensation: Compensation | None = None


class Hold(Model):
    """An action that is not repeated on a target for now, unless a person approves it.

    Attributes:
        action: its id.
        target: what it acts on; empty: it has no target.
        kind: why.
        because: why it is suspended, if it is: it did harm, or went beyond its sandbox again and
            again; then it is suspended on all targets.
        execution: the execution that it waits for, or that had no effect or did harm.
        situations: the classes of situations in which it had no effect; it is held in these only,
            and if there are none, or for another reason, in all.
        since: when the hold began.
        until: when it ends by itself; absent: a person has to lift it.
        evidence: for the verdict, if there is one.
        by: who has approved or requested the execution in flight; absent: the agent itself.
        approved: whether that was by an approval.
        host: that executes it.
        age: seconds in this stage, when this was read; of executions in flight only.
    """

    action: str
    target: str = ""
    kind: HoldKind
    because: Literal["harm", "violations"] | None = None
    execution: str
    situations: list[str] = Field(default_factory=list)
    since: Timestamp
    until: Timestamp | None = None
    evidence: str | None = None
    by: str | None = None
    approved: bool = False
    host: str | None = None
    age: float | None = None

    @property
    def in_flight(self) -> bool:
        """Tell whether an execution in flight holds the action, until it ends."""
        return self.kind in IN_FLIGHT

    @property
    def is_queued_call(self) -> bool:
        """True for an execution of a client that has not started, and can be cancelled."""
        return self.kind == "queued" and self.execution.startswith("call:")

    def binds(self, situation: Situation) -> bool:
        """Tell whether it holds the action in *situation*."""
        if self.kind != "no effect" or not self.situations:
            return True
        return situation.class_for(self.action.partition(":")[0]) in self.situations

    @property
    def reason(self) -> str:
        """The reason why the action is not repeated, in one line."""
        what = f"{self.action} on {self.target}" if self.target else self.action
        # The part after the dot tells apart what lost data had the same number.
        done = self.execution.partition(".")[0]
        seen = f": {self.evidence}" if self.evidence else ""
        if self.in_flight:
            return f"{what} is not repeated yet: {self.course}"
        if self.because == "violations":
            return f"{what} is suspended: {done} went beyond its sandbox{seen}"
        if self.kind == "suspended":
            return f"{what} is suspended: {done} made it worse{seen}"
        if self.kind == "rolled back":
            return f"{what} is not repeated: {done} made it worse and was rolled back{seen}"
        return f"{what} is not repeated: {done} had no effect{seen}"

    @property
    def course(self) -> str:
        """The stage of the execution in flight, for how long, and who has ordered it."""
        where = f" on {self.host}" if self.host and self.kind == "running" else ""
        done = f"{naming.short(self.execution.partition('.')[0])} {_STAGES[self.kind]}{where}"
        if not self.by:
            return done
        age = f" (for {seconds(int(self.age))})" if self.age is not None else ""
        return f"{done}{age}, {'approved' if self.approved else 'requested'} by {self.by}"


class HoldList(Model):
    """The held actions of an agent, latest first."""

    holds: list[Hold]
