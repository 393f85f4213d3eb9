"""Faults with known roots that spread through random graphs of dependencies."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

Needs = dict[str, list[str]]
#: Seconds between two iterations of the simulated agent.
STEP = 10.0


def chain(rng: random.Random, size: int) -> Needs:
    """Each thing needs the next one."""
    return {f"t{n}": [f"t{n + 1}"] for n in range(size - 1)}


def fan(rng: random.Random, size: int) -> Needs:
    """All things need one of two hubs, and the hubs something below."""
    return {"h0": ["b"], "h1": ["b"]} | {f"t{n}": [f"h{n % 2}"] for n in range(size - 3)}


def diamond(rng: random.Random, size: int) -> Needs:
    """Layers of two, each of which needs both of the next layer."""
    layers = [[f"l{n}a", f"l{n}b"] for n in range(size // 2)]
    return {thing: [*lower] for upper, lower in pairwise(layers) for thing in upper}


def dag(rng: random.Random, size: int) -> Needs:
    """Each thing needs one or two of those with a higher number."""
    return {
        f"t{n}": sorted({f"t{rng.randrange(n + 1, size)}" for _ in range(rng.choice((1, 1, 2)))})
        for n in range(size - 1)
    }


SHAPES: dict[str, Callable[[random.Random, int], Needs]] = {
    "chain": chain,
    "fan": fan,
    "diamond": diamond,
    "dag": dag,
}


@dataclass(frozen=True)
class World:
    """A way for faults to spread and to be seen.

    Attributes:
        roots: of how many things a fault begins.
        missing, wrong: the shares of the edges that the agent does not know, or has in addition.
        spreads: the likelihood that a thing fails with one that it needs.
        lag: mean seconds until it does.
        intervals: of observers, seconds; each thing has one of them.
        sight: the likelihood that an unwell thing is seen when its observer looks.
        blind: the likelihood that nobody observes a thing that is no root.
        noise: how many unrelated things become unwell in the same minutes, on average.
        starts: seconds within which the observers begin to look.
        steps: the iterations from the fault on.
    """

    roots: int = 1
    missing: float = 0.0
    wrong: float = 0.0
    spreads: float = 0.85
    lag: float = 30.0
    intervals: tuple[float, ...] = (10.0, 30.0)
    sight: float = 1.0
    blind: float = 0.0
    noise: float = 0.3
    starts: float = 30.0
    steps: int = 40


@dataclass
class Fault:
    """A fault: its roots, what the agent knows, and the deviations that it sees at each time."""

    roots: set[str]
    needs: Needs
    sightings: list[tuple[float, dict[str, float]]] = field(default_factory=list)

    @property
    def things(self) -> set[str]:
        """The things that are ever seen unwell."""
        return {name for _, unwell in self.sightings for name in unwell}


def simulate(rng: random.Random, shape: str, world: World, start: float = 0.0) -> Fault:
    """One fault in a graph of that *shape*, watched for some minutes."""
    true = SHAPES[shape](rng, rng.randrange(6, 15))
    names = sorted({*true, *(other for others in true.values() for other in others)})
    below = {name: [other for other in names if name in true.get(other, ())] for name in names}
    hubs = [name for name in names if below[name]]
    roots = set(rng.sample(hubs, min(world.roots, len(hubs))))
    onsets = _spread(rng, roots, below, world)
    for number in range(_poisson(rng, world.noise)):
        onsets[f"noise{number}"] = rng.uniform(-60, 120)
    for name in [name for name in onsets if name not in roots and rng.random() < world.blind]:
        del onsets[name]
    severity = {name: rng.choice((0.25, 0.5, 0.75, 1.0)) for name in onsets}
    looks = {name: (rng.choice(world.intervals), rng.uniform(0, world.starts)) for name in onsets}
    fault = Fault(roots, as_known(rng, true, names, world))
    for step in range(-6, world.steps):
        at = step * STEP
        unwell = {
            name: severity[name]
            for name, onset in sorted(onsets.items())
            if at >= onset and _looks(at, *looks[name]) and rng.random() < world.sight
        }
        if unwell or fault.sightings:
            fault.sightings.append((start + at, unwell))
    return fault


def _looks(at: float, interval: float, phase: float) -> bool:
    return (at + phase) // interval > (at + phase - STEP) // interval


def _spread(
    rng: random.Random, roots: set[str], below: Mapping[str, list[str]], world: World
) -> dict[str, float]:
    onsets = {root: rng.uniform(0, 20) for root in sorted(roots)}
    pending = sorted(onsets)
    while pending:
        thing = pending.pop(0)
        for other in below[thing]:
            if rng.random() < world.spreads:
                onset = onsets[thing] + rng.expovariate(1 / world.lag) if world.lag else 0.0
                if onset < onsets.get(other, float("inf")):
                    onsets[other] = onset
                    pending.append(other)
    return onsets


def as_known(rng: random.Random, true: Needs, names: list[str], world: World) -> Needs:
    edges = [(thing, other) for thing, others in true.items() for other in others]
    edges_left = [edge for edge in edges if rng.random() >= world.missing]
    extra = [tuple(rng.sample(names, 2)) for _ in edges if rng.random() < world.wrong]
    needs: Needs = {}
    for thing, other in [*edges_left, *extra]:
        needs.setdefault(thing, []).append(other)
    return needs


def _poisson(rng: random.Random, mean: float) -> int:
    count, left = 0, rng.expovariate(1.0)
    while left < mean:
        count, left = count + 1, left + rng.expovariate(1.0)
    return count


def faults(seed: int, count: int, world: World, shape: str = "") -> Iterator[Fault]:
    """*count* faults of which at least two things are seen, a day apart."""
    rng = random.Random(seed)
    number = 0
    while number < count:
        kind = shape or rng.choice(sorted(SHAPES))
        fault = simulate(rng, kind, world, start=number * 86_400.0)
        if len(fault.things) > 1:
            number += 1
            yield fault
