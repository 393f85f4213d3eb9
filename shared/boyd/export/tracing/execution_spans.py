"""Spans of executions, and of what follows them: verification and rollback."""

from __future__ import annotations

from collections.abc import Sequence

from boyd import naming
from boyd.export.tracing import conventions as names
from boyd.export.tracing.spans import ROOT, Key, SpanLink, Trace, Value, ms
from boyd.export.tracing.trace_ids import trace_of_execution
from boyd.models import Compensation, ExecutionEntry

_EXECUTION = "execution"
_MCP = "mcp:"


def key_of(execution: str) -> Key:
    """The key of an execution's span in the trace that `trace_of_execution` names."""
    own = naming.parts(execution)[0] not in ("loop", "approval", "step", "compensation")
    return ROOT if own else (_EXECUTION, execution)


def link_to_execution(trace: Trace, execution: str, why: str) -> SpanLink:
    """A link to the span of an execution."""
    return trace.link_to(why, trace_of_execution(execution), key_of(execution))


def add_execution(
    trace: Trace,
    entry: ExecutionEntry,
    parent: Key,
    links: Sequence[SpanLink] = (),
    until: float | None = None,
) -> None:
    """Add the span of an execution; one that has not ended is shown *until* then."""
    if entry.started_at is None:
        return
    began = ms(entry.started_at)
    ended = ms(entry.ended_at) if entry.ended_at else until or began
    result = entry.result
    trace.add(
        key_of(entry.id),
        f"action {entry.action}",
        (began, min(ended, until) if until else ended),
        {
            **action_attributes(entry.action),
            names.EXECUTION: entry.id,
            names.STATE: entry.state,
            names.HOST_NAME: entry.host,
            names.WORKER: entry.worker,
            names.PREVENTED: result.prevented if result else None,
        },
        parent=parent,
        links=links,
        error=_error(entry),
    )


def action_attributes(action: str) -> dict[str, Value | None]:
    """The attributes that name an action; some are tools of MCP servers."""
    if not action.startswith(_MCP):
        return {names.ACTION: action}
    tool = action.removeprefix(_MCP).rpartition("/")[2]
    return {names.ACTION: action, names.MCP_METHOD: names.MCP_CALL, names.TOOL_NAME: tool}


def add_verification(trace: Trace, entry: ExecutionEntry) -> None:
    """Add the verification of an execution that has a verdict, below its span."""
    seen = entry.verification
    if seen is None or seen.ended_at is None:
        return
    done = seen.compensation
    ended = ms(seen.ended_at)
    trace.add(
        ("verification", entry.id),
        f"verify {entry.action}",
        (ms(entry.ended_at) if entry.ended_at else ended, ended),
        {
            names.ACTION: entry.action,
            names.EXECUTION: entry.id,
            names.VERDICT: seen.verdict,
            names.CHECKS: seen.checks,
            names.COMPENSATION: done.state if done else None,
        },
        parent=key_of(entry.id),
        links=_undoing(trace, done) if done else [],
        error="worse" if seen.verdict == "worse" else None,
    )


def _undoing(trace: Trace, done: Compensation) -> list[SpanLink]:
    """Links to the rollback, or to the approval that it waits for."""
    links = [link_to_execution(trace, done.execution, "rollback")] if done.execution else []
    if done.approval:
        links.append(trace.link_to("approval", naming.approval(done.approval)))
    return links


def _error(entry: ExecutionEntry) -> str | None:
    # The outcome is unknown if the worker was lost while it executed the action.
    return {"unknown": names.LEASE_LOST, "failed": names.FAILED}.get(entry.state)
