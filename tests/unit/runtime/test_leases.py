"""Leases: renewed while the work goes on, and no longer."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from boyd.errors import StoreUnavailable
from boyd.runtime import Leases, leases


class Renewals:
    """Counts renewals; what each says comes from *answers*, then it says yes."""

    def __init__(self, *answers: bool | Exception) -> None:
        self.count = 0
        self._answers = iter(answers)
        self._came = threading.Semaphore(0)

    def __call__(self) -> bool:
        self.count += 1
        self._came.release()
        answer = next(self._answers, True)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def come(self, times: int) -> bool:
        """Wait for that many more renewals."""
        return all(self._came.acquire(timeout=60) for _ in range(times))


def test_a_lease_is_renewed_while_the_work_goes_on() -> None:
    renewals = Renewals()
    with Leases(0.005).renewing(renewals, 60):
        assert renewals.come(3)


def test_the_lease_of_hanging_work_is_not_renewed() -> None:
    leases = Leases(0.005)
    hangs, works = Renewals(), Renewals()
    with leases.renewing(hangs, 0), leases.renewing(works, 60):
        assert works.come(3)

    assert hangs.count == 0


def test_a_lost_lease_is_not_renewed_again() -> None:
    leases = Leases(0.005)
    lost, held = Renewals(False), Renewals()
    with leases.renewing(lost, 60), leases.renewing(held, 60):
        assert held.come(3)

    assert lost.count == 1


def test_after_a_failure_leases_are_renewed_as_soon_as_redis_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=pauses.append)
    monkeypatch.setattr(leases, "time", clock)
    away = StoreUnavailable("away")
    renewals = Renewals(away, away)
    with Leases(7.5).renewing(renewals, 60):
        assert renewals.come(4)

    # Threads of other tests sleep by this clock, too.
    own = [pause for pause in pauses if pause in (7.5, leases.SOON)]
    assert own[:4] == [7.5, leases.SOON, leases.SOON, 7.5]


@pytest.mark.parametrize("error", [StoreUnavailable("away"), ValueError("closed by others")])
def test_a_lease_is_renewed_again_after_an_attempt_failed(error: Exception) -> None:
    renewals = Renewals(error)
    with Leases(0.005).renewing(renewals, 60):
        assert renewals.come(3)
