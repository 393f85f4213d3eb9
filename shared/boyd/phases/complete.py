"""The complete phase: the outcome of the iteration for history, hooks and its runs."""

from __future__ import annotations

from boyd.models import (
    ActionPerformed,
    JsonObject,
    LoopResult,
    Observation,
    Run,
    RunOutcome,
    RunResult,
    RunStatus,
    Severity,
)

_SEVERITY: dict[str, Severity] = {
    "low": "info",
    "medium": "warning",
    "high": "error",
    "critical": "critical",
}


def run_observation(run: Run) -> Observation:
    """The observation of a run; its context cannot replace the five fields that identify it."""
    own = {
        "runId": run.id,
        "title": run.title,
        "description": run.description,
        "priority": run.priority,
        "source": run.source,
    }
    return Observation(
        source=f"run:{run.source}",
        type="alert",
        severity=_SEVERITY[run.priority],
        timestamp=run.created_at,
        data={**run.context, **own},
        metadata=_about(run),
    )


def _about(run: Run) -> JsonObject:
    about: JsonObject = {"isRun": True, "runId": run.id}
    return {**about, "callbackUrl": run.callback_url} if run.callback_url else about


def run_outcome(run_id: str, result: LoopResult) -> RunOutcome:
    """The outcome of a run after the iteration that investigated it."""
    approval_id = waiting_for(result)
    status: RunStatus | None = None if approval_id else _status(result)
    return RunOutcome(run_id, status, run_result(result), approval_id)


def waiting_for(result: LoopResult) -> str | None:
    """The approval that the iteration's action waits for, if any."""
    return next((item.waits_for for item in result.action_results if item.waits_for), None)


def run_result(result: LoopResult) -> RunResult:
    """The run result of an iteration."""
    situation = result.situation
    assessments = situation.assessments if situation else []
    return RunResult(
        summary=result.error or (situation.summary if situation else "No situation"),
        findings=[finding for a in assessments for finding in a.findings],
        actions_performed=[ActionPerformed.of(item) for item in result.action_results],
        loop_iterations=1,
        duration=result.duration,
        situation_assessment=situation.summary if situation else None,
        assessments=assessments or None,
        recommendations=[a.contributing_factor for a in assessments if a.contributing_factor],
    )


def has_cleared(strategy_id: str, observers: set[str], saw: set[str], result: LoopResult) -> bool:
    """Report whether the situation in which a strategy requested an approval has cleared.

    Only an iteration without failures that saw at least the same *observers* can tell: then the
    strategy no longer applies, or decides on no-op.
    """
    trace = result.trace
    if trace is None or not result.success or not observers <= saw:
        return False
    if any(problem.phase in ("observe", "orient", "decide") for problem in result.problems):
        return False
    if strategy_id not in trace.applicable:
        return True
    refused = trace.vetoed or trace.invalid
    nothing = result.decision is not None and result.decision.is_no_op
    return trace.chosen == strategy_id and nothing and not refused


def _status(result: LoopResult) -> RunStatus:
    refused = result.trace is not None and (result.trace.vetoed or result.trace.invalid)
    acted = all(item.success for item in result.action_results)
    return "completed" if result.success and acted and not refused else "failed"
