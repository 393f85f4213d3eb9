"""Complete: what the iteration came to, for history, hooks and the runs it served (L35-L38)."""

from __future__ import annotations

from dataclasses import dataclass

from boyd.loop.act import APPROVAL_REQUIRED
from boyd.models import (
    ActionPerformed,
    LoopResult,
    Observation,
    Run,
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


@dataclass(frozen=True)
class RunOutcome:
    """What becomes of a run; without a status it waits with its approval (L35)."""

    run_id: str
    status: RunStatus | None
    result: RunResult
    approval_id: str | None


def run_observation(run: Run) -> Observation:
    """A run as the observation that the loop sees (L13).

    The run's context never replaces the five fields that say which run it is.
    """
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
        metadata={"isRun": True, "runId": run.id},
    )


def run_outcome(run_id: str, result: LoopResult) -> RunOutcome:
    """What the iteration's *result* means for one of the runs it was investigating (L35)."""
    approval_id = waiting_for(result)
    status: RunStatus | None = None if approval_id else _status(result)
    return RunOutcome(run_id, status, run_result(result), approval_id)


def waiting_for(result: LoopResult) -> str | None:
    """The approval that the iteration's action waits for, if it does."""
    for item in result.action_results:
        if item.error == APPROVAL_REQUIRED and item.metrics:
            return str(item.metrics.get("approvalId", "")) or None
    return None


def run_result(result: LoopResult) -> RunResult:
    """An iteration's result as a run reports it (R3)."""
    situation = result.situation
    assessments = situation.assessments if situation else []
    return RunResult(
        summary=result.error or (situation.summary if situation else "No situation"),
        findings=[finding for a in assessments for finding in a.findings],
        actions_performed=[ActionPerformed.of(item) for item in result.action_results],
        loop_iterations=1,
        duration=result.duration,
        situation_assessment=assessments or None,
        recommendations=[a.contributing_factor for a in assessments if a.contributing_factor],
    )


def _status(result: LoopResult) -> RunStatus:
    refused = result.trace is not None and (result.trace.vetoed or result.trace.invalid)
    acted = all(item.success for item in result.action_results)
    return "completed" if result.success and acted and not refused else "failed"
