"""Sends spans to a collector by OTLP over HTTP; the only module that imports OpenTelemetry.

It encodes finished spans, and has no tracer, provider or thread. So nothing is lost by a fork, and
nothing waits in memory. The exporter honours the variables `OTEL_EXPORTER_OTLP_*`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)

from boyd.errors import CollectorUnavailable
from boyd.export.tracing import conventions as names
from boyd.export.tracing.spans import Kind, Span
from boyd.text.version import VERSION

_KINDS: dict[Kind, SpanKind] = {
    "internal": SpanKind.INTERNAL,
    "client": SpanKind.CLIENT,
    "consumer": SpanKind.CONSUMER,
}
_NS = 1_000_000
#: Answers to spans that would be refused again.
_REFUSED = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class _Session(requests.Session):
    """A session that reads no bodies, however long: a collector says all with its status."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Go nowhere else; to look at the target would read the body."""

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a request, and close the connection after the headers of the response."""
        response = super().send(request, **{**options, "stream": True})
        response.close()
        return response


class OtlpSender:
    """Sends batches of spans, one at a time."""

    def __init__(self, endpoint: str | None) -> None:
        """Send to the base URL *endpoint*; None: to what `OTEL_EXPORTER_OTLP_*` names."""
        self._session = _Session()
        self._session.hooks["response"].append(self._note)
        url = f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None
        self._exporter = OTLPSpanExporter(endpoint=url, session=self._session)
        self._resource = _resource()
        self._scope = InstrumentationScope("boyd", VERSION)
        self._status: int | None = None

    def send(self, spans: Sequence[Span]) -> bool:
        """Send a batch; False: the collector refuses it for what it is.

        Raises:
            CollectorUnavailable: it did not acknowledge the batch.
        """
        self._status = None
        done = self._exporter.export(list(self._encoded(spans))) is SpanExportResult.SUCCESS
        # The exporter takes a redirection, which it does not follow, for an acknowledgement.
        if done and (self._status or 0) < HTTPStatus.MULTIPLE_CHOICES:
            return True
        if self._status in _REFUSED:
            return False
        why = f"answered {self._status}" if self._status else "does not answer"
        raise CollectorUnavailable(f"the collector {why}")

    def close(self) -> None:
        """Give up a batch that is being sent."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _note(self, response: requests.Response, *_: Any, **__: Any) -> None:
        self._status = response.status_code

    def _encoded(self, spans: Sequence[Span]) -> Iterator[ReadableSpan]:
        for span in spans:
            parent = _context(span.trace_id, span.parent_id) if span.parent_id else None
            yield ReadableSpan(
                name=span.name,
                context=_context(span.trace_id, span.span_id),
                parent=parent,
                resource=self._resource,
                attributes=dict(span.attributes),
                links=[
                    Link(_context(to.trace_id, to.span_id), {names.LINK: to.why})
                    for to in span.links
                ],
                kind=_KINDS[span.kind],
                status=Status(StatusCode.ERROR if span.error else StatusCode.UNSET),
                start_time=round(span.start) * _NS,
                end_time=round(span.end) * _NS,
                instrumentation_scope=self._scope,
            )


def _resource() -> Resource:
    """The resource of all spans, with what `OTEL_RESOURCE_ATTRIBUTES` and its kin say."""
    found = Resource.create({names.SERVICE_VERSION: VERSION})
    named = str(found.attributes.get(names.SERVICE_NAME, ""))
    if named and not named.startswith("unknown_service"):
        return found
    return found.merge(Resource({names.SERVICE_NAME: "boyd"}))


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=_SAMPLED)
