"""Prometheus metrics of the deployment, and of the requests to this process.

The metrics of the deployment are read from Redis at each scrape, so all API processes report the
same. Durations are in seconds; timestamps are seconds since the epoch on the clock of the Redis
server.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from boyd.errors import StoreError
from boyd.health.checks import examine
from boyd.health.reader import read_health
from boyd.health.snapshot import (
    AgentHealth,
    HealthSnapshot,
    Roster,
    ServerHealth,
)
from boyd.intake import UNOBSERVED, format_names
from boyd.models.investigation import Ending, ModelTotals, RequestOutcome
from boyd.store import Store
from boyd.store.investigations import LONGEST
from boyd.store.server.connection import Client
from boyd.text.version import VERSION

log = logging.getLogger("boyd.api")

#: Requests that wait for an iteration take minutes, all others milliseconds.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
#: Seconds between two log lines about refusals of one kind: a storm must not fill the disk.
QUIET = 10.0
#: Reasons that are counted from 0 on: to Prometheus, a counter that starts at 1 has not grown.
REASONS = (
    *("overloaded", "invalid-request", "malformed-json", "too-large", "unsupported-media-type"),
    *("forbidden", "not-found", "internal", "unavailable", "unauthenticated"),
)
#: Stands for every name that is neither a format nor an intake.
UNKNOWN = "unknown"


class Metrics:
    """The metrics of one app; two apps in one process share nothing."""

    def __init__(self, store: Callable[[], Store], brokers: Sequence[Client] = ()) -> None:
        """Create them; nothing is read before a scrape, which calls *store*.

        *brokers* are clients for the brokers, see `boyd.health.checks.brokers_of`.
        """
        self._registry = CollectorRegistry()
        self._registry.register(_Deployment(store, tuple(brokers)))
        counter = partial(Counter, registry=self._registry)
        labels = ("method", "route")
        self._requests = counter("boyd_http_requests", "Requests answered.", (*labels, "status"))
        name, text = "boyd_http_request_duration_seconds", "Time taken by responses."
        self._durations = Histogram(name, text, labels, buckets=BUCKETS, registry=self._registry)
        text = "Observations accepted from the intake."
        self._taken = counter("boyd_intake_observations", text, ("format",))
        text = "Messages accepted by the intake that are about nothing that fires or ends."
        self._unobserved = counter("boyd_intake_unobserved", text, ("format",))
        text = "Refused requests to the intake, by the name of the problem."
        self._refused = counter("boyd_intake_refused", text, ("format", "reason"))

    def answered(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """Count a request; *route* is the rule that matched its path, if any."""
        known = method if method in _METHODS else "other"
        self._requests.labels(known, route or "none", str(status)).inc()
        self._durations.labels(known, route or "none").observe(seconds)

    def refused(self, format: str, reason: str, requests: int = 1) -> None:
        """Count refused requests to `/intake`, by the name of the problem."""
        self._refused.labels(format, reason).inc(requests)

    def taken(self, format: str, observations: int) -> None:
        """Count observations accepted from `/intake`, or a message that gave none."""
        self._taken.labels(format).inc(observations)
        self._unobserved.labels(format).inc(0 if observations else 1)

    def exposed(self, accept: str = "") -> tuple[bytes, str]:
        """The body and its content type, in the format that `Accept` asks for; never fails."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


