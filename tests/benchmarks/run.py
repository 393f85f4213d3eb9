"""`make bench`: measures latency and throughput beside a bare Celery canvas, and costs.

Everything runs in one go on this machine, so that the ratios mean something; absolute times do not
travel. Prints a table, and JSON with `--json FILE`.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psutil
import redis

from archive_kit import Archive, postgresql, postgresql_programs, sqlite
from benchmarks import archive, cost, kept, load, replaying, scaling, thousand, wake
from harness import Deployment, free_port, server_program, wait_until

HERE = Path(__file__).resolve().parent
#: Pairs of timed iterations, and iterations whose commands are counted.
RUNS = 60
ROUNDS = 20


class Report:
    """Rows of measure, value and target."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, name: str, value: float, unit: str, target: str, met: bool | None) -> None:
        """Add a row and print it."""
        self.rows.append({"name": name, "value": value, "unit": unit, "target": target, "met": met})
        mark = {True: "met", False: "NOT MET", None: ""}[met]
        print(f"{name:58} {value:9.3g} {unit:10} {target:22} {mark}", flush=True)

    def compare(self, name: str, value: float, expected: float, unit: str, factor: float) -> None:
        """Add a row whose value may differ from the expected one by that factor."""
        met = expected / factor <= value <= expected * factor
        self.add(name, value, unit, f"{expected:.3g}, x {factor:g}", met)

    def tell(self, name: str, value: float, unit: str) -> None:
        """Add a row that has no target."""
        self.add(name, value, unit, "", None)


