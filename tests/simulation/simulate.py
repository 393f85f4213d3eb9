"""Runs schedules of a scenario, each from one seed, and shrinks those with a violation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from random import Random
from typing import get_args

from boyd.messaging.celery_app import JOB, TASKS
from simulation.edges import surround
from simulation.judge import Judge
from simulation.scenarios import Scenario
from simulation.store import SimulatedRedis
from simulation.strategies import PriorityStrategy, Strategy
from simulation.world import BEGIN, EffectKind, Fault, FaultKind, World

#: Scripts that only come to recover from another fault, with how often they are struck.
RECOVERY = {"retry_phase": 2, "retry_job": 2, "settle_execution": 2}
#: How often faults come at a point: between these, an action, an answer, a verdict or a slot is in
#: doubt. At other commands they come rarely.
WEIGHTS = {
    "claim_execution": 6.0,
    **dict.fromkeys(("begin", "finish_execution", "trigger_iteration"), 3.0),
    **dict.fromkeys(("end", "look", "record_effect", "resolve_approval", "propose_action"), 2.0),
    **dict.fromkeys(("enter_phase", "leave_phase", "enter_job", "leave_job"), 2.0),
    **dict.fromkeys(("enter_batch", "complete_batch", "cancel_call", "cancel_run"), 2.0),
    **dict.fromkeys(RECOVERY, 1.0),
}
MESSAGE_NAMES = {JOB, *TASKS.values()}
OTHERS, MESSAGES = 0.1, 1.5
AT_EFFECTS: tuple[FaultKind, ...] = ("crash before", "crash before", "pause", "cut off", "outage")
AT_MESSAGES: tuple[FaultKind, ...] = ("drop", "drop", "repeat", "repeat", "delay", "crash before")
AT_COMMANDS: tuple[FaultKind, ...] = (
    *("pause", "pause", "pause", "cut off", "cut off", "crash before", "crash after"),
    *("crash after", "lose answer", "refuse", "stall", "outage"),
)
#: The points of one execution, from the answer to its result.
EXECUTION = (
    *("resolve_approval", "enter_job", "claim_execution", "begin"),
    *("end", "finish_execution", "leave_job"),
)
#: The crashes that there are, with the points at which they come.
CRASHES: dict[FaultKind, Sequence[str]] = {
    "crash before": EXECUTION[1:],
    "crash after": [point for point in EXECUTION[1:] if point not in get_args(EffectKind)],
}
#: Commands among which priorities change.
STEPS = 300
#: Seconds of a fault: short of a lease, of the heartbeats of a worker, and beyond them. An outage
#: of Redis is shorter than the patience of a worker that has to report a result.
SECONDS = (1.0, 3.5, 8.0, 13.0, 13.0)
#: Seconds until a crashed process is started again.
RESTARTS = (0.3, 5.0, 40.0)
#: Seconds within which all must have ended after the last fault.
SETTLE = 90.0


@dataclass(frozen=True)
class Outcome:
    """The outcome of a schedule."""

    seed: int
    faults: tuple[Fault, ...]
    violations: tuple[str, ...]
    steps: int
    timeline: tuple[str, ...]


@cache
def _server() -> SimulatedRedis:
    return SimulatedRedis()


def run(scenario: Scenario, seed: int, faults: Sequence[Fault] | None = None) -> Outcome:
    """Run one schedule; *faults* replace those that the seed gives."""
    planned = tuple(plan(scenario, seed) if faults is None else faults)
    return _run(scenario, seed, planned)[0]


def _run(scenario: Scenario, seed: int, faults: Sequence[Fault]) -> tuple[Outcome, World]:
    random = Random(f"{scenario.name} {seed}")
    agent = random.choice(scenario.agents())
    world = World(_server(), random, _strategy(random), faults, SETTLE, agent)
    with surround(world, agent):
        try:
            scenario.populate(world, agent)
            world.run()
            world.ask_again()
        finally:
            world.end()
    violations = tuple(Judge(world).violations())
    lines = tuple(f"{at - BEGIN:9.3f}  {who:12}  {text}" for at, who, text in world.timeline)
    return Outcome(seed, tuple(faults), violations, world.steps, lines), world


def shrink(scenario: Scenario, outcome: Outcome) -> Outcome:
    """The same schedule with as few faults as still lead to a violation."""
    for fault in outcome.faults:
        fewer = [other for other in outcome.faults if other is not fault]
        without = run(scenario, outcome.seed, fewer)
        if without.violations:
            return shrink(scenario, without)
    return outcome


def plan(scenario: Scenario, seed: int) -> Iterator[Fault]:
    """The faults of a seed: none, or a few, each at a point of a random kind."""
    dice = Random(f"faults {scenario.name} {seed}")
    points = _points(scenario)
    weights = [_weight(point) for point, _ in points]
    for _ in range(dice.choice((0, 1, 1, 1, 2, 2, 3))):
        [(point, count)] = dice.choices(points, weights)
        # Early more often than late: what comes late has less that it can disturb.
        number = min(dice.randint(1, count), dice.randint(1, count))
        yield _fault(dice, dice.choice(_kinds(point)), point, number)


def combinations_of(scenario: Scenario, seed: int) -> Iterator[tuple[Fault, ...]]:
    """All ways to preempt one execution at most twice, and to crash one of its processes once.

    Only the points count whose scripts touch the keys of that execution: at the others, nobody can
    come between who makes a difference.
    """
    counts = _run(scenario, seed, ())[1].counts
    places = [(point, n) for point in EXECUTION for n in range(1, counts[point] + 1)]
    crashes = [
        Fault(kind, *place, 1.0)
        for kind, at in CRASHES.items()
        for place in places
        if place[0] in at
    ]
    for times in range(3):
        for chosen in combinations(places, times):
            preemptions = tuple(Fault("stall", *place, 0.01) for place in chosen)
            yield preemptions
            for crash in crashes:
                if (crash.point, crash.number) not in chosen:
                    yield (*preemptions, crash)


def _weight(point: str) -> float:
    return WEIGHTS.get(point, MESSAGES if point in MESSAGE_NAMES else OTHERS)


def _kinds(point: str) -> Sequence[FaultKind]:
    if point in get_args(EffectKind):
        return AT_EFFECTS
    return AT_MESSAGES if point in MESSAGE_NAMES else AT_COMMANDS


def _fault(dice: Random, kind: FaultKind, point: str, number: int) -> Fault:
    if kind.startswith("crash"):
        seconds = dice.choice(RESTARTS)
    elif kind in ("refuse", "lose answer", "drop"):
        seconds = 0.0
    else:
        lengths = SECONDS[:3] if kind == "outage" else SECONDS
        seconds = dice.choice(lengths) * dice.uniform(0.8, 1.2)
    return Fault(kind, point, number, round(seconds, 3))


@cache
def _points(scenario: Scenario) -> Sequence[tuple[str, int]]:
    """The points that worlds without faults come to, with the most times in one."""
    most: Counter[str] = Counter()
    for seed in range(3):
        most |= _run(scenario, seed, ())[1].counts
    return sorted((most | Counter(RECOVERY)).items())


def _strategy(random: Random) -> Strategy:
    if random.random() < 0.5:
        return Strategy(random)
    return PriorityStrategy(random, STEPS, changes=random.randint(0, 3))
