"""The whole job, an action included, by Boyd and by each peer.

The peers keep nothing but the result: no deadlines, approvals, history or recovery.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.canvas import RUNS, SECONDS
from benchmarks.iterations import Boyd, in_turn, throughput, workers
from benchmarks.peers.peer import Peer, peer
from benchmarks.report import Report
from harness import Deployment

#: Modules of `peers`. Ratios are those to the first, which is always installed.
PEERS = ("celery_counter", "taskiq_counter", "langgraph_graph", "dramatiq_counter")
#: That of Dramatiq, whose latency is that of its sleeping: see there.
BUSY_ONLY = PEERS[-1:]

#: Agents, their observers, the seconds each of these waits, and the targets: p50 in ms on an idle
#: machine, and to the first peer.
JOBS = (
    ("acts1", 1, 0.0, 14, 1.3),
    ("acts10", 10, 0.0, 14, 0.7),
    ("acts100", 100, 0.0, 30, 0.22),
    ("waits10", 10, 0.05, 65, 1.0),
    ("waits100", 100, 0.05, 100, 0.46),
)
#: Observers of each of twenty agents, and the targets: iterations a second, and to the first peer.
CROWDS = ((1, 100, 1.3), (10, 100, 1.5), (100, 60, 7))


def one_agent(report: Report, url: str, folder: Path) -> None:
    """One iteration after the other, of Boyd and the peers in turn."""
    with ExitStack() as started:
        modules = [module for module in PEERS if module not in BUSY_ONLY]
        peers = [
            started.enter_context(installed_peer)
            for installed_peer in find_peers(report, modules, url)
        ]
        deployment = started.enter_context(Deployment(url, folder))
        workers(deployment, "w", agents=[name for name, *_ in JOBS])
        for name, count, seconds, target, most in JOBS:
            calls = [partial(each_peer.once, count, seconds) for each_peer in peers]
            ours, first, *others = map(
                median, in_turn([Boyd(deployment, name).once, *calls], RUNS // 3)
            )
            label = f"{count} observers" + (f" of {seconds * 1000:g} ms" if seconds else "")
            report.most(f"{label} and an action, p50", ours, "ms", target)
            for contender, theirs in zip(peers, (first, *others), strict=True):
                report.tell(f"{label}, {contender.name}, p50", theirs, "ms")
            report.most(f"{label}, ratio", ours / first, "x", most)


def many_agents(report: Report, url: str, folder: Path) -> None:
    """The same by twenty agents at once, with one worker and with two."""
    peers = find_peers(report, PEERS, url)
    for count, target, least in CROWDS:
        theirs = {}
        # The one of the ratio comes last, next to Boyd.
        for contender in reversed(peers):
            with contender:
                theirs[contender.name] = throughput(
                    [partial(contender.once, count, 0.0)] * 20, SECONDS
                )
        rates = []
        names = [f"crowd{count}acts{i}" for i in range(20)]
        with Deployment(url, folder) as deployment:
            for worker in ("w1", "w2"):
                workers(deployment, worker, agents=names)
                each = [Boyd(deployment, name).once for name in names]
                throughput(each, 1.0)
                rates.append(throughput(each, SECONDS))
        best = max(rates)
        label = f"20 agents with {count} observers and an action"
        report.tell(f"{label}, one worker", rates[0], "1/s")
        report.least(f"{label}, at best", best, "1/s", target)
        for contender in peers:
            report.tell(f"{label}, {contender.name}", theirs[contender.name], "1/s")
        report.least(f"{label}, ratio", best / theirs[peers[0].name], "x", least)


def find_peers(report: Report, modules: Sequence[str], url: str) -> list[Peer]:
    """The peers whose library is installed; the report names the others."""
    peers = {module: peer(module, url) for module in modules}
    for module, contender in peers.items():
        if contender is None:
            report.miss(module, "install the dependency group `peers`, as `make bench` does")
    return [each_peer for each_peer in peers.values() if each_peer is not None]
