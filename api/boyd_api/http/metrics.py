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
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from boyd.errors import StoreError
from boyd.health.agent_health import AgentHealth
from boyd.health.checks import examine
from boyd.health.declaration import HealthMetric, leaves
from boyd.health.reader import read_health
from boyd.health.server_health import ServerHealth
from boyd.health.snapshot import HealthSnapshot
from boyd.intake import UNOBSERVED, format_names
from boyd.store import Store
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

        *brokers* are clients for the brokers, see `boyd.health.reader.brokers_of`.
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

    def count_request(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """Count a request; *route* is the rule that matched its path, if any."""
        label = method if method in _METHODS else "other"
        self._requests.labels(label, route or "none", str(status)).inc()
        self._durations.labels(label, route or "none").observe(seconds)

    def count_refusal(self, format: str, reason: str, requests: int = 1) -> None:
        """Count refused requests to `/intake`, by the name of the problem."""
        self._refused.labels(format, reason).inc(requests)

    def count_observations(self, format: str, observations: int) -> None:
        """Count observations accepted from `/intake`, or a message that gave none."""
        self._taken.labels(format).inc(observations)
        self._unobserved.labels(format).inc(0 if observations else 1)

    def expose(self, accept: str = "") -> tuple[bytes, str]:
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
                self._metrics.count_refusal(name, reason, 0)

    def report(self, format: str, reason: str, detail: str) -> None:
        """Report a refused request; *reason* is the name of the problem."""
        kind = (format if format in self._names else UNKNOWN, reason)
        self._metrics.count_refusal(*kind)
        unlogged = self._due(kind)
        if unlogged is not None:
            more = f" (and {unlogged} more since the last such line)" if unlogged else ""
            log.warning("intake %s refused, %s: %s%s", *kind, detail[:500], more)

    def report_unobserved(self, format: str) -> None:
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
            return [_up(False), _version()]
        return deployment_metrics(_present(health))


def deployment_metrics(health: HealthSnapshot) -> Iterator[Metric]:
    """Yield the metrics of a deployment whose Redis answers: those that its fields declare."""
    yield _up(True)
    yield _version()
    families = [*_families(HealthSnapshot, [((), health)], health.roster.now)]
    if health.server is not None:
        families += _families(ServerHealth, [((), health.server)], health.roster.now)
    agents = [((agent.entry.id,), agent) for agent in health.agents]
    families += _families(AgentHealth, agents, health.roster.now, ("agent",))
    yield from families
    yield _findings(health)


def _families(
    kind: type[Any],
    owners: Sequence[tuple[tuple[str, ...], Any]],
    now: float,
    labels: tuple[str, ...] = (),
) -> Iterable[Metric]:
    """The metrics that the fields of a class declare, for objects with the values of *labels*.

    Samples without a number are left out.
    """
    families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
    for value_of, declaration in leaves(kind):
        for metric in declaration.metrics:
            samples = [metric.samples(value_of(owner), now) for _, owner in owners]
            if None in samples:
                continue
            family = families.setdefault(metric.name, _family(metric, labels))
            for (values, _), each in zip(owners, samples, strict=True):
                for more, number in each or ():
                    if number is not None:
                        family.add_metric([*values, *more], float(number))
    return families.values()


def _family(
    metric: HealthMetric, labels: tuple[str, ...]
) -> GaugeMetricFamily | CounterMetricFamily:
    family = CounterMetricFamily if metric.counts else GaugeMetricFamily
    return family(metric.name, metric.help, labels=[*labels, *metric.labels])


def _up(answers: bool) -> Metric:
    return GaugeMetricFamily("boyd_up", "1 if Redis answers.", float(answers))


def _version() -> Metric:
    family = GaugeMetricFamily("boyd_api_info", "The version of this API.", labels=["version"])
    family.add_metric([VERSION], 1.0)
    return family


def _findings(health: HealthSnapshot) -> Metric:
    text = "Findings of `boyd doctor`, which explains them."
    family = GaugeMetricFamily("boyd_findings", text, labels=["level"])
    levels = Tally[str](finding.level for finding in examine(health))
    for level in ("warning", "error"):
        family.add_metric([level], float(levels[level]))
    return family


def _present(health: HealthSnapshot) -> HealthSnapshot:
    """The same, without retired agents."""
    roster = health.roster
    present = {name: entry for name, entry in roster.agents.items() if not roster.is_retired(name)}
    messages = health.messages
    return replace(
        health,
        roster=replace(roster, agents=present),
        agents=[agent for agent in health.agents if agent.entry.id in present],
        messages=messages and {key: n for key, n in messages.items() if key[0] in present},
    )
