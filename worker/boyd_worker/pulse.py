"""A worker's background thread: says that it lives, sweeps, purges, and notices what ails it."""

from __future__ import annotations

import logging
import os
import random
import signal
import threading
import time

from boyd.errors import StoreError
from boyd.loop.bounded import abandoned
from boyd_worker.runtime import Runtime

log = logging.getLogger("boyd.worker")

#: Seconds between two purges of expired approvals (A2).
PURGE = 10.0


class Pulse:
    """Runs until the process ends or `stop` is called."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
        self._next_beat = 0.0
        self._next_purge = time.monotonic() + PURGE
        self._answers = True
        self._problem: str | None = None

    def start(self) -> None:
        """Announce this process and begin."""
        self._runtime.store.fleet.beat(self._runtime.info())
        self._thread.start()

    def stop(self) -> None:
        """End, and say that this process takes no more work."""
        self._stopping.set()
        self._thread.join(timeout=5)
        try:
            self._runtime.store.fleet.leave(self._runtime.name)
        except StoreError as error:
            log.warning("could not say goodbye: %s", error)

    def _run(self) -> None:
        sweep = self._runtime.settings.timing.sweep
        # Workers started together should not sweep together.
        while not self._stopping.wait(sweep * random.uniform(0.8, 1.2)):
            try:
                self._tick()
                self._say_answers(True)
            except StoreError as error:
                self._say_answers(False, error)
            except Exception:
                log.exception("the pulse missed a beat")

    def _tick(self) -> None:
        now = time.monotonic()
        if now >= self._next_beat:
            self._recycle()
            self._runtime.store.fleet.beat(self._runtime.info(self._problem))
            self._next_beat = now + self._runtime.settings.timing.beat
        for sweeper in self._runtime.sweepers:
            sweeper.sweep()
        if self._runtime.role == "beat" and now >= self._next_purge:
            self._next_purge = now + PURGE
            for engine in self._runtime.engines.values():
                engine.purge_approvals()

    def _recycle(self) -> None:
        """Restart when too many observers hang: their threads end only with the process (P4)."""
        hung = abandoned.alive()
        limit = self._runtime.settings.worker.max_hung
        if hung > limit and self._problem is None:
            self._problem = f"{hung} hung threads; restarting"
            log.error("%d observers or hooks hang, more than %d: restarting", hung, limit)
            os.kill(os.getpid(), signal.SIGTERM)

    def _say_answers(self, answers: bool, error: StoreError | None = None) -> None:
        if answers != self._answers:
            self._answers = answers
            if answers:
                log.warning("Redis answers again")
            else:
                log.error("%s; waiting for it", error)
