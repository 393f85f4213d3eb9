"""Compares the processor time that an input takes with that of one eight times as large."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import thread_time
from typing import TypeVar

_Input = TypeVar("_Input")

TIMES = 8
#: Eight times the input may take so many times as long; a quadratic function takes 64 times.
MOST = 26.0
#: The processor time, in seconds, that the larger input takes at least when two are compared.
_LEAST = 0.03
_ATTEMPTS = 3


def cost(function: Callable[[_Input], object], value: _Input) -> float:
    """The seconds of processor time that the fastest of three runs takes.

    The time of this thread counts only: it does not depend on what else the machine does.
    """
    return min(_cost(function, value) for _ in range(3))


def _cost(function: Callable[[_Input], object], value: _Input) -> float:
    began = thread_time()
    function(value)
    return thread_time() - began


def growth(
    function: Callable[[_Input], object], input_of: Callable[[int], _Input], most: int
) -> float:
    """The ratio of the time for an input of eight times the size; 1 when both take no time.

    It begins with small inputs, so that exponential time is noticed before it takes for ever.

    Args:
        function: what is measured.
        input_of: makes an input of a size.
        most: the size of the largest input.
    """
    size = TIMES
    while size < most:
        size = min(size + size // 4 if size < 64 else 2 * size, most)
        if _cost(function, input_of(size)) >= _LEAST:
            return _lowest_ratio(function, input_of(size), input_of(size // TIMES))
    return 1.0


def _lowest_ratio(function: Callable[[_Input], object], large: _Input, small: _Input) -> float:
    """The first ratio below `MOST`, or the lowest of some attempts.

    A virtual processor may be slow for a moment; quadratic time is so at every attempt.
    """
    lowest = inf
    for _ in range(_ATTEMPTS):
        lowest = min(lowest, cost(function, large) / cost(function, small))
        if lowest < MOST:
            break
    return lowest
