"""Runs Celery beat, which starts the iterations of continuous agents and of those with a schedule.

Time is divided into slots on the Redis server's clock: of `loop_interval`, or from one start by the
schedule until the next. A tick tries to start the iteration of its slot. Any number of beats may
run: the store starts one iteration per slot.
"""

from __future__ import annotations

import logging
import signal
import time
from types import FrameType
from typing import Any

from celery.beat import ScheduleEntry, Scheduler, Service
from celery.schedules import BaseSchedule

from boyd.errors import StoreError
from boyd.models.loop import Ticks
from boyd.runtime import Launcher
from boyd.settings.schedules import Schedule
from boyd.store import ServerClock, Slot
from boyd_worker.agent_host import AgentHost
from boyd_worker.maintenance import Maintenance

log = logging.getLogger("boyd.beat")

#: Most seconds between two looks at a schedule.
LOOK = 15.0


class SlotSchedule(BaseSchedule):  # type: ignore[misc]
    """Due once per slot, at its start."""

    def __init__(self, ticks: Ticks, clock: ServerClock, at_once: bool, app: Any) -> None:
        super().__init__(app=app)
        self._ticks = ticks
        self._clock = clock
        self.last = None if at_once else self.slot()

    def slot(self) -> Slot:
        """The current slot."""
        return Slot.at(self._clock.seconds(), self._ticks)

    def is_due(self, last_run_at: Any) -> tuple[bool, float]:
        """Return whether the current slot is untried, and the seconds until the next one."""
        now = self._clock.seconds()
        slot = Slot.at(now, self._ticks)
        due = slot != self.last  # also an earlier one: the clock of Redis may have been set back
        return due, max(0.0, (slot.begins + slot.length) / 1000 - now)


class ClockSchedule(BaseSchedule):  # type: ignore[misc]
    """Due once per slot of an agent's schedule: a missed start is made up while its slot lasts."""

    def __init__(self, schedule: Schedule, clock: ServerClock, app: Any) -> None:
        super().__init__(app=app)
        self._schedule = schedule
        self._clock = clock
        self.last: Slot | None = None

    def slot(self) -> Slot:
        """The current slot."""
        return Slot.of(self._schedule, self._clock.now())

    def is_due(self, last_run_at: Any) -> tuple[bool, float]:
        """Return whether the current slot is untried, and the seconds until the next check."""
        slot, now = self.slot(), self._clock.seconds()
        left = max(0.0, (slot.begins + slot.length) / 1000 - now)
        # The clock may be set, and Redis may not have answered.
        return slot != self.last, min(left, LOOK)


class SlotScheduler(Scheduler):  # type: ignore[misc]
    """An entry for the interval and for the schedule of each agent; keeps nothing on disk."""

    #: Ticks go through the store, so beat itself needs no connection to the broker.
    producer = None

    def setup_schedule(self) -> None:
        """Build the entries from the agents that `run_beat` left on the app."""
        self.schedule = self.app.boyd_schedule

    def adjust(self, n: float, drift: float = 0.0) -> float:
        """Wake when a slot begins, not before."""
        return n + drift

    def _when(self, entry: Any, next_time_to_run: float, mktime: Any = None) -> float:
        """The due time on the monotonic clock: a wall clock that is set back would delay ticks."""
        return time.monotonic() + float(self.adjust(next_time_to_run) or 0)

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **_: Any) -> None:
        """Try to start the iteration of the current slot."""
        launcher: Launcher = entry.kwargs["launcher"]
        schedule = entry.schedule
        slot = schedule.slot()
        try:
            if slot.scheduled:
                launcher.start_scheduled(slot, schedule.last is None)
            else:
                launcher.tick(slot)
        except StoreError as error:
            log.warning("agent %s: tick missed: %s", entry.name, error)
            if slot.scheduled:
                return  # the next look tries again
        schedule.last = slot


def run_beat(host: AgentHost) -> int:
    """Tick until SIGTERM and return the exit status."""
    host.prepare()
    host.app.boyd_schedule = _schedule(host)
    service = Service(host.app, max_interval=60.0, scheduler_cls=SlotScheduler)
    maintenance = Maintenance(host)
    maintenance.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    log.info("beat %s ready: agents %s", host.name, ", ".join(service.scheduler.schedule) or "none")
    try:
        service.start()
    except SystemExit:
        log.info("beat %s is stopping", host.name)
    finally:
        maintenance.stop()
    return 0


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def _schedule(host: AgentHost) -> dict[str, ScheduleEntry]:
    schedule = {}
    for agent in host.agents.values():
        settings = agent.settings
        store = host.store.agent(agent.id)
        clock, launcher = store.clock, Launcher(store, host.dispatcher, settings.mode)
        by: dict[str, BaseSchedule] = {}
        if settings.mode == "continuous":
            by[agent.id] = SlotSchedule(settings.ticks, clock, settings.run_at_start, host.app)
        if agent.schedule:
            by[f"{agent.id} (schedule)"] = ClockSchedule(agent.schedule, clock, host.app)
        for name, slots in by.items():
            schedule[name] = ScheduleEntry(
                name=name,
                task="boyd.tick",  # only a name: `SlotScheduler.apply_async` sends no task
                schedule=slots,
                kwargs={"launcher": launcher},
                app=host.app,
            )
    return schedule
