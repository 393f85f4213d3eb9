"""Turns: what any of several processes has to do, one of them does."""

from __future__ import annotations

from typing import Any

import fakeredis
import pytest

from boyd.errors import StoreError
from boyd.store import Store, Throttle
from boyd.store.due import MOST_DUE
from boyd.store.keys import WORKERS


class Process:
    """What several processes see of one Redis, and how much earlier their last turn was."""

    def __init__(self) -> None:
        self.client: Any = fakeredis.FakeRedis(decode_responses=True)
        self.store = Store(self.client, "test")

    def turns(self, *agents: str) -> Throttle:
        return self.store.turns(agents)

    def passes(self, seconds: float) -> None:
        """The last turn of each kind was that much earlier."""
        for key in self.client.keys(f"{WORKERS}:turn:*"):
            self.client.set(key, int(float(self.client.get(key)) - seconds * 1000))


@pytest.fixture
def world() -> Process:
    return Process()


def test_of_several_that_ask_one_has_its_turn_until_most_of_a_second_is_over(
    world: Process,
) -> None:
    one, other = world.turns("a", "b"), world.turns("b", "a")

    assert one.take("sweep", 1.0)
    assert not other.take("sweep", 1.0)
    assert not one.take("sweep", 1.0)
    world.passes(0.76)
    assert other.take("sweep", 1.0)
    assert not one.take("sweep", 1.0)


def test_another_kind_of_work_and_other_agents_have_turns_of_their_own(world: Process) -> None:
    assert world.turns("a").take("sweep", 1.0)
    assert world.turns("a").take("seal", 1.0)
    assert world.turns("a", "b").take("sweep", 1.0)


def test_one_that_asks_rarely_does_not_hold_back_those_that_ask_often(world: Process) -> None:
    rare, often = world.turns("a"), world.turns("a")

    assert rare.take("sweep", 10.0)
    world.passes(0.8)
    assert not rare.take("sweep", 10.0)
    assert often.take("sweep", 1.0)


def test_a_turn_that_lies_ahead_is_one_of_a_clock_that_stepped_back(world: Process) -> None:
    turns = world.turns("a")

    assert turns.take("sweep", 1.0)
    world.passes(-60)
    assert turns.take("sweep", 1.0)


def test_a_turn_that_is_given_back_is_free_at_once(world: Process) -> None:
    one, other = world.turns("a"), world.turns("a")

    assert one.take("sweep", 1.0)
    one.give_back("sweep")
    assert other.take("sweep", 1.0)


def test_a_turn_is_forgotten_when_nobody_asks_any_more(world: Process) -> None:
    world.turns("a").take("seal", 1.0)
    (key,) = world.client.keys(f"{WORKERS}:turn:*")

    assert 0 < world.client.ttl(key) <= 3600


def test_what_is_due_of_several_agents_is_taken_together_and_an_agent_that_fails_fails_alone(
    world: Process,
) -> None:
    for agent in ("a", "b"):
        members = {f"call:{n}": 1 for n in range(MOST_DUE + 1)}
        world.client.zadd(f"boyd:{{{agent}}}:due", members)
    world.client.set("boyd:{broken}:due", "no sorted set")
    first, broken, last = world.store.take_due(["a", "broken", "b"])

    assert isinstance(broken, StoreError)
    assert isinstance(first, dict)
    assert isinstance(last, dict)
    assert len(first) == len(last) == MOST_DUE
