"""Measures how long one step of a function holds the interpreter."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from time import thread_time
from types import FrameType


def longest_step(function: Callable[[], object], enough: float = 0.0) -> float:
    """The processor time, in seconds, of the longest step of *function*.

    A step lies between two events of the profiler: nothing but calls into C take long there, and
    other threads have to wait for their end. It is the time of this thread, whatever else the
    machine does, and the shortest of three tries: other processes share its caches. A try below
    *enough* is the last. The garbage of all tests before is collected first, as that takes as
    long as there were tests.
    """
    gc.collect()
    gc.disable()
    try:
        shortest = _longest_step(function)
        for _ in range(2):
            if shortest >= enough:
                shortest = min(shortest, _longest_step(function))
        return shortest
    finally:
        gc.enable()


def _longest_step(function: Callable[[], object]) -> float:
    longest = 0.0
    last = thread_time()

    def watch(frame: FrameType, event: str, argument: object) -> None:
        nonlocal longest, last
        now = thread_time()
        longest, last = max(longest, now - last), thread_time()

    sys.setprofile(watch)
    try:
        last = thread_time()
        function()
    finally:
        sys.setprofile(None)
    return longest


def unit() -> float:
    """The longest step of something that takes a few hundredths of a second, in this run."""
    text = json.dumps([{"a": number} for number in range(100_000)])
    return longest_step(lambda: json.loads(text))
