"""What `GET /metrics` answers: how the deployment does, and what this process was asked.

The numbers of the deployment are read from Redis when they are asked for, so any number of API
processes say the same. Times are in seconds; moments are seconds since the epoch on the Redis
server's clock.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from boyd.checks import examine
from boyd.errors import StoreError
from boyd.store import Store
from boyd.store.connection import Client
from boyd.store.health_reader import read_health
from boyd.store.health_snapshot import AgentHealth, HealthSnapshot, Roster, ServerHealth
from boyd.version import VERSION

#: Requests that wait for an iteration take minutes, all others milliseconds.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_AGENT = ("agent",)


class Metrics:
    """The metrics of one app; two apps in one process share nothing."""

    def __init__(self, store: Callable[[], Store], broker: Client | None = None) -> None:
        """Connect to nothing yet.

        Args:
            store: gives the store; it may raise `StoreError`.
            broker: a client for the broker, see `boyd.checks.broker_of`.
        """
        self._registry = CollectorRegistry()
        self._registry.register(_Deployment(store, broker))
        self._requests = Counter(
            "boyd_http_requests",
            "Requests that were answered.",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self._durations = Histogram(
            "boyd_http_request_duration_seconds",
            "How long answers took.",
            ("method", "route"),
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._taken = Counter(
            "boyd_intake_observations",
            "Observations that came through the intake.",
            ("format",),
            registry=self._registry,
        )
        self._refused = Counter(
            "boyd_intake_refused",
            "Requests to the intake that were not taken, by the name of the problem.",
            ("format", "reason"),
            registry=self._registry,
        )

    def answered(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """Count a request.

        Args:
            method: of the request.
            route: the template that it matched, not its path; None when it matched none.
            status: of the answer.
            seconds: that it took.
        """
        known = method if method in _METHODS else "other"
        self._requests.labels(known, route or "none", str(status)).inc()
        self._durations.labels(known, route or "none").observe(seconds)

    def refused(self, format: str, reason: str, requests: int = 1) -> None:
        """Count requests to `/intake` that were not taken, by the name of the problem."""
        self._refused.labels(format, reason).inc(requests)

    def taken(self, format: str, observations: int) -> None:
        """Count what has come through `/intake`."""
        self._taken.labels(format).inc(observations)

    def exposed(self, accept: str = "") -> tuple[bytes, str]:
        """The body and its content type, as the header `Accept` wants it; never fails."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


class _Deployment(Collector):
    def __init__(self, store: Callable[[], Store], broker: Client | None) -> None:
        self._store = store
        self._broker = broker

    def collect(self) -> Iterable[Metric]:
        try:
            store = self._store()
        except StoreError:
            return _away()
        return collect(store, self._broker)


def collect(store: Store, broker: Client | None = None) -> Iterator[Metric]:
    """How the deployment does; only `boyd_up 0` when Redis does not answer.

    Agents that nobody has run for a day are left out. Four round trips, whatever the history; what
    they carry grows with agents and observers.
    """
    try:
        health = _present(read_health(store.client, broker))
    except StoreError:
        yield from _away()
        return
    yield from deployment_metrics(health)


def deployment_metrics(health: HealthSnapshot) -> Iterator[Metric]:
    """Yield the metrics of a deployment whose Redis answers."""
    yield _gauge("boyd_up", _UP, [((), 1)])
    yield _version()
    yield _gauge(
        "boyd_broker_up", "Whether the broker answers.", [((), health.messages is not None)]
    )
    yield from _redis(health)
    yield from _fleet(health.roster)
    yield from _agents(health)
    yield from _queues(health)
    yield from _observers(health.agents)
    yield from _models(health.agents)
    yield _findings(health)


def _away() -> Iterator[Metric]:
    yield _gauge("boyd_up", _UP, [((), 0)])
    yield _version()


def _version() -> Metric:
    return _gauge("boyd_api_info", "The version of this API.", [((VERSION,), 1)], ("version",))


def _present(health: HealthSnapshot) -> HealthSnapshot:
    """Without the agents that are retired."""
    roster = health.roster
    present = {name: entry for name, entry in roster.agents.items() if not roster.retired(name)}
    messages = health.messages
    return replace(
        health,
        roster=replace(roster, agents=present),
        agents=[agent for agent in health.agents if agent.entry.id in present],
        messages={key: n for key, n in messages.items() if key[0] in present}
        if messages is not None
        else None,
    )


