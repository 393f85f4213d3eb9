"""The watch refuses what a component reads of the world, and nothing that others read."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import NoReturn

import pytest

from boyd.replay.world_watch import WorldWatch

REFUSALS: list[str] = []


class Refusal(Exception):
    """The watch has refused."""


def refuse(reason: str) -> NoReturn:
    REFUSALS.append(reason)
    raise Refusal(reason)


@pytest.fixture
def watch() -> Iterator[WorldWatch]:
    """A watch that is on."""
    REFUSALS.clear()
    watch = WorldWatch(refuse)
    watch.is_on = True
    yield watch
    watch.is_on = False


def test_a_clock_is_refused(watch: WorldWatch) -> None:
    def component() -> float:
        return time.time()

    with pytest.raises(Refusal, match=r"p:s uses time\.time"):
        watch.wrap("p:s", component)()


def test_the_callbacks_of_the_garbage_collector_are_not_of_the_component(
    watch: WorldWatch,
) -> None:
    def read_the_clock(phase: str, info: dict[str, int]) -> None:
        time.perf_counter()

    def component() -> int:
        return len([[[]] for _ in range(5000)])

    thresholds = gc.get_threshold()
    gc.callbacks.append(read_the_clock)
    gc.set_threshold(1)
    try:
        assert watch.wrap("p:s", component)() == 5000
        assert gc.isenabled()
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(read_the_clock)
    assert REFUSALS == []
