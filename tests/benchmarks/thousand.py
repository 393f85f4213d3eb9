"""A thousand hosts, beside what docs/scaling.md calculates for them.

The workers on the hosts are light, see `light_workers`; Redis, the worker of `loop`, beat and the
API are real.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cost import AGENTS, Cost, Meter, Monitored, once
from benchmarks.cost_agents import HOST_OBSERVERS
from boyd.store.keys import Keys
from boyd.store.throttle import ANNOUNCE
from harness import Deployment, wait_until

HOSTS = 1000
#: Processes that they share: in fewer, their threads wait for each other.
PROCESSES = 10
AGENT = "thousand"
#: Bytes of each process that whoever plans iterations reads.
LISTED = 60
#: The formula is wrong when it is off by more.
FACTOR = 1.5
#: Milliseconds depend on what else the machine does.
TIMES = 3.0
DOCS = Path(__file__).parents[2] / "docs" / "scaling.md"

#: Reports a row: name, measured, calculated, unit, the factor between them that is accepted.
Compare = Callable[[str, float, float, str, float], None]
#: Reports a row that is not calculated: name, value, unit.
Tell = Callable[[str, float, str], None]


@dataclass(frozen=True)
class Formula:
    """The tables of docs/scaling.md, by the name of row and column."""

    cells: dict[tuple[str, str], float]

    @classmethod
    def read(cls, text: str) -> Formula:
        """Read the tables whose cells are numbers, of a process with one agent."""
        cells = {}
        columns: list[str] = []
        for line in text.splitlines():
            if not line.startswith("|"):
                columns = []
                continue
            first, *rest = (cell.strip() for cell in line.strip("|").split("|"))
            if not columns:
                columns = rest
            for column, cell in zip(columns, rest, strict=True):
                if re.fullmatch(r"[\d.]+( \+ [\d.]+ \*A\*)?", cell):
                    numbers = re.findall(r"[\d.]+", cell)
                    cells[first, column] = sum(map(float, numbers))
        return cls(cells)

    def idle(self, row: str) -> float:
        """The cost of all processes, per second or in total."""
        each = [(HOSTS, "worker on a host"), (1, "worker of `loop`"), (1, "beat")]
        return sum(count * self.cells[row, column] for count, column in each)

    def iteration(self, row: str) -> float:
        """The cost of an iteration that observes on all hosts."""
        observers = HOSTS * HOST_OBSERVERS
        parts = {
            "iteration": 1.0,
            "+ per batch": HOSTS,
            "+ per observer": observers,
            "+ per kB observed": observers * 0.2,
        }
        return sum(count * self.cells[row, column] for column, count in parts.items())


@contextlib.contextmanager
def hosts(deployment: Deployment) -> Iterator[list[subprocess.Popen[str]]]:
    """The workers on all hosts, once they are known."""
    each = HOSTS // PROCESSES
    environment = {**deployment.surroundings(), "BOYD_WORKER__CONCURRENCY": "1"}
    program = [sys.executable, "-m", "benchmarks.light_workers", f"{AGENTS}:{AGENT}"]
    started = [
        subprocess.Popen(
            [*program, str(number * each), str(each)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    try:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", "see its error above"
        wait_until(lambda: len(deployment.store.fleet.workers()) >= HOSTS, 60)
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def measure(url: str, folder: Path, monitored: Monitored, compare: Compare, tell: Tell) -> None:
    """Measure a thousand hosts."""
    formula = Formula.read(DOCS.read_text())
    with Deployment(url, folder) as deployment:
        meter = Meter(deployment, url, monitored)
        client: Any = deployment.store.client
        empty = client.info("memory")["used_memory"]
        agent = f"{AGENTS}:{AGENT}"
        deployment.worker("loop", agent, "-Q", "loop,act")
        deployment.beat("beat", agent)
        deployment.api("api")
        began = time.monotonic()
        with hosts(deployment):
            tell(f"{HOSTS} hosts, until all are known", time.monotonic() - began, "s")
            time.sleep(10)  # what the start has changed is known to all
            idle = meter.second()
            _idle(idle, formula, compare)
            tell("cores of Redis when idle", idle.redis / 1000, "")
            iterate = once(deployment, meter, AGENT)
            iterate()
            began = time.monotonic()
            iterate()
            tell("an iteration on all hosts", time.monotonic() - began, "s")
            _iteration(_beyond(idle, meter, iterate), formula, compare)
            [newest] = client.zrange(Keys(AGENT).history, -1, -1)
            record = Keys(AGENT).past_iteration(int(newest))
            size = meter.memory(record)
            compare("its record", size / 1000, formula.iteration("kB that are kept"), "kB", FACTOR)
            count = meter.connections()
            compare("connections", count, formula.idle("connections"), "", FACTOR)
            used = client.info("memory")["used_memory"] - empty
            tell("memory of Redis for a connection and its process", used / count / 1000, "kB")
        failed = client.hget(record, "error")
        assert not failed, failed


def _idle(cost: Cost, formula: Formula, compare: Compare) -> None:
    name = "{}, all idle, per s"
    # The worker of `loop` reads who is there, every minute.
    sent = formula.idle("bytes that Redis sends") + LISTED * HOSTS / ANNOUNCE
    compare(name.format("commands"), cost.commands, formula.idle("commands"), "", FACTOR)
    received = formula.idle("bytes that Redis receives")
    compare(name.format("received"), cost.received / 1000, received / 1000, "kB", FACTOR)
    compare(name.format("sent"), cost.sent / 1000, sent / 1000, "kB", FACTOR)
    compare(name.format("Redis"), cost.redis, formula.idle("ms of Redis"), "ms", TIMES)


def _beyond(idle: Cost, meter: Meter, iterate: Callable[[], None]) -> Cost:
    """The cost of an iteration beyond what the processes cost meanwhile anyway."""
    took: list[float] = []

    def time_work() -> None:
        began = time.monotonic()
        iterate()
        took.append(time.monotonic() - began)

    cost = meter.of(time_work, 1)
    # Resources are those of the quickest, commands and messages those of the last one.
    seconds = [took[-1], took[-1], *[min(took)] * 5]
    values = zip(cost.values(), idle.values(), seconds, strict=True)
    return Cost(*(value - each * so_long for value, each, so_long in values))


def _iteration(cost: Cost, formula: Formula, compare: Compare) -> None:
    figures = {
        "messages": (cost.messages, "", FACTOR),
        "commands": (cost.commands, "", FACTOR),
        "kB that Redis receives": (cost.received / 1000, "kB", FACTOR),
        "kB that Redis sends": (cost.sent / 1000, "kB", FACTOR),
        "ms of Redis": (cost.redis, "ms", TIMES),
    }
    for row, (value, unit, factor) in figures.items():
        compare(f"{row}, of an iteration", value, formula.iteration(row), unit, factor)
