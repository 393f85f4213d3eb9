"""One iteration beside a bare Celery canvas; twenty agents at once; after idling; waiting."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.iterations import Boyd, in_turn, throughput, workers
from benchmarks.peers.peer import Peer, peer
from benchmarks.report import Report
from harness import Deployment

#: Pairs of timed iterations.
RUNS = 60
#: Seconds for which many agents work.
SECONDS = 6.0


def canvas(url: str) -> Peer:
    """The bare canvas; Celery is always there."""
    canvas_peer = peer("celery_canvas", url)
    assert canvas_peer is not None
    return canvas_peer


def one_agent(report: Report, url: str, folder: Path) -> None:
    """One iteration against the bare canvas, and after idling."""
    with canvas(url) as plain, Deployment(url, folder) as deployment:
        workers(deployment, "w", agents=["trivial10", "trivial100"])
        for count, target in ((10, 0.55), (100, 0.25)):
            boyd = Boyd(deployment, f"trivial{count}")
            calls = (boyd.once, partial(plain.once, count, 0.0))
            ours, theirs = map(median, in_turn(calls, RUNS))
            report.tell(f"{count} observers, p50", ours, "ms")
            report.tell(f"{count} observers, {plain.name}, p50", theirs, "ms")
            report.most(f"{count} observers, ratio", ours / theirs, "x", target)
        boyd = Boyd(deployment, "trivial10")
        busy = median(boyd.once() for _ in range(40))
        idle = median(after_idling(boyd) for _ in range(10))
        report.most("after 2 idle seconds, ratio", idle / busy, "x", 1.3)


def after_idling(boyd: Boyd) -> float:
    """One iteration after two seconds without any."""
    time.sleep(2)
    return boyd.once()


def many_agents(report: Report, url: str, folder: Path) -> None:
    """Twenty agents at once."""
    with canvas(url) as plain:
        theirs = throughput([partial(plain.once, 10, 0.0)] * 20, SECONDS)
    with Deployment(url, folder) as deployment:
        names = [f"crowd{i}" for i in range(20)]
        workers(deployment, "w", agents=names)
        ours = throughput([Boyd(deployment, name).once for name in names], SECONDS)
    report.tell("20 agents, iterations per second", ours, "1/s")
    report.tell("20 bare canvases, iterations per second", theirs, "1/s")
    report.least("20 agents, ratio", ours / theirs, "x", 2)


def waiting(report: Report, url: str, folder: Path) -> None:
    """Observers that wait."""
    with Deployment(url, folder) as deployment:
        agents = [f"benchmarks.agents:waiting{n}" for n in (100, 1000)]
        arguments = ["worker", *(word for agent in agents for word in ("--agent", agent))]
        arguments += ["--concurrency", "16"]
        deployment.start("a", *arguments)
        hundred = Boyd(deployment, "waiting100")
        hundred.once()
        took = median(hundred.once() for _ in range(10))
        report.most("100 x 50 ms, one worker", took, "ms", 150)
        deployment.start("b", *arguments)
        thousand = Boyd(deployment, "waiting1000")
        thousand.once()
        took = median(thousand.once() for _ in range(5))
        report.most("1000 x 50 ms, two workers", took, "ms", 1000)
