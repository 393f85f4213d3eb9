"""One storm: start the world, load it, hurt it, let it settle, and see what is true."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from boyd.models import Actor
from faults.cluster_world import ClusterInjector, cluster_world
from faults.injector import Fault, Injector, RoughInjector
from faults.invariants import Invariants
from faults.load import Load
from faults.observation_gaps import longest
from faults.production_world import ProductionInjector, production_world
from faults.rough_world import rough_world
from faults.world import World
from harness import wait_until

#: The world of a storm: one Redis, a Redis Cluster, or the set-up of the guide.
Place = Literal["redis", "cluster", "production"]
#: Seconds that everything may take to come to rest once nothing hurts any more.
SETTLE = 90.0


@dataclass
class Outcome:
    """The outcome of a storm."""

    seed: int
    seconds: float
    faults: list[Fault]
    violations: list[str]
    counts: dict[str, int]
    recoveries: dict[str, list[float]] = field(default_factory=dict)
    blind: float = 0.0


def storm(seed: int, seconds: float, pause: float = 2.0, where: Place = "redis") -> Outcome:
    """Run one; the same seed gives the same faults in the same order."""
    with tempfile.TemporaryDirectory(prefix="boyd-storm-") as folder, ExitStack() as things:
        injector: Injector
        if where == "production":
            production = things.enter_context(production_world(Path(folder)))
            injector = ProductionInjector(production, seed, pause)
            return _storm(production, injector, seed, seconds)
        if where == "cluster":
            cluster = things.enter_context(cluster_world(Path(folder)))
            injector = ClusterInjector(cluster, seed, pause)
            return _storm(cluster, injector, seed, seconds)
        rough = things.enter_context(rough_world(Path(folder)))
        return _storm(rough, RoughInjector(rough, seed, pause), seed, seconds)


def _storm(world: World, injector: Injector, seed: int, seconds: float) -> Outcome:
    world.start()
    load = Load(world, seed)
    load.start()
    injector.start()
    time.sleep(seconds)
    injector.stop()
    load.stop()
    settle(world)
    acknowledged = load.acknowledged
    iterations = sum(_counter(world, agent) for agent in world.agents)
    return Outcome(
        seed=seed,
        seconds=seconds,
        faults=injector.faults,
        violations=[*Invariants(world, acknowledged).check(), *world.check()],
        counts={
            "iterations": iterations,
            "runs": len(acknowledged.runs),
            "calls": len(acknowledged.calls),
            "approvals": len(acknowledged.items),
            "answers": len(acknowledged.answers),
            "requests repeated": acknowledged.repeated,
            "effects": len(world.deployment.effects()),
        },
        recoveries=_recoveries(world, injector.faults),
        blind=longest(world.deployment, world.agents),
    )


def settle(world: World) -> None:
    """Let what was begun end: no more ticks, nothing in flight, nothing due."""
    store = world.deployment.store
    wait_until(lambda: all(_is_drained(world, agent) for agent in world.agents), SETTLE)
    for agent in world.agents:
        store.agent(agent).loop_control.pause("the storm is over", Actor(principal="storm"))
    wait_until(lambda: all(_rests(world, agent) for agent in world.agents), SETTLE)


def _is_drained(world: World, agent: str) -> bool:
    return world.deployment.agent(agent).loop_control.status().pending_runs == 0


def _rests(world: World, agent: str) -> bool:
    store = world.deployment.agent(agent)
    due = world.deployment.store.client.zrange(f"boyd:{{{agent}}}:due", 0, -1)
    return store.loop_control.status().phase == "idle" and not due


def _counter(world: World, agent: str) -> int:
    return world.deployment.agent(agent).loop_control.status().iteration


def _recoveries(world: World, faults: list[Fault]) -> dict[str, list[float]]:
    """By kind of fault: seconds from its beginning until every agent had completed an iteration.

    Only an iteration that began after the fault counts.
    """
    completed = {agent: _completions(world, agent) for agent in world.agents}
    recoveries: dict[str, list[float]] = defaultdict(list)
    for fault in faults:
        ends = [_first_after(completed[agent], fault.at) for agent in world.agents]
        if all(ends):  # the last ones of a storm are followed by the end of all ticks
            recoveries[fault.kind].append(max(filter(None, ends)) - fault.at)
    return dict(recoveries)


def _completions(world: World, agent: str) -> list[tuple[float, float]]:
    history = world.deployment.agent(agent).history
    results = history.results(10**6)
    times = [(r.started_at.timestamp(), r.ended_at.timestamp()) for r in results if r.success]
    return sorted(times)


def _first_after(completed: list[tuple[float, float]], at: float) -> float | None:
    return next((end for began, end in completed if began > at), None)


def table(outcomes: list[Outcome]) -> str:
    """The outcomes of storms as a table."""
    lines = ["| fault | times | recovered after, median | worst |", "|---|---|---|---|"]
    merged: dict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        for kind, values in outcome.recoveries.items():
            merged[kind] += values
    for kind, values in sorted(merged.items()):
        middle, worst = statistics.median(values), max(values)
        lines.append(f"| {kind} | {len(values)} | {middle:.1f} s | {worst:.1f} s |")
    totals: dict[str, int] = defaultdict(int)
    for outcome in outcomes:
        for name, number in outcome.counts.items():
            totals[name] += number
    lines += ["", ", ".join(f"{number} {name}" for name, number in totals.items())]
    blind = max((o.blind for o in outcomes), default=0.0)
    lines.append(f"the longest time that an agent observed nothing: {blind:.1f} s")
    violations = [f"seed {o.seed}: {text}" for o in outcomes for text in o.violations]
    return "\n".join([*lines, "", f"{len(violations)} violations", *violations])