_UP = "Whether Redis answers."
_Samples = Iterable[tuple[Sequence[str], float | None]]


def _gauge(name: str, text: str, samples: _Samples, labels: Sequence[str] = ()) -> Metric:
    """A gauge; samples without a value are left out."""
    return _filled(GaugeMetricFamily(name, text, labels=labels), samples)


def _counter(name: str, text: str, samples: _Samples, labels: Sequence[str] = ()) -> Metric:
    """A counter; its samples have `_total` after their name."""
    return _filled(CounterMetricFamily(name, text, labels=labels), samples)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, samples: _Samples) -> Metric:
    for values, number in samples:
        if number is not None:
            family.add_metric(values, float(number))
    return family


def _redis(health: HealthSnapshot) -> Iterator[Metric]:
    skew = "By how much the clock of Redis is ahead of the one here."
    yield _gauge("boyd_redis_clock_skew_seconds", skew, [((), health.skew)])
    yield _gauge("boyd_redis_answer_seconds", "How long Redis took.", [((), health.latency)])
    if health.server is not None:
        yield from _server(health.server)


def _server(server: ServerHealth) -> Iterator[Metric]:
    limit = "The most memory that Redis may use; 0: no limit."
    yield _gauge("boyd_redis_memory_bytes", "Memory in use.", [((), server.used)])
    yield _gauge("boyd_redis_memory_limit_bytes", limit, [((), server.limit)])
    kept = [
        (("aof",), server.aof),
        (("rdb",), bool(server.rdb) if server.rdb is not None else None),
    ]
    persistence = "Whether Redis writes to disk in this way."
    yield _gauge("boyd_redis_persistence", persistence, kept, ("kind",))
    done = [(("aof",), server.aof_ok), (("rdb",), server.rdb_ok)]
    text = "Whether the last write to disk succeeded."
    yield _gauge("boyd_redis_persistence_ok", text, done, ("kind",))
    evicts = None if server.policy is None else server.policy != "noeviction"
    text = "Whether a full Redis may throw state out."
    yield _gauge("boyd_redis_evicts", text, [((), evicts)])


def _fleet(roster: Roster) -> Iterator[Metric]:
    roles: tuple[tuple[str], ...] = (("worker",), ("beat",))
    counted = Tally[str](process.role for process in roster.live())
    samples = [(role, counted[role[0]]) for role in roles]
    yield _gauge("boyd_workers", "Live processes.", samples, ("role",))
    alive = [
        ((name, role), sum(process.role == role for process in roster.live(None, name)))
        for name in roster.agents
        for (role,) in roles
    ]
    yield _gauge("boyd_agent_workers", "Live processes of an agent.", alive, ("agent", "role"))
    versions = Tally((process.role, process.version) for process in roster.live())
    text = "Live processes of a version."
    yield _gauge("boyd_versions", text, versions.items(), ("role", "version"))


def _agents(health: HealthSnapshot) -> Iterator[Metric]:
    now, agents = health.roster.now, health.agents
    text = "Iterations that have begun."
    begun = [((agent.entry.id,), agent.iterations) for agent in agents]
    yield _counter("boyd_agent_iterations", text, begun, _AGENT)
    for name, text, read in _PER_AGENT:
        yield _gauge(
            name, text, [((agent.entry.id,), read(agent, now)) for agent in agents], _AGENT
        )


def _age(now: float, since: float | None) -> float:
    return max(0.0, now - since) if since is not None else 0.0