class RefusalReporter:
    """Logs and counts refused intake: a line for each format and reason every `QUIET` seconds."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._names: set[str] = set()
        self.know(format_names())
        self.know([UNKNOWN])
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[tuple[str, str], float] = {}
        self._unlogged: defaultdict[tuple[str, str], int] = defaultdict(int)

    def know(self, names: Iterable[str]) -> None:
        """Count the refusals of formats and intakes of these names apart, from 0 on."""
        for name in set(names) - self._names:
            self._names.add(name)
            for reason in REASONS:
                self._metrics.refused(name, reason, 0)

    def report(self, format: str, reason: str, detail: str) -> None:
        """Report a refused request; *reason* is the name of the problem."""
        kind = (format if format in self._names else UNKNOWN, reason)
        self._metrics.refused(*kind)
        unlogged = self._due(kind)
        if unlogged is not None:
            more = f" (and {unlogged} more since the last such line)" if unlogged else ""
            log.warning("intake %s refused, %s: %s%s", *kind, detail[:500], more)

    def unobserved(self, format: str) -> None:
        """Report a message that was accepted and gave no observation."""
        unlogged = self._due((format if format in self._names else UNKNOWN, "unobserved"))
        if unlogged is not None:
            more = f" (and {unlogged} more since the last such line)" if unlogged else ""
            log.info("intake %s: a message gave no observation: %s%s", format, UNOBSERVED, more)

    def _due(self, kind: tuple[str, str]) -> int | None:
        """Count a report: None for a while after a logged one, else the reports unlogged since."""
        with self._lock:
            now = self._clock()
            if now - self._last.get(kind, -QUIET) < QUIET:
                self._unlogged[kind] += 1
                return None
            self._last[kind] = now
            return self._unlogged.pop(kind, 0)


@dataclass(frozen=True)
class _Deployment(Collector):
    """The metrics of the deployment; only `boyd_up 0` when Redis does not answer.

    Agents without processes for a day are left out. It makes four round trips, whose size grows
    with agents and observers, not with history.
    """

    store: Callable[[], Store]
    brokers: tuple[Client, ...]

    def collect(self) -> Iterable[Metric]:
        try:
            health = read_health(self.store().client, self.brokers)
        except StoreError:
            return [_metric("boyd_up", [((), 0)]), _version()]
        return deployment_metrics(_present(health))


def deployment_metrics(health: HealthSnapshot) -> Iterator[Metric]:
    """Yield the metrics of a deployment whose Redis answers."""
    yield _metric("boyd_up", [((), 1)])
    yield _version()
    yield _metric("boyd_broker_up", [((), health.broker_error is None)])
    yield from _redis(health)
    yield from _fleet(health.roster)
    yield from _agents(health)
    yield from _queues(health)
    yield from _observers(health.agents)
    yield from _models(health.agents)
    yield from _archive(health)
    yield from _traces(health)
    yield _findings(health)


def _version() -> Metric:
    return _metric("boyd_api_info", [((VERSION,), 1)], ("version",))


def _present(health: HealthSnapshot) -> HealthSnapshot:
    """The same, without retired agents."""
    roster = health.roster
    present = {name: entry for name, entry in roster.agents.items() if not roster.retired(name)}
    messages = health.messages
    return replace(
        health,
        roster=replace(roster, agents=present),
        agents=[agent for agent in health.agents if agent.entry.id in present],
        messages=messages and {key: n for key, n in messages.items() if key[0] in present},
    )


#: The metrics of the deployment and their meaning. Counters have `_total` after their name.
_HELP = {
    "boyd_up": "1 if Redis answers.",
    "boyd_api_info": "The version of this API.",
    "boyd_broker_up": "1 if all brokers answer.",
    "boyd_redis_clock_skew_seconds": "Offset of the clock of Redis from the local one.",
    "boyd_redis_answer_seconds": "Response time of Redis.",
    "boyd_redis_memory_bytes": "Memory in use.",
    "boyd_redis_memory_limit_bytes": "Memory limit of Redis; 0: none.",
    "boyd_redis_clients": "Connections to Redis.",
    "boyd_redis_clients_limit": "The most connections that Redis takes.",
    "boyd_redis_persistence": "1 if Redis writes to disk in this way.",
    "boyd_redis_persistence_ok": "1 if the last write to disk succeeded.",
    "boyd_redis_evicts": "1 if a full Redis may evict keys.",
    "boyd_workers": "Live processes.",
    "boyd_agent_workers": "Live processes of an agent.",
    "boyd_versions": "Live processes of a version.",
    "boyd_agent_iterations": "Iterations started.",
    "boyd_agent_iterations_ended": "Iterations ended, by outcome.",
    "boyd_agent_last_iteration_timestamp_seconds": "End of the last iteration.",
    "boyd_agent_last_iteration_success": "1 if the last iteration succeeded.",
    "boyd_agent_last_observed_timestamp_seconds": "Start of the last iteration, when it observed.",
    "boyd_agent_in_flight_seconds": "Age of the iteration in flight; 0: none.",
    "boyd_agent_phase_seconds": "Age of the phase in flight; 0: none.",
    "boyd_agent_last_tick_timestamp_seconds": "Start of the slot of the last tick of beat.",
    "boyd_agent_interval_seconds": "Interval of the ticks of a continuous agent.",
    "boyd_agent_paused": "1 if it is paused.",
    "boyd_agent_frozen": "1 if its actions are frozen.",
    "boyd_agent_revoked": "1 if its right to act is revoked.",
    "boyd_intake_waiting": "Observations from the intake that wait for an iteration.",
    "boyd_runs_pending": "Pending runs.",
    "boyd_runs_oldest_seconds": "Age of the oldest pending run; 0: none.",
    "boyd_approvals_pending": "Pending approvals.",
    "boyd_approvals_next_deadline_seconds": (
        "Time until the next approval expires; below 0: it is overdue."
    ),
    "boyd_approvals_resolved": "Approvals resolved, by status.",
    "boyd_actions_ended": "Executions of actions ended, by state.",
    "boyd_notifications": "Notifications of approvals, by how they ended.",
    "boyd_verdicts": "Executions that were verified, by what they achieved.",
    "boyd_autonomy_changes": "Grants to run alone, by whether they were given or taken away.",
    "boyd_procedures": "Procedures that stopped for a person, went back, or ended, by state.",
    "boyd_actions_suspended": "Actions that are suspended on a target because they did harm.",
    "boyd_queue_messages": "Messages that wait for a worker.",
    "boyd_queue_oldest_seconds": "Age of the oldest step that waits for a worker.",
    "boyd_observer_failures": "Consecutive failures.",
    "boyd_observer_last_success_timestamp_seconds": "Time of the last success.",
    "boyd_model_tokens": "Tokens sent to and received from models.",
    "boyd_model_requests": "Requests to models, by outcome.",
    "boyd_model_cost": "Cost of tokens, in the currency of `llm.prices`.",
    "boyd_investigations_ended": "Investigations ended, by outcome.",
    "boyd_archive_up": "1 if the archive runs and its database answers.",
    "boyd_archive_behind_seconds": "Time by which the archive is behind Redis.",
    "boyd_archive_records": "Records that the archive process has copied since its start.",
    "boyd_traces_up": "1 if the export of traces runs and its collector answers.",
    "boyd_traces_behind_seconds": "Time by which the export of traces is behind Redis.",
    "boyd_traces_spans": "Spans that were exported since the process started, or refused.",
    "boyd_findings": "Findings of `boyd doctor`, which explains them.",
}
_Samples = Iterable[tuple[Sequence[str], float | None]]
_Family = type[GaugeMetricFamily] | type[CounterMetricFamily]


def _metric(
    name: str, samples: _Samples, labels: Sequence[str] = (), family: _Family = GaugeMetricFamily
) -> Metric:
    """A metric; samples without a value are left out."""
    metric = family(name, _HELP[name], labels=labels)
    for values, number in samples:
        if number is not None:
            metric.add_metric(values, float(number))
    return metric


def _redis(health: HealthSnapshot) -> Iterator[Metric]:
    yield _metric("boyd_redis_clock_skew_seconds", [((), health.skew)])
    yield _metric("boyd_redis_answer_seconds", [((), health.latency)])
    if health.server is not None:
        yield from _server(health.server)


def _server(server: ServerHealth) -> Iterator[Metric]:
    yield _metric("boyd_redis_memory_bytes", [((), server.used)])
    yield _metric("boyd_redis_memory_limit_bytes", [((), server.limit)])
    yield _metric("boyd_redis_clients", [((), server.clients)])
    yield _metric("boyd_redis_clients_limit", [((), server.most_clients or None)])
    rdb = None if server.rdb is None else bool(server.rdb)
    kept = [(("aof",), server.aof), (("rdb",), rdb)]
    yield _metric("boyd_redis_persistence", kept, ("kind",))
    done = [(("aof",), server.aof_ok), (("rdb",), server.rdb_ok)]
    yield _metric("boyd_redis_persistence_ok", done, ("kind",))
    evicts = None if server.policy is None else server.policy != "noeviction"
    yield _metric("boyd_redis_evicts", [((), evicts)])


def _fleet(roster: Roster) -> Iterator[Metric]:
    roles = ("worker", "beat")
    counted = Tally[str](process.role for process in roster.live())
    yield _metric("boyd_workers", [((role,), counted[role]) for role in roles], ("role",))
    alive = [
        ((name, role), sum(process.role == role for process in roster.live(None, name)))
        for name in roster.agents
        for role in roles
    ]
    yield _metric("boyd_agent_workers", alive, ("agent", "role"))
    versions = Tally((process.role, process.version) for process in roster.live())
    yield _metric("boyd_versions", versions.items(), ("role", "version"))


def _agents(health: HealthSnapshot) -> Iterator[Metric]:
    now, agents = health.roster.now, health.agents
    begun = [((agent.entry.id,), agent.iterations) for agent in agents]
    yield _metric("boyd_agent_iterations", begun, ("agent",), CounterMetricFamily)
    for name, (label, counts) in _COUNTS.items():
        counted = [((a.entry.id, what), n) for a in agents for what, n in counts(a).items()]
        yield _metric(name, counted, ("agent", label), CounterMetricFamily)
    for name, read in _PER_AGENT.items():
        yield _metric(name, [((a.entry.id,), read(a, now)) for a in agents], ("agent",))


def _age(now: float, since: float | None) -> float:
    return max(0.0, now - since) if since is not None else 0.0


def _audited(kind: str) -> Callable[[AgentHealth], dict[str, int]]:
    """Counts of the audit entries of a kind, by what follows the dot."""
    return lambda a: {k.partition(".")[2]: n for k, n in a.audited.items() if k.startswith(kind)}


#: The counters of an agent by one label.
_COUNTS: dict[str, tuple[str, Callable[[AgentHealth], dict[str, int]]]] = {
    "boyd_agent_iterations_ended": ("outcome", lambda a: a.ended),
    "boyd_approvals_resolved": ("status", _audited("approval.")),
    "boyd_actions_ended": ("state", _audited("action.")),
    "boyd_notifications": ("state", lambda a: a.notified),
    "boyd_verdicts": ("verdict", lambda a: a.verdicts),
    "boyd_autonomy_changes": ("change", lambda a: a.autonomy),
    "boyd_procedures": ("state", lambda a: a.procedures),
}
#: The gauges that an agent has once.
_PER_AGENT: dict[str, Callable[[AgentHealth, float], float | None]] = {
    "boyd_agent_last_iteration_timestamp_seconds": lambda a, _: a.last.at if a.last else None,
    "boyd_agent_last_iteration_success": lambda a, _: a.last.success if a.last else None,
    "boyd_agent_last_observed_timestamp_seconds": lambda a, _: a.observed,
    "boyd_agent_in_flight_seconds": lambda a, now: _age(now, a.flight_since),
    "boyd_agent_phase_seconds": lambda a, now: _age(now, a.phase_since),
    "boyd_agent_last_tick_timestamp_seconds": lambda a, _: a.slot,
    "boyd_agent_interval_seconds": lambda a, _: (
        a.entry.loop_interval if a.entry.mode == "continuous" else None
    ),
    "boyd_agent_paused": lambda a, _: a.paused is not None,
    "boyd_agent_frozen": lambda a, _: a.frozen is not None,
    "boyd_agent_revoked": lambda a, _: a.revoked is not None,
    "boyd_actions_suspended": lambda a, _: a.suspended,
    "boyd_intake_waiting": lambda a, _: a.intake,
    "boyd_runs_pending": lambda a, _: a.runs,
    "boyd_runs_oldest_seconds": lambda a, now: _age(now, a.oldest_run),
    "boyd_approvals_pending": lambda a, _: a.approvals,
    "boyd_approvals_next_deadline_seconds": lambda a, now: (
        None if a.next_deadline is None else a.next_deadline - now
    ),
}


def _queues(health: HealthSnapshot) -> Iterator[Metric]:
    labels = ("agent", "queue")
    yield _metric("boyd_queue_messages", (health.messages or {}).items(), labels)
    oldest = [
        ((agent.entry.id, queue), _age(health.roster.now, since))
        for agent in health.agents
        for queue, since in agent.oldest.items()
    ]
    yield _metric("boyd_queue_oldest_seconds", oldest, labels)


def _observers(agents: Iterable[AgentHealth]) -> Iterator[Metric]:
    labels = ("agent", "observer")
    known = [((a.entry.id, name), health) for a in agents for name, health in a.observers.items()]
    failures = [(name, health.failures) for name, health in known]
    yield _metric("boyd_observer_failures", failures, labels)
    times = [(name, health.last_success_at) for name, health in known]
    moments = [(name, at.timestamp() if at else None) for name, at in times]
    yield _metric("boyd_observer_last_success_timestamp_seconds", moments, labels)


def _models(agents: Iterable[AgentHealth]) -> Iterator[Metric]:
    known = [(agent.entry.id, _from_zero(agent)) for agent in agents]
    tokens = [((name, *what), n) for name, model in known for what, n in model.tokens.items()]
    labels = ("agent", "model", "kind")
    yield _metric("boyd_model_tokens", tokens, labels, CounterMetricFamily)
    requests = [((name, *what), n) for name, model in known for what, n in model.requests.items()]
    labels = ("agent", "model", "outcome")
    yield _metric("boyd_model_requests", requests, labels, CounterMetricFamily)
    costs = [((name, what), n) for name, model in known for what, n in model.cost.items()]
    yield _metric("boyd_model_cost", costs, ("agent", "model"), CounterMetricFamily)
    ended = [((name, how), n) for name, model in known for how, n in model.ended.items()]
    yield _metric("boyd_investigations_ended", ended, ("agent", "ending"), CounterMetricFamily)


def _from_zero(agent: AgentHealth) -> ModelTotals:
    """The totals of an agent's model, counted from 0 on like `REASONS`."""
    totals = agent.model
    if agent.entry.model is None:
        return totals
    model = agent.entry.model[:LONGEST]
    return replace(
        totals,
        tokens={(model, "input"): 0, (model, "output"): 0} | totals.tokens,
        requests={(model, how): 0 for how in get_args(RequestOutcome)} | totals.requests,
        cost={model: 0.0} | totals.cost,
        ended=dict.fromkeys(get_args(Ending), 0) | totals.ended,
    )


def _archive(health: HealthSnapshot) -> Iterator[Metric]:
    """The archive, unless none has run for a week."""
    status = health.archive
    if status is not None:
        yield _metric("boyd_archive_up", [((), health.works(status))])
        yield _metric("boyd_archive_behind_seconds", [((), health.behind(status))])
        copied = [((), float(status.copied))]
        yield _metric("boyd_archive_records", copied, family=CounterMetricFamily)


def _traces(health: HealthSnapshot) -> Iterator[Metric]:
    """The export of traces, unless none has run for a week."""
    status = health.traces
    if status is not None:
        yield _metric("boyd_traces_up", [((), health.works(status))])
        yield _metric("boyd_traces_behind_seconds", [((), health.behind(status))])
        spans = [(("exported",), float(status.copied)), (("refused",), float(status.refused))]
        yield _metric("boyd_traces_spans", spans, ("outcome",), CounterMetricFamily)


def _findings(health: HealthSnapshot) -> Metric:
    levels = ("warning", "error")
    found = Tally[str](finding.level for finding in examine(health))
    return _metric("boyd_findings", [((level,), found[level]) for level in levels], ("level",))
