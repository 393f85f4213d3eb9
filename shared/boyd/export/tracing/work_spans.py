"""Spans of work besides iterations: executions, approvals, procedures, calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from boyd import naming
from boyd.export.tracing import spans as names
from boyd.export.tracing.spans import (
    ROOT,
    Key,
    Span,
    SpanLink,
    Trace,
    TraceIds,
    Value,
    iteration_trace,
    ms,
    trace_of_execution,
)
from boyd.models import (
    ApprovalItem,
    Compensation,
    ExecutionEntry,
    ProcedureRecord,
    ProcedureStep,
    StepProgress,
)

_EXECUTION = "execution"
_MCP = "mcp:"


def key_of(execution: str) -> Key:
    """The key of an execution's span in the trace that `trace_of_execution` names."""
    own = naming.parts(execution)[0] not in ("loop", "approval", "step", "compensation")
    return ROOT if own else (_EXECUTION, execution)


def link_to_execution(trace: Trace, execution: str, reason: str) -> SpanLink:
    """A link to the span of an execution."""
    return trace.link_to(reason, trace_of_execution(execution), key_of(execution))


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
    end = ms(entry.ended_at) if entry.ended_at else until or began
    result = entry.result
    trace.add(
        key_of(entry.id),
        f"action {entry.action}",
        (began, min(end, until) if until else end),
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
    verification = entry.verification
    if verification is None or verification.ended_at is None:
        return
    done = verification.compensation
    end = ms(verification.ended_at)
    trace.add(
        ("verification", entry.id),
        f"verify {entry.action}",
        (ms(entry.ended_at) if entry.ended_at else end, end),
        {
            names.ACTION: entry.action,
            names.EXECUTION: entry.id,
            names.VERDICT: verification.verdict,
            names.CHECKS: verification.checks,
            names.COMPENSATION: done.state if done else None,
        },
        parent=key_of(entry.id),
        links=_undoing(trace, done) if done else [],
        error="worse" if verification.verdict == "worse" else None,
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


#: Attempts at a job whose workers were lost: number, begin and end in ms, and worker.
LostAttempts = Sequence[tuple[int, float, float, str]]


def approval_spans(
    ids: TraceIds,
    item: ApprovalItem,
    resolved: float,
    iteration: str | None,
    execution: ExecutionEntry | None,
    lost: LostAttempts,
) -> list[Span]:
    """The spans of a resolved approval: from its resolution on, so that no span covers the wait.

    *resolved* is in milliseconds since the epoch; *iteration* is the name of the one that asked.
    """
    trace = Trace(ids, naming.approval(item.id))
    done = item.execution
    end = ms(done.ended_at) if done and done.ended_at else resolved
    result = item.result
    trace.add(
        ROOT,
        f"approval {item.action_id}",
        (resolved, end),
        {
            **action_attributes(item.action_id),
            names.APPROVAL: item.id,
            names.STATE: item.status,
            names.RISK: item.risk,
            names.SEEN: item.seen,
            names.APPROVALS: len(item.approvals),
            names.WAITED: round(max(0.0, resolved - ms(item.created_at))),
            names.PREVENTED: result.prevented if result else None,
        },
        links=_askers(trace, item, iteration),
        error=names.FAILED if result and not result.success else None,
    )
    add_lost(trace, lost, ROOT)
    if execution is not None and not item.undoes:
        add_execution(trace, execution, ROOT, until=None if execution.ended_at else end)
    return trace.spans


def _askers(trace: Trace, item: ApprovalItem, iteration: str | None) -> list[SpanLink]:
    """Links to what asked for it, and to what it undoes."""
    links = [trace.link_to("iteration", iteration_trace(iteration))] if iteration else []
    procedures = [name for name in item.wakes if naming.parts(name)[0] == "procedure"]
    links += [trace.link_to("procedure", name) for name in procedures]
    if item.undoes:
        links.append(link_to_execution(trace, item.undoes, "undoes"))
        links.append(link_to_execution(trace, naming.rollback(item.undoes), "execution"))
    return links


def execution_spans(ids: TraceIds, entry: ExecutionEntry) -> list[Span]:
    """The spans that an ended execution adds: its own, unless others have it, and what followed."""
    trace = Trace(ids, trace_of_execution(entry.id))
    if trace.name == entry.id and naming.parts(entry.id)[0] != "approval":
        undone = naming.parts(entry.id)[1] if naming.is_rollback(entry.id) else None
        links = [link_to_execution(trace, undone, "undoes")] if undone else []
        add_execution(trace, entry, ROOT, links)
    add_verification(trace, entry)
    return trace.spans


def procedure_spans(
    ids: TraceIds,
    record: ProcedureRecord,
    executions: Mapping[str, ExecutionEntry],
    lost: LostAttempts,
) -> list[Span]:
    """The spans of an ended procedure, its steps, and their *executions* by name."""
    trace = Trace(ids, naming.procedure(record.id))
    began, end = ms(record.started_at), _or(record.ended_at, ms(record.started_at))
    trace.add(
        ROOT,
        f"procedure {record.action}",
        (began, end),
        {names.ACTION: record.action, names.EXECUTION: record.id, names.STATE: record.state},
        links=[link_to_execution(trace, record.id, "execution")],
        error=None if record.state == "succeeded" else record.state,
    )
    add_lost(trace, lost, ROOT)
    for step, done in zip(record.steps, record.progress, strict=False):
        if done.started_at is not None:
            _add_step(trace, step, done, executions, end)
    return trace.spans


def _add_step(
    trace: Trace,
    step: ProcedureStep,
    done: StepProgress,
    executions: Mapping[str, ExecutionEntry],
    end: float,
) -> None:
    began = _or(done.started_at, end)
    approval = [trace.link_to("approval", naming.approval(done.approval))] if done.approval else []
    undone = done.compensation
    key = trace.add(
        (names.STEP, step.id),
        f"step {step.id}",
        (began, _or(done.ended_at, end)),
        {
            names.STEP: step.id,
            names.ACTION: step.action,
            names.STATE: done.state,
            names.ATTEMPT: done.tries + 1,
            names.CHECKS: done.polls or None,
            names.COMPENSATION: undone.state if undone else None,
        },
        links=approval,
        error={"unknown": names.LEASE_LOST, "failed": names.FAILED}.get(done.state),
    )
    for name in (done.execution, undone.execution if undone else None):
        entry = executions.get(name or "")
        # A rollback, or what was approved, is in another trace.
        if entry is not None and trace_of_execution(entry.id) == trace.name:
            add_execution(trace, entry, key, until=end)


def add_lost(trace: Trace, lost: LostAttempts, parent: Key) -> None:
    """Add a span for each attempt whose worker was lost."""
    for number, began, end, worker in lost:
        trace.add(
            ("attempt", number),
            "attempt",
            (began, end),
            {
                names.ATTEMPT: number,
                names.WORKER: worker,
                names.HOST_NAME: naming.host_of(worker),
            },
            parent=parent,
            error=names.LEASE_LOST,
        )


def _or(time: datetime | None, otherwise: float) -> float:
    return ms(time) if time is not None else otherwise


def read_lost(text: str) -> LostAttempts:
    """The lost attempts at a job, from the lines that `retry_job.lua` writes."""
    lines = (line.split(" ", 3) for line in text.splitlines())
    return [(int(n), float(began), float(end), worker) for n, began, end, worker in lines]
