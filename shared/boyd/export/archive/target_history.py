"""The history of a target, read from Redis and the archive, and stored nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from boyd import naming
from boyd.errors import ArchiveUnavailable, StoreUnavailable
from boyd.export.archive.access import ArchiveAccess
from boyd.export.archive.alert_events import alert_events
from boyd.export.archive.incident_grouping import MOST, anomaly_events, group
from boyd.export.archive.merged_work import MergedWork
from boyd.export.archive.period_iterations import (
    SPANS,
    PastIteration,
    PeriodIterations,
    TargetQuery,
    read_iterations,
)
from boyd.export.observed_series import ObservedSeries
from boyd.models import ApprovalItem, ExecutionEntry, Observation
from boyd.models.incident import TargetEvent, TargetHistory
from boyd.store import AgentStore
from boyd.store.executions import ExecutionFilter

#: The most pages of executions that are read for one agent, and series that are plotted.
_PAGES, _SERIES = 5, 3
#: The most executions, the latest, that are looked up one by one because they may name no target.
_LOOKED_UP = 50


@dataclass
class _Findings:
    """Everything that the agents know of the target."""

    series: ObservedSeries
    events: list[TargetEvent] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    read: int = 0
    iterations: int = 0


def read_target(
    query: TargetQuery, stores: Iterable[AgentStore], archive: ArchiveAccess
) -> TargetHistory:
    """The history of a target in a period, by all that the agents of *stores* know.

    Where the archive or the Redis server of an agent does not answer, a note says so.
    """
    length = (query.until - query.since).total_seconds()
    findings = _Findings(ObservedSeries(max(1.0, length / SPANS)))
    agents = []
    for store in stores:
        try:
            events = [*_AgentSearch(query, store, archive, findings).events()]
        except StoreUnavailable as error:
            findings.notes[f"{store.agent_id} is missing: {error}"] = None
            continue
        findings.events += events
        if events:
            agents.append(store.agent_id)
    incidents, others = group(query.target, findings.events)
    spans = [(incident.since.timestamp(), incident.until.timestamp()) for incident in incidents]
    return TargetHistory(
        target=query.target,
        since=query.since,
        until=query.until,
        agents=agents,
        incidents=incidents,
        events=others[:MOST],
        series=findings.series.most_telling(spans)[:_SERIES],
        read=findings.read,
        iterations=findings.iterations,
        notes=list(findings.notes),
    )


class _AgentSearch:
    """Searches the work of one agent."""

    def __init__(
        self, query: TargetQuery, store: AgentStore, archive: ArchiveAccess, findings: _Findings
    ) -> None:
        self._query = query
        self._store = store
        self._archive = archive
        self._findings = findings
        self._work = MergedWork(store, archive)

    def events(self) -> Iterator[TargetEvent]:
        """All that happened to the target; numbers that were observed go to the findings."""
        work = [*self._executions(), *self._approvals()]
        yield from work
        read = read_iterations(self._query, self._store, self._archive, anyway=bool(work))
        yield from self._iterations(read)
        yield from self._without_target(read, {event.ref for event in work})

    def _executions(self) -> Iterator[TargetEvent]:
        query = self._query
        filter = ExecutionFilter(target=query.target, since=query.since, until=query.until)
        cursor = None
        for _ in range(_PAGES):
            page = self._work.executions(MOST, cursor, filter)
            for execution in page.executions:
                yield from _execution_events(self._store.agent_id, execution, query.until)
            self._note(page.missing)
            cursor = page.next_cursor
            if cursor is None:
                return
        self._note(f"more than {_PAGES} pages of executions")

    def _approvals(self) -> Iterator[TargetEvent]:
        query = self._query
        items, missing = self._work.approvals_on(query.target, query.since, MOST)
        self._note(missing)
        for item in items:
            event = _approval_event(item, query.until)
            if event.at < query.until and event.until >= query.since:
                yield event

    def _iterations(self, read: PeriodIterations) -> Iterator[TargetEvent]:
        target = self._query.target
        self._note(read.missing)
        self._findings.read += len(read.iterations)
        self._findings.iterations += read.count
        self._add_numbers([*read.iterations, *read.others])
        yield from anomaly_events(read.sightings, [other.look for other in read.others])
        yield from alert_events(target, read.sightings, read.iterations)

    def _without_target(self, read: PeriodIterations, refs: set[str]) -> Iterator[TargetEvent]:
        """The work by actions without a target that iterations with the target did or asked for.

        *refs* are the executions and approvals that name the target.
        """
        names: dict[str, None] = {}
        for sighting, iteration in zip(read.sightings, read.iterations, strict=True):
            names.update(dict.fromkeys(iteration.executions(sighting.name)))
        others = [name for name in names if refs.isdisjoint((name, naming.approval_in(name)))]
        try:
            for name in others[-_LOOKED_UP:]:
                yield from self._events_of(name)
        except ArchiveUnavailable as error:
            self._note(str(error))

    def _events_of(self, name: str) -> Iterator[TargetEvent]:
        """The approval, the execution and its rollback, unless they have another target."""
        until = self._query.until
        approval_id = naming.approval_in(name)
        item = self._work.approval(approval_id) if approval_id else None
        if item and not item.target:
            yield _approval_event(item, until)
        for id in (name, naming.rollback(name)):
            execution = self._work.execution(id)
            if execution and not execution.target:
                yield from _execution_events(self._store.agent_id, execution, until)

    def _add_numbers(self, iterations: Sequence[PastIteration]) -> None:
        """Plot what was observed of the target by its name, or else everything."""
        target = self._query.target
        own = [(it, list(_about(target, it.observations))) for it in iterations]
        is_named = any(observations for _, observations in own)
        for iteration, observations in own:
            numbers = observations if is_named else iteration.observations
            self._findings.series.add(iteration.ended_at.timestamp(), numbers)

    def _note(self, reason: str | None) -> None:
        if reason:
            self._findings.notes[f"Older records are missing: {reason}"] = None


def _about(target: str, observations: Iterable[Observation]) -> Iterator[Observation]:
    """The observations that name *target*: as a value, in their source, or as a field with data."""
    for observation in observations:
        data = observation.data
        inner, labels = data.get(target), data.get("labels")
        if isinstance(inner, Mapping):
            yield observation.model_copy(update={"data": dict(inner)})
            continue
        values = [*data.values(), *(labels.values() if isinstance(labels, Mapping) else ())]
        if target in values or target in observation.source.replace(":", "/").split("/"):
            yield observation


def _execution_events(
    agent_id: str, execution: ExecutionEntry, until: datetime
) -> Iterator[TargetEvent]:
    if execution.started_at is None:
        return
    is_running = execution.state == "running"
    end = execution.ended_at or (until if is_running else execution.started_at)
    undoes = naming.is_rollback(execution.id)
    title = f"undo of {execution.action}" if undoes else execution.action
    action = TargetEvent(
        at=execution.started_at,
        until=max(execution.started_at, end),
        agent_id=agent_id,
        kind="action",
        state=execution.state,
        title=title,
        by=execution.by if execution.by != f"agent:{agent_id}" else None,
        ref=execution.id,
    )
    yield action
    check = execution.verification
    if check is None or is_running:
        return
    undone = {"rolled back": ", undone", "not restored": ", not restored"}
    fate = undone.get(check.compensation.state, "") if check.compensation else ""
    changes = {
        "at": action.until,
        "until": max(action.until, check.ended_at or until),
        "kind": "verdict",
        "state": f"{check.verdict}{fate}" if check.verdict else "being verified",
        "detail": check.evidence or "",
    }
    yield action.model_copy(update=changes)


def _approval_event(item: ApprovalItem, until: datetime) -> TargetEvent:
    end = until if item.status == "pending" else item.resolved_at or item.updated_at
    return TargetEvent(
        at=item.created_at,
        until=max(item.created_at, end),
        agent_id=item.agent_id,
        kind="approval",
        state=item.status,
        title=item.title or item.action_id,
        detail=item.note or item.decision.rationale,
        by=item.acted_by,
        ref=item.id,
    )