@contextlib.contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """A Redis of its own, without persistence: both sides are measured on the same."""
    port = free_port()
    command = [str(server_program()), "--port", str(port), "--save", "", "--dir", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    client = redis.Redis(port=port)
    try:
        wait_until(lambda: answers(client), 10)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        client.close()
        process.kill()
        process.wait()


def answers(client: redis.Redis) -> bool:
    """Whether Redis answers."""
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


@contextlib.contextmanager
def plain_worker(url: str, pool: str, slots: int) -> Iterator[Any]:
    """The bare Celery app with one worker."""
    os.environ["PLAIN_URL"] = url
    from benchmarks import plain

    command = [sys.executable, "-m", "celery", "-q", "-A", "benchmarks.plain", "worker"]
    flags = ["--pool", pool, "-c", str(slots), "--without-gossip", "--without-mingle"]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    process = subprocess.Popen(
        [*command, *flags, "-l", "critical"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        plain_once(plain, 2, timeout=60)
        yield plain
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def plain_once(plain: Any, count: int, timeout: int = 30) -> float:
    """One iteration of the bare canvas; milliseconds."""
    key = uuid.uuid4().hex
    client = plain.app.backend.client
    began = time.perf_counter()
    plain.iteration(count, key).apply_async()
    if client.blpop([key], timeout=timeout) is None:
        raise RuntimeError("the bare canvas did not end")
    return (time.perf_counter() - began) * 1000


class Boyd:
    """Iterations of an agent, started and waited for like those of the bare canvas."""

    def __init__(self, deployment: Deployment, agent_id: str) -> None:
        self._launcher = deployment.launcher(agent_id)
        self._events = deployment.store.events([agent_id])
        self._events.wait(0)

    def once(self) -> float:
        """One iteration; milliseconds."""
        began = time.perf_counter()
        iteration = self._launcher.trigger("bench").iteration
        while True:
            for _, event in self._events.wait(4):
                ended = event.kind in ("iteration.completed", "iteration.failed")
                if ended and event.data["iteration"] == str(iteration):
                    return (time.perf_counter() - began) * 1000


def paired(first: Callable[[], float], second: Callable[[], float], runs: int) -> tuple[Any, Any]:
    """Both measured in turn, so that a machine that slows down slows both."""
    for _ in range(5):
        first(), second()
    pairs = [(first(), second()) for _ in range(runs)]
    return [a for a, _ in pairs], [b for _, b in pairs]


def s1(report: Report, url: str, folder: Path) -> None:
    """One iteration against the bare canvas; many agents; after idling."""
    with plain_worker(url, "threads", 8) as plain, Deployment(url, folder) as deployment:
        agents = [f"benchmarks.agents:trivial{n}" for n in (10, 100)]
        deployment.start("w", "worker", *repeated("--agent", agents))
        for count, target in ((10, 0.55), (100, 0.25)):
            boyd = Boyd(deployment, f"trivial{count}")
            ours, theirs = paired(boyd.once, functools.partial(plain_once, plain, count), RUNS)
            ratio = statistics.median(ours) / statistics.median(theirs)
            report.add(f"{count} observers, p50", statistics.median(ours), "ms", "", None)
            name = f"{count} observers, bare chain with chord, p50"
            report.add(name, statistics.median(theirs), "ms", "", None)
            report.add(f"{count} observers, ratio", ratio, "x", f"<= {target}", ratio <= target)
        boyd = Boyd(deployment, "trivial10")
        busy = statistics.median(boyd.once() for _ in range(40))
        idle = statistics.median(after_idling(boyd) for _ in range(10))
        report.add("after 2 idle seconds, ratio", idle / busy, "x", "<= 1.3", idle <= 1.3 * busy)


def after_idling(boyd: Boyd) -> float:
    """One iteration after two seconds without any."""
    time.sleep(2)
    return boyd.once()


def s1_crowd(report: Report, url: str, folder: Path) -> None:
    """Twenty agents at once."""
    seconds = 6.0
    with plain_worker(url, "threads", 8) as plain:
        theirs = throughput([lambda: plain_once(plain, 10)] * 20, seconds)
    with Deployment(url, folder) as deployment:
        agents = [f"benchmarks.agents:crowd{i}" for i in range(20)]
        deployment.start("w", "worker", *repeated("--agent", agents))
        each = [Boyd(deployment, f"crowd{i}").once for i in range(20)]
        ours = throughput(each, seconds)
    report.add("20 agents, iterations per second", ours, "1/s", "", None)
    report.add("20 bare canvases, iterations per second", theirs, "1/s", "", None)
    report.add("20 agents, ratio", ours / theirs, "x", ">= 2", ours >= 2 * theirs)


def throughput(callers: Sequence[Callable[[], float]], seconds: float) -> float:
    """Iterations per second when every caller starts its next one as the last one ends."""
    from concurrent.futures import ThreadPoolExecutor

    until = time.monotonic() + seconds

    def call(once: Callable[[], float]) -> int:
        done = 0
        while time.monotonic() < until:
            once()
            done += 1
        return done

    began = time.monotonic()
    with ThreadPoolExecutor(len(callers)) as pool:
        done = sum(pool.map(call, callers))
    return done / (time.monotonic() - began)


def s2(report: Report, url: str, folder: Path) -> None:
    """Observers that wait."""
    with Deployment(url, folder) as deployment:
        agents = [f"benchmarks.agents:waiting{n}" for n in (100, 1000)]
        arguments = ["worker", *repeated("--agent", agents), "--concurrency", "16"]
        deployment.start("a", *arguments)
        hundred = Boyd(deployment, "waiting100")
        hundred.once()
        took = statistics.median(hundred.once() for _ in range(10))
        report.add("100 x 50 ms, one worker", took, "ms", "<= 150", took <= 150)
        deployment.start("b", *arguments)
        thousand = Boyd(deployment, "waiting1000")
        thousand.once()
        took = statistics.median(thousand.once() for _ in range(5))
        report.add("1000 x 50 ms, two workers", took, "ms", "<= 1000", took <= 1000)


def s3(report: Report, url: str, folder: Path) -> None:
    """Commands and messages of one iteration, as the server counts them."""
    with Deployment(url, folder) as deployment:
        deployment.environment["BOYD_TIMING__SWEEP"] = "3600"
        deployment.environment["BOYD_TIMING__HEARTBEAT_INTERVAL"] = "3"
        deployment.start("w", "worker", "--agent", "benchmarks.agents:trivial10")
        boyd = Boyd(deployment, "trivial10")
        boyd.once()
        with monitored(url) as seen:
            for _ in range(ROUNDS):
                boyd.once()
    commands = len(seen) / ROUNDS
    messages = sum(command.startswith("LPUSH boyd.") for command in seen) / ROUNDS
    report.add("commands per iteration, 1 bundle", commands, "", "<= 92", commands <= 92)
    report.add("messages per iteration, 1 bundle", messages, "", "<= 6", messages <= 6)


@contextlib.contextmanager
def monitored(url: str) -> Iterator[list[str]]:
    """What came over the wire meanwhile, but for what scripts do inside and what we read."""
    client: Any = redis.Redis.from_url(url, decode_responses=True)
    seen: list[str] = []

    def listen(monitor: Any) -> None:
        for entry in monitor.listen():
            if entry["command"] == "PING the end":
                return
            if entry["client_type"] != "lua" and not entry["command"].startswith("XRE"):
                seen.append(entry["command"])

    with client.monitor() as monitor:
        thread = threading.Thread(target=listen, args=(monitor,))
        thread.start()
        yield seen
        client.execute_command("PING", "the end")
        thread.join(10)
    client.close()


def s4(report: Report, url: str, folder: Path) -> None:
    """What is kept costs nothing."""
    with Deployment(url, folder) as deployment:
        agents = ["benchmarks.agents:kept_few", "benchmarks.agents:kept_many"]
        deployment.start("w", "worker", *repeated("--agent", agents))
        for name, ratio in kept.measure(deployment).items():
            met = ratio <= 1.2
            report.add(f"{name}, 100 000 kept to 10", ratio, "x", "<= 1.2", met)


def s5(report: Report, url: str, folder: Path) -> None:
    """The API under load; no worker takes anything meanwhile."""
    with Deployment(url, folder) as deployment:
        deployment.worker("w", "benchmarks.agents:kept_few")
        deployment.stop("w")
        found = load.measure(deployment, "kept_few")
        streaming, size = load.beside_streams(deployment, "kept_few")
    rate = f"p99 at {load.RATE}/s"
    report.add(f"read, {rate}", found["read"], "ms", "< 10", found["read"] < 10)
    report.add(f"approve, {rate}", found["approve"], "ms", "< 20", found["approve"] < 20)
    name = f"read beside {load.STREAMS} streams, {rate}"
    report.add(name, streaming, "ms", "< 10", streaming < 10)
    report.add("memory of a stream", size / 1000, "kB", "< 50", size < 50_000)
    name = f"{load.ITEMS} approved by {load.CALLERS}, failed"
    report.add(name, found["failed"], "", "0", found["failed"] == 0)
    report.add(f"{load.ITEMS} approved by {load.CALLERS}", found["crowd"], "s", "", None)


def s6(report: Report, url: str, folder: Path) -> None:
    """Quick to propose, quick to stop."""
    with Deployment(url, folder) as deployment:
        agents = ["benchmarks.agents:woken", "benchmarks.agents:acting"]
        deployment.start("w", "worker", *repeated("--agent", agents))
        took = wake.proposals(deployment, "woken")
        report.add("webhook to proposed action, p50", took, "ms", "< 50", took < 50)
        rate = wake.taken(deployment, "woken")
        report.add("observations taken", rate, "/s", ">= 1000", rate >= 1000)
        took = wake.freezing(deployment, "acting")
        report.add("freeze to the last action", took, "s", "< 1", took < 1)


def s7(report: Report, url: str, folder: Path) -> None:
    """More workers."""
    with Deployment(url, folder) as deployment:
        found = scaling.measure(deployment, "benchmarks.agents:waiting320", "waiting320")
    for workers, rate in found.items():
        name = f"waiting observers, {workers} workers"
        report.add(name, rate, "1/s", "", None)
        if workers > 1:
            gain = rate / found[1] / workers
            report.add(f"{name}, to linear", gain, "x", ">= 0.9", gain >= 0.9)


def s8(report: Report, folder: Path) -> None:
    """Start and idle."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import boyd"], check=True)
    bare = time.perf_counter()
    subprocess.run([sys.executable, "-c", ""], check=True)
    took = (bare - began) - (time.perf_counter() - bare)
    report.add("import boyd", took, "s", "< 0.3", took < 0.3)
    agent = folder / "agent.toml"
    agent.write_text(
        'id = "bench"\nmode = "continuous"\nloop_interval = 60\n[[plugins]]\nuse = "example"\n'
    )
    environment = {
        **os.environ,
        "BOYD_STATE_DIR": str(folder / "state"),
        "BOYD_API__PORT": "0",
    }
    began = time.perf_counter()
    with (folder / "up.log").open("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "boyd.cli", "up", str(agent)],
            env=environment,
            stdout=log,
            stderr=log,
        )
        try:
            wait_until(lambda: "bench #1" in Path(log.name).read_text(), 60)
            took = time.perf_counter() - began
            report.add("boyd up to the first iteration", took, "s", "< 5", took < 5)
            time.sleep(5)
            before = cpu(process.pid)
            time.sleep(20)
            share = (cpu(process.pid) - before) / 20 * 100
            report.add("idle CPU of the embedded tree", share, "% of core", "< 3", share < 3)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


#: Agents of S9, their observers, the seconds each of these waits, and the targets: p50 in ms on an
#: idle machine, and to the counter.
JOBS = (
    ("acts1", 1, 0.0, 14, 1.75),
    ("acts10", 10, 0.0, 14, 0.7),
    ("acts100", 100, 0.0, 30, 0.22),
    ("waits10", 10, 0.05, 65, 1.0),
    ("waits100", 100, 0.05, 100, 0.46),
)


def s9(report: Report, url: str, folder: Path) -> None:
    """The whole job, an action included, against the quickest that is written by hand."""
    with plain_worker(url, "threads", 8) as plain, Deployment(url, folder) as deployment:
        agents = [f"benchmarks.agents:{name}" for name, *_ in JOBS]
        deployment.start("w", "worker", *repeated("--agent", agents))
        for name, count, seconds, target, most in JOBS:
            counted = functools.partial(counted_once, plain, count, seconds)
            ours, theirs = map(
                statistics.median, paired(Boyd(deployment, name).once, counted, RUNS // 3)
            )
            what = f"{count} observers" + (f" of {seconds * 1000:g} ms" if seconds else "")
            report.add(f"{what} and an action, p50", ours, "ms", f"<= {target}", ours <= target)
            report.tell(f"{what}, bare Celery counter, p50", theirs, "ms")
            ratio = ours / theirs
            report.add(f"{what}, ratio", ratio, "x", f"<= {most}", ratio <= most)


def s9_crowd(report: Report, url: str, folder: Path) -> None:
    """The same by twenty agents at once, with one worker and with two."""
    for count, target, least in ((10, 100, 1.5), (100, 60, 7)):
        with plain_worker(url, "threads", 8) as plain:
            counted = functools.partial(counted_once, plain, count, 0.0)
            theirs = throughput([counted] * 20, 6.0)
        names = [f"crowd{count}acts{i}" for i in range(20)]
        rates = []
        with Deployment(url, folder) as deployment:
            for worker in ("w1", "w2"):
                agents = repeated("--agent", [f"benchmarks.agents:{name}" for name in names])
                deployment.start(worker, "worker", *agents)
                each = [Boyd(deployment, name).once for name in names]
                throughput(each, 1.0)
                rates.append(throughput(each, 6.0))
        best = max(rates)
        what = f"20 agents with {count} observers and an action"
        report.tell(f"{what}, one worker", rates[0], "1/s")
        report.add(f"{what}, at best", best, "1/s", f">= {target}", best >= target)
        report.tell(f"{what}, bare Celery counter", theirs, "1/s")
        ratio = best / theirs
        report.add(f"{what}, ratio", ratio, "x", f">= {least}", ratio >= least)


def counted_once(plain: Any, count: int, seconds: float) -> float:
    """One iteration of the bare counter; milliseconds."""
    key = uuid.uuid4().hex
    began = time.perf_counter()
    plain.begin_counted.delay(count, seconds, key)
    if plain.app.backend.client.blpop([key], timeout=120) is None:
        raise RuntimeError("the bare counter did not end")
    return (time.perf_counter() - began) * 1000


def s13(report: Report, url: str, folder: Path) -> None:
    """The archive keeps up, and any filter answers at once with a million iterations."""
    _archive(report, url, folder, "SQLite", sqlite(folder))
    programs = postgresql_programs()
    if programs is None:
        print("PostgreSQL is not installed: the archive is measured with SQLite only")
        return
    with postgresql(programs) as server:
        _archive(report, url, folder, "PostgreSQL", server.url)


def _archive(report: Report, url: str, folder: Path, name: str, database: str) -> None:
    redis.Redis.from_url(url).flushall()
    with Deployment(url, folder) as deployment:
        deployment.worker("w", "benchmarks.agents:trivial10")
        rate = archive.rate(deployment, database)
        report.add(f"{name}: iterations archived", rate, "1/s", ">= 200", rate >= 200)
        filled = Archive(database, deployment.store)
        archive.fill(filled)
        found = archive.latencies(filled)
        for query, times in found.items():
            worst = archive.p95(times)
            report.add(f"{name}: {query}, p95", worst, "ms", "<= 200", worst <= 200)
        filled.close()


def s14(report: Report, folder: Path) -> None:
    """A replay judges many iterations a second on each core."""
    rates = replaying.rates(folder)
    for jobs, rate in rates.items():
        per_core = rate / jobs
        name = f"iterations replayed by {jobs} processes, each"
        report.add(name, per_core, "1/s", ">= 500", per_core >= 500)
    most = max(rates)
    if most > 1:
        ratio = rates[most] / rates[1]
        target = 0.8 * most
        name = f"replay: {most} processes over 1"
        report.add(name, ratio, "x", f">= {target:g}", ratio >= target)


def cpu(pid: int) -> float:
    """Seconds of CPU that a process and its descendants have used."""
    root = psutil.Process(pid)
    processes = [root, *root.children(recursive=True)]
    return sum(sum(p.cpu_times()[:2]) for p in processes)


def repeated(option: str, values: Sequence[str]) -> list[str]:
    """The option before each value."""
    return [item for value in values for item in (option, value)]


def main() -> None:
    """Measure what the arguments name, or everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "only",
        nargs="*",
        help="s1 crowd s2 s3 s4 s5 s6 s7 s8 s9 s9-crowd s13 s14 cost thousand; "
        "default: all but the last two",
    )
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    arguments = parser.parse_args()
    report = Report()
    measures: dict[str, Callable[[str, Path], None]] = {
        "s1": lambda url, folder: s1(report, url, folder),
        "crowd": lambda url, folder: s1_crowd(report, url, folder),
        "s2": lambda url, folder: s2(report, url, folder),
        "s3": lambda url, folder: s3(report, url, folder),
        "s4": lambda url, folder: s4(report, url, folder),
        "s5": lambda url, folder: s5(report, url, folder),
        "s6": lambda url, folder: s6(report, url, folder),
        "s7": lambda url, folder: s7(report, url, folder),
        "s8": lambda _, folder: s8(report, folder),
        "s9": lambda url, folder: s9(report, url, folder),
        "s9-crowd": lambda url, folder: s9_crowd(report, url, folder),
        "s13": lambda url, folder: s13(report, url, folder),
        "s14": lambda _, folder: s14(report, folder),
        "cost": lambda url, folder: cost.measure(url, folder, monitored, report.tell),
        "thousand": lambda url, folder: thousand.measure(
            url, folder, monitored, report.compare, report.tell
        ),
    }
    usual = [name for name in measures if name not in ("cost", "thousand")]
    if unknown := set(arguments.only) - measures.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are: {', '.join(measures)}")
    with tempfile.TemporaryDirectory(prefix="boyd-bench-") as made:
        folder = Path(made)
        # One server for all: the bare app is bound to its address for good.
        with redis_server(folder) as url:
            for name in arguments.only or usual:
                redis.Redis.from_url(url).flushall()
                measures[name](url, folder)
    if arguments.json:
        arguments.json.write_text(json.dumps(report.rows, indent=1))
    # The bare app's results would try to unsubscribe while the interpreter goes away.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
