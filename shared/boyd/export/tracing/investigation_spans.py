"""The spans of investigations: turns of the model and tool calls, by the log.

Each question is a trace, and a wait for a person ends it: what follows the wait is the next trace,
linked to the one before and to the approval. The numbers of these parts follow from the log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from boyd import naming
from boyd.export.tracing import spans as names
from boyd.export.tracing.spans import ROOT, Span, SpanLink, Trace, TraceIds, Value, foreign_link
from boyd.export.tracing.work_spans import (
    LostAttempts,
    action_attributes,
    add_lost,
    link_to_execution,
)
from boyd.models.investigation import (
    Asked,
    Delta,
    Discarded,
    Ended,
    Investigation,
    Logged,
    Result,
    Said,
    Started,
    Usage,
    Waits,
)
from boyd.text.trace_context import TraceContext

_FINE = frozenset({"final_answer", "final_synthesis", "cancelled"})


@dataclass
class _Part:
    """The entries of one trace."""

    number: int
    entries: list[Logged] = field(default_factory=list)

    @property
    def times(self) -> tuple[float, float]:
        return _at(self.entries[0]), _at(self.entries[-1])


@dataclass(frozen=True)
class InvestigationModel:
    """The names of an agent and its model."""

    agent: str
    model: str | None


def investigation_spans(
    ids: TraceIds,
    investigation: Investigation,
    log: Sequence[Logged],
    after: str,
    model: InvestigationModel,
    *,
    caller: TraceContext | None = None,
    executed: Collection[str] = (),
    lost: LostAttempts = (),
) -> list[Span]:
    """The spans of the parts that end after the entry *after* of the log.

    *caller* is the span that submitted its run, and *executed* has the names of executions.
    """
    spans: list[Span] = []
    for part in _parts(log):
        if _order(part.entries[-1].id) > _order(after):
            links = foreign_link(caller, "run") if part.number == 1 else []
            trace = _PartTrace(ids, investigation, part, model, executed)
            spans += trace.build(links, lost)
    return spans


def _parts(log: Sequence[Logged]) -> Iterator[_Part]:
    part = _Part(1)
    for logged in log:
        if isinstance(logged.entry, Delta):
            continue
        if part.entries and isinstance(logged.entry, Asked):
            yield part
            part = _Part(part.number + 1)
        part.entries.append(logged)
        if isinstance(logged.entry, Waits):
            yield part
            part = _Part(part.number + 1)
    if part.entries:
        yield part


class _PartTrace:
    """Builds the trace of one part."""

    def __init__(
        self,
        ids: TraceIds,
        investigation: Investigation,
        part: _Part,
        model: InvestigationModel,
        executed: Collection[str],
    ) -> None:
        self._found = investigation
        self._part = part
        self._of = model
        self._executed = executed
        self._trace = Trace(ids, self._name(part.number))
        #: When the model was asked, and when each tool was started.
        self._asked = part.times[0]
        self._started: dict[str, float] = {}
        self._tools: dict[str, str] = {}

    def _name(self, number: int) -> str:
        return f"{naming.investigation(self._found.id)}#{number}"

    def build(self, links: list[SpanLink], lost: LostAttempts) -> list[Span]:
        began, end = self._part.times
        self._add_root(links)
        for logged in self._part.entries:
            self._add(logged)
        within = [attempt for attempt in lost if began <= attempt[2] <= end]
        add_lost(self._trace, within, ROOT)
        return self._trace.spans

    def _add_root(self, links: list[SpanLink]) -> None:
        entries = [item.entry for item in self._part.entries]
        turns = [item for item in entries if isinstance(item, Said)]
        end = next((item.ending for item in entries if isinstance(item, Ended)), None)
        if self._part.number > 1:
            before = self._name(self._part.number - 1)
            links = [*links, self._trace.link_to("before", before)]
        self._trace.add(
            ROOT,
            f"invoke_agent {self._of.agent}",
            self._part.times,
            {
                names.OPERATION: names.INVOKE_AGENT,
                names.AGENT_ID: self._trace.ids.agent_id,
                names.AGENT_NAME: self._of.agent,
                names.CONVERSATION_ID: self._found.id,
                names.INVESTIGATION: self._found.id,
                names.STATE: end or "waiting",
                names.STEPS: len(turns),
                names.TOOL_CALLS: sum(isinstance(item, Result) for item in entries),
                **_tokens(sum((item.usage for item in turns), Usage())),
            },
            links=links,
            error=end if end and end not in _FINE else None,
        )

    def _add(self, logged: Logged) -> None:
        at, entry = _at(logged), logged.entry
        match entry:
            case Said():
                self._tools |= {call.id: call.name for call in entry.calls}
                more: dict[str, Value | None] = {
                    names.FINISH_REASONS: [entry.finish],
                    names.REQUESTS: entry.requests,
                    **_tokens(entry.usage),
                }
                self._add_turn(entry.step, at, more)
            case Discarded():
                self._add_turn(entry.step, at, {}, "discarded")
            case Started():
                self._started[entry.call_id] = at
            case Waits():
                approval = self._trace.link_to("approval", naming.approval(entry.approval_id))
                self._add_tool(entry.call_id, at, "waits", links=[approval])
            case Result():
                observation = entry.observation
                self._add_tool(observation.call_id or "", at, observation.status)
        self._asked = at

    def _add_turn(
        self, step: int, at: float, more: dict[str, Value | None], error: str | None = None
    ) -> None:
        self._trace.add(
            ("turn", step, *(["discarded"] if error else [])),
            f"{names.CHAT} {self._of.model}" if self._of.model else names.CHAT,
            (self._asked, at),
            {names.OPERATION: names.CHAT, names.MODEL: self._of.model, **more},
            kind="client",
            error=error,
        )

    def _add_tool(
        self, call_id: str, at: float, status: str, links: Sequence[SpanLink] = ()
    ) -> None:
        began = self._started.get(call_id)
        if began is None:
            return  # it was refused, and its name may be of the model's making; or it had waited
        tool = self._tools.get(call_id, "")
        execution = naming.tool_call(self._found.id, call_id)
        if execution in self._executed:
            links = [*links, link_to_execution(self._trace, execution, "execution")]
        lost = status == "interrupted"
        self._trace.add(
            ("tool", call_id),
            f"{names.EXECUTE_TOOL} {tool}",
            (began, at),
            {
                **action_attributes(tool),
                names.OPERATION: names.EXECUTE_TOOL,
                names.TOOL_NAME: tool,
                names.TOOL_CALL_ID: call_id,
                names.STATE: status,
            },
            links=links,
            error=names.LEASE_LOST if lost else names.FAILED if status == "failed" else None,
        )


def _tokens(usage: Usage) -> dict[str, Value | None]:
    return {names.INPUT_TOKENS: usage.input_tokens, names.OUTPUT_TOKENS: usage.output_tokens}


def tool_calls(log: Sequence[Logged]) -> list[str]:
    """The ids of the calls in a log that were started."""
    return [line.entry.call_id for line in log if isinstance(line.entry, Started)]


def _at(logged: Logged) -> float:
    return float(logged.id.partition("-")[0])


def _order(id: str) -> tuple[int, int]:
    first, _, second = (id or "0-0").partition("-")
    return int(first), int(second or 0)
