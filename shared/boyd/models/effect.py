"""Effects of actions: verdicts, holds on repetition, and track records."""

from __future__ import annotations

from datetime import datetime
from math import floor
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field

from boyd import naming
from boyd.models.base import Confidence, Duration, JsonObject, Model, Timestamp, Whole
from boyd.models.coverage import Coverage
from boyd.models.situation import CallScope
from boyd.text.formatting import call_text, counted, message_of, seconds, storable
from boyd.text.sequential_bounds import DropTest, lower_bound, stake, uplift_bound

#: What an action has achieved. "ok" alone means only that its call returned.
EffectName = Literal["effective", "no effect", "worse", "cannot tell"]
#: What Boyd did after an action had made it worse.
CompensationState = Literal["rolled back", "not restored", "asked", "failed", "none"]
#: Why an action is held: as many executions of it as may be in flight are queued, running or being
#: verified (`open`), on this target or on all (`limit`); or its case waits, to learn if that ends
#: without the action (`held out`); or it had no effect, or nobody can tell; or it has done harm,
#: which was rolled back or not; or harm on one target has stopped it on all; or it was `denied`.
HoldKind = Literal[
    "queued",
    "running",
    "open",
    "limit",
    "held out",
    "no effect",
    "cannot tell",
    "rolled back",
    "suspended",
    "stopped",
    "denied",
]
#: The verdict on an action whose checks raised for the whole time.
RaisingVerdict = Literal["cannot tell", "no effect"]
#: The kinds of holds that end with an execution.
IN_FLIGHT = ("queued", "running", "open", "limit")
#: The kinds of holds after harm.
HARM = ("rolled back", "suspended")
_BRIEF = {
    "queued": "is queued",
    "running": "is running",
    "open": "is being verified",
    "limit": "waits for a verdict",
    "held out": "waits to see if the problem ends by itself",
    "no effect": "had no effect",
    "cannot tell": "had an effect that nobody can tell",
    "rolled back": "made it worse and was undone",
    "suspended": "is suspended",
    "stopped": "is stopped on all targets",
    "denied": "was denied",
}
#: Executions of an action that may be in flight on all targets, unless it or the agent says else.
MOST_IN_FLIGHT = 3


class EffectChecks(Model):
    """The checks of an action's effect, as its plugin declares them; times in seconds.

    Attributes:
        within: the time in which the effect has to show.
        every: the time between two checks.
        sustained: the time that it has to be well before it counts as effective.
        raises: the verdict if the checks raised for the whole time.
        before: whether it is also checked once before the action, which is not executed if it is
            well already; absent: unless the check takes the result of the action.
        in_flight: the number of its executions that may run or be verified on all targets.
    """

    within: float = Field(default=60.0, gt=0, le=604800)
    every: float = Field(default=5.0, gt=0, le=604800)
    sustained: float = Field(default=0.0, ge=0, le=604800)
    raises: RaisingVerdict = "cannot tell"
    before: bool | None = None
    in_flight: int = Field(default=MOST_IN_FLIGHT, ge=1, le=1000)


class VerificationSettings(Model):
    """The verification of an action in the agent file; times in seconds, absent as by the action.

    Attributes:
        within: the time in which the action has to show its effect.
        every: the time between two checks.
        sustained: the time that it has to be well before it counts as effective.
        before: whether it is checked before the action, too, which is not executed if it is well.
        in_flight: the number of its executions that may run or be verified on all targets.
        hold: whether the action waits for its verdict on the same target before it is repeated.
        repeat_after: the time after which an action without effect may be repeated although its
            symptoms are the same; absent: the window of its budget, or else an hour.
        roll_back: whether Boyd undoes an action that has made it worse, if it has a rollback.
    """

    within: float | None = Field(default=None, gt=0, le=86400)
    every: float | None = Field(default=None, ge=0.1, le=3600)
    sustained: float | None = Field(default=None, ge=0, le=86400)
    before: bool | None = None
    in_flight: int | None = Field(default=None, ge=1, le=1000)
    hold: bool = True
    repeat_after: Duration | None = Field(default=None, gt=0)
    roll_back: bool = True


