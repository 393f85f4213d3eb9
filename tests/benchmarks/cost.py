"""Costs in commands, messages, bytes and processor time, fitted to straight lines.

The model of docs/scaling.md. Nothing is timed by the clock on the wall: what else the machine does
matters little.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import psutil
import redis

from benchmarks.cost_agents import COUNTS, LARGEST, WIDE
from benchmarks.kept import propose
from benchmarks.load import Caller
from boyd.models import Actor, RunRequest, utc_now
from boyd.store.fleet import WorkerInfo
from boyd.store.keys import WORKERS, Keys
from harness import Deployment, wait_until

AGENTS = "benchmarks.cost_agents"
#: Seconds for which something idle is watched.
WATCH = 12
#: Each batch is measured so often, and the cheapest counts: what disturbs only adds.
BATCHES = 3
#: Quiet background, so that what is counted belongs to what was done.
QUIET = {"BOYD_TIMING__SWEEP": "3600", "BOYD_TIMING__HEARTBEAT_INTERVAL": "3"}

_SOMEBODY = Actor(principal="bench", person=True)

#: Shows the commands that come over the wire meanwhile.
Monitored = Callable[[str], contextlib.AbstractContextManager[list[str]]]
#: Adds a row to the report: name, value, batch.
Add = Callable[[str, float, str], None]


@dataclass(frozen=True)
class Cost:
    """The cost of one unit.

    Attributes:
        commands: to Redis, over the wire.
        messages: published.
        received: bytes that Redis receives.
        sent: bytes that Redis sends.
        redis: milliseconds of Redis's processor time.
        boyd: milliseconds of the measured processes' processor time.
        record: bytes of memory that are kept.
    """

    commands: float = 0
    messages: float = 0
    received: float = 0
    sent: float = 0
    redis: float = 0
    boyd: float = 0
    record: float = 0

    def over(self, count: float) -> Cost:
        """The share of one of *count*."""
        return Cost(*(value / count for value in self.values()))

    def values(self) -> list[float]:
        """The numbers in order."""
        return [getattr(self, field.name) for field in fields(self)]


UNITS = ("", "", "B", "B", "ms", "ms", "B")
NAMES = [field.name for field in fields(Cost)]


class Meter:
    """Measures what happens between two readings of a deployment."""

    def __init__(
        self, deployment: Deployment, url: str, monitored: Monitored, only: str | None = None
    ) -> None:
        """Measure *deployment*; of its processes *only* that one, or all."""
        self._deployment = deployment
        self._url = url
        self._monitored = monitored
        self._only = only
        self._client: Any = redis.Redis.from_url(url, decode_responses=True)
        self._looks = 0

    def wait_for(self, key: str) -> None:
        """Wait until *key* exists, leaving no trace in what is measured."""
        while not self._client.exists(key):
            self._looks += 1
            time.sleep(0.01)
        self._looks += 1
        self._key = key

    def of(self, work: Callable[[], None], times: int) -> Cost:
        """The cost of doing *work* once, out of several batches of as many *times*."""
        samples = [self._resources(lambda: _repeat(work, times)) for _ in range(BATCHES)]
        cheapest = [
            min(column) for column in zip(*(sample.values() for sample in samples), strict=True)
        ]
        commands, messages = self._count(lambda: _repeat(work, max(1, times // 4)))
        share = Cost(*cheapest).over(times)
        few = max(1, times // 4)
        return Cost(commands / few, messages / few, *share.values()[2:])

    def second(self, used: bool = True) -> Cost:
        """The cost of a second in which nothing is asked for; *used*: somebody talks to Redis."""
        cost = self._resources(lambda: time.sleep(WATCH)).over(WATCH)
        if not used:
            return cost
        commands, messages = self._count(lambda: time.sleep(WATCH))
        return Cost(commands / WATCH, messages / WATCH, *cost.values()[2:])

    def memory(self, key: str) -> int:
        """Bytes that a key takes."""
        return int(self._client.memory_usage(key, samples=0))

    def connections(self) -> int:
        """The number of clients, without this one."""
        return int(self._client.info("clients")["connected_clients"]) - 1

    def _resources(self, work: Callable[[], None]) -> Cost:
        self._looks = 0
        idle = self._reading()
        before = self._reading()
        work()
        after = self._reading()
        # What a reading itself costs, and our looking whether it is done.
        took = [c - b - (b - a) for a, b, c in zip(idle, before, after, strict=True)]
        if self._looks:
            name = str(len(self._key))
            took[0] -= self._looks * (len("*2$6EXISTS$") + len(name) + len(self._key) + 10)
            took[1] -= self._looks * len(":0\r\n")
        return Cost(0, 0, *took)

    def _reading(self) -> list[float]:
        info = self._client.info()
        processor = info["used_cpu_user"] + info["used_cpu_sys"]
        ours = sum(
            sum(psutil.Process(process.pid).cpu_times()[:2])
            for name, process in self._deployment.processes.items()
            if process.poll() is None and self._only in (None, name)
        )
        received, sent = info["total_net_input_bytes"], info["total_net_output_bytes"]
        return [received, sent, processor * 1000, ours * 1000]

    def _count(self, work: Callable[[], None]) -> tuple[int, int]:
        with self._monitored(self._url) as commands:
            work()
        wire = [command for command in commands if not command.startswith("EXISTS ")]
        return len(wire), sum(command.startswith("LPUSH boyd.") for command in wire)


def _repeat(work: Callable[[], None], times: int) -> None:
    for _ in range(times):
        work()


@contextlib.contextmanager
def measuring(
    url: str, folder: Path, monitored: Monitored, environment: dict[str, str], *agents: str
) -> Iterator[tuple[Deployment, Meter]]:
    """A deployment with a worker for those agents, and its meter."""
    redis.Redis.from_url(url).flushall()
    with Deployment(url, folder) as deployment:
        deployment.environment.update(environment)
        options = [word for agent in agents for word in ("--agent", agent)]
        deployment.start("w", "worker", *options)
        yield deployment, Meter(deployment, url, monitored)


# What an iteration costs


@dataclass(frozen=True)
class Point:
    """An iteration that was measured: its bundles, observers and bytes beyond trivial ones."""

    bundles: int
    observers: int
    extra: int
    cost: Cost


def once(deployment: Deployment, meter: Meter, agent_id: str) -> Callable[[], None]:
    """One iteration of an agent."""
    launcher = deployment.launcher(agent_id)
    keys = Keys(agent_id)

    def iterate() -> None:
        meter.wait_for(keys.past_iteration(launcher.trigger("bench").iteration))

    return iterate


def iterations(url: str, folder: Path, monitored: Monitored) -> list[Point]:
    """Iterations with few and many observers, in few and many bundles, with little and much."""
    points_measured = []
    for size in (1, 32):
        environment = {**QUIET, "BOYD_WORKER__BUNDLE_SIZE": str(size)}
        cases = [(f"split{count}", count, 0) for count in COUNTS]
        cases += [(f"wide{count}", count, count * WIDE) for count in (10, 100)]
        agents = [f"{AGENTS}:{name}" for name, _, _ in cases]
        with measuring(url, folder, monitored, environment, *agents) as (deployment, meter):
            for name, count, extra in cases:
                iterate = once(deployment, meter, name)
                _repeat(iterate, 3)
                bundles = -(-count // size)
                cost = meter.of(iterate, max(3, 100 // (1 + bundles // 4 + count // 20)))
                record = meter.memory(Keys(name).past_iteration(1))
                cost = replace(cost, record=record)
                points_measured.append(Point(bundles, count, extra, cost))
    return points_measured


def fit(rows: Sequence[Sequence[float]], values: Sequence[float]) -> tuple[list[float], float]:
    """The coefficients with the smallest squares of relative errors, and the largest such error.

    What comes out negative is nothing but noise: it is left out.
    """
    columns = list(range(len(rows[0])))
    while True:
        scaled = [[row[c] / v for c in columns] for row, v in zip(rows, values, strict=True)]
        solution = _solve(scaled)
        negative = [c for c, value in zip(columns, solution, strict=True) if value < 0]
        if not negative:
            break
        columns = [c for c in columns if c not in negative]
    whole = [0.0] * len(rows[0])
    for c, value in zip(columns, solution, strict=True):
        whole[c] = value
    worst = max(
        abs(sum(a * b for a, b in zip(row, whole, strict=True)) / v - 1)
        for row, v in zip(rows, values, strict=True)
    )
    return whole, worst


def _solve(rows: Sequence[Sequence[float]]) -> list[float]:
    """Least squares towards 1: the normal equations, by elimination."""
    size = len(rows[0])
    matrix = [
        [sum(r[i] * r[j] for r in rows) for j in range(size)] + [sum(r[i] for r in rows)]
        for i in range(size)
    ]
    for i in range(size):
        pivot = matrix[i][i]
        matrix[i] = [value / pivot for value in matrix[i]]
        for j in range(size):
            if j != i:
                factor = matrix[j][i]
                pairs = zip(matrix[j], matrix[i], strict=True)
                matrix[j] = [a - factor * b for a, b in pairs]
    return [row[-1] for row in matrix]


def formulas(points: Sequence[Point], add: Add) -> dict[str, list[float]]:
    """The cost of an iteration, a bundle, an observer and a kilobyte of observations."""
    rows = [[1.0, p.bundles, p.observers, p.extra / 1000] for p in points]
    parts = ("iteration", "bundle", "observer", "kB seen")
    coefficients_by_name = {}
    for name, batch in zip(NAMES, UNITS, strict=True):
        values = [getattr(point.cost, name) for point in points]
        coefficients, worst = fit(rows, values)
        coefficients_by_name[name] = coefficients
        for part, value in zip(parts, coefficients, strict=True):
            add(f"cost {name} per {part}", value, batch)
        add(f"cost {name}, worst error of the fit", worst * 100, "%")
    return coefficients_by_name


def control(url: str, folder: Path, monitored: Monitored, add: Add) -> None:
    """Measure the worker of the queue `loop` while others observe."""
    rows, values = [], []
    for size in (1, 32):
        redis.Redis.from_url(url).flushall()
        with Deployment(url, folder) as deployment:
            deployment.environment.update({**QUIET, "BOYD_WORKER__BUNDLE_SIZE": str(size)})
            agents = [f"split{count}" for count in COUNTS]
            options = [word for agent in agents for word in ("--agent", f"{AGENTS}:{agent}")]
            deployment.start("w", "worker", *options, "-Q", "loop,act")
            deployment.start("o", "worker", *options, "-Q", "observe")
            meter = Meter(deployment, url, monitored, only="w")
            for count, agent in zip(COUNTS, agents, strict=True):
                iterate = once(deployment, meter, agent)
                _repeat(iterate, 3)
                bundles = -(-count // size)
                rows.append([1.0, bundles, count])
                values.append(meter.of(iterate, max(5, 60 // (1 + bundles // 4))).boyd)
    coefficients, worst = fit(rows, values)
    for part, value in zip(("iteration", "bundle", "observer"), coefficients, strict=True):
        add(f"cost of the control worker per {part}", value, "ms")
    add("cost of the control worker, worst error of the fit", worst * 100, "%")


def largest(url: str, folder: Path, monitored: Monitored, add: Add) -> None:
    """An iteration as with 20 observers on 1 000 hosts, beyond what the lines were fitted to."""
    environment = {**QUIET, "BOYD_WORKER__BUNDLE_SIZE": "20"}
    name = f"split{LARGEST}"
    agents = [f"{AGENTS}:{agent}" for agent in (name, "whole1000")]
    with measuring(url, folder, monitored, environment, *agents) as (deployment, meter):
        report_cost(
            add, "1000 observers of an agent", meter.of(once(deployment, meter, "whole1000"), 5)
        )
        iterate = once(deployment, meter, name)
        _repeat(iterate, 1)
        client: Any = redis.Redis.from_url(url)
        client.config_set("slowlog-log-slower-than", 1000)
        client.slowlog_reset()
        _repeat(iterate, 3)  # apart from what is watched: to show a command takes longer still
        slow = [entry["duration"] / 1000 for entry in client.slowlog_get(128)]
        report_cost(add, f"{LARGEST} observers, 1000 bundles", meter.of(iterate, 1))
        add(f"{LARGEST} observers: record", meter.memory(Keys(name).past_iteration(1)), "B")
        add(f"{LARGEST} observers: the longest command", max(slow, default=0), "ms")


# What else costs


def bare(url: str, folder: Path, monitored: Monitored, add: Add) -> None:
    """Redis that nobody uses."""
    with Deployment(url, folder) as deployment:
        report_cost(add, "Redis alone, per s", Meter(deployment, url, monitored).second(used=False))


def idle(url: str, folder: Path, monitored: Monitored, add: Add) -> None:
    """Processes that have nothing to do, by how many agents they have."""
    for agents in (1, 20, 100):
        names = [f"{AGENTS}:one{number}" for number in range(agents)]
        with measuring(url, folder, monitored, {}, *names) as (deployment, meter):
            report_cost(add, f"idle worker of loop, {agents} agents, per s", meter.second())
            iterate = once(deployment, meter, "one0")
            _repeat(iterate, 3)
            report_cost(add, f"iteration, worker with {agents} agents", meter.of(iterate, 40))
            _connections(deployment, meter, "w", add)
            options = [word for name in names for word in ("--agent", name)]
            for process in ("worker -Q host", "beat"):
                deployment.start(process, *process.split(), *options)
                report_cost(add, f"idle {process}, {agents} agents, per s", meter.second())
                _connections(deployment, meter, process, add)


def _connections(deployment: Deployment, meter: Meter, name: str, add: Add) -> None:
    before = meter.connections()
    deployment.stop(name)
    add(f"connections of {name}", before - meter.connections(), "")


def crowd(url: str, folder: Path, monitored: Monitored, add: Add) -> None:
    """A worker among many: what it reads of the others, who are only announced."""
    for others in (0, 100, 1000):
        with measuring(url, folder, monitored, {}, f"{AGENTS}:one0") as (deployment, meter):
            for number in range(others):
                info = _worker_info(number)
                deployment.store.fleet.beat(info)
                # As if it went on beating, of which nothing is to be counted.
                ahead = (time.time() + 60) * 1000
                deployment.store.client.zadd(WORKERS, {info.name: ahead})
            time.sleep(5)
            report_cost(add, f"idle worker among {others}, per s", meter.second())
    for agents in (1, 100):
        size = len(_worker_info(0, agents).to_json())
        add(f"announcement of a worker with {agents} agents", size, "B")


def _worker_info(number: int, agents: int = 1) -> WorkerInfo:
    names = [f"agent{i}" for i in range(agents)]
    host = f"host{number}.example.org"
    return WorkerInfo(
        name=f"{host}.{number}.abcd",
        role="worker",
        host=host,
        pid=number,
        queues=["loop", "observe", f"host.{host}", "callback"],
        agents=names,
        version="0.1.0",
        started_at=utc_now(),
        fingerprints=dict.fromkeys(names, "0123456789abcdef"),
    )


def lives(url: str, folder: Path, monitored: Monitored, add: Add) -> None:
    """Approvals, runs and events from outside, from their beginning to their end."""
    agents = ["benchmarks.agents:kept_few", "benchmarks.agents:woken"]
    with measuring(url, folder, monitored, QUIET, *agents) as (deployment, meter):
        store = deployment.agent("kept_few")
        keys = Keys("kept_few")
        resolver = deployment.resolver("kept_few")
        launcher = deployment.launcher("kept_few")
        items: list[str] = []
        runs: list[str] = []

        def is_executed() -> bool:
            item = store.approvals.get(items[-1])
            return item is not None and item.result is not None

        def approve() -> None:
            items.append(propose(store))
            resolver.answer(items[-1], "approved", _SOMEBODY)
            wait_until(is_executed)

        def run() -> None:
            request = RunRequest(title="a run", description="what there is to know about it")
            submitted = launcher.submit_run(request, _SOMEBODY)
            runs.append(submitted.run.id)
            meter.wait_for(keys.past_iteration(submitted.iteration))

        _repeat(approve, 3)
        cost = meter.of(approve, 40)
        report_cost(add, "approval, proposed, approved, executed", cost)
        add("approval kept", meter.memory(keys.approval(items[0])), "B")
        _repeat(run, 3)
        report_cost(add, "run, with its iteration", meter.of(run, 40))
        add("run kept", meter.memory(keys.run(runs[0])), "B")
        url_of_api = deployment.api("api")
        report_cost(
            add, "event, with its iteration and approval", _events(deployment, meter, url_of_api)
        )


def _events(deployment: Deployment, meter: Meter, url: str) -> Cost:
    headers = {**deployment.key("bench", "admin"), "Content-Type": "application/json"}
    caller = Caller(url, headers)
    keys = Keys("woken")
    number = 0

    def post() -> None:
        nonlocal number
        number += 1
        body = json.dumps({"source": "bench", "type": "alert", "data": {"number": number}})
        status = caller.ask(("POST", "/api/v0/agents/woken/intake/json"), body)
        if status != 202:
            raise RuntimeError(f"an event was answered with {status}")
        meter.wait_for(keys.past_iteration(number))

    _repeat(post, 3)
    return meter.of(post, 40)


def report_cost(add: Add, process: str, cost: Cost) -> None:
    """Report a cost, but for what it leaves."""
    for name, batch, value in list(zip(NAMES, UNITS, cost.values(), strict=True))[:-1]:
        add(f"{process}: {name}", value, batch)


def measure(url: str, folder: Path, monitored: Monitored, add: Add) -> None:
    """Measure everything."""
    points = iterations(url, folder, monitored)
    for point in points:
        size = f"{point.observers} observers, {point.bundles} bundles, {point.extra // 1000} kB"
        report_cost(add, size, point.cost)
        add(f"{size}: record", point.cost.record, "B")
    formulas(points, add)
    control(url, folder, monitored, add)
    largest(url, folder, monitored, add)
    bare(url, folder, monitored, add)
    idle(url, folder, monitored, add)
    crowd(url, folder, monitored, add)
    lives(url, folder, monitored, add)
