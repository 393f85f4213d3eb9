"""How observers have been doing, and when those that keep failing are tried again (L15)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from boyd.models import ObserverHealth, Problem

#: Failures in a row after which an observer backs off (L15).
BACKOFF_AFTER = 3
#: The longest back-off, in seconds.
BACKOFF_LIMIT = 300.0


def after(
    before: Mapping[str, ObserverHealth],
    ran: Iterable[str],
    failed: Mapping[str, Problem],
    now: datetime,
    loop_interval: float,
) -> dict[str, ObserverHealth]:
    """The health of the observers that *ran* in this iteration (L15)."""
    return {
        observer: (
            _worse(before.get(observer, ObserverHealth()), failed[observer], now, loop_interval)
            if observer in failed
            else ObserverHealth(last_success_at=now)
        )
        for observer in ran
    }


def _worse(
    before: ObserverHealth, problem: Problem, now: datetime, loop_interval: float
) -> ObserverHealth:
    failures = before.failures + 1
    pause = min(BACKOFF_LIMIT, loop_interval * 2 ** min(failures - BACKOFF_AFTER, 16))
    return ObserverHealth(
        failures=failures,
        last_success_at=before.last_success_at,
        last_error=problem.error,
        last_error_at=now,
        backoff_until=now + timedelta(seconds=pause) if failures >= BACKOFF_AFTER else None,
    )
