"""The gate: whether a decided action runs alone, needs a person's approval, or has to wait."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from boyd import naming
from boyd.agent import Agent
from boyd.agent.agent_rules import Circumstances, Rules, Undecided
from boyd.models import Budget, EarnedAutonomy, GateOutcome


@dataclass(frozen=True)
class GateAnswer:
    """The gate's answer, and why.

    Attributes:
        outcome: `automatic`, `asked`, or `refused` until a window opens.
        reason: in one line.
        budget: that limits an automatic execution.
        at: the time at which windows and conditions were evaluated, if any was.
        grant: by which it runs alone, if it needs one.
    """

    outcome: GateOutcome
    reason: str
    budget: Budget | None = None
    at: datetime | None = None
    grant: str | None = None


def gate(agent: Agent, of: Circumstances, asked_by: str | None = None) -> GateAnswer:
    """Judge an action; *asked_by* is the plugin whose hook requires an approval.

    It depends on nothing but the agent, its calendars and the circumstances.
    """
    reason = _asked(agent.rules, of, asked_by)
    if reason:
        return GateAnswer("asked", reason)
    try:
        found = _judged(agent.rules, of)
    except Undecided as error:
        found = GateAnswer("asked", str(error))
    return replace(found, at=of.at)


def _asked(rules: Rules, of: Circumstances, asked_by: str | None) -> str | None:
    """The reason why the decision or the action itself needs a person's approval, or None."""
    mode = of.action.autonomy.mode
    if of.decision.requires_approval:
        return f"{asked_by or 'the decision'} requires approval"
    # What is human-only never earns to run alone.
    if mode == "human-only" or (mode != "auto" and _rule(rules, of) is None):
        return f"the action is {mode}"
    return _doubt(rules, of)


def _doubt(rules: Rules, of: Circumstances) -> str | None:
    """The reason why the confidence does not suffice, if so."""
    least = of.action.autonomy.min_confidence
    if least is None:
        return None
    kind, confidence = _confidence(rules, of)
    if confidence is None:
        return f"no calibration yet for {kind} {of.decision.confidence:g}"
    return f"{kind} {round(confidence, 3):g} is below {least:g}" if confidence < least else None


def _confidence(rules: Rules, of: Circumstances) -> tuple[str, float | None]:
    """The confidence that counts and what it is; None: it is not known yet."""
    stated = of.decision.confidence
    if not rules.calibrates(of.action.id):
        return "confidence", stated
    calibrated = of.record.calibrated(stated) if of.record else None
    return "confidence" if calibrated is None else "calibrated confidence", calibrated


def _judged(rules: Rules, of: Circumstances) -> GateAnswer:
    refusal = rules.refusal(of)
    if refusal:
        return GateAnswer("asked", refusal)
    windows = rules.windows(of)
    for window in windows:
        if window.closed:
            return GateAnswer("refused" if window.waits else "asked", window.closed)
    names = ", ".join(repr(window.name) for window in windows)
    reason = f"{passed(rules, of)}, and in window {names}" if names else passed(rules, of)
    earned = _rule(rules, of)
    if earned is None:
        return GateAnswer("automatic", reason, rules.budget(of))
    return _earned(rules, of, earned, reason)


def _rule(rules: Rules, of: Circumstances) -> EarnedAutonomy | None:
    """The rule by which it earns to run alone; a rollback of harm need not be earned."""
    return None if of.undoes else rules.earned(of.action.id)


def _earned(rules: Rules, of: Circumstances, earned: EarnedAutonomy, reason: str) -> GateAnswer:
    """The answer for an action that has to earn to run alone, and may do so for that *reason*."""
    record = of.record
    grant = record.granted(earned, of.now) if record else None
    if record is None or grant is None:
        words = record.words if record else "its track record is not known"
        return GateAnswer("asked", f"nobody lets it run alone in such situations yet: {words}")
    by = f"grant {naming.short(grant.id)} by {' and '.join(grant.by)}: {record.words}"
    return GateAnswer("automatic", f"{reason}, and {by}", rules.budget(of), grant=grant.id)


def passed(rules: Rules, of: Circumstances) -> str:
    """The reason why an action needs no approval by itself."""
    mode, least = f"the action is {of.action.autonomy.mode}", of.action.autonomy.min_confidence
    kind, confidence = _confidence(rules, of)
    if not least or confidence is None:
        return mode
    return f"{mode}, and {kind} {round(confidence, 3):g} reaches {least:g}"
