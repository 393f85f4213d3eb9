"""A sender that keeps spans and a receiver of OTLP, for tests of traces."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Self

from boyd.errors import CollectorUnavailable
from boyd.export.tracing.spans import Span
from boyd.export.tracing.trace_export import TraceExport
from boyd.settings.traces_settings import TracesSettings
from boyd.store import Store
from http_kit import Handler, serve


class Kept:
    """A sender that keeps what it is given; the next batches are answered as *answers* say."""

    def __init__(self) -> None:
        self.batches: list[list[Span]] = []
        self.answers: list[bool | None] = []

    def send(self, spans: Sequence[Span]) -> bool:
        """Keep a batch, refuse it (False) or lose it (None)."""
        answer = self.answers.pop(0) if self.answers else True
        if answer is None:
            raise CollectorUnavailable
        if answer:
            self.batches.append(list(spans))
        return answer

    def close(self) -> None:
        """Nothing is open."""

    @property
    def spans(self) -> list[Span]:
        """All spans in the order of their export."""
        return [span for batch in self.batches for span in batch]


def export_of(store: Store, sender: Any = None, **settings: Any) -> tuple[TraceExport, Kept]:
    """An exporter of *store*, and what it sends."""
    spans = sender or Kept()
    return TraceExport(store, store, spans, TracesSettings(**settings)), spans


def tree(spans: Iterable[Span]) -> list[str]:
    """The spans of one trace as indented lines, children below their parents."""
    span_list = list(spans)
    check(span_list)

    def below(parent: int | None, depth: int) -> list[str]:
        lines = []
        for span in (child for child in span_list if child.parent_id == parent):
            error = f" ({span.error})" if span.error else ""
            lines += [f"{'  ' * depth}{span.name}{error}", *below(span.span_id, depth + 1)]
        return lines

    return below(None, 0)


def check(spans: Iterable[Span]) -> None:
    """No span comes twice, each trace has one root, and every parent is there."""
    span_list = list(spans)
    twice = [
        pair for pair, n in Counter((s.trace_id, s.span_id) for s in span_list).items() if n > 1
    ]
    assert not twice
    for trace in {span.trace_id for span in span_list}:
        own = [span for span in span_list if span.trace_id == trace]
        ids = {span.span_id for span in own}
        assert len([span for span in own if span.parent_id is None]) == 1
        assert all(span.parent_id in ids for span in own if span.parent_id is not None)
        assert all(span.start <= span.end for span in own)


@dataclass
class Sink:
    """Receives OTLP over HTTP; `bodies` are the requests, uncompressed, `status` is the answer."""

    bodies: list[bytes] = field(default_factory=list)
    status: int = 200

    def __post_init__(self) -> None:
        self.url = ""
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        sink = self

        class SinkHandler(Handler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.read_body()
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                sink.bodies.append(body)
                self.reply(sink.status, Content_Type="application/x-protobuf")

        self.url = self._stack.enter_context(serve(SinkHandler))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def spans(self) -> list[Span]:
        """The received spans."""
        # It loads protobuf.
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        requests = [ExportTraceServiceRequest.FromString(body) for body in self.bodies]
        return [
            _span(span)
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


def _span(sent: Any) -> Span:
    from boyd.export.tracing.spans import SpanLink

    attributes = {attribute.key: _value(attribute.value) for attribute in sent.attributes}
    parent = int.from_bytes(sent.parent_span_id)
    return Span(
        trace_id=int.from_bytes(sent.trace_id),
        span_id=int.from_bytes(sent.span_id),
        parent_id=parent or None,
        name=sent.name,
        start=round(sent.start_time_unix_nano / 1e6),
        end=round(sent.end_time_unix_nano / 1e6),
        attributes=attributes,
        links=[
            SpanLink(
                int.from_bytes(to.trace_id),
                int.from_bytes(to.span_id),
                to.attributes[0].value.string_value,
            )
            for to in sent.links
        ],
        error=str(attributes["error.type"]) if "error.type" in attributes else None,
    )


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind)
