"""One call that hangs holds up no other, and is not made again until it has returned."""

from __future__ import annotations

import threading

from boyd.plugins.bounded_calls import BoundedCall, BoundedCalls, Hangs, StillHangs
from harness import wait_until


def fails() -> int:
    """Raise."""
    raise OSError("no such mount")


def test_answers_and_errors_come_by_name() -> None:
    calls = {"good": BoundedCall(lambda: 1, 60), "bad": BoundedCall(fails, 60)}
    outcomes = BoundedCalls().make(calls)

    assert outcomes["good"] == 1
    assert isinstance(outcomes["bad"], OSError)


def test_a_call_that_hangs_is_made_again_when_it_has_returned() -> None:
    server = threading.Event()
    times_made: list[int] = []

    def hang() -> int:
        times_made.append(1)
        server.wait(120)
        return len(times_made)

    calls = BoundedCalls()
    both = {"dead": BoundedCall(hang, 0.05), "good": BoundedCall(lambda: 7, 60)}
    first, second = calls.make(both), calls.make(both)
    assert type(first["dead"]) is Hangs
    assert type(second["dead"]) is StillHangs
    assert first["good"] == second["good"] == 7
    assert times_made == [1]
    server.set()
    wait_until(lambda: calls.make(both)["dead"] == 2)


def test_a_panic_is_the_error_of_its_call_alone() -> None:
    def panic() -> int:
        raise GeneratorExit("index out of bounds")

    outcomes = BoundedCalls().make({"mad": BoundedCall(panic, 60), "good": BoundedCall(int, 60)})
    assert "index out of bounds" in str(outcomes["mad"])
    assert not isinstance(outcomes["mad"], Hangs)
    assert outcomes["good"] == 0
