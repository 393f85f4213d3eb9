"""`make bench`: measures latency, throughput and costs beside other libraries and targets.

Everything runs in one go on this machine, so that the ratios mean something; absolute times do not
travel. Prints a table, and JSON with `--json FILE`; `--against FILE` compares with such a file.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kits"))

import redis

from archive_kit import Archive, postgresql, postgresql_programs, sqlite
from benchmarks import (
    archive,
    canvas,
    comparison,
    cost,
    fleet_point,
    growth,
    jobs,
    kept,
    load,
    masters,
    replaying,
    scaling,
    startup,
    storms,
    thousand,
    wake,
)
from benchmarks.iterations import Boyd, workers
from benchmarks.report import Report
from benchmarks.servers import record_commands
from harness import Deployment
from redis_kit import RedisServer

#: Iterations whose commands are counted.
ROUNDS = 20


def s3(report: Report, url: str, folder: Path) -> None:
    """Commands and messages of one iteration, as the server counts them."""
    with Deployment(url, folder) as deployment:
        deployment.environment["BOYD_TIMING__SWEEP"] = "3600"
        deployment.environment["BOYD_TIMING__HEARTBEAT_INTERVAL"] = "3"
        workers(deployment, "w", agents=["trivial10"])
        boyd = Boyd(deployment, "trivial10")
        boyd.once()
        with record_commands(url) as commands:
            for _ in range(ROUNDS):
                boyd.once()
    messages = sum(command.startswith("LPUSH boyd.") for command in commands)
    report.most("commands per iteration, 1 bundle", len(commands) / ROUNDS, "", 92)
    report.most("messages per iteration, 1 bundle", messages / ROUNDS, "", 6)


def s4(report: Report, url: str, folder: Path) -> None:
    """Measure the cost of kept items, which is to be none."""
    with Deployment(url, folder) as deployment:
        workers(deployment, "w", agents=["kept_few", "kept_many"])
        for name, ratio in kept.measure(deployment).items():
            report.most(f"{name}, 100 000 kept to 10", ratio, "x", 1.2)


def s5(report: Report, url: str, folder: Path) -> None:
    """The API under load; no worker takes anything meanwhile."""
    with Deployment(url, folder) as deployment:
        workers(deployment, "w", agents=["kept_few"])
        deployment.stop("w")
        observations = load.measure(deployment, "kept_few")
        answered = load.beside_half_open(deployment)
    rate = f"p99 at {load.RATE}/s"
    report.add(f"read, {rate}", observations["read"], "ms", "< 10", observations["read"] < 10)
    report.add(
        f"approve, {rate}", observations["approve"], "ms", "< 20", observations["approve"] < 20
    )
    name = f"health and freeze beside {load.HALF_OPEN} half-open connections"
    report.most(name, answered, "s", 1)
    name = f"{load.ITEMS} approved by {load.CALLERS}, failed"
    report.add(name, observations["failed"], "", "0", observations["failed"] == 0)
    report.tell(f"{load.ITEMS} approved by {load.CALLERS}", observations["crowd"], "s")


def s18(report: Report, url: str, folder: Path) -> None:
    """The API beside many event streams."""
    with Deployment(url, folder) as deployment:
        limits = {"RATE": "100000", "BURST": "100000", "STREAMS": "3000", "CONNECTIONS": "4000"}
        deployment.environment |= {f"BOYD_API__{name}": value for name, value in limits.items()}
        deployment.environment["BOYD_PRINCIPAL_BYTES"] = str(2**30)
        workers(deployment, "w", agents=["kept_few"])
        deployment.stop("w")
        measured = load.beside_streams(deployment, "kept_few")
    for kind, most, (alone, beside) in (
        ("read", 10, measured.reading),
        ("approve", 20, measured.approving),
    ):
        name = f"{kind} beside {load.STREAMS} streams"
        report.most(f"{name}, p99 at {load.RATE}/s", beside, "ms", most)
        report.most(f"{name}, to none", beside / alone, "x", 3)
    report.most("memory of a stream", measured.size / 1000, "kB", 20)


def s6(report: Report, url: str, folder: Path) -> None:
    """Quick to propose, quick to stop."""
    with Deployment(url, folder) as deployment:
        workers(deployment, "w", agents=["woken", "acting"])
        took = wake.proposals(deployment, "woken")
        report.add("webhook to proposed action, p50", took, "ms", "< 50", took < 50)
        report.least("observations taken", wake.hand_over_rate(deployment, "woken"), "/s", 1000)
        took = wake.freezing(deployment, "acting")
        report.add("freeze to the last action", took, "s", "< 1", took < 1)


def s7(report: Report, url: str, folder: Path) -> None:
    """More workers."""
    with Deployment(url, folder) as deployment:
        observations = scaling.measure(deployment, "benchmarks.agents:waiting320", "waiting320")
    for count, rate in observations.items():
        name = f"waiting observers, {count} workers"
        report.tell(name, rate, "1/s")
        if count > 1:
            report.least(f"{name}, to linear", rate / observations[1] / count, "x", 0.9)


def s12(report: Report, url: str, folder: Path) -> None:
    """Later steps, and cycles with more facts."""
    growth.investigation(report, url, folder)
    redis.Redis.from_url(url).flushall()
    growth.cycles(report, url, folder)


def s13(report: Report, url: str, folder: Path) -> None:
    """The archive keeps up, and any filter answers at once with a million iterations."""
    _archive(report, url, folder, "SQLite", sqlite(folder))
    programs = postgresql_programs()
    if programs is None:
        report.miss("the archive in PostgreSQL", "install the package postgresql")
        return
    with postgresql(programs) as server:
        _archive(report, url, folder, "PostgreSQL", server.url)


def _archive(report: Report, url: str, folder: Path, name: str, database: str) -> None:
    redis.Redis.from_url(url).flushall()
    with Deployment(url, folder) as deployment:
        workers(deployment, "w", agents=["trivial10"])
        report.least(f"{name}: iterations archived", archive.rate(deployment, database), "1/s", 200)
        filled = Archive(database, deployment.store)
        archive.fill(filled)
        for query, times in archive.latencies(filled).items():
            report.most(f"{name}: {query}, p95", archive.p95(times), "ms", 200)
        filled.close()


def s14(report: Report, _: str, folder: Path) -> None:
    """A replay judges many iterations a second on each core."""
    rates = replaying.rates(folder)
    for processes, rate in rates.items():
        name = f"iterations replayed by {processes} processes, each"
        report.least(name, rate / processes, "1/s", 500)
    most = max(rates)
    if most > 1:
        report.least(f"replay: {most} processes over 1", rates[most] / rates[1], "x", 0.8 * most)


Measure = Callable[[Report, str, Path], None]

#: What is measured unless arguments name something.
USUAL: dict[str, Measure] = {
    "s1": canvas.one_agent,
    "crowd": canvas.many_agents,
    "s2": canvas.waiting,
    "s3": s3,
    "s4": s4,
    "s5": s5,
    "s6": s6,
    "s7": s7,
    "s8": lambda report, _, folder: startup.measure(report, folder),
    "s9": jobs.one_agent,
    "s9-crowd": jobs.many_agents,
    "s10": storms.measure,
    "s12": s12,
    "s13": s13,
    "s14": s14,
    "s15": masters.measure,
    "s18": s18,
}
#: What takes long, and is the base of docs/scaling.md.
LONG: dict[str, Measure] = {
    "fleet": fleet_point.measure,
    "cost": lambda report, url, folder: cost.measure(url, folder, record_commands, report.tell),
    "thousand": lambda report, url, folder: thousand.measure(
        url, folder, record_commands, report.compare, report.tell
    ),
}


def arguments() -> argparse.Namespace:
    """Parse the command line; `against` has the rows to compare with."""
    every = USUAL | LONG
    parser = argparse.ArgumentParser(description=__doc__)
    text = f"{' '.join(every)}; default: all but {' and '.join(LONG)}"
    parser.add_argument("only", nargs="*", help=text)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--against", type=Path, help="a file of --json to compare with")
    options = parser.parse_args()
    if unknown := set(options.only) - every.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are: {', '.join(every)}")
    if options.against:
        if options.only and "s1" not in options.only:
            parser.error("--against needs s1, which tells how fast this machine is")
        try:
            options.against = json.loads(options.against.read_text())
        except (OSError, ValueError) as error:
            parser.error(f"--against: {error}")
    options.only = options.only or list(USUAL)
    return options


def main() -> None:
    """Measure what the arguments name, or the usual."""
    options, report = arguments(), Report()
    with tempfile.TemporaryDirectory(prefix="boyd-bench-") as directory:
        folder = Path(directory)
        # One server for all: peers are bound to its address for good.
        with RedisServer(folder) as server:
            for name in options.only:
                redis.Redis.from_url(server.url).flushall()
                own = folder / name
                own.mkdir()
                (USUAL | LONG)[name](report, server.url, own)
                if options.json:
                    options.json.write_text(json.dumps(report.rows, indent=1))
    worse = options.against and comparison.tell(options.against, report.rows)
    # The results of Celery would try to unsubscribe while the interpreter goes away.
    sys.stdout.flush()
    os._exit(bool(worse))


if __name__ == "__main__":
    main()