class VerificationPlan(Model):
    """The verification of an action, from its own settings and the agent's; times in seconds."""

    within: float
    every: float
    sustained: float = 0.0
    raises: RaisingVerdict = "cannot tell"
    before: bool = False
    in_flight: int = MOST_IN_FLIGHT
    hold: bool
    repeat_after: float
    roll_back: bool


def _evidence_text(value: object) -> str:
    """Evidence as a text that can be stored: no text may cost the verdict."""
    return "" if value is None else storable(message_of(value))


class EffectVerdict(Model):
    """A result of `verify`: a verdict, and the evidence for it in one line.

    A `final` one ends the verification at once; another one counts if no check gives a final one.
    Evidence that is no text is written as one; half of a surrogate pair becomes `\ufffd`.
    """

    verdict: EffectName
    evidence: Annotated[str, BeforeValidator(_evidence_text)] = ""
    final: bool = True


class Compensation(Model):
    """The fate of an action that had made it worse.

    Attributes:
        state: `rolled back`; `not restored`: it was rolled back, in vain; `asked`: a person has to
            approve the rollback; `failed`: the rollback failed; `none`: it has no rollback, or the
            policy forbids it.
        detail: in one line.
        execution: of the rollback.
        approval: that the rollback waits for.
        restored: True when a check after the rollback saw no harm any more; absent: not yet known.
    """

    state: CompensationState
    detail: str = ""
    execution: str | None = None
    approval: str | None = None
    restored: Literal[True] | None = None


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
        execution: the execution that it waits for, or that had no effect, did harm or was denied.
        symptoms: what it was meant to end, in words, if it had no effect or was denied; the hold
            ends when all of them are gone.
        since: when the hold began.
        until: when it ends by itself; absent: a person has to lift it.
        evidence: for the verdict, if there is one, or the note of who denied it.
        by: who has approved or requested the execution in flight, or denied it; absent: the agent
            itself.
        approved: whether that was by an approval.
        host: that executes it.
        age: seconds in this stage, when this was read; of executions in flight only.
    """

    action: str
    target: str = ""
    kind: HoldKind
    because: Literal["harm", "violations"] | None = None
    execution: str
    symptoms: list[str] = Field(default_factory=list)
    since: Timestamp
    until: Timestamp | None = None
    evidence: str | None = None
    by: str | None = None
    approved: bool = False
    host: str | None = None
    age: float | None = None

    @property
    def in_flight(self) -> bool:
        """True if an execution in flight holds the action, until that ends."""
        return self.kind in IN_FLIGHT

    @property
    def is_queued_call(self) -> bool:
        """True for an execution of a client that has not started, and can be cancelled."""
        return self.kind == "queued" and self.execution.startswith("call:")

    @property
    def brief(self) -> str:
        """Its state in one line, such as `restart on web-3 had no effect`."""
        harm = "made it worse, and " if self.because == "harm" else ""
        return f"{call_text(self.action, self.target)} {harm}{_BRIEF[self.kind]}"

    @property
    def reason(self) -> str:
        """The obstacle to repeating the action, in one line."""
        subject = call_text(self.action, self.target)
        # The part after the dot tells apart what lost data had the same number.
        done = self.execution.partition(".")[0]
        evidence = f": {self.evidence}" if self.evidence else ""
        if self.kind == "denied":
            denial = f"{self.by} denied it at {self.since:%H:%M} UTC"
            return f"{subject} is not asked for again: {denial}{evidence}"
        if self.kind == "limit":
            return f"{subject} waits until a verdict is there: {self.evidence}"
        if self.in_flight:
            return f"{subject} is not repeated yet: {self.course}"
        if self.kind == "stopped":
            return f"{self.action} is stopped on all targets: {done} made it worse {self.evidence}"
        if self.kind == "held out":
            until = f" until {self.until:%H:%M} UTC" if self.until else ""
            return f"{subject} waits: held out to learn whether it heals by itself{until}"
        if self.because == "violations":
            return f"{subject} is suspended: {done} went beyond its sandbox{evidence}"
        if self.kind == "suspended":
            harm = "restored nothing" if naming.is_rollback(done) else "made it worse"
            return f"{subject} is suspended: {done} {harm}{evidence}"
        if self.kind == "rolled back":
            return f"{subject} is not repeated: {done} made it worse and was rolled back{evidence}"
        if self.kind == "cannot tell":
            return f"{subject} is not repeated: nobody can tell what {done} did{evidence}"
        return f"{subject} is not repeated: {done} had no effect{evidence}"

    @property
    def course(self) -> str:
        """The stage of the execution in flight, for how long, and who has ordered it."""
        where = f" on {self.host}" if self.host and self.kind == "running" else ""
        done = f"{naming.short(self.execution.partition('.')[0])} {_BRIEF[self.kind]}{where}"
        if not self.by:
            return done
        age = f" (for {seconds(int(self.age))})" if self.age is not None else ""
        return f"{done}{age}, {'approved' if self.approved else 'requested'} by {self.by}"


class HoldList(Model):
    """The held actions of an agent, latest first."""

    holds: list[Hold]


#: Outcomes as which a stated confidence counts in the calibrated one.
PRIOR = 5
#: Outcomes of stated confidences below which there is no calibration.
FEWEST = 10
#: The probability with which the lower bound that is shown is ever wrong.
ERROR = 0.05
_SURE = f"{100 * (1 - ERROR):g} % confidence"
#: An uplift that is not there is shown this many times more rarely: few cases wait, and three in
#: vain would do.
STRICTER = 10


class EarnedAutonomy(Model):
    """The rule by which an action earns to run alone in a class of situation.

    Attributes:
        at_least: the share of effective executions that the lower bound has to reach.
        after: the fewest verified outcomes.
        lasts: seconds for which a grant is valid.
        false_grants: the highest share of classes in which it is proposed to run alone although its
            true share is lower, or, with `require_uplift`, although waiting is as good.
        holdout: the share of cases that wait first, to learn how many end without the action.
        require_uplift: whether it is only proposed once it is better than waiting.
        burst: seconds within which outcomes may have one cause, and count once; 0: each counts.
    """

    at_least: float
    after: int
    lasts: float
    false_grants: float
    holdout: float = 0.1
    require_uplift: bool = True
    burst: float = 0.0


class AutonomyGrant(Model):
    """The right of an action to run alone in a class of situation.

    Attributes:
        id: that of the approval.
        at_least: the share of effective executions that it was granted for.
        since: when it was granted.
        until: when it ends by itself.
        by: who approved it.
        in_flight: the number of executions in flight up to which it lets the action run; absent:
            it was granted by an earlier release, and does not limit them.
        proven: the effective executions in a row since that number was doubled; as many of them as
            the number double it again.
        covers: the targets and params to which it is limited.
    """

    id: str
    at_least: float
    since: Timestamp
    until: Timestamp
    by: list[str]
    in_flight: Whole | None = None
    proven: Whole | None = None
    covers: Coverage = Coverage()

    @property
    def words(self) -> str:
        """The grant and those who gave it."""
        return f"grant {naming.short(self.id)} by {' and '.join(self.by)}"


class Holdout(Model):
    """The draw that decides if a case waits before the action.

    Attributes:
        draw: uniform between 0 and 1, and the same whenever the iteration runs again.
        share: below which a case waits; the propensity.
        until: when the wait ends; absent: it does not wait.
    """

    draw: float
    share: float
    until: Timestamp | None = None


class WaitingTrial(Model):
    """A comparison of acting with waiting, by cases that were assigned at random.

    Every case counts from its draw, and against the action as long as nothing else is known: one
    that was to be acted on as not well, one that was to wait as well.

    Attributes:
        cases: those that were to be acted on at once.
        well_after: those of them in which the first execution was effective.
        waited: the cases that were to wait.
        well_without: those of them that were well by the end of the wait.
        needed: those of them in which the action was executed after the wait.
        took: the milliseconds that the longest effective execution has taken: a case waits so much
            longer, so that it has as long to end by itself as those that are acted on.
    """

    cases: Whole = 0
    well_after: Whole = 0
    waited: Whole = 0
    well_without: Whole = 0
    needed: Whole = 0
    took: Whole = 0

    def uplift(self, error: float) -> float:
        """Bound from below what acting adds to the share of cases that end well.

        *error* is the probability that the bound is ever too high.
        """
        acting = self.well_after, max(0, self.cases - self.well_after)
        waiting = max(0, self.waited - self.needed), self.needed
        return uplift_bound(acting, waiting, error)

    def words(self, error: float = ERROR / STRICTER) -> str:
        """The comparison in one sentence, with a bound that is ever wrong with that *error*."""
        if not self.waited:
            return "no case has waited: nothing shows that it is better than waiting"
        uplift, unclear = self.uplift(error), self.waited - self.needed - self.well_without
        counts = f"{self.well_after} of {self.cases} well after it; "
        counts += f"{self.well_without} of {self.waited} well without it"
        counts += f", {unclear} could not be told" if unclear > 0 else ""
        if uplift <= 0:
            return f"{counts}; nothing shows that it is better than waiting"
        return f"{counts}; better by at least {floor(uplift * 100)} percentage points"


class OutcomeCounts(Model):
    """The verified outcomes of an action in a class of situation, and what they say about it."""

    action: str
    situation: str
    label: str
    effective: Whole = 0
    failed: Whole = 0
    unclear: Whole = 0
    scored: Whole = 0
    stated_error: float = 0.0
    calibrated_error: float = 0.0
    base_error: float = 0.0
    drop: float = 0.0
    since: Timestamp | None = None
    updated: Timestamp | None = None

    @property
    def outcomes(self) -> int:
        """The number of outcomes that were effective or not."""
        return self.effective + self.failed

    @property
    def failures_at_worst(self) -> int:
        """The failures if all outcomes that cannot be told were failures, which nobody knows."""
        return self.failed + self.unclear

    def bound(self, error: float) -> float:
        """The lower bound of the true share, which is ever wrong with a probability of *error*.

        It holds even if all outcomes that cannot be told were failures.
        """
        return lower_bound(self.effective, self.failures_at_worst, error)

    def calibrate(self, stated: Confidence) -> float | None:
        """Estimate the probability that a decision of *stated* confidence is effective.

        The stated one counts as `PRIOR` outcomes. None while there are few outcomes, or if stated
        confidences have predicted them worse than the share of effective ones alone.
        """
        if self.scored < FEWEST or self.calibrated_error > self.base_error:
            return None
        return (self.effective + PRIOR * stated) / (self.outcomes + PRIOR)

    @property
    def words(self) -> str:
        """The record in one line."""
        unclear = f", {self.unclear} could not be told" if self.unclear else ""
        if not self.outcomes:
            return f"no verified outcome yet{unclear}"
        least = floor(self.bound(ERROR) * 100)
        times = counted(self.outcomes, "time")
        return f"worked {self.effective} of {times}{unclear}; at least {least} % ({_SURE})"

    def about(self, stated: Confidence) -> str:
        """The record in one line, with what a *stated* confidence is worth."""
        calibrated = self.calibrate(stated)
        chance = "" if calibrated is None else f"; this time with a chance of {calibrated:.0%}"
        return f"{self.words}{chance.replace('%', ' %')}"

    @property
    def arithmetic(self) -> str:
        """The origin of the figures in `about`."""
        text = (
            "The bound stays valid no matter how often you check it: a bet on a higher share"
            f" than that has multiplied by {1 / ERROR:g}; what cannot be told counts as a failure."
            f" The chance counts the stated confidence as {PRIOR} outcomes:"
            f" (effective + {PRIOR} * stated) / (outcomes + {PRIOR})."
        )
        if not self.scored:
            return text
        brier, base = self.stated_error / self.scored, self.base_error / self.scored
        return (
            f"{text} Mean squared error of the stated confidence (Brier score) {brier:.3f},"
            f" of the share of effective executions so far {base:.3f}."
        )


class TrackRecord(OutcomeCounts):
    """The verified outcomes of an agent's decisions for an action in a class of situation.

    Attributes:
        action: its id.
        situation: the class.
        label: the class in words.
        effective: the number of effective executions.
        failed: those that had no effect, made it worse, or failed.
        unclear: those of which it cannot be told; they count as failed for bounds and grants, but
            not for the rate and the scores.
        scored: the outcomes for which a confidence had been stated.
        stated_error: the sum of squared errors of the stated confidence for them.
        calibrated_error: that of the calibrated confidence, as it was before each outcome.
        base_error: that of the share of effective executions, as it was before each outcome.
        drop: the evidence for a drop of the share, as a logarithm.
        bursts: the bursts that are over, by how many percent of each were effective; absent: none.
        since: when counting began.
        updated: when the last outcome was counted.
        withdrawn: the number of grants that were withdrawn after failures.
        ended: why the last grant ended early.
        ended_by: the execution after which it was withdrawn.
        offered: the outcomes counted when a person was last asked to let it run alone.
        grant: its right to run alone.
        related: a grant of the action for the same anomalies on another kind of target, if this
            class has none.
        trial: the comparison with waiting.
        covers: the targets and params of its effective executions.
        concerns: the targets of the decision with which it was read.
        rate: the share of effective executions.
        lower_bound: that of the true share, which is ever wrong with a probability of `ERROR`.
        brier: the Brier score of the stated confidence.
        base_brier: that of the share of effective executions.
        uplift: the lower bound of what it adds to the share of cases that are well without it,
            ever wrong with a probability of `ERROR` / `STRICTER`; absent: no case has waited.
    """

    bursts: dict[str, Whole] | None = None
    withdrawn: Whole = 0
    ended: str | None = None
    ended_by: str | None = None
    offered: Whole | None = None
    grant: AutonomyGrant | None = None
    related: AutonomyGrant | None = None
    trial: WaitingTrial = WaitingTrial()
    covers: Coverage = Coverage()
    concerns: list[str] = Field(default_factory=list)
    rate: float | None = None
    lower_bound: float | None = None
    brier: float | None = None
    base_brier: float | None = None
    uplift: float | None = None

    def with_rates(self) -> Self:
        """Fill in the rate, its lower bound, and the Brier scores."""
        rated = self.outcomes or None
        scored = self.scored or None
        return self.patched(
            {
                "rate": rated and self.effective / rated,
                "lower_bound": rated and self.bound(ERROR),
                "brier": scored and self.stated_error / scored,
                "base_brier": scored and self.base_error / scored,
                "uplift": self.trial.uplift(ERROR / STRICTER) if self.trial.waited else None,
            }
        )

    def counting(
        self, stated: Confidence, rule: EarnedAutonomy | None, scope: CallScope
    ) -> JsonObject:
        """The arguments with which a script counts an outcome of a *stated* confidence."""
        plan: JsonObject = {"class": self.situation, "label": self.label, **scope.plan}
        plan |= {"confidence": stated, "prior": PRIOR}
        if rule is None:
            return plan
        test = DropTest(rule.at_least)
        plan |= {"burst": round(1000 * rule.burst)} if rule.burst else {}
        return plan | {"success": test.success, "failure": test.failure, "limit": test.limit}

    def has_earned(self, rule: EarnedAutonomy) -> bool:
        """Check whether the record justifies that the action runs alone."""
        if self.outcomes < rule.after or self.drop > 0:
            return False
        error, ways = self.error(rule), [{1.0: self.effective, 0.0: self.failures_at_worst}]
        if rule.burst:
            ways.append({int(name) / 100: count for name, count in (self.bursts or {}).items()})
        for counts in ways:
            if sum(counts.values()) < rule.after or stake(counts, rule.at_least) < 1 / error:
                return False
        return not rule.require_uplift or self.trial.uplift(error / STRICTER) > 0

    def error(self, rule: EarnedAutonomy) -> float:
        """The chance of an error, halved with each withdrawal: all have at most twice the first."""
        return rule.false_grants * 0.5**self.withdrawn

    def valid_grant(
        self, rule: EarnedAutonomy, now: datetime, grant: AutonomyGrant | None = None
    ) -> AutonomyGrant | None:
        """Its grant, or that *grant*, if it is valid now and under *rule*."""
        grant = grant or self.grant
        valid = grant and grant.until > now and grant.at_least >= rule.at_least
        return grant if valid else None


class TrackRecordList(Model):
    """The track records of an agent, latest outcome first."""

    records: list[TrackRecord]
