"""The gate decides if an action runs alone, needs a person's approval, or has to wait."""

from __future__ import annotations

from boyd.agent import Agent
from boyd.agent.agent_rules import Circumstances, Rules, Undecided
from boyd.models import ActionResult, EarnedAutonomy, Gate


def judge(agent: Agent, circumstances: Circumstances, asked_by: str | None = None) -> Gate:
    """Judge an action; *asked_by* is the plugin whose hook requires an approval.

    The verdict depends on nothing but the agent, its calendars and the circumstances.
    """
    reason = _reason_to_ask(agent.rules, circumstances, asked_by)
    if reason:
        return Gate(outcome="asked", reason=reason)
    try:
        verdict = _judge(agent.rules, circumstances)
    except Undecided as error:
        verdict = Gate(outcome="asked", reason=str(error))
    return verdict.patched({"at": circumstances.at})


def annotate(agent: Agent, circumstances: Circumstances, verdict: Gate) -> Gate:
    """The verdict with the action as it is declared, and its track record."""
    action, rule = circumstances.action, agent.rules.earning_rule(circumstances.action.id)
    automatic = verdict.outcome == "automatic"
    return verdict.patched(
        {
            "autonomy": action.autonomy,
            "risk": action.risk,
            "reversibility": action.reversibility,
            "budget": verdict.budget or (None if automatic else agent.budget(action.id)),
            "record": verdict.record or circumstances.record,
            "at_least": rule.at_least if rule else None,
        }
    )


def conclude(
    agent: Agent, circumstances: Circumstances, verdict: Gate, result: ActionResult
) -> Gate:
    """The verdict as it is stored, after the action has come to a *result*."""
    gate = annotate(agent, circumstances, verdict)
    if result.waits_for:
        return gate.patched({"outcome": "asked", "required": agent.policy(circumstances)})
    if not result.has_started and not result.is_unneeded:
        return gate.patched({"outcome": "refused", "reason": result.error or ""})
    if verdict.outcome == "automatic" or result.is_unneeded:
        return gate
    # An earlier attempt had passed the gate.
    reason = _reason_to_pass(agent.rules, circumstances)
    return gate.patched({"outcome": "automatic", "reason": reason})


def refuse(result: ActionResult) -> Gate:
    """The verdict on an action that was not executed, and about which nothing else is known."""
    return Gate(outcome="refused", reason=result.error or "")


def _reason_to_ask(rules: Rules, circumstances: Circumstances, asked_by: str | None) -> str | None:
    """Return why the decision or the action itself needs a person's approval, if so."""
    mode = circumstances.action.autonomy.mode
    if circumstances.decision.requires_approval:
        return f"{asked_by or 'the decision'} asked for an approval"
    # What is human-only never earns to run alone.
    if mode == "human-only" or (mode != "auto" and _rule(rules, circumstances) is None):
        return f"the action is {mode}"
    return _doubt(rules, circumstances)


def _doubt(rules: Rules, circumstances: Circumstances) -> str | None:
    """Return why the confidence does not suffice, if so."""
    least = circumstances.action.autonomy.min_confidence
    if least is None:
        return None
    kind, confidence = _confidence(rules, circumstances)
    if confidence is None:
        return f"no calibration yet for {kind} {circumstances.decision.confidence:g}"
    return f"{kind} {round(confidence, 3):g} is below {least:g}" if confidence < least else None


def _confidence(rules: Rules, circumstances: Circumstances) -> tuple[str, float | None]:
    """Return the kind of confidence that counts, and its value, if that is known yet."""
    stated = circumstances.decision.confidence
    if not rules.calibrates(circumstances.action.id):
        return "confidence", stated
    calibrated = circumstances.record.calibrate(stated) if circumstances.record else None
    return "confidence" if calibrated is None else "calibrated confidence", calibrated


def _judge(rules: Rules, circumstances: Circumstances) -> Gate:
    reason_to_ask = rules.reason_to_ask(circumstances)
    if reason_to_ask:
        return Gate(outcome="asked", reason=reason_to_ask)
    windows = rules.windows(circumstances)
    for window in windows:
        if window.closed:
            # Where it waits, nobody is asked: it is requested again once the window is open.
            return Gate(outcome="refused" if window.waits else "asked", reason=window.closed)
    names = ", ".join(repr(window.name) for window in windows)
    reason = _reason_to_pass(rules, circumstances) + (f", and in window {names}" if names else "")
    rule = _rule(rules, circumstances)
    if rule is None:
        return Gate(outcome="automatic", reason=reason, budget=rules.budget(circumstances))
    return _judge_earning(rules, circumstances, rule, reason)


def _rule(rules: Rules, circumstances: Circumstances) -> EarnedAutonomy | None:
    """The rule by which it earns to run alone, if any; a rollback after harm needs no grant."""
    return None if circumstances.undoes else rules.earning_rule(circumstances.action.id)


def _judge_earning(
    rules: Rules, circumstances: Circumstances, rule: EarnedAutonomy, reason: str
) -> Gate:
    """Judge an action that has to earn to run alone, and otherwise may for that *reason*."""
    record, now = circumstances.record, circumstances.now
    grant = record.valid_grant(rule, now, record.grant or record.related) if record else None
    if record is None or grant is None:
        words = record.words if record else "its track record is not known"
        reason = f"nobody lets it run alone in such situations yet: {words}"
        return Gate(outcome="asked", reason=reason)
    outside = grant.covers.outside(circumstances.scope)
    if outside or grant is not record.grant:
        limits = f"{grant.words} covers only {grant.covers.words}"
        reason = f"{limits}, not {' and '.join(outside) or 'another kind of target'}"
        return Gate(outcome="asked", reason=reason)
    return Gate(
        outcome="automatic",
        reason=f"{reason}, and {grant.words}: {record.words}",
        budget=rules.budget(circumstances),
        grant=grant.id,
    )


def _reason_to_pass(rules: Rules, circumstances: Circumstances) -> str:
    """Describe the conditions under which the action needs no approval."""
    mode, least = (
        f"the action is {circumstances.action.autonomy.mode}",
        circumstances.action.autonomy.min_confidence,
    )
    kind, confidence = _confidence(rules, circumstances)
    if not least or confidence is None:
        return mode
    return f"{mode}, and {kind} {round(confidence, 3):g} reaches {least:g}"
