"""Runs functions under a time limit.

Python cannot kill a thread: one that overruns is abandoned and counted in `abandoned`, and the
worker restarts when too many are alive. Others are kept for the next calls, because starting a
thread takes longer than most functions. In the main thread an alarm interrupts the function.
"""

from __future__ import annotations

import contextvars
import os
import signal
import threading
import time
from _signal import signal as set_handler  # type: ignore[import-not-found]  # has no stub
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from signal import ITIMER_REAL, setitimer  # a plugin may replace what the module names
from typing import Any

from boyd.errors import Overrun
from boyd.plugin.plugin_boundary import contain, is_main

#: Seconds before more than one thread is started.
ALONE = 0.002
#: Seconds that a thread waits for its next calls.
SPARE = 60.0


@dataclass(frozen=True)
class TimedCall:
    """A function and the seconds it may take."""

    function: Callable[[], Any]
    timeout: float


@dataclass
class CallOutcome:
    """The outcome of a call; `began` by `time.perf_counter`, `duration` in milliseconds."""

    value: Any = None
    error: BaseException | None = None
    duration: float = 0.0
    began: float = 0.0


class AbandonedThreads:
    """Threads that overran and may still be running."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def add(self, thread: threading.Thread) -> None:
        """Add a thread."""
        with self._lock:
            self._threads.append(thread)

    def alive(self) -> int:
        """The number of threads still running."""
        with self._lock:
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            return len(self._threads)


abandoned = AbandonedThreads()


def call(function: Callable[[], Any], timeout: float) -> Any:
    """Run *function* for at most *timeout* seconds.

    Raises:
        Overrun: it took longer.
        Exited: it raised what is no `Exception`.
    """
    if is_main():
        return _call_with_alarm(function, timeout)
    outcome = call_all([TimedCall(function, timeout)])[0]
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


def call_all(calls: Sequence[TimedCall], width: int = 64) -> list[CallOutcome]:
    """Run all *calls* side by side, at most *width* at a time; outcomes in the order of calls."""
    return _ThreadPool(calls, width).run()


def call_in_turn(calls: Sequence[TimedCall]) -> list[CallOutcome]:
    """Run *calls* one after the other in this thread, if it is the main one."""
    return [_outcome(partial(call, each.function, each.timeout)) for each in calls]


class _ThreadPool:
    """Threads that share a list of calls.

    One thread starts alone, which suffices for trivial calls. After a moment the remaining calls
    get a thread each, up to the width.
    """

    def __init__(self, calls: Sequence[TimedCall], width: int) -> None:
        self._calls = calls
        self._width = width
        self._waiting = deque(range(len(calls)))
        self._running: dict[int, tuple[float, threading.Thread]] = {}
        self._done: SimpleQueue[tuple[int, CallOutcome]] = SimpleQueue()
        self._outcomes: dict[int, CallOutcome] = {}
        self._alone_until = time.monotonic() + ALONE
        self._grown = False

    def run(self) -> list[CallOutcome]:
        """Wait until every call has ended or overrun."""
        if self._calls:
            self._start_threads(1)
        while len(self._outcomes) < len(self._calls):
            try:
                index, outcome = self._done.get(timeout=self._next_deadline())
                self._outcomes.setdefault(index, outcome)
            except Empty:
                self._grow(self._give_up())
        return [self._outcomes[index] for index in range(len(self._calls))]

    def _start_threads(self, count: int) -> None:
        for _ in range(count):
            _run_in_thread(self._work)

    def _grow(self, given_up: int) -> None:
        """Start threads for the waiting calls once; later only replace abandoned threads."""
        if not self._grown and time.monotonic() >= self._alone_until:
            self._grown = True
            given_up += self._width - 1
        self._start_threads(min(len(self._waiting), given_up))

    def _next_deadline(self) -> float:
        """Seconds until a call overruns or more threads are needed."""
        moments = [deadline for deadline, _ in list(self._running.values())]
        if self._waiting and not self._grown:
            moments.append(self._alone_until)
        # A thread that has just started may not have registered its call.
        return max(0.0, min(moments) - time.monotonic()) if moments else ALONE

    def _give_up(self) -> int:
        """Abandon the calls that have overrun, and return their number."""
        given_up = 0
        now = time.monotonic()
        for index, (deadline, thread) in list(self._running.items()):
            overdue = self._running.pop(index, None) if deadline <= now else None
            if overdue is not None:
                abandoned.add(thread)
                limit = self._calls[index].timeout
                began = time.perf_counter() - limit
                error = overrun(limit)
                self._outcomes[index] = CallOutcome(None, error, limit * 1000, began)
                given_up += 1
        return given_up

    def _work(self) -> bool:
        """Make the waiting calls; return False if this thread was abandoned, and so replaced."""
        mine = True
        while mine and self._waiting:
            try:
                index = self._waiting.popleft()
            except IndexError:
                break
            timeout = self._calls[index].timeout
            self._running[index] = (time.monotonic() + timeout, threading.current_thread())
            outcome = _outcome(self._calls[index].function)
            mine = self._running.pop(index, None) is not None
            self._done.put((index, outcome))
        return mine


class _Worker(threading.Thread):
    """A thread that works for one pool after the other."""

    def __init__(self) -> None:
        super().__init__(name="bounded", daemon=True)
        self.work: SimpleQueue[Callable[[], bool]] = SimpleQueue()

    def run(self) -> None:
        """Work until nothing comes for a while, or until a call was abandoned."""
        while work := self._next():
            # What a function sets in its context is gone afterwards, as with a thread of its own.
            if not contextvars.Context().run(work):
                return
            del work
            _spare.append(self)

    def _next(self) -> Callable[[], bool] | None:
        try:
            return self.work.get(timeout=SPARE)
        except Empty:
            try:
                _spare.remove(self)
            except ValueError:  # a pool has just taken it
                return self.work.get()
            return None


#: Threads that wait for work, the last one first; none of them lives in a forked process.
_spare: deque[_Worker] = deque()
os.register_at_fork(after_in_child=_spare.clear)


def _run_in_thread(work: Callable[[], bool]) -> None:
    try:
        worker = _spare.pop()
    except IndexError:
        worker = _Worker()
        worker.start()
    worker.work.put(work)


def _outcome(function: Callable[[], Any]) -> CallOutcome:
    outcome = CallOutcome(began=time.perf_counter())
    try:
        outcome.value = contain(function)
    except (Exception, Overrun) as error:  # noqa: BLE001 - the caller decides what it means
        outcome.error = error
    outcome.duration = (time.perf_counter() - outcome.began) * 1000
    return outcome


def overrun(timeout: float) -> Overrun:
    """The error of a call that took longer than *timeout* seconds."""
    return Overrun(f"took longer than {timeout:g} s")


def _call_with_alarm(function: Callable[[], Any], timeout: float) -> Any:
    rung: list[Overrun] = []

    def ring(*_: object) -> None:
        rung.append(overrun(timeout))
        raise rung[0]

    # `signal.signal` also searches its enumerations for each handler, which takes longer.
    before = set_handler(signal.SIGALRM, ring)
    setitimer(ITIMER_REAL, timeout)
    try:
        return contain(function)
    except Exception as error:
        if rung:  # caught on its way, as pydantic catches what a serializer raises
            raise rung[0] from error
        raise
    finally:
        setitimer(ITIMER_REAL, 0)
        set_handler(signal.SIGALRM, before)
