"""The model of a large fleet beside a point of it that is measured on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from benchmarks.cost import AGENTS as COST_AGENTS
from benchmarks.fleet import Costs, Fleet, Shape, simulate
from benchmarks.masters import Work, port_of
from benchmarks.report import Report
from harness import BROKERS, Deployment, wait_until
from redis_kit import RedisServer

#: Agents of the point, which tick every second with one observer each.
AGENTS, INTERVALS = 20, ((1, 1.0),)
#: Seconds for which it is watched, and how often.
WATCH, TIMES = 20.0, 3
#: Processor time depends on what else the machine does.
FACTOR = 3.0


def measure(report: Report, state: str, folder: Path) -> None:
    """Compare the model with the point, then simulate a large fleet."""
    compare(report, state, folder)
    simulate(report)


def compare(report: Report, state: str, folder: Path) -> None:
    """Compare the model with twenty agents on this machine."""
    with RedisServer(folder) as server:
        broker = BROKERS[state] = server.url
        servers = [port_of(state), port_of(broker)]
        time.sleep(1)
        bare = _load(servers, [], 5)
        with Deployment(state, folder) as deployment:
            names = [f"ticking{number}" for number in range(AGENTS)]
            options = [word for name in names for word in ("--agent", f"{COST_AGENTS}:{name}")]
            deployment.start("loop", "worker", *options, "-Q", "loop,act")
            deployment.start("observe", "worker", *options, "-Q", "observe")
            deployment.start("beat", "beat", *options)
            wait_until(lambda: deployment.agent(names[-1]).loop_control.iteration() > 3, 60)
            processes = [deployment.processes[name].pid for name in ("loop", "observe")]
            before = [deployment.agent(name).loop_control.iteration() for name in names]
            began = time.monotonic()
            spent = [_load(servers, processes, WATCH) for _ in range(TIMES)]
            took = time.monotonic() - began
            after = [deployment.agent(name).loop_control.iteration() for name in names]
        del BROKERS[state]
    fleet = Fleet(Shape(AGENTS, 1, 1, AGENTS, 2, 1, INTERVALS), Costs.read(observers=1))
    figures = fleet.run(100)
    rate = (sum(after) - sum(before)) / took
    report.compare("iterations of the point", rate, len(figures.durations) / 100, "1/s", 1.1)
    predicted = [fleet.home.busy, fleet.brokers[0].busy, sum(pool.busy for pool in fleet.pools)]
    for number, name in enumerate(("state", "messages", "workers")):
        values = [each[number] - bare[number] for each in spent]
        for word, value in (("least", min(values)), ("most", max(values))):
            report.compare(f"{name}, {word}", value, 10 * predicted[number], "ms/s", FACTOR)


def _load(ports: Sequence[int], processes: Sequence[int], seconds: float) -> list[float]:
    """Milliseconds of processor time a second, of each server and of all processes together."""

    def reading() -> list[float]:
        times = [psutil.Process(process).cpu_times() for process in processes]
        own = 1000 * sum(each.user + each.system for each in times)
        return [*(Work.of(port).cpu for port in ports), own, 1000 * time.monotonic()]

    before = reading()
    time.sleep(seconds)
    *spent, took = [b - a for a, b in zip(before, reading(), strict=True)]
    return [1000 * each / took for each in spent]
