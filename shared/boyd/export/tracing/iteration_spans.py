"""The spans of one iteration: all of them at once, from its record."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

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
    foreign_link,
    iteration_trace,
    ms,
)
from boyd.export.tracing.work_spans import add_execution
from boyd.models import ExecutionEntry, LoopResult, ObserverRun, PhaseRun, Run
from boyd.text.trace_context import parse_traceparent

#: The most links of a span.
MOST_LINKS = 100
#: Triggers that Boyd sets; others are words of clients.
_TRIGGERS = frozenset(
    {"beat", "schedule", "run", "intake", "follow-up", "api", "investigation", "manual"}
)


def iteration_spans(
    ids: TraceIds, result: LoopResult, runs: Sequence[Run], execution: ExecutionEntry | None
) -> list[Span]:
    """The spans of an ended iteration, its runs and the execution of its action."""
    return _IterationTrace(ids, result).build(runs, execution)


class _IterationTrace:
    def __init__(self, ids: TraceIds, result: LoopResult) -> None:
        self._name = result.id.removeprefix(f"{result.agent_id}:")
        self._trace = Trace(ids, iteration_trace(self._name))
        self._result = result
        self._began, self._ended = ms(result.started_at), ms(result.ended_at)
        self._observe = ROOT
        self._acts: list[tuple[float, Key]] = []

    def build(self, runs: Sequence[Run], execution: ExecutionEntry | None) -> list[Span]:
        self._add_root()
        for run in runs:
            self._add_run(run)
        # The phases before the batches and the execution that are below them.
        for phase in sorted(
            self._result.phase_runs, key=lambda phase_run: phase_run.batch is not None
        ):
            self._add_phase(phase)
        for observer in self._result.observer_runs:
            self._add_observer(observer)
        self._add_not_run()
        if execution is not None:
            add_execution(self._trace, execution, self._act(execution), until=self._ended)
        return self._trace.spans

    def _add_root(self) -> None:
        result, decision = self._result, self._result.decision
        self._trace.add(
            ROOT,
            "iteration",
            (self._began, self._ended),
            {
                names.ITERATION: self._name,
                names.TRIGGER: result.trigger if result.trigger in _TRIGGERS else None,
                names.OBSERVATIONS: len(result.observations),
                names.ACTION: decision.action if decision else None,
                names.RETRIES: result.retries,
                names.STATE: "succeeded" if result.success else "failed",
            },
            links=self._intake_links(),
            error=None if result.success else names.FAILED,
        )

    def _intake_links(self) -> list[SpanLink]:
        """Links to the spans that sent observations, each once."""
        texts = [
            (observation.metadata or {}).get("traceparent")
            for observation in self._result.observations
        ]
        links = chain.from_iterable(foreign_link(parse_traceparent(t), "intake") for t in texts)
        return list(dict.fromkeys(links))[:MOST_LINKS]

    def _add_run(self, run: Run) -> None:
        attributes: dict[str, Value | None] = {
            names.RUN: run.id,
            names.PRIORITY: run.priority,
            names.STATE: run.status,
            names.WAITED: round(max(0.0, self._began - ms(run.created_at))),
        }
        self._trace.add(
            ("run", run.id),
            "run",
            (self._began, self._ended),
            attributes,
            kind="consumer",
            links=foreign_link(parse_traceparent(run.traceparent), "run"),
            error=names.FAILED if run.status == "failed" else None,
        )

    def _add_phase(self, run: PhaseRun) -> None:
        began = self._began + run.offset
        batch = (names.BATCH, run.batch) if run.batch is not None else ()
        attributes: dict[str, Value | None] = {
            names.PHASE: run.phase,
            names.ATTEMPT: run.attempt,
            names.BATCH: run.batch,
            names.HOST_NAME: run.host,
            names.WORKER: run.worker,
        }
        acts = run.phase == "act"
        key = self._trace.add(
            ("phase", run.phase, *batch, run.attempt),
            f"{run.phase} batch" if batch else run.phase,
            (began, began + run.duration),
            attributes | (self._action() if acts and not run.lost else {}),
            parent=self._observe if batch else ROOT,
            links=self._approval_links() if acts and not run.lost else [],
            error=names.LEASE_LOST if run.lost else None,
        )
        if run.phase == "observe" and not batch and not run.lost:
            self._observe = key
        if acts:
            self._acts.append((began, key))

    def _act(self, execution: ExecutionEntry) -> Key:
        """The attempt in which the execution was claimed; a later one may only have told of it."""
        claimed = ms(execution.started_at) if execution.started_at else self._ended
        before = [key for began, key in self._acts if began <= claimed]
        return before[-1] if before else ROOT

    def _action(self) -> dict[str, Value | None]:
        """The fate of the decided action."""
        gate = self._result.gate
        done = next(iter(self._result.action_results), None)
        return {
            names.ACTION: done.action if done else None,
            names.STATE: done.state if done and not done.waits_for else None,
            names.PREVENTED: done.prevented if done else None,
            names.GATE: gate.outcome if gate else None,
        }

    def _approval_links(self) -> list[SpanLink]:
        waits = [result.waits_for for result in self._result.action_results if result.waits_for]
        return [self._trace.link_to("approval", naming.approval(id)) for id in waits]

    def _add_observer(self, run: ObserverRun) -> None:
        failed = any(_same(run, failure) for failure in self._observer_failures())
        began = self._began + (run.offset or 0.0)
        self._add_observed(
            run.id,
            (began, began + run.duration),
            {
                names.HOST_NAME: run.host,
                names.WORKER: run.worker,
                names.BATCH: run.batch,
                names.ATTEMPT: run.attempt,
                names.OBSERVATIONS: run.observations,
            },
            names.FAILED if failed else None,
        )

    def _add_not_run(self) -> None:
        """Add the observers that no worker took, or whose workers were lost."""
        ran = {run.id for run in self._result.observer_runs}
        for observer, duration, host in self._observer_failures():
            if observer not in ran:
                times = (self._began, min(self._began + duration, self._ended))
                self._add_observed(observer, times, {names.HOST_NAME: host}, "not_run")

    def _observer_failures(self) -> list[tuple[str, float, str | None]]:
        return [(error.id, error.duration, error.host) for error in self._result.observer_errors]

    def _add_observed(
        self,
        observer: str,
        times: tuple[float, float],
        attributes: dict[str, Value | None],
        error: str | None,
    ) -> Key:
        host, attempt = attributes.get(names.HOST_NAME), attributes.get(names.ATTEMPT)
        return self._trace.add(
            ("observer", observer, host, attempt),
            f"observer {observer}",
            times,
            {names.OBSERVER: observer, **attributes},
            parent=self._observe,
            error=error,
        )


def _same(run: ObserverRun, failed: tuple[str, float, str | None]) -> bool:
    observer, _, host = failed
    return run.id == observer and host in (None, run.host)
