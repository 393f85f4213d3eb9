"""The background threads of a worker or beat: heartbeat, sweep, audit seal."""

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


class Maintenance:
    """Periodic work, one thread each, so that a slow sweep does not delay heartbeats."""

    def __init__(self, host: AgentHost) -> None:
        self._host = host
        self._store = host.store
        self._stopping = threading.Event()
        timing = host.settings.timing
        self._sweep_interval = timing.sweep
        self._throttle = host.store.turns(host.agents)
        self._plans = queues.LOOP in host.queues
        self._problem: str | None = None
        work = [
            ("heartbeat", self._heartbeat, timing.heartbeat_interval),
            ("sweep", self._sweep, timing.sweep),
            ("seal", self._seal, timing.sweep),
        ]
        self._tasks = [_PeriodicTask(*item, self._stopping) for item in work]

    def start(self) -> None:
        """Announce this process and start the threads."""
        self._store.fleet.beat(self._host.info())
        for task in self._tasks:
            task.thread.start()

    def stop(self) -> None:
        """Stop the threads and announce that this process takes no more work."""
        self._stopping.set()
        for task in self._tasks:
            if task.thread.ident is not None:  # never started
                task.thread.join(timeout=5)
        try:
            self._store.fleet.leave(self._host.name)
        except StoreError as error:
            log.warning("could not deregister this process: %s", error)

    def _heartbeat(self) -> None:
        self._recycle()
        for name in self._store.fleet.beat(self._host.info(self._problem or self._host.problem())):
            log.warning("agent %s was retired or lost by Redis; registered it again", name)
        if self._plans:  # so that no iteration has to wait for it
            self._store.fleet.recent(fresh=True)

    def _sweep(self) -> None:
        if not self._throttle.take("sweep", self._sweep_interval):
            return
        if sweep_all(self._store, self._host.sweepers):
            self._throttle.give_back("sweep")

    def _seal(self) -> None:
        """Seal new entries of the audit trails."""
        if self._throttle.take("seal", self._sweep_interval):
            self._store.seal(self._host.agents)

    def _recycle(self) -> None:
        """Restart the process when too many observers hang: their threads end only with it."""
        hung = abandoned.alive()
        limit = self._host.settings.worker.max_hung
        if hung > limit and self._problem is None:
            self._problem = f"{hung} hung threads; restarting"
            log.error("%d observers or hooks hang, more than %d: restarting", hung, limit)
            os.kill(os.getpid(), signal.SIGTERM)


class _PeriodicTask:
    """Repeats a function in a thread, whatever it raises."""

    def __init__(
        self, name: str, work: Callable[[], None], interval: float, stopping: threading.Event
    ) -> None:
        self._name = name
        self._work = work
        self._interval = interval
        self._stopping = stopping
        self._answers = True
        self.thread = threading.Thread(target=self._run, name=f"maintenance-{name}", daemon=True)

    def _run(self) -> None:
        # Jitter: processes started together should not all sweep together.
        while not self._stopping.wait(self._interval * random.uniform(0.8, 1.2)):
            try:
                self._work()
                self._report(True)
            except StoreError as error:
                self._report(False, error)
            except Exception:
                log.exception("%s failed", self._name)

    def _report(self, answers: bool, error: StoreError | None = None) -> None:
        """Log when Redis stops or starts to answer."""
        if answers != self._answers:
            self._answers = answers
            if answers:
                log.warning("%s: Redis answers again", self._name)
            else:
                log.error("%s: %s; waiting for it", self._name, error)
