"""Track records: how often an action was effective in a class of situation, and what it earned."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from boyd.models.base import Confidence, JsonObject, Model, Timestamp, Whole
from boyd.text.sequential_bounds import DropTest, lower_bound, stake

#: Outcomes as which a stated confidence counts in the calibrated one.
PRIOR = 5
#: Outcomes of stated confidences below which there is no calibration.
FEWEST = 10
#: The probability with which the lower bound that is shown is ever wrong.
ERROR = 0.05


class EarnedAutonomy(Model):
    """The rule by which an action earns to run alone in a class of situation.

    Attributes:
        at_least: the share of effective executions that the lower bound has to reach.
        after: the fewest verified outcomes.
        lasts: seconds for which a grant is valid.
        false_grants: the highest share of classes in which it is proposed to run alone although its
            true share is lower.
    """

    at_least: float
    after: int
    lasts: float
    false_grants: float


class AutonomyGrant(Model):
    """The right of an action to run alone in a class of situation.

    Attributes:
        id: that of the approval.
        at_least: the share of effective executions that it was granted for.
        since: when it was granted.
        until: when it ends by itself.
        by: who approved it.
    """

    id: str
    at_least: float
    since: Timestamp
    until: Timestamp
    by: list[str]


class TrackRecord(Model):
    """The verified outcomes of an agent's decisions for an action in a class of situation.

    Attributes:
        action: its id.
        situation: the class.
        label: the class in words.
        effective: the number of effective executions.
        failed: those that had no effect, made it worse, or failed.
        unclear: those of which it cannot be told; they count as neither.
        scored: the outcomes for which a confidence had been stated.
        stated_error: the sum of squared errors of the stated confidence for them.
        calibrated_error: that of the calibrated confidence, as it was before each outcome.
        base_error: that of the share of effective executions, as it was before each outcome.
        drop: the evidence for a drop of the share, as a logarithm.
        since: when counting began.
        updated: when the last outcome was counted.
        withdrawn: the number of grants that were withdrawn after failures.
        ended: why the last grant ended early.
        ended_by: the execution after which it was withdrawn.
        offered: the outcomes counted when a person was last asked to let it run alone.
        grant: its right to run alone.
        rate: the share of effective executions.
        lower_bound: that of the true share, which is ever wrong with a probability of `ERROR`.
        brier: the Brier score of the stated confidence.
        base_brier: that of the share of effective executions.
    """

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
    withdrawn: Whole = 0
    ended: str | None = None
    ended_by: str | None = None
    offered: Whole | None = None
    grant: AutonomyGrant | None = None
    rate: float | None = None
    lower_bound: float | None = None
    brier: float | None = None
    base_brier: float | None = None

    def measured(self) -> Self:
        """The record with its rate, the lower bound of it, and Brier scores."""
        rated = self.outcomes or None
        scored = self.scored or None
        return self.patched(
            {
                "rate": rated and self.effective / rated,
                "lower_bound": rated and self.bound(ERROR),
                "brier": scored and self.stated_error / scored,
                "base_brier": scored and self.base_error / scored,
            }
        )

    @property
    def outcomes(self) -> int:
        """The number of outcomes that were effective or not."""
        return self.effective + self.failed

    def bound(self, error: float) -> float:
        """The lower bound of the true share, which is ever wrong with a probability of *error*."""
        return lower_bound(self.effective, self.failed, error)

    def calibrated(self, stated: Confidence) -> float | None:
        """The confidence with which a *stated* one comes true here; None: not known yet.

        The stated one counts as `PRIOR` outcomes. There is none while there are few outcomes, or if
        it has predicted them worse than their share alone.
        """
        if self.scored < FEWEST or self.calibrated_error > self.base_error:
            return None
        return (self.effective + PRIOR * stated) / (self.outcomes + PRIOR)

    def counting(self, stated: Confidence, rule: EarnedAutonomy | None) -> JsonObject:
        """The way to count an outcome of a *stated* confidence in it, for the script that does."""
        plan: JsonObject = {"class": self.situation, "label": self.label}
        plan |= {"confidence": stated, "prior": PRIOR}
        if rule is None:
            return plan
        test = DropTest(rule.at_least)
        return plan | {"success": test.success, "failure": test.failure, "limit": test.limit}

    def has_earned(self, rule: EarnedAutonomy) -> bool:
        """Tell whether it justifies that the action runs alone."""
        # Each new attempt after a withdrawal has half the chance of an error, so that all attempts
        # together have at most twice that of the first.
        error = rule.false_grants / 2**self.withdrawn
        shown = stake(self.effective, self.failed, rule.at_least) >= 1 / error
        return shown and self.outcomes >= rule.after and self.drop == 0

    def granted(self, rule: EarnedAutonomy, now: datetime) -> AutonomyGrant | None:
        """Its right to run alone now under *rule*, if it has it."""
        grant = self.grant
        valid = grant and grant.until > now and grant.at_least >= rule.at_least
        return grant if valid else None

    @property
    def words(self) -> str:
        """The record in one line."""
        if not self.outcomes:
            unclear = f", {self.unclear} could not be told" if self.unclear else ""
            return f"no verified outcome yet{unclear}"
        said = f"{self.effective} of {self.outcomes} effective, at least {self.bound(ERROR):.2f}"
        if not self.scored:
            return said
        brier, base = self.stated_error / self.scored, self.base_error / self.scored
        return f"{said}; Brier score {brier:.3f}, base rate {base:.3f}"

    def about(self, stated: Confidence) -> str:
        """The record in one line, with what a *stated* confidence is worth."""
        calibrated = self.calibrated(stated)
        worth = "no calibration yet" if calibrated is None else f"calibrated {calibrated:.2f}"
        return f"{worth}; {self.words}"


class TrackRecordList(Model):
    """The track records of an agent, latest outcome first."""

    records: list[TrackRecord]
