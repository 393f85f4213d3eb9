"""The gate: whether a decided action runs alone, needs a person's approval, or has to wait."""

from __future__ import annotations

from boyd import naming
from boyd.agent import Agent
from boyd.agent.agent_rules import Circumstances, Rules, Undecided
from boyd.models import ActionResult, EarnedAutonomy, Gate


def judge(agent: Agent, of: Circumstances, asked_by: str | None = None) -> Gate:
    """Judge an action; *asked_by* is the plugin whose hook requires an approval.

    The verdict depends on nothing but the agent, its calendars and the circumstances.
    """
    reason = _reason_to_ask(agent.rules, of, asked_by)
    if reason:
        return Gate(outcome="asked", reason=reason)
    try:
        verdict = _judge(agent.rules, of)
    except Undecided as error:
        verdict = Gate(outcome="asked", reason=str(error))
    return verdict.patched({"at": of.at})


def annotate(agent: Agent, of: Circumstances, verdict: Gate) -> Gate:
    """The verdict with the action as it is declared, and its track record."""
    action, earned = of.action, agent.rules.earned(of.action.id)
    automatic = verdict.outcome == "automatic"
    return verdict.patched(
        {
            "autonomy": action.autonomy,
            "risk": action.risk,
            "reversibility": action.reversibility,
            "budget": verdict.budget or (None if automatic else agent.budget(action.id)),
            "record": verdict.record or of.record,
            "at_least": earned.at_least if earned else None,
        }
    )


def conclude(agent: Agent, of: Circumstances, verdict: Gate, result: ActionResult) -> Gate:
    """The verdict as it is stored, after the action has come to a *result*."""
    gate = annotate(agent, of, verdict)
    if result.waits_for:
        return gate.patched({"outcome": "asked", "required": agent.policy(of)})
    if result.host is None and not result.unknown:
        return gate.patched({"outcome": "refused", "reason": result.error or ""})
    if verdict.outcome == "automatic":
        return gate
    # An earlier attempt had passed the gate.
    reason = _reason_to_pass(agent.rules, of)
    return gate.patched({"outcome": "automatic", "reason": reason})


def refuse(result: ActionResult) -> Gate:
    """The verdict on an action that was not executed, and about which nothing else is known."""
    return Gate(outcome="refused", reason=result.error or "")


def _reason_to_ask(rules: Rules, of: Circumstances, asked_by: str | None) -> str | None:
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
    calibrated = of.record.calibrate(stated) if of.record else None
    return "confidence" if calibrated is None else "calibrated confidence", calibrated


def _judge(rules: Rules, of: Circumstances) -> Gate:
    refusal = rules.refusal(of)
    if refusal:
        return Gate(outcome="asked", reason=refusal)
    windows = rules.windows(of)
    for window in windows:
        if window.closed:
            return Gate(outcome="refused" if window.waits else "asked", reason=window.closed)
    names = ", ".join(repr(window.name) for window in windows)
    reason = _reason_to_pass(rules, of) + (f", and in window {names}" if names else "")
    earned = _rule(rules, of)
    if earned is None:
        return Gate(outcome="automatic", reason=reason, budget=rules.budget(of))
    return _earned(rules, of, earned, reason)


def _rule(rules: Rules, of: Circumstances) -> EarnedAutonomy | None:
    """The rule by which it earns to run alone; a rollback of harm need not be earned."""
    return None if of.undoes else rules.earned(of.action.id)


def _earned(rules: Rules, of: Circumstances, earned: EarnedAutonomy, reason: str) -> Gate:
    """The answer for an action that has to earn to run alone, and may do so for that *reason*."""
    record = of.record
    grant = record.valid_grant(earned, of.now) if record else None
    if record is None or grant is None:
        words = record.words if record else "its track record is not known"
        reason = f"nobody lets it run alone in such situations yet: {words}"
        return Gate(outcome="asked", reason=reason)
    by = f"grant {naming.short(grant.id)} by {' and '.join(grant.by)}: {record.words}"
    return Gate(
        outcome="automatic",
        reason=f"{reason}, and {by}",
        budget=rules.budget(of),
        grant=grant.id,
    )


def _reason_to_pass(rules: Rules, of: Circumstances) -> str:
    """The reason why an action needs no approval by itself."""
    mode, least = f"the action is {of.action.autonomy.mode}", of.action.autonomy.min_confidence
    kind, confidence = _confidence(rules, of)
    if not least or confidence is None:
        return mode
    return f"{mode}, and {kind} {round(confidence, 3):g} reaches {least:g}"
