"""Scheduled starts: one for each time, with any number of beats, and one for missed times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from boyd.errors import ConfigError, StoreUnavailable
from boyd.models import to_ms, utc_now
from boyd.runtime import Launcher
from boyd.settings.schedules import Schedule
from boyd.store import Slot, TriggerOutcome
from boyd.testing import Lab
from boyd_worker.beat import LOOK, ClockSchedule, SlotScheduler
from kit import agent, slot_around

HOUR = 3_600_000


def slot(ago: int = 0) -> Slot:
    """The slot of an hourly schedule that began a minute and so many hours ago."""
    return Slot(to_ms(utc_now()) - 60_000 - ago * HOUR, HOUR, scheduled=True)


def outcomes(lab: Lab, *slots: Slot, first: bool = False) -> list[str]:
    """The outcomes of the starts in those slots, in order."""
    outcomes_found = []
    for slot_time in slots:
        outcomes_found.append(lab.launcher.start_scheduled(slot_time, first).outcome)
        lab.deliver()
    return outcomes_found


def test_one_iteration_starts_in_each_slot_however_many_beats_try() -> None:
    lab, now = Lab(agent()), slot()

    assert outcomes(lab, now, now, now) == ["started", "duplicate", "duplicate"]
    result = lab.store.history.get(1)
    assert result is not None
    assert result.trigger == "schedule"


def test_the_first_beat_of_an_agent_makes_up_for_nothing() -> None:
    lab, now = Lab(agent()), slot()

    assert outcomes(lab, now, first=True) == ["duplicate"]
    assert outcomes(lab, now) == ["duplicate"], "the slot counts as tried"


def test_missed_starts_are_made_up_once() -> None:
    lab, now = Lab(agent()), slot()
    lab.client.hset("boyd:{test}:loop", "scheduled", slot(30).begins)

    assert outcomes(lab, now, now, first=True) == ["started", "duplicate"]


def test_a_start_that_falls_into_a_pause_is_not_made_up() -> None:
    lab, now = Lab(agent()), slot()
    lab.store.loop_control.pause("maintenance")
    paused = outcomes(lab, now)
    lab.launcher.resume()

    assert (paused, outcomes(lab, now)) == (["paused"], ["duplicate"])


def test_a_slot_that_is_over_starts_nothing() -> None:
    assert outcomes(Lab(agent()), slot(1), slot(-2)) == ["late", "late"]


def test_schedule_and_interval_start_iterations_side_by_side() -> None:
    lab = Lab(agent(mode="continuous", loop_interval=3600))
    tick = lab.launcher.tick(slot_around(utc_now().timestamp()))
    lab.deliver()

    assert tick.outcome == "started"
    assert outcomes(lab, slot()) == ["started"]


class Clock:
    """Says what time it is."""

    def __init__(self, text: str) -> None:
        self.time = datetime.fromisoformat(text).replace(tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    def seconds(self) -> float:
        return self.time.timestamp()


def looks(schedule: ClockSchedule) -> bool:
    """Look for an untried slot, and try it."""
    due, wait = schedule.is_due(None)
    assert 0 <= wait <= LOOK
    schedule.last = schedule.slot()
    return due


def test_looks_find_each_start_once_across_changes_of_the_clock() -> None:
    app: Any = None
    clock = Clock("2026-10-24T22:00")
    hourly = ClockSchedule(Schedule(("30 * * * *",), "Europe/Vienna"), clock, app)  # type: ignore[arg-type]
    nightly = ClockSchedule(Schedule(("30 2 * * *",), "Europe/Vienna"), clock, app)  # type: ignore[arg-type]
    looks(hourly)
    looks(nightly)
    counts: list[tuple[int, int]] = []
    for _ in range(6):
        first = second = 0
        for _ in range(60):
            clock.time += timedelta(minutes=1)
            first += looks(hourly)
            second += looks(nightly)
        counts.append((first, second))

    # In the third hour, 02:30 comes for the first time; in the fourth, once more.
    assert counts == [(1, 0), (1, 0), (1, 1), (1, 0), (1, 0), (1, 0)]


class _Entry:
    name = "a (schedule)"

    def __init__(self, schedule: ClockSchedule, launcher: Launcher) -> None:
        self.schedule = schedule
        self.kwargs = {"launcher": launcher}


def test_a_start_is_tried_again_when_redis_did_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(agent())
    tried: list[bool] = []

    def start(slot: Slot, first: bool) -> TriggerOutcome:
        tried.append(first)
        if len(tried) == 1:
            raise StoreUnavailable("away")
        return TriggerOutcome("started", 1)

    monkeypatch.setattr(lab.launcher, "start_scheduled", start)
    app: Any = None
    schedule = ClockSchedule(Schedule(("* * * * *",), "UTC"), Clock("2026-01-01T00:00:30"), app)  # type: ignore[arg-type]
    entry, scheduler = _Entry(schedule, lab.launcher), SlotScheduler.__new__(SlotScheduler)
    due = []
    for _ in range(2):
        due.append(schedule.is_due(None)[0])
        scheduler.apply_async(entry)

    assert (due, tried, schedule.is_due(None)[0]) == ([True, True], [True, True], False)


# Settings


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"schedule": "0 8 * *"}, "schedule.0: '0 8 * *' is not a cron expression"),
        ({"schedule": ["0 8 * * *", "x"]}, "schedule.1: 'x' is not a cron expression"),
        ({"schedule": "0 8 * * *", "timezone": "Mars/Base"}, "timezone: no such time zone"),
    ],
)
def test_an_invalid_schedule_is_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason.replace("*", r"\*")):
        agent(**settings)


def test_an_agent_announces_its_schedule_and_its_next_start() -> None:
    scheduled = agent(schedule=["0 8 * * *", "30 7 * * mon"], timezone="Europe/Vienna")
    entry = Lab(scheduled).engine.entry()
    monday = datetime(2026, 1, 5, 0, 0, tzinfo=UTC)

    assert (entry.schedule, entry.timezone) == (["0 8 * * *", "30 7 * * mon"], "Europe/Vienna")
    assert entry.next_start(monday) == datetime(2026, 1, 5, 6, 30, tzinfo=UTC)
    assert entry.needs_beat


def test_the_next_start_of_a_continuous_agent_is_the_earlier_one() -> None:
    scheduled = agent(mode="continuous", loop_interval=60, loop_offset=0, schedule="0 8 * * *")
    entry = Lab(scheduled).engine.entry()
    early = datetime(2026, 1, 5, 7, 59, 30, tzinfo=UTC)

    assert entry.next_start(early) == datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
    assert entry.next_start(early - timedelta(minutes=5)) == datetime(2026, 1, 5, 7, 55, tzinfo=UTC)
