"""A worker's background threads: say that it lives, sweep, seal, purge, notice what ails it."""

from __future__ import annotations

import logging
import os
import random
import signal
import threading
from collections.abc import Callable

from boyd import queues
from boyd.errors import StoreError
from boyd.phases.time_limit import abandoned
from boyd.runtime import sweep_all
from boyd_worker.agent_host import AgentHost

log = logging.getLogger("boyd.worker")

#: Seconds between two purges of expired approvals (A2).
PURGE = 10.0


class Maintenance:
    """A thread for each: the beat must not wait for a sweep that waits for the broker."""

    def __init__(self, runtime: AgentHost) -> None:
        self._runtime = runtime
        self._stopping = threading.Event()
        timing = runtime.settings.timing
        self._every = timing.sweep
        self._turns = runtime.store.turns(runtime.agents)
        self._plans = queues.LOOP in runtime.queues
        self._rounds = [
            _Round("beat", self._beat, timing.heartbeat_interval, self._stopping),
            _Round("sweep", self._sweep, timing.sweep, self._stopping),
            _Round("seal", self._seal, timing.sweep, self._stopping),
        ]
        if runtime.role == "beat":
            self._rounds.append(_Round("purge", self._purge, PURGE, self._stopping))
        self._problem: str | None = None

    def start(self) -> None:
        """Announce this process and begin."""
        self._runtime.store.fleet.beat(self._runtime.info())
        for one in self._rounds:
            one.thread.start()

    def stop(self) -> None:
        """End, and say that this process takes no more work."""
        self._stopping.set()
        for one in self._rounds:
            if one.thread.ident is not None:  # it may never have come to start
                one.thread.join(timeout=5)
        try:
            self._runtime.store.fleet.leave(self._runtime.name)
        except StoreError as error:
            log.warning("could not say goodbye: %s", error)

    def _beat(self) -> None:
        self._recycle()
        for name in self._runtime.store.fleet.beat(self._runtime.info(self._problem)):
            log.warning("agent %s was retired or lost by Redis; it is registered again", name)
        if self._plans:  # so that no iteration has to wait for it
            self._runtime.store.fleet.recent(fresh=True)

    def _sweep(self) -> None:
        if not self._turns.take("sweep", self._every):
            return
        if sweep_all(self._runtime.store, self._runtime.sweepers):
            self._turns.give_back("sweep")

    def _seal(self) -> None:
        """Chain what the audit streams got since (A15)."""
        if self._turns.take("seal", self._every):
            self._runtime.store.seal(self._runtime.agents)

    def _purge(self) -> None:
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


class _Round:
    """Does one thing again and again, whatever happens to it."""

    def __init__(
        self, name: str, work: Callable[[], None], every: float, stopping: threading.Event
    ) -> None:
        self._name = name
        self._work = work
        self._every = every
        self._stopping = stopping
        self._answers = True
        self.thread = threading.Thread(target=self._run, name=f"pulse-{name}", daemon=True)

    def _run(self) -> None:
        # Processes started together should not all sweep together.
        while not self._stopping.wait(self._every * random.uniform(0.8, 1.2)):
            try:
                self._work()
                self._say_answers(True)
            except StoreError as error:
                self._say_answers(False, error)
            except Exception:
                log.exception("the %s failed", self._name)

    def _say_answers(self, answers: bool, error: StoreError | None = None) -> None:
        if answers != self._answers:
            self._answers = answers
            if answers:
                log.warning("%s: Redis answers again", self._name)
            else:
                log.error("%s: %s; waiting for it", self._name, error)
