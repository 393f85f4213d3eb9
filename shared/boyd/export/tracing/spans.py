"""Spans of one trace, before they are encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from boyd.export.tracing import conventions as names
from boyd.export.tracing.trace_ids import TraceIds
from boyd.text.trace_context import TraceContext

Kind = Literal["internal", "client", "consumer"]
Value = str | int | float | bool | Sequence[str]
#: The parts of a span's id within its trace; none: the root.
Key = tuple[object, ...]
ROOT: Key = ()


@dataclass(frozen=True)
class SpanLink:
    """A link to another span; `why` says what that is: `run`, `intake`, `approval` ..."""

    trace_id: int
    span_id: int
    why: str


@dataclass(frozen=True)
class Span:
    """A span; times are in milliseconds since the epoch, `error` is the value of `error.type`."""

    trace_id: int
    span_id: int
    parent_id: int | None
    name: str
    start: float
    end: float
    kind: Kind = "internal"
    attributes: Mapping[str, Value] = field(default_factory=dict)
    links: Sequence[SpanLink] = ()
    error: str | None = None


class Trace:
    """Collects spans of the trace of that name; equal keys are numbered."""

    def __init__(self, ids: TraceIds, name: str) -> None:
        self.ids = ids
        self.name = name
        self.spans: list[Span] = []
        self._used: dict[Key, int] = {}

    def add(
        self,
        key: Key,
        name: str,
        times: tuple[float, float],
        attributes: Mapping[str, Value | None],
        *,
        parent: Key | None = ROOT,
        kind: Kind = "internal",
        links: Sequence[SpanLink] = (),
        error: str | None = None,
    ) -> Key:
        """Add a span below the one with the key *parent*; return its key.

        The root has no *parent*, whatever is given; absent attributes are left out.
        """
        number = self._used[key] = self._used.get(key, 0) + 1
        own = key if number == 1 else (*key, number)
        given = {name: value for name, value in attributes.items() if value is not None}
        if error:
            given[names.ERROR_TYPE] = error
        above = None if own == ROOT or parent is None else self.ids.span(self.name, *parent)
        self.spans.append(
            Span(
                trace_id=self.ids.trace(self.name),
                span_id=self.ids.span(self.name, *own),
                parent_id=above,
                name=name,
                start=times[0],
                end=max(times),
                kind=kind,
                attributes={
                    names.DEPLOYMENT: self.ids.deployment,
                    names.AGENT: self.ids.agent_id,
                    **given,
                },
                links=links,
                error=error,
            )
        )
        return own

    def link_to(self, why: str, name: str, key: Key = ROOT) -> SpanLink:
        """A link to a span of the trace of that name."""
        return SpanLink(self.ids.trace(name), self.ids.span(name, *key), why)


def foreign_link(context: TraceContext | None, why: str) -> list[SpanLink]:
    """A link to a span of another system, if there is one."""
    return [SpanLink(context.trace_id, context.span_id, why)] if context else []


def ms(time: datetime) -> float:
    """A time in milliseconds since the epoch."""
    return time.timestamp() * 1000
