"""The background work of a worker or beat: heartbeats, sweeping, sealing, and its restart."""

from __future__ import annotations

import errno
import logging
import os
import random
import resource
import signal
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from celery.exceptions import Ignore

from boyd.errors import StoreError
from boyd.phases.time_limit import abandoned
from boyd.runtime import sweep_all
from boyd.settings.logs import keep_logging
from boyd.text import queues
from boyd_worker.agent_host import AgentHost

log = logging.getLogger("boyd.worker")

#: Steps in a row that may fail unexpectedly, and the share of file descriptors that may be open,
#: before a process is taken for broken.
MAX_FAILURES, MAX_OPEN = 5, 0.9


def end_process() -> None:
    """End this process after what it is doing; its supervisor or pool starts another one."""
    os.kill(os.getpid(), signal.SIGTERM)


class Maintenance:
    """Periodic work; sweeping has its own thread, so that it does not delay heartbeats."""

    def __init__(self, host: AgentHost) -> None:
        self._host = host
        self._store = host.store
        self._stopping = threading.Event()
        #: Set from when this process acquires the throttle until it has swept, and by `stop`.
        self._wake_sweeper = threading.Event()
        timing = host.settings.timing
        self._timing = timing
        self._throttle = host.store.throttle(host.agents)
        self._problem: str | None = None
        self._beat_at = 0.0
        self._plans = queues.LOOP in host.queues
        # Where no iteration is planned, nothing waits for a sweep that others could do.
        often = self._plans or host.role == "beat"
        beats = timing.heartbeat_interval
        self._visits = visits = min(timing.sweep, beats) if often else beats
        self._tasks = [
            _Task("heartbeat", self._visit, self._every(visits)),
            _Task("sweep", self._sweep_and_seal, self._wait_to_sweep),
        ]

    def start(self) -> None:
        """Announce this process, and start the threads."""
        for task in self._tasks if self._host.settings.worker.pool == "prefork" else ():
            task.hold_back_forks()
        self._visit()  # sweeps at once: a silence of Redis is noticed from the second sweep on
        for task in self._tasks:
            task.thread.start()

    def stop(self) -> None:
        """Stop the threads and announce that this process takes no more work."""
        self._stopping.set()
        self._wake_sweeper.set()
        for task in self._tasks:
            if task.thread.ident is not None:  # else `start` has failed before
                task.thread.join(timeout=5)
        try:
            self._store.fleet.leave(self._host.name)
        except StoreError as error:
            log.warning("could not deregister this process: %s", error)

    def _every(self, interval: float) -> Callable[[], bool]:
        # Jitter: processes started together should not all ask together.
        return lambda: not self._stopping.wait(interval * random.uniform(0.8, 1.2))

    def _wait_to_sweep(self) -> bool:
        # A sweep that ends after `stop` has cleared what would end this wait.
        if not self._stopping.is_set():
            self._wake_sweeper.wait()
        return not self._stopping.is_set()

    def _visit(self) -> None:
        """Send the heartbeat when it is due, and try to acquire the throttle for a sweep."""
        self._recycle()
        keep_logging()
        interval = None if self._wake_sweeper.is_set() else self._timing.sweep
        try:
            if time.monotonic() >= self._beat_at:
                acquired = self._beat(interval)
            else:
                acquired = interval is not None and self._throttle.acquire(interval)
        except StoreError:
            self._wake_sweeper.set()  # nobody may be able to acquire it
            raise
        if acquired:
            self._wake_sweeper.set()

    def _beat(self, interval: float | None) -> bool:
        beat = self._throttle.beat(self._host.info(self._problem or self._host.problem()), interval)
        # At the nearest visit, as these come early and late.
        self._beat_at = time.monotonic() + self._timing.heartbeat_interval - self._visits / 2
        for name in beat.again:
            log.warning("agent %s was retired or lost by Redis; registered it again", name)
        if self._plans:  # so that no iteration has to wait for it
            self._store.fleet.refresh(beat.live)
        return beat.acquired

    def _sweep_and_seal(self) -> None:
        """Sweep, and seal new entries of the audit trails."""
        try:
            while sweep_all(self._store, self._host.sweepers) and not self._stopping.is_set():
                pass  # there is more
        finally:
            try:
                self._store.seal(self._host.agents)
            finally:
                self._wake_sweeper.clear()

    def _recycle(self) -> None:
        """Restart the process when too many observers hang: their threads end only with it."""
        hung = abandoned.alive()
        limit = self._host.settings.worker.max_hung
        if hung > limit and self._problem is None:
            self._problem = f"{hung} hung threads; restarting"
            log.error("%d observers or hooks hang, more than %d: restarting", hung, limit)
            end_process()


class _Task:
    """Repeats a function in a thread, whatever it raises, as long as it is let through."""

    def __init__(self, name: str, work: Callable[[], object], goes_on: Callable[[], bool]) -> None:
        self._name = name
        self._work = work
        self._goes_on = goes_on
        self._answers = True
        self._turn = threading.RLock()
        self.thread = threading.Thread(target=self._run, name=f"maintenance-{name}", daemon=True)

    def hold_back_forks(self) -> None:
        """Let this process fork between two turns only: a child keeps the locks of one for ever."""
        end = self._turn.release
        os.register_at_fork(before=self._turn.acquire, after_in_parent=end, after_in_child=end)

    def _run(self) -> None:
        try:
            while self._goes_on():
                self._repeat()
        except BaseException:
            # Others take this process for dead; its supervisor has to start another one.
            end_process()
            raise

    def _repeat(self) -> None:
        try:
            with self._turn:
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


class BreakdownWatch:
    """Ends this process when plugins have broken what all its code shares, such as a module.

    SIGTERM lets it drain. Its supervisor, or the pool that it belongs to, starts another one.
    """

    def __init__(self) -> None:
        self._failures = 0
        #: Held from when this process has been asked to end.
        self._ending = threading.Lock()

    def around(self, step: Callable[..., None]) -> Callable[..., None]:
        """A *step* that counts its unexpected errors."""

        @wraps(step)
        def run(*message: Any, **options: Any) -> None:
            try:
                step(*message, **options)
                self._failures = 0
            except Ignore:
                raise
            except Exception:
                self._failures += 1
                raise
            finally:
                self._check()

        return run

    def _check(self) -> None:
        problem = None
        if self._failures >= MAX_FAILURES:
            problem = f"{self._failures} steps in a row failed unexpectedly"
        elif _lacks_descriptors():
            problem = "plugins have left too many files or connections open"
        if problem is None or not self._ending.acquire(blocking=False):
            return
        try:
            log.error("%s: restarting", problem)
        finally:
            end_process()


def _lacks_descriptors() -> bool:
    """Check whether the lowest free file descriptor is close to the limit of this process."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        lowest = os.open(os.devnull, os.O_RDONLY)
    except OSError as error:
        return error.errno == errno.EMFILE
    os.close(lowest)
    return limit != resource.RLIM_INFINITY and lowest > MAX_OPEN * limit
