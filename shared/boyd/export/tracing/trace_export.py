"""`boyd traces`: a process that exports the traces of ended work until it is told to stop.

A batch is sent, and after the collector has acknowledged it, the progress is noted. A process that
dies in between sends the same ids again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from boyd.errors import CollectorUnavailable, StoreError
from boyd.export.tracing.ended_traces import EndedTraces, Portion
from boyd.export.tracing.spans import Span
from boyd.export.tracing.trace_ids import is_sampled
from boyd.export.work_follower import WorkFollower, process_name
from boyd.models.archived import TraceStatus
from boyd.settings.traces_settings import TracesSettings
from boyd.store import Store
from boyd.store.archive_status import announce_traces

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
        self._reported: set[str] = set()
        self._held: dict[str, float] = {}

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

    def export(self, agent_id: str, investigations: Sequence[str] | None = None) -> int:
        """Export what has ended of one agent; return the number of spans.

        *investigations* are ids of those that are known to have ended; None: look at all.

        Raises:
            CollectorUnavailable: the collector did not acknowledge a batch.
            StoreError: Redis did not answer.
        """
        agent = self._store.agent(agent_id)
        progress = self._take(agent_id)
        entry = self._store.fleet.agents().get(agent_id)
        if progress is None or entry is None:
            return 0
        traces = EndedTraces(agent, self._settings.deployment, self._reported)
        done, batch = 0, list[Portion]()
        for portion in traces.portions(entry, progress, investigations):
            batch.append(portion)
            if sum(len(one.spans) for one in batch) >= BATCH:
                done += self._flush(agent_id, batch)
                batch = []
            if self._stopping.is_set():
                return done
        return done + self._flush(agent_id, batch)

    def _take(self, agent_id: str) -> dict[str, str] | None:
        """Take or keep an agent's export; None: another process has it."""
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

    def _flush(self, agent_id: str, batch: Sequence[Portion]) -> int:
        """Send a batch and note it."""
        ratio = self._settings.ratio
        spans = [
            [span for span in portion.spans if is_sampled(span.trace_id, ratio)]
            for portion in batch
        ]
        sent = self._send(spans)
        changes = {name: value for portion in batch for name, value in portion.changes.items()}
        if changes and not self._store.agent(agent_id).trace_progress.note(
            self._status.name, changes
        ):
            log.warning("another process exports the traces of agent %s now", agent_id)
        return sent

    def _send(self, portions: Sequence[Sequence[Span]]) -> int:
        """Send portions in one batch; one by one if it is refused; return the spans."""
        spans = [span for portion in portions for span in portion]
        if not spans:
            return 0
        if self._sender.send(spans):
            return len(spans)
        if len(portions) > 1:
            return sum(self._send([portion]) for portion in portions)
        log.warning("the collector refused %d spans of trace %032x", len(spans), spans[0].trace_id)
        self._report(refused=self._status.refused + len(spans))
        return 0

    def _work(self, agent_id: str, investigations: Sequence[str] | None) -> int:
        return self.export(agent_id, investigations)

    def _say(self, status: TraceStatus) -> None:
        announce_traces(self._announcing.client, status)
