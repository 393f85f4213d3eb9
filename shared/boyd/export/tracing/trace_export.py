"""`boyd traces`: a process that exports the traces of ended work by OTLP until it is stopped.

A batch is sent, and once the collector has acknowledged it, the progress is stored. A process that
dies in between sends the same ids again. Spans are encoded here without a tracer, provider or
thread, so nothing is lost by a fork and nothing waits in memory; no other module imports
OpenTelemetry. The exporter honours the variables `OTEL_EXPORTER_OTLP_*`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Protocol

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

from boyd.errors import CollectorUnavailable, StoreError
from boyd.export.tracing import spans as names
from boyd.export.tracing.ended_traces import EndedTraces, Portion
from boyd.export.tracing.spans import Kind, Span, is_sampled
from boyd.export.work_follower import WorkFollower, process_name, subjects
from boyd.models import Event
from boyd.models.loop import TraceStatus
from boyd.plugin.http_session import Session
from boyd.settings.traces_settings import TracesSettings
from boyd.store import Store
from boyd.store.ended_work import announce_traces
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


class _Session(Session):
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
        """Send to the base URL *endpoint*, or to the one in `OTEL_EXPORTER_OTLP_*`."""
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
        done = self._exporter.export(list(self._encode(spans))) is SpanExportResult.SUCCESS
        # The exporter takes a redirection, which it does not follow, for an acknowledgement.
        if done and (self._status or 0) < HTTPStatus.MULTIPLE_CHOICES:
            return True
        if self._status in _REFUSED:
            return False
        problem = f"answered {self._status}" if self._status else "does not answer"
        raise CollectorUnavailable(f"the collector {problem}")

    def close(self) -> None:
        """Give up a batch that is being sent."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _note(self, response: requests.Response, *_: Any, **__: Any) -> None:
        self._status = response.status_code

    def _encode(self, spans: Sequence[Span]) -> Iterator[ReadableSpan]:
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
    resource = Resource.create({names.SERVICE_VERSION: VERSION})
    service = str(resource.attributes.get(names.SERVICE_NAME, ""))
    if service and not service.startswith("unknown_service"):
        return resource
    return resource.merge(Resource({names.SERVICE_NAME: "boyd"}))


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=_SAMPLED)


log = logging.getLogger("boyd.tracing")

#: Spans after which a batch is sent.
BATCH = 500
#: Seconds after which an agent's export is renewed, and a process that waits tries to take over.
RENEW = 5.0


class SpanSender(Protocol):
    """Sends spans to a collector."""

    def send(self, spans: Sequence[Span]) -> bool:
        """Send a batch; False: the collector refuses it for what it is.

        Raises:
            CollectorUnavailable: it did not acknowledge the batch.
        """

    def close(self) -> None:
        """Give up a batch that is being sent."""


class TraceExport(WorkFollower[TraceStatus]):
    """The work of one process that exports traces."""

    failures = (StoreError, CollectorUnavailable)

    def __init__(
        self, store: Store, announcing: Store, sender: SpanSender, settings: TracesSettings
    ) -> None:
        """Export from *store*; *announcing* has a connection of its own for announcements."""
        status = TraceStatus(name=process_name(), at=store.clock.now())
        super().__init__(store, announcing, status, log)
        self._sender = sender
        self._settings = settings
        self._exported = 0
        self._reported: set[str] = set()
        self._held: dict[str, float] = {}

    @property
    def progress(self) -> int:
        """Count the spans of this process that the collector has acknowledged."""
        return self._exported

    def run(self) -> None:
        """Export until `stop`, and then let another process take over."""
        super().run()
        for agent_id in self._held:
            with suppress(StoreError):
                self._store.agent(agent_id).trace_progress.release(self._status.name)

    def stop(self) -> None:
        """End `run` without waiting for the collector."""
        super().stop()
        self._sender.close()

    def export(self, agent_id: str, investigations: Sequence[str] | None = None) -> None:
        """Export what has ended of one agent.

        *investigations* are ids of ended ones; without it all are checked.

        Raises:
            CollectorUnavailable: the collector did not acknowledge a batch.
            StoreError: Redis did not answer.
        """
        agent = self._store.agent(agent_id)
        progress = self._take(agent_id)
        entry = self._store.fleet.agents().get(agent_id)
        if progress is None or entry is None:
            return
        traces = EndedTraces(agent, self._settings.deployment, self._reported)
        batch = list[Portion]()
        for portion in traces.portions(entry, progress, investigations):
            batch.append(portion)
            if sum(len(part.spans) for part in batch) >= BATCH:
                goes_on = self._flush(agent_id, batch)
                batch = []
                if not goes_on:
                    return
            if self._stopping.is_set():
                return
        self._flush(agent_id, batch)

    def _take(self, agent_id: str) -> dict[str, str] | None:
        """Acquire or keep an agent's export; None if another process has it."""
        progress = self._store.agent(agent_id).trace_progress.take(self._status.name)
        if progress is None:
            self._held.pop(agent_id, None)
        else:
            self._held[agent_id] = time.monotonic()
        self._report(standby=not self._held)
        return progress

    def _after_round(self) -> None:
        now = time.monotonic()
        for agent_id in [name for name, at in self._held.items() if now - at > RENEW]:
            self._take(agent_id)
        if self._status.standby:
            self._look_at = min(self._look_at, now + RENEW)

    def _flush(self, agent_id: str, batch: Sequence[Portion]) -> bool:
        """Send a batch and note it; False: another process has taken over."""
        ratio = self._settings.ratio
        spans = [
            [span for span in portion.spans if is_sampled(span.trace_id, ratio)]
            for portion in batch
        ]
        self._send(spans)
        changes = {name: value for portion in batch for name, value in portion.changes.items()}
        if changes and not self._store.agent(agent_id).trace_progress.note(
            self._status.name, changes
        ):
            log.warning("another process exports the traces of agent %s now", agent_id)
            return False
        return True

    def _send(self, portions: Sequence[Sequence[Span]]) -> None:
        """Send portions in one batch, or one by one if it is refused."""
        spans = [span for portion in portions for span in portion]
        if not spans:
            return
        if self._sender.send(spans):
            self._exported += len(spans)
        elif len(portions) > 1:
            for portion in portions:
                self._send([portion])
        else:
            trace = spans[0].trace_id
            log.warning("the collector refused %d spans of trace %032x", len(spans), trace)
            self._report(refused=self._status.refused + len(spans))

    def _work(self, agent_id: str, events: Sequence[Event] | None) -> None:
        subject = ("investigation.ended", "investigation")
        self.export(agent_id, None if events is None else subjects(events, *subject))

    def _say(self, status: TraceStatus) -> None:
        announce_traces(self._announcing.client, status)