#: Name, text and value of what there is once for each agent.
_PER_AGENT: tuple[tuple[str, str, Callable[[AgentHealth, float], float | None]], ...] = (
    (
        "boyd_agent_last_iteration_timestamp_seconds",
        "When the last iteration ended.",
        lambda agent, _: agent.last.at if agent.last else None,
    ),
    (
        "boyd_agent_last_iteration_success",
        "Whether the last iteration that ended succeeded.",
        lambda agent, _: agent.last.success if agent.last else None,
    ),
    (
        "boyd_agent_last_observed_timestamp_seconds",
        "When the last iteration began, which observes first.",
        lambda agent, _: agent.observed,
    ),
    (
        "boyd_agent_in_flight_seconds",
        "How long ago the iteration in flight began; 0: none is.",
        lambda agent, now: _age(now, agent.flight_since),
    ),
    (
        "boyd_agent_phase_seconds",
        "How long ago the phase in flight began; 0: none is.",
        lambda agent, now: _age(now, agent.phase_since),
    ),
    (
        "boyd_agent_last_tick_timestamp_seconds",
        "When the slot of the last tick of beat began.",
        lambda agent, _: agent.slot,
    ),
    (
        "boyd_agent_interval_seconds",
        "How often a continuous agent should tick.",
        lambda agent, _: agent.entry.loop_interval if agent.entry.mode == "continuous" else None,
    ),
    ("boyd_agent_paused", "Whether it is paused.", lambda agent, _: agent.paused is not None),
    ("boyd_agent_frozen", "Whether it may not act.", lambda agent, _: agent.frozen is not None),
    (
        "boyd_intake_waiting",
        "Observations from outside that wait for an iteration.",
        lambda agent, _: agent.intake,
    ),
    ("boyd_runs_pending", "Runs that wait.", lambda agent, _: agent.runs),
    (
        "boyd_runs_oldest_seconds",
        "How long the oldest pending run has waited; 0: none does.",
        lambda agent, now: _age(now, agent.oldest_run),
    ),
    (
        "boyd_approvals_pending",
        "Approvals that wait for a person.",
        lambda agent, _: agent.approvals,
    ),
    (
        "boyd_approvals_next_deadline_seconds",
        "Until the next approval expires; below 0: it should have.",
        lambda agent, now: agent.next_deadline - now if agent.next_deadline is not None else None,
    ),
)


def _queues(health: HealthSnapshot) -> Iterator[Metric]:
    labels = ("agent", "queue")
    lengths = (health.messages or {}).items()
    yield _gauge("boyd_queue_messages", "Messages that no worker has taken.", lengths, labels)
    now = health.roster.now
    oldest = [
        ((agent.entry.id, queue), _age(now, since))
        for agent in health.agents
        for queue, since in agent.oldest.items()
    ]
    text = "How long the oldest step that waits for a worker has waited."
    yield _gauge("boyd_queue_oldest_seconds", text, oldest, labels)


def _observers(agents: Iterable[AgentHealth]) -> Iterator[Metric]:
    """How observers have been doing (L15)."""
    labels = ("agent", "observer")
    known = [
        ((agent.entry.id, name), health)
        for agent in agents
        for name, health in agent.observers.items()
    ]
    failures = [(name, health.failures) for name, health in known]
    yield _gauge("boyd_observer_failures", "Failures in a row.", failures, labels)
    moments = [
        (name, health.last_success_at.timestamp() if health.last_success_at else None)
        for name, health in known
    ]
    text = "When it last succeeded."
    yield _gauge("boyd_observer_last_success_timestamp_seconds", text, moments, labels)


def _models(agents: Iterable[AgentHealth]) -> Iterator[Metric]:
    """What models were asked, and how investigations ended (G7)."""
    known = [(agent.entry.id, agent.model) for agent in agents]
    tokens = [((name, *what), n) for name, model in known for what, n in model.tokens.items()]
    text = "Tokens that were sent to models and answered by them."
    yield _counter("boyd_model_tokens", text, tokens, ("agent", "model", "kind"))
    requests = [((name, *what), n) for name, model in known for what, n in model.requests.items()]
    text = "Requests to models, by how they ended."
    yield _counter("boyd_model_requests", text, requests, ("agent", "model", "outcome"))
    ended = [((name, how), n) for name, model in known for how, n in model.ended.items()]
    text = "Investigations, by how they ended."
    yield _counter("boyd_investigations_ended", text, ended, ("agent", "ending"))


def _findings(health: HealthSnapshot) -> Metric:
    levels = ("warning", "error")
    found = Tally[str](finding.level for finding in examine(health))
    text = "What `boyd doctor` finds; it says more."
    return _gauge("boyd_findings", text, [((level,), found[level]) for level in levels], ("level",))
