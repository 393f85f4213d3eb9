"""The observers of an agent as rows: health, last runs, and why one does not run now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from boyd.models import LoopResult, NotDue
from boyd.models.responses import ObserverState

#: The state of an observer; `quiet`: its interval has not passed yet.
ObserverStanding = Literal["backs off", "fails", "never ran", "not due", "ok"]
_ORDER: Sequence[ObserverStanding] = ("backs off", "fails", "never ran", "not due", "ok")
SHAPES: dict[ObserverStanding, str] = {
    "backs off": "off",
    "fails": "failed",
    "never ran": "unknown",
    "not due": "idle",
    "ok": "ok",
}
#: Hosts that a row names.
_HOSTS = 4


@dataclass(frozen=True)
class ObserverRow:
    """An observer.

    Attributes:
        until: when it runs again, if it is not due or backs off.
        hosts: where it ran in the latest iteration, in words.
        took: the longest of these runs, in milliseconds.
    """

    health: ObserverState
    standing: ObserverStanding
    until: datetime | None
    hosts: str
    took: float | None


def observer_rows(
    observers: Sequence[ObserverState], last: LoopResult | None, now: datetime
) -> list[ObserverRow]:
    """The rows, those first that need attention; *last* is the latest iteration that ended."""
    not_due = {one.id: one for one in last.not_due} if last else {}
    rows = list(_rows(observers, not_due, last, now))
    return sorted(rows, key=lambda row: _ORDER.index(row.standing))


def _rows(
    observers: Sequence[ObserverState],
    not_due: dict[str, NotDue],
    last: LoopResult | None,
    now: datetime,
) -> Iterator[ObserverRow]:
    for one in observers:
        runs = [run for run in last.observer_runs if run.id == one.id] if last else []
        standing, until = _standing(one, not_due.get(one.id), now)
        took = max((run.duration for run in runs), default=None)
        yield ObserverRow(one, standing, until, _hosts({run.host for run in runs}), took)


def _standing(
    one: ObserverState, later: NotDue | None, now: datetime
) -> tuple[ObserverStanding, datetime | None]:
    if one.backoff_until and one.backoff_until > now:
        return "backs off", one.backoff_until
    if one.failures:
        return "fails", None
    if later:
        return "not due", later.due_at
    return ("ok", None) if one.last_success_at else ("never ran", None)


def _hosts(names: set[str]) -> str:
    shown = sorted(names)[:_HOSTS]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
