"""Figures of a run beside those of the last release, as ratios.

Counts and ratios compare as they are. Times and rates depend on the machine, so they are first
divided by what a bare Celery canvas took in the same run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: The measure by which the speed of the machine is known, in ms.
YARDSTICK = "10 observers, bare chain with chord, p50"
#: The change for the worse from which a measure counts as a regression, by its kind.
COUNT, RATIO, TIME = 1.05, 1.25, 1.5
#: What a report has, or the file of one.
Rows = Sequence[Mapping[str, Any]]
_PER_SECOND = frozenset({"1/s", "/s"})
#: Times of which ten times as many are no trouble: the smallest, in the unit of the row.
_LEAST = {"ms": 2.0, "s": 0.2, "% of core": 0.5}


@dataclass(frozen=True)
class Change:
    """A measure now and then; `worse` is above 1 if it became worse."""

    name: str
    before: float
    now: float
    unit: str
    worse: float
    limit: float

    @property
    def is_regression(self) -> bool:
        """Compare with the usual variation of such a measure."""
        return self.worse > self.limit

    def __str__(self) -> str:
        kind = "worse" if self.worse > 1 else "better"
        by = max(self.worse, 1 / self.worse)
        return f"{self.name}: {self.before:.3g} -> {self.now:.3g} {self.unit} ({by:.2f} x {kind})"


def tell(before: Rows, now: Rows) -> bool:
    """Print what has changed, the worst first; return whether anything regressed."""
    print("\nsince the last release, times and rates by the speed of the bare chain with chord")
    changes = compare(before, now)
    for change in sorted(changes, key=lambda entry: entry.worse, reverse=True):
        print(f"{'REGRESSION ' if change.is_regression else ''}{change}")
    names = {row["name"] for row in now}
    for row in before:
        if row["target"] and row["name"] not in names:
            print(f"{row['name']}: {row['value']:.3g} {row['unit']} then, not measured now")
    return any(change.is_regression for change in changes)


def compare(before: Rows, now: Rows) -> list[Change]:
    """The changes of all measures that both runs have and that have a target.

    Raises:
        ValueError: the runs do not have the yardstick.
    """
    then = {row["name"]: row for row in before}
    rows = [row for row in now if row["name"] in then]
    here = {row["name"]: row["value"] for row in rows}
    if YARDSTICK not in here:
        raise ValueError(f"both runs need the measure {YARDSTICK!r}: run s1 too")
    slower = here[YARDSTICK] / then[YARDSTICK]["value"]
    return [_change(then[row["name"]], row, slower) for row in rows if row["target"]]


def _change(before: Mapping[str, Any], now: Mapping[str, Any], slower: float) -> Change:
    unit = now["unit"]
    first, second = before["value"], now["value"]
    limit = COUNT if not unit else RATIO if unit == "x" else TIME
    if limit == TIME:
        second = second * slower if unit in _PER_SECOND else second / slower
    least = _LEAST.get(unit, 1e-9)
    growth = max(second, least) / max(first, least)
    worse = 1 / growth if now["target"].startswith(">") else growth
    return Change(now["name"], before["value"], now["value"], unit, worse, limit)
