"""Compares what a recorded iteration came to with what it would come to now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from boyd.agent import Agent
from boyd.models import ActionResult, Autonomy, Decision, Gate, LoopResult, PluginVersion, Problem
from boyd.models.tape import (
    ActionDifferences,
    Course,
    Difference,
    Fate,
    ReplayedIteration,
    ReplayReport,
)
from boyd.replay.carried_past import CarriedPast
from boyd.replay.shadow import CannotTell, ReplayedDecision, Shadow, course

#: Preventions that are not the gate's: it had passed the action.
_FROM_OUTSIDE = ("frozen", "revoked", "cancelled", "refused", "unserved", "held", "unsandboxed")


def judge(
    shadow: Shadow, record: LoopResult, is_recorded: bool = True, past: CarriedPast | None = None
) -> ReplayedIteration:
    """Replay a recorded iteration and compare; unless *is_recorded*, nothing was decided then.

    With a *past* the agent goes on from that, and adds what it leaves now.
    """
    shadow.situation = None  # an iteration that was not decided is not replayed
    doubt = _observer_doubt(shadow.agent, record, past is not None) if is_recorded else None
    if past is not None:
        past.begin(record)
    fields = _compare(shadow, record, is_recorded, doubt, past)
    if past is not None:
        fields["diverged"] = next(iter(past.diverged), None)
    if shadow.situation is not None and not doubt:
        fields["anomalies"] = shadow.situation.anomalies
    return ReplayedIteration(**fields)


def _compare(
    shadow: Shadow,
    record: LoopResult,
    is_recorded: bool,
    observer_doubt: str | None,
    past: CarriedPast | None,
) -> dict[str, Any]:
    fields = dict[str, Any](iteration=record.id, at=record.ended_at, ended=_ending(record))
    try:
        fields["before"] = course_of(shadow.agent, record) if is_recorded else _nothing()
        replayed = shadow.replay(record, past)
    except CannotTell as unknown:
        if "before" not in fields and past is not None:
            _carry_state(past, shadow, record)
        return {**fields, "differences": ["cannot tell"], "why": str(unknown)}
    if past is not None:
        _carry_execution(past, shadow.agent, record, replayed)
    after = course(shadow.agent, replayed.decision, replayed.trace, replayed.gate)
    differences = list(_differences(fields["before"], after, shadow.agent))
    errors = _new_errors(replayed.problems, record)
    if errors:
        differences.append("error")
        fields["why"] = errors[0]
    # What the gate lets pass newly is reported, whatever might have stopped it afterwards.
    doubt = replayed.doubt or observer_doubt
    if doubt and "newly automatic" not in differences:
        differences.append("cannot tell")
        fields["why"] = doubt
    return {**fields, "after": after, "differences": differences}


def _carry_state(past: CarriedPast, shadow: Shadow, record: LoopResult) -> None:
    """Carry what the agent writes in an iteration of which nothing else can be told."""
    with suppress(CannotTell):
        shadow.replay(record, past)


def _carry_execution(
    past: CarriedPast, agent: Agent, record: LoopResult, replayed: ReplayedDecision
) -> None:
    """Carry the execution that an iteration makes now without a person; a freeze stops both."""
    if any(result.prevented in _FROM_OUTSIDE for result in record.action_results):
        return
    past.carry_execution(
        agent,
        record,
        _alone(record.decision, record.gate),
        _alone(replayed.decision, replayed.gate),
    )


def _alone(decision: Decision | None, gate: Gate | None) -> Decision | None:
    """The decision, if the gate lets it run without a person."""
    return decision if gate is not None and gate.outcome == "automatic" else None


def course_of(agent: Agent | None, record: LoopResult) -> Course:
    """The course that was recorded, with its target if the *agent* is known.

    Raises:
        CannotTell: an earlier release recorded it, or it failed before it was decided.
    """
    if not record.builds:
        raise CannotTell("an earlier release recorded it, without what plugins read")
    decision = record.decision
    if decision is None:
        raise CannotTell(f"nothing was decided then: {record.error or 'it has no decision'}")
    stopped = record.trace and (record.trace.vetoed or record.trace.invalid)
    if not decision.is_no_op and not stopped and record.gate is None:
        raise CannotTell("the action never reached the gate then")
    gate = record.gate and _without_outside(record.gate, decision, record.action_results)
    return course(agent, decision, record.trace, gate)


def _without_outside(gate: Gate, decision: Decision, results: Iterable[ActionResult]) -> Gate:
    """The gate's answer, if the action was only refused by a freeze or the like after it."""
    prevented = any(result.prevented in _FROM_OUTSIDE for result in results)
    if gate.outcome != "refused" or not prevented:
        return gate
    asks = gate.grant is None if gate.at_least is not None else _asks(gate.autonomy, decision)
    return gate.patched({"outcome": "asked" if asks else "automatic"})


