"""Runs functions under a time limit.

Python cannot kill a thread: one that overruns is abandoned, counted in `abandoned`, and the worker
recycles itself when too many of them are alive. In the main thread of a process an alarm is used
instead, which really interrupts the function.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from boyd.errors import Overrun


@dataclass(frozen=True)
class Call:
    """A function and the seconds it may take."""

    function: Callable[[], Any]
    timeout: float


@dataclass
class Outcome:
    """How a call ended; `duration` is in milliseconds."""

    value: Any = None
    error: BaseException | None = None
    duration: float = 0.0


class Abandoned:
    """The threads that overran and may still be running."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def add(self, thread: threading.Thread) -> None:
        """Remember a thread that was given up."""
        with self._lock:
            self._threads.append(thread)

    def alive(self) -> int:
        """How many of them still run."""
        with self._lock:
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            return len(self._threads)


abandoned = Abandoned()


def call(function: Callable[[], Any], timeout: float) -> Any:
    """Run *function* for at most *timeout* seconds.

    Raises:
        Overrun: it took longer.
    """
    if threading.current_thread() is threading.main_thread():
        with _alarm(timeout):
            return function()
    outcome = call_all([Call(function, timeout)])[0]
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


def call_all(calls: Sequence[Call], width: int = 64) -> list[Outcome]:
    """Run all *calls* side by side, at most *width* at a time; outcomes in the order of calls."""
    outcomes = [Outcome() for _ in calls]
    done: SimpleQueue[int] = SimpleQueue()
    waiting = deque(range(len(calls)))
    running: dict[int, tuple[float, threading.Thread]] = {}
    while waiting or running:
        while waiting and len(running) < width:
            index = waiting.popleft()
            running[index] = _start(index, calls[index], outcomes, done)
        _collect(running, outcomes, calls, done)
    return outcomes


def _start(
    index: int, one: Call, outcomes: list[Outcome], done: SimpleQueue[int]
) -> tuple[float, threading.Thread]:
    outcome = outcomes[index]

    def run() -> None:
        began = time.perf_counter()
        try:
            outcome.value = one.function()
        except BaseException as error:  # noqa: BLE001 - the caller decides what it means
            outcome.error = error
        outcome.duration = (time.perf_counter() - began) * 1000
        done.put(index)

    thread = threading.Thread(target=run, name=f"bounded-{index}", daemon=True)
    thread.start()
    return time.monotonic() + one.timeout, thread


def _collect(
    running: dict[int, tuple[float, threading.Thread]],
    outcomes: list[Outcome],
    calls: Sequence[Call],
    done: SimpleQueue[int],
) -> None:
    first = min(deadline for deadline, _ in running.values())
    try:
        running.pop(done.get(timeout=max(0.0, first - time.monotonic())), None)
    except Empty:
        for index in [i for i, (deadline, _) in running.items() if deadline <= time.monotonic()]:
            abandoned.add(running.pop(index)[1])
            limit = calls[index].timeout
            outcomes[index] = Outcome(error=overrun(limit), duration=limit * 1000)


def overrun(timeout: float) -> Overrun:
    """The error of a call that took longer than *timeout* seconds."""
    return Overrun(f"took longer than {timeout:g} s")


@contextmanager
def _alarm(timeout: float) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise overrun(timeout)

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, timeout)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
