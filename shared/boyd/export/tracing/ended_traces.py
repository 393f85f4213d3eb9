"""Builds the traces of one agent's ended work, in portions, from where the last export ended.

Each kind of work has an index in Redis, ordered by time, and a place in it that the export has
reached. Work that has not ended when it is found there is looked at again until it has. So nothing
is left out and nothing comes twice, unless a portion was sent and could not be noted.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from boyd import naming
from boyd.errors import StoreError, StoreUnavailable
from boyd.export.tracing.investigation_spans import (
    InvestigationModel,
    investigation_spans,
    tool_calls,
)
from boyd.export.tracing.iteration_spans import iteration_spans
from boyd.export.tracing.spans import Span, TraceIds
from boyd.export.tracing.work_spans import (
    LostAttempts,
    approval_spans,
    execution_spans,
    procedure_spans,
    read_lost,
)
from boyd.models import ExecutionEntry, Run
from boyd.models.investigation import Ended, Logged
from boyd.store import AgentEntry, AgentStore, read_investigation, read_item, read_procedure
from boyd.store.ended_work import (
    IndexedKind,
    WorkMark,
    read_ended_run,
    read_iteration,
)
from boyd.store.executions import read_ledger_entry
from boyd.store.hashes import Place
from boyd.text.trace_context import TraceContext, parse_traceparent

log = logging.getLogger("boyd.tracing")

#: The first export begins with what ended so many seconds before it.
BACK = 3600.0
#: The kinds of work whose index is ordered by their end, or by their beginning.
_INDEXED: Sequence[IndexedKind] = ("iteration", "approval", "execution", "procedure")
_SINCE, _AT, _OPEN, _TOLD = "since", "at:", "open:", "told:"
#: Unreadable records to report.
_UNREADABLE = 1000

Fields = Mapping[str, str]


@dataclass(frozen=True)
class Portion:
    """Spans that belong together, and the changes of the progress once they were exported."""

    spans: Sequence[Span]
    changes: Mapping[str, str]


class EndedTraces:
    """The traces of one agent's ended work."""

    def __init__(self, agent: AgentStore, deployment: str, reported: set[str]) -> None:
        """Read from *agent*; *reported* has the unreadable records that were logged."""
        self._agent = agent
        self._ids = TraceIds(deployment, agent.agent_id)
        self._reported = reported
        self._build: Mapping[str, Callable[[str, float, Fields], list[Span] | None]] = {
            "iteration": self._iteration,
            "approval": self._approval,
            "execution": self._execution,
            "procedure": self._procedure,
        }

    def portions(
        self, entry: AgentEntry, progress: Fields, investigations: Sequence[str] | None
    ) -> Iterator[Portion]:
        """The portions of what has ended and was not exported, as *progress* tells.

        *investigations* are ids of ended ones; without it all are checked.
        """
        since = float(progress.get(_SINCE, 0))
        if not since:
            since = (self._agent.clock.seconds() - BACK) * 1000
            yield Portion((), {_SINCE: repr(since)})
        yield from self._pending_records(progress)
        for kind in _INDEXED:
            yield from self._new_records(kind, progress.get(_AT + kind), since)
        yield from self._investigations(entry, progress, since, investigations)

    def _pending_records(self, progress: Fields) -> Iterator[Portion]:
        """Those that had not ended when they were found."""
        for name in [name for name in progress if name.startswith(_OPEN)]:
            kind, _, member = name.removeprefix(_OPEN).partition(":")
            if kind in self._build:
                spans = self._spans(kind, member, float(progress[name]))
                if spans is not None:
                    yield Portion(spans, {name: ""})

    def _new_records(self, kind: IndexedKind, place: str | None, since: float) -> Iterator[Portion]:
        """Those of a kind after the place that was reached."""
        score, names = json.loads(place) if place else (since, [])
        for page in self._agent.ended_work.pages(kind, score):
            for member, at in page:
                if at == score and member in names:
                    continue
                names = [*names, member] if at == score else [member]
                score = at
                changes = {_AT + kind: json.dumps([score, names])}
                spans = self._spans(kind, member, at)
                if spans is None:
                    changes[f"{_OPEN}{kind}:{member}"] = repr(at)
                yield Portion(spans or (), changes)

    def _spans(self, kind: str, member: str, at: float) -> list[Span] | None:
        """The spans of one record, none if it is unreadable; None if it has not ended."""
        work: IndexedKind = next(indexed for indexed in _INDEXED if indexed == kind)
        fields = self._agent.ended_work.hashes(work, [member])[0]
        return self._readable(f"{kind} {member}", lambda: self._build[kind](member, at, fields))

    def _readable(self, name: str, build: Callable[[], list[Span] | None]) -> list[Span] | None:
        try:
            return build()
        except (ValidationError, ValueError, KeyError, StoreError) as error:
            if isinstance(error, StoreUnavailable):
                raise
            if name not in self._reported and len(self._reported) < _UNREADABLE:
                self._reported.add(name)
                text = str(error).partition("\n")[0]
                log.warning("%s of agent %s cannot be read: %s", name, self._agent.agent_id, text)
            return []

    def _iteration(self, member: str, at: float, fields: Fields) -> list[Span] | None:
        if "iteration" not in fields:
            return []
        result = read_iteration(self._agent.agent_id, fields)
        name = naming.iteration(int(fields["iteration"]), fields.get("timeline", ""))
        work = self._agent.ended_work
        runs = [
            read_ended_run(run_fields)
            for run_fields in work.hashes("run", result.runs)
            if run_fields
        ]
        return iteration_spans(
            self._ids, result, runs, self._entry(naming.iteration_execution(name))
        )

    def _approval(self, member: str, at: float, fields: Fields) -> list[Span] | None:
        if "status" not in fields:
            return []
        item = read_item(fields)
        if item.execution is not None and item.execution.state in ("queued", "running"):
            return None
        loop = (
            self._agent.executions.of_iteration(item.loop_iteration) if item.loop_iteration else ""
        )
        iteration = naming.parts(loop)[1] or None
        entry = self._entry(naming.approval(item.id))
        return approval_spans(self._ids, item, at, iteration, entry, _lost_attempts(fields))

    def _execution(self, member: str, at: float, fields: Fields) -> list[Span] | None:
        if "action" not in fields:
            return []
        entry = read_ledger_entry(member, fields)
        verdict = entry.verification.verdict if entry.verification else "none"
        if entry.state == "running" or verdict is None:
            return None
        return execution_spans(self._ids, entry)

    def _procedure(self, member: str, at: float, fields: Fields) -> list[Span] | None:
        if "id" not in fields:
            return []
        record = read_procedure(fields)
        if not record.has_ended:
            return None
        steps = [progress.execution for progress in record.progress]
        undone = [
            progress.compensation.execution for progress in record.progress if progress.compensation
        ]
        entries = {
            name: entry for name in (*steps, *undone) if name and (entry := self._entry(name))
        }
        return procedure_spans(self._ids, record, entries, _lost_attempts(fields))

    def _entry(self, name: str) -> ExecutionEntry | None:
        fields = self._agent.ended_work.hashes("execution", [name])[0]
        return read_ledger_entry(name, fields) if "action" in fields else None

    def _investigations(
        self, entry: AgentEntry, progress: Fields, since: float, ids: Sequence[str] | None
    ) -> Iterator[Portion]:
        """The new parts of investigations that have ended."""
        work = self._agent.ended_work
        if ids is None:
            pages = work.pages("investigation", 0)
            places: list[Place] = [place for page in pages for place in page]
            exported = {n.removeprefix(_TOLD) for n in progress if n.startswith(_TOLD)}
            missing = exported - {member for member, _ in places}
            if missing:
                yield Portion((), {_TOLD + name: "" for name in missing})
        else:
            places = work.places("investigation", ids)
        for mark in work.marks("investigation", places):
            version, _, after = progress.get(_TOLD + mark.name, "").partition(" ")
            if version != mark.stamp:
                yield self._investigation(mark, after or f"{round(since)}-0", entry)

    def _investigation(self, mark: WorkMark, after: str, entry: AgentEntry) -> Portion:
        fields = self._agent.ended_work.hashes("investigation", [mark.name])[0]
        log = self._log_until_end(mark.name)
        name = f"investigation {mark.name}"
        spans = self._readable(name, lambda: self._parts(mark.name, fields, log, after, entry))
        reached = f"{mark.stamp} {log[-1].id if log else after}"
        return Portion(spans or (), {_TOLD + mark.name: reached})

    def _log_until_end(self, id: str) -> list[Logged]:
        """The log up to the last end; another question may have come since."""
        lines = [line for line in self._agent.investigations.log(id) if line.entry is not None]
        ends = [n for n, line in enumerate(lines, 1) if isinstance(line.entry, Ended)]
        return lines[: ends[-1]] if ends else lines

    def _parts(
        self, id: str, fields: Fields, lines: Sequence[Logged], after: str, entry: AgentEntry
    ) -> list[Span] | None:
        if "status" not in fields:
            return []
        investigation = read_investigation(fields)
        calls = [naming.tool_call(id, call) for call in tool_calls(lines)]
        return investigation_spans(
            self._ids,
            investigation,
            lines,
            after,
            InvestigationModel(entry.name, entry.model),
            caller=self._caller(id) if investigation.source == "run" else None,
            executed=self._agent.ended_work.present("execution", calls),
            lost=_lost_attempts(fields),
        )

    def _caller(self, run_id: str) -> TraceContext | None:
        run: Run | None = self._agent.runs.get(run_id)
        return parse_traceparent(run.traceparent) if run else None


def _lost_attempts(fields: Fields) -> LostAttempts:
    return read_lost(fields.get("executionLost", ""))