def _asks(autonomy: Autonomy | None, decision: Decision) -> bool:
    if autonomy is None or decision.requires_approval or autonomy.mode != "auto":
        return True
    return decision.confidence < (autonomy.min_confidence or 0)


def _nothing() -> Course:
    return Course(action="no-op", fate="none", reason="nothing was decided")


def _observer_doubt(agent: Agent, record: LoopResult, in_order: bool) -> str | None:
    """A doubt about the observations, if observers have other code or options than then."""
    after = {plugin.id: plugin for plugin in agent.build.plugins}
    for build in record.builds:
        before = {plugin.id: plugin for plugin in build.plugins}
        for plugin in sorted(before.keys() | after.keys()):
            then, changed = before.get(plugin, _NO_PLUGIN), after.get(plugin, _NO_PLUGIN)
            if then.observers != changed.observers:
                return (
                    f"the observers of {plugin} have other code or options now, and what they "
                    "would have observed was not recorded"
                )
            if then.judges != changed.judges and not in_order:
                return (
                    f"the observers of {plugin} judge by other limits now, and by what they "
                    "remember: replay with --closed-loop"
                )
    return None


_NO_PLUGIN = PluginVersion(id="")


def _new_errors(problems: Iterable[Problem], record: LoopResult) -> list[str]:
    """The failures of components and hooks that did not fail then, each in one line."""
    failed_then = {(problem.id, problem.phase) for problem in record.problems}
    return [
        f"{problem.id} failed: {problem.error}"
        for problem in problems
        if (problem.id, problem.phase) not in failed_then
    ]


def _differences(before: Course, after: Course, agent: Agent) -> Iterator[Difference]:
    is_same_call = (before.action, before.target) == (after.action, after.target)
    if (before.action, before.params) != (after.action, after.params):
        yield "flipped"
    # The same action on the same target may have been allowed with other params, too.
    if after.fate != before.fate or not is_same_call:
        yield from _moves(before, after, agent)
    elif after.params != before.params and after.fate != "none":
        yield "other params"
    elif after.fate == "asked" and before.required not in (None, after.required):
        yield "other approval"


_NEW_FATES: Mapping[Fate, Difference] = {
    "automatic": "newly automatic",
    "asked": "newly asked",
    "refused": "newly refused",
}


def _moves(before: Course, after: Course, agent: Agent) -> Iterator[Difference]:
    """The differences of a course with another fate, action or target."""
    if after.fate in _NEW_FATES:
        yield _NEW_FATES[after.fate]
    if after.fate == "refused" and after.action not in agent.host.actions:
        yield "missing action"
    if after.fate == "none" and before.fate in ("automatic", "asked"):
        yield "acts less"


def _ending(record: LoopResult) -> str:
    """The end of the recorded action in one line."""
    if record.error:
        return f"iteration failed: {record.error}"
    endings = []
    for result in record.action_results:
        if result.waits_for:
            endings.append(f"approval {result.waits_for}")
        elif result.prevented:
            endings.append(f"not executed: {result.error}")
        else:
            endings.append(result.state if result.success else f"{result.state}: {result.error}")
    return "; ".join(endings)


def report(
    agent_id: str, build: str, judgements: Iterable[ReplayedIteration], confined_by: list[str]
) -> ReplayReport:
    """The report on *judgements*, which are in order."""
    total = unchanged = diverged = 0
    first = last = None
    counts: dict[str, Counter[Difference]] = {}
    findings = []
    for judgement in judgements:
        total += 1
        diverged += judgement.diverged is not None
        first, last = first or judgement.iteration, judgement.iteration
        if not judgement.differences:
            unchanged += 1
            continue
        counts.setdefault(judgement.action, Counter()).update(judgement.differences)
        findings.append(judgement)
    return ReplayReport(
        agent_id=agent_id,
        build=build,
        iterations=total,
        unchanged=unchanged,
        first=first,
        last=last,
        actions=[
            ActionDifferences(action=name, counts=dict(sorted(counts[name].items())))
            for name in sorted(counts)
        ],
        findings=findings,
        diverged=diverged,
        confined_by=confined_by,
    )
