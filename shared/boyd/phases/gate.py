"""The gate: whether a decided action runs alone, needs a person's approval, or has to wait."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from boyd.agent import Agent
from boyd.agent_rules import Circumstances, Rules, Undecided
from boyd.models import Budget, GateOutcome


@dataclass(frozen=True)
class GateAnswer:
    """The gate's answer, and why.

    Attributes:
        outcome: `automatic`, `asked`, or `refused` until a window opens.
        reason: in one line.
        budget: that limits an automatic execution.
        at: the time at which windows and conditions were evaluated, if any was.
    """

    outcome: GateOutcome
    reason: str
    budget: Budget | None = None
    at: datetime | None = None


def gate(agent: Agent, of: Circumstances, asked_by: str | None = None) -> GateAnswer:
    """Judge an action; *asked_by* is the plugin whose hook requires an approval.

    It depends on nothing but the agent, its calendars and the circumstances.
    """
    reason = _asked(of, asked_by)
    if reason:
        return GateAnswer("asked", reason)
    try:
        found = _judged(agent.rules, of)
    except Undecided as error:
        found = GateAnswer("asked", str(error))
    return replace(found, at=of.at)


def _asked(of: Circumstances, asked_by: str | None) -> str | None:
    """The reason why the decision or the action itself needs a person's approval, or None."""
    autonomy, decision = of.action.autonomy, of.decision
    if decision.requires_approval:
        return f"{asked_by or 'the decision'} requires approval"
    if autonomy.mode != "auto":
        return f"the action is {autonomy.mode}"
    if autonomy.min_confidence is not None and decision.confidence < autonomy.min_confidence:
        return f"confidence {decision.confidence:g} is below {autonomy.min_confidence:g}"
    return None


def _judged(rules: Rules, of: Circumstances) -> GateAnswer:
    refusal = rules.refusal(of)
    if refusal:
        return GateAnswer("asked", refusal)
    windows = rules.windows(of)
    for window in windows:
        if window.closed:
            return GateAnswer("refused" if window.waits else "asked", window.closed)
    names = ", ".join(repr(window.name) for window in windows)
    reason = f"{passed(of)}, and in window {names}" if names else passed(of)
    return GateAnswer("automatic", reason, rules.budget(of))


def passed(of: Circumstances) -> str:
    """The reason why an action needs no approval by itself."""
    autonomy, decision = of.action.autonomy, of.decision
    mode, least = f"the action is {autonomy.mode}", autonomy.min_confidence
    return f"{mode}, and confidence {decision.confidence:g} reaches {least:g}" if least else mode
