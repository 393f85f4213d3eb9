"""The model of a large fleet: it repeats itself, loses nothing, and agrees with its costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.fleet import LISTENING, MESSAGES, READING, STEPS, SWEEPING, Costs, Fleet, Shape
from benchmarks.thousand import DOCS

COSTS = Costs.read()
#: Agents that tick every ten seconds.
SMALL = Shape(400, masters=3, brokers=1, intervals=((10, 1.0),), spread=False)


def test_the_costs_are_those_of_the_page() -> None:
    text = DOCS.read_text("utf-8")

    assert f"| ms of Redis | {SWEEPING:g} *A* | {READING:g} for each process |" in text
    assert f"{LISTENING:g} ms of Redis per agent beyond the first" in text
    assert f"{100 * MESSAGES:.0f} % are for messages" in text


def test_the_same_seed_gives_the_same_figures() -> None:
    first, again, other = (Fleet(SMALL, COSTS, seed).run(45) for seed in (7, 7, 8))

    assert first.durations == again.durations
    assert first.durations != other.durations


def test_every_slot_gives_an_iteration_and_every_server_does_its_share() -> None:
    fleet = Fleet(SMALL, COSTS)
    figures = fleet.run(99)
    iterations = len(figures.durations)

    assert (iterations, figures.missed) == (10 * SMALL.agents, 0)
    message = COSTS.message + (SMALL.group_agents - 1) * LISTENING / 1000
    assert fleet.brokers[0].busy == pytest.approx(iterations * STEPS * message)
    spent = sum(master.busy for master in fleet.masters)
    work = iterations * (STEPS + 1) * COSTS.state
    idle = 99 * SMALL.agents * SWEEPING / 1000
    beats = SMALL.groups * (6 * COSTS.heartbeat + 2 * COSTS.loop_heartbeat)
    reading = SMALL.groups * 2 * SMALL.workers * READING / 1000 * 2 / 60
    assert spent == pytest.approx(work + idle + 99 / 2 * (beats + reading), rel=0.02)


def test_agents_that_tick_at_times_of_their_own_do_not_wait_for_each_other() -> None:
    together, spread = (
        Fleet(replace(SMALL, spread=spread), COSTS).run(45).duration(50) for spread in (False, True)
    )

    assert spread < together / 3


def test_a_server_that_is_too_slow_makes_agents_miss_slots_instead_of_queueing_without_end() -> (
    None
):
    fleet = Fleet(SMALL, replace(COSTS, message=0.01))
    figures = fleet.run(99)

    assert figures.missed > SMALL.agents
    assert figures.duration(99) < 60


def test_messages_that_nobody_takes_are_sent_again() -> None:
    figures = Fleet(SMALL, replace(COSTS, loop=0.2)).run(60)

    assert figures.deepest > 100
    assert figures.resent > 100


def test_a_master_that_fails_delays_its_own_agents_only() -> None:
    fleet = Fleet(SMALL, COSTS)
    fleet.fail(1, 19.99, 6.0)
    figures = fleet.run(99)
    late = [duration for duration in figures.durations if duration > 5]

    assert 0 < len(late) < SMALL.agents / 2
    assert max(late) < 9
    assert fleet.masters[2].longest < 1
