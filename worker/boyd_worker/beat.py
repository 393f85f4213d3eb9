"""Celery beat as Boyd's metronome: a tick is an attempt to begin the iteration of a slot.

A slot is a stretch of `loop_interval` on the Redis server's clock, named by the time it begins.
Any number of beats may run: the store starts at most one iteration per slot, whoever asks first.
"""

from __future__ import annotations

import logging
import signal
import time
from types import FrameType
from typing import Any

from celery.beat import ScheduleEntry, Scheduler, Service
from celery.schedules import BaseSchedule

from boyd.engine import Launcher
from boyd.errors import StoreError
from boyd.store import Slot, translated
from boyd_worker.pulse import Pulse
from boyd_worker.runtime import Runtime

log = logging.getLogger("boyd.beat")

#: Seconds between two looks at the Redis server's clock.
RESYNC = 10.0


class ServerClock:
    """The Redis server's clock, read now and then and carried on by our own monotonic one."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._offset = 0.0
        self._read_at = float("-inf")

    def now(self) -> float:
        """Seconds since the epoch; our own wall clock's until Redis has answered once."""
        if time.monotonic() - self._read_at > RESYNC:
            self._resync()
        return time.monotonic() + self._offset

    def _resync(self) -> None:
        first = self._read_at == float("-inf")
        try:
            with translated():
                seconds, micros = self._client.time()
            # As if the answer had taken no time: never ahead of the server, so no slot is early.
            self._read_at = time.monotonic()
            self._offset = seconds + micros / 1e6 - self._read_at
        except StoreError:
            if first:
                self._offset = time.time() - time.monotonic()


class SlotSchedule(BaseSchedule):  # type: ignore[misc]
    """Due once in every slot, at its beginning."""

    def __init__(self, interval: float, clock: ServerClock, at_once: bool, app: Any) -> None:
        super().__init__(app=app)
        self._interval = interval
        self._clock = clock
        self.last = None if at_once else self.slot()

    def slot(self) -> Slot:
        """The current slot."""
        return Slot.at(self._clock.now(), self._interval)

    def is_due(self, last_run_at: Any) -> tuple[bool, float]:
        """Whether the current slot has not been tried, and the seconds until the next one."""
        now = self._clock.now()
        slot = Slot.at(now, self._interval)
        due = self.last is None or slot.begins > self.last.begins
        return due, max(0.0, (slot.begins + slot.length) / 1000 - now)


class SlotScheduler(Scheduler):  # type: ignore[misc]
    """One entry for each continuous agent; keeps nothing on disk."""

    #: Ticks go through the store, so beat itself needs no connection to the broker.
    producer = None

    def setup_schedule(self) -> None:
        """Build the entries from the agents that `run_beat` left on the app."""
        self.schedule = self.app.boyd_schedule

    def adjust(self, n: float, drift: float = 0.0) -> float:
        """Wake when a slot begins, not before: there would be nothing to do."""
        return n + drift

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **_: Any) -> None:
        """Try to begin the iteration of the current slot."""
        launcher: Launcher = entry.kwargs["launcher"]
        slot = entry.schedule.slot()
        try:
            launcher.tick(slot)
        except StoreError as error:
            log.warning("agent %s: this tick is missed: %s", entry.name, error)
        entry.schedule.last = slot


def run_beat(runtime: Runtime) -> int:
    """Tick until SIGTERM; the exit status."""
    runtime.prepare()
    clock = ServerClock(runtime.store.client)
    runtime.app.boyd_schedule = _schedule(runtime, clock)
    service = Service(runtime.app, max_interval=60.0, scheduler_cls=SlotScheduler)
    pulse = Pulse(runtime)
    pulse.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    log.info(
        "beat %s ticks for %s", runtime.name, ", ".join(service.scheduler.schedule) or "nobody"
    )
    try:
        service.start()
    except SystemExit:
        log.info("beat %s stops", runtime.name)
    finally:
        pulse.stop()
    return 0


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def _schedule(runtime: Runtime, clock: ServerClock) -> dict[str, ScheduleEntry]:
    schedule = {}
    for agent in runtime.agents.values():
        settings = agent.settings
        if settings.mode == "continuous":
            launcher = Launcher(runtime.store.agent(agent.id), runtime.courier, settings.mode)
            slots = SlotSchedule(settings.loop_interval, clock, settings.run_at_start, runtime.app)
            schedule[agent.id] = ScheduleEntry(
                name=agent.id,
                task="boyd.tick",
                schedule=slots,
                kwargs={"launcher": launcher},
                app=runtime.app,
            )
    return schedule
