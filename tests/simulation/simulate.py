"""Runs schedules of a scenario, each from one seed, and shrinks those with a violation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
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
#: Points between which an action, an answer, a verdict or a slot is in doubt; faults come at each
#: in every way that matters there, at other points in any way.
DOUBTS = {
    *("begin", "end", "look", "call"),
    *("claim_execution", "finish_execution", "renew_execution", "record_effect"),
    *("trigger_iteration", "enter_phase", "leave_start", "leave_orient", "leave_phase"),
    *("renew_lease", "enter_job", "leave_job", "renew_job", "enter_batch", "complete_batch"),
    *("resolve_approval", "propose_action", "cancel_call", "cancel_run", "open_wave"),
    *("move_target", "begin_procedure", "record_procedure", "end_wait", "transaction", *RECOVERY),
}
#: Cards of a fault that comes often in a scenario.
OFTEN = 20
MESSAGE_NAMES = {JOB, *TASKS.values()}
#: Ranges of the seconds of a fault: short of a lease, and beyond leases and the heartbeats of a
#: worker; until a crashed process is started again; of an outage; and of a step of the clock of
#: Redis, back by any time, and ahead by less than that for which the lease of a live worker holds.
SHORT, LONG = ((0.3, 3.0),), ((3.5, 15.5),)
SOON, LATE = ((0.2, 0.4),), ((30.0, 50.0),)
OUTAGES = ((0.8, 1.2), (3.0, 8.0), (24.0, 36.0))
STEPS_OF_CLOCK = ((-4000.0, -3000.0), (-36.0, -24.0), (-3.0, -2.0), (0.8, 1.2))
NONE = ((0.0, 0.0),)
#: Writes that the Redis lacks which takes over; the last number is more than there are.
LOST = (0, 1, 2, 5, 15, 50, 10**6)
#: A kind of fault, and ranges of its seconds, each as likely as the others.
_Way = tuple[FaultKind, Sequence[tuple[float, float]]]
#: How faults come: to functions of plugins, to messages, and to commands. Of the copies of a
#: message some come at the same time.
AT_EFFECTS: tuple[_Way, ...] = (
    *(("crash before", SOON), ("crash before", LATE), ("terminate", SOON), ("terminate", LATE)),
    *(("pause", SHORT), ("pause", LONG)),
    *(("cut off", SHORT), ("cut off", LONG), ("outage", OUTAGES), ("clock", STEPS_OF_CLOCK)),
    *(("fail over", SHORT), ("fail over", LONG)),
)
AT_MESSAGES: tuple[_Way, ...] = (
    *(("drop", NONE), ("repeat", NONE), ("repeat", SHORT), ("delay", SHORT), ("delay", LONG)),
    *(("crash before", SOON), ("crash after", LATE)),
)
AT_COMMANDS: tuple[_Way, ...] = (
    *(*AT_EFFECTS, ("crash after", SOON), ("crash after", LATE), ("stall", SHORT)),
    *(("stall", LONG), ("refuse", NONE), ("lose answer", NONE)),
)
#: Where errors come that Redis answers, as many as stop a procedure, which tries again after each.
AT_RECORDS: tuple[_Way, ...] = (*AT_COMMANDS, ("error", ((60.0, 60.0),)))
ERRORS = 5
#: One of so many schedules has no fault.
FAULTLESS = 8
#: The points of an execution, from the answer to its verdict, and those of a worker.
EXECUTION = (
    *("resolve_approval", "enter_job", "claim_execution", "begin", "end", "finish_execution"),
    *("record_effect", "leave_job"),
)
CRASHING = EXECUTION[1:]
#: Commands among which priorities change.
STEPS = 300
#: Worlds without faults whose points get some.
SAMPLE = 12
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
    """The faults of a seed: none, or a few.

    The first one comes from a deck that is shuffled anew when all of its cards have been drawn, so
    that no kind of fault at a point has to wait for its luck.
    """
    dice = Random(f"faults {scenario.name} {seed}")
    if seed % FAULTLESS == 0:
        return
    shuffle, position = divmod(seed - seed // FAULTLESS, len(_cards(scenario)))
    card = _deck(scenario, shuffle)[position]
    for _ in range(dice.choice((1, 1, 1, 2, 2, 3))):
        yield from _faults(dice, card, dice.choice((1, 1, 2, 3)))
        card = dice.choice(_cards(scenario))


def run_all(scenario: Scenario, seed: int, preemptions: int) -> Iterator[Outcome]:
    """Run all schedules that differ in so many preemptions, and in one crash, from that of a seed.

    Only the points count whose scripts touch the keys of an execution: at the others, nobody can
    come between who makes a difference. A preemption lasts until another process comes to one. Of
    the schedules in which the processes come to them in the same order, one stands for all.
    """
    orders = set()
    frontier: list[tuple[Fault, ...]] = [()]
    for _ in range(preemptions + 1):
        following = []
        for stalls in frontier:
            outcome, world = _run(scenario, seed, stalls)
            yield outcome
            order = tuple((who, point) for _, who, point in world.visits if point in EXECUTION)
            if order in orders:
                continue
            orders.add(order)
            following += [(*stalls, stall) for stall in _preemptions(world)]
            for point in CRASHING:
                for number in range(1, world.counts[point] + 1):
                    for crash in _crashes(point, number):
                        yield run(scenario, seed, (*stalls, crash))
        frontier = following


def _preemptions(world: World) -> Iterator[Fault]:
    """The ways to let another process go first at a point of an execution."""
    visits = [visit for visit in world.visits if visit[2] in EXECUTION]
    numbers: Counter[str] = Counter()
    for place, (at, who, point) in enumerate(visits):
        numbers[point] += 1
        others = [later for later, other, _ in visits[place:] if other != who]
        if others and point not in get_args(EffectKind):
            yield Fault("stall", point, numbers[point], round(others[0] - at + 0.005, 3))


def _crashes(point: str, number: int) -> Iterator[Fault]:
    yield Fault("crash before", point, number, 1.0)
    if point not in get_args(EffectKind):
        yield Fault("crash after", point, number, 1.0)


#: A point, how often a world comes to it, and how a fault comes there: one of these ways.
_Card = tuple[str, int, Sequence[_Way]]


@cache
def _cards(scenario: Scenario) -> Sequence[_Card]:
    cards: list[_Card] = []
    for point, count in _points(scenario):
        ways = [way for way in _ways(point) if scenario.has(way[0])]
        if point in DOUBTS or point in MESSAGE_NAMES:
            for way in ways:
                copies = OFTEN if (way[0], point) in scenario.often else 1
                cards += [(point, count, [way])] * copies
        else:
            cards.append((point, count, ways))
    return cards


@lru_cache(maxsize=8)
def _deck(scenario: Scenario, shuffle: int) -> Sequence[_Card]:
    cards = list(_cards(scenario))
    Random(f"deck {scenario.name} {shuffle}").shuffle(cards)
    return cards


def _ways(point: str) -> Sequence[_Way]:
    if point in get_args(EffectKind):
        return AT_EFFECTS
    if point == "record_procedure":
        return AT_RECORDS
    return AT_MESSAGES if point in MESSAGE_NAMES else AT_COMMANDS


def _faults(dice: Random, card: _Card, times: int) -> Iterator[Fault]:
    """The fault of a card, for so many in turn who come to its point: a step may lose them all."""
    point, count, ways = card
    kind, ranges = dice.choice(ways)
    # Early more often than late: what comes late has less that it can disturb.
    first = min(dice.randint(1, count), dice.randint(1, count))
    for number in range(first, first + (ERRORS if kind == "error" else times)):
        lost = dice.choice(LOST) if kind == "fail over" else 0
        yield Fault(kind, point, number, round(dice.uniform(*dice.choice(ranges)), 3), lost)


@cache
def _points(scenario: Scenario) -> Sequence[tuple[str, int]]:
    """The points that worlds without faults come to, with the most times in one."""
    most: Counter[str] = Counter()
    for seed in range(SAMPLE):
        most |= _run(scenario, seed, ())[1].counts
    return sorted((most | Counter(RECOVERY)).items())


def _strategy(random: Random) -> Strategy:
    if random.random() < 0.5:
        return Strategy(random)
    return PriorityStrategy(random, STEPS, changes=random.randint(0, 3))
