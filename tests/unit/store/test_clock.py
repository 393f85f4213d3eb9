"""The clock of the Redis server, as processes carry it on."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from boyd.models import utc_now
from boyd.models.loop import Ticks
from boyd.store import ServerClock, Slot, timing
from boyd.testing import Lab
from boyd_worker.beat import SlotSchedule
from kit import agent, slot_around


class Server:
    """Says what time it is, or does not answer."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.away = False

    def time(self) -> tuple[int, int]:
        """As Redis says it."""
        if self.away:
            raise redis.ConnectionError
        return int(self.now), int(self.now % 1 * 1e6)


@pytest.fixture(autouse=True)
def _looks_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "RESYNC", -1.0)


def test_the_time_is_that_of_the_server_whatever_our_own_clock_says() -> None:
    assert ServerClock(Server(1000.25)).seconds() == pytest.approx(1000.25, abs=0.1)
    assert ServerClock(Server(1000.25)).now().timestamp() == pytest.approx(1000.25, abs=0.1)


def test_while_the_server_is_away_its_time_goes_on() -> None:
    server = Server(1000)
    clock = ServerClock(server)
    clock.seconds()
    server.away = True

    assert clock.seconds() == pytest.approx(1000, abs=0.1)


def test_before_it_has_answered_our_own_clock_has_to_do() -> None:
    server = Server(1000)
    server.away = True
    clock = ServerClock(server)
    before = clock.seconds()
    server.away = False

    assert before == pytest.approx(utc_now().timestamp(), abs=1)
    assert clock.seconds() == pytest.approx(1000, abs=0.1)


@pytest.mark.parametrize("step", [-3600, 3600, 1])
def test_a_tick_is_due_after_the_clock_was_set(step: float) -> None:
    server = Server(10_000)
    app: Any = None
    schedule = SlotSchedule(Ticks(1000, 0), ServerClock(server), False, app)
    due_before, _ = schedule.is_due(None)
    server.now += step
    due, wait = schedule.is_due(None)

    assert (due_before, due) == (False, True)
    assert 0 <= wait <= 1


def test_a_slot_that_lies_far_ahead_starts_nothing() -> None:
    lab = Lab(agent())
    now = utc_now().timestamp()
    ahead = lab.launcher.tick(Slot.at(now + 3600, Ticks(1000, 0)))
    current = lab.launcher.tick(slot_around(now))

    assert (ahead.outcome, current.outcome) == ("late", "started")
