"""The spans of work that waits for people or takes long: approvals, procedures, calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from boyd import naming
from boyd.export.tracing import conventions as names
from boyd.export.tracing.execution_spans import (
    action_attributes,
    add_execution,
    add_verification,
    link_to_execution,
)
from boyd.export.tracing.spans import ROOT, Key, Span, SpanLink, Trace, ms
from boyd.export.tracing.trace_ids import TraceIds, iteration_trace, trace_of_execution
from boyd.models import ApprovalItem, ExecutionEntry, ProcedureRecord, ProcedureStep, StepProgress

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
    ended = ms(done.ended_at) if done and done.ended_at else resolved
    result = item.result
    trace.add(
        ROOT,
        f"approval {item.action_id}",
        (resolved, ended),
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
        add_execution(trace, execution, ROOT, until=None if execution.ended_at else ended)
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
    began, ended = ms(record.started_at), _or(record.ended_at, ms(record.started_at))
    trace.add(
        ROOT,
        f"procedure {record.action}",
        (began, ended),
        {names.ACTION: record.action, names.EXECUTION: record.id, names.STATE: record.state},
        links=[link_to_execution(trace, record.id, "execution")],
        error=None if record.state == "succeeded" else record.state,
    )
    add_lost(trace, lost, ROOT)
    for step, done in zip(record.steps, record.progress, strict=False):
        if done.started_at is not None:
            _add_step(trace, step, done, executions, ended)
    return trace.spans


def _add_step(
    trace: Trace,
    step: ProcedureStep,
    done: StepProgress,
    executions: Mapping[str, ExecutionEntry],
    ended: float,
) -> None:
    began = _or(done.started_at, ended)
    approval = [trace.link_to("approval", naming.approval(done.approval))] if done.approval else []
    undone = done.compensation
    key = trace.add(
        (names.STEP, step.id),
        f"step {step.id}",
        (began, _or(done.ended_at, ended)),
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
            add_execution(trace, entry, key, until=ended)


def add_lost(trace: Trace, lost: LostAttempts, parent: Key) -> None:
    """Add a span for each attempt whose worker was lost."""
    for number, began, ended, worker in lost:
        trace.add(
            ("attempt", number),
            "attempt",
            (began, ended),
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
    return [(int(n), float(began), float(ended), worker) for n, began, ended, worker in lines]
