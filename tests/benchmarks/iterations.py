"""Iterations, one after the other or of many agents at once, and how long they take."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from harness import Deployment

#: Does one iteration; milliseconds.
Once = Callable[[], float]


class Boyd:
    """Iterations of an agent, started and waited for like those of a peer."""

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
                is_over = event.kind in ("iteration.completed", "iteration.failed")
                if is_over and event.data["iteration"] == str(iteration):
                    return (time.perf_counter() - began) * 1000


def in_turn(calls: Sequence[Once], runs: int) -> list[list[float]]:
    """All of them measured in turn, so that a machine that slows down slows all."""
    for _ in range(5):
        for once in calls:
            once()
    turns = [[once() for once in calls] for _ in range(runs)]
    return [list(times) for times in zip(*turns, strict=True)]


def throughput(calls: Sequence[Once], seconds: float) -> float:
    """Iterations per second when every caller starts its next one as the last one ends."""
    calls[0]()  # alone: kombu cannot make its pools of connections in several threads at once
    until = time.monotonic() + seconds

    def call(once: Once) -> int:
        done = 0
        while time.monotonic() < until:
            once()
            done += 1
        return done

    began = time.monotonic()
    with ThreadPoolExecutor(len(calls)) as pool:
        done = sum(pool.map(call, calls))
    return done / (time.monotonic() - began)


def workers(
    deployment: Deployment, *names: str, agents: Sequence[str], module: str = "benchmarks.agents"
) -> None:
    """Start workers of those names for agents of a module."""
    words = [word for agent in agents for word in ("--agent", f"{module}:{agent}")]
    for name in names:
        deployment.start(name, "worker", *words)
