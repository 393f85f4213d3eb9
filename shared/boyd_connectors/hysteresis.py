"""Alarms that begin after several bad samples in a row, and end below a lower threshold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from boyd.plugin import Context


class Sample(NamedTuple):
    """A measured value: an alarm begins at `limit` and lasts until it is below `clear`."""

    value: float
    limit: float
    clear: float


def raised(ctx: Context, key: str, samples: Mapping[str, Sample], times: int) -> set[str]:
    """The names among *samples* that are in alarm, after *times* bad samples in a row.

    What was counted is kept in the state of the plugin under *key*; each iteration counts once. A
    name that is no longer among the samples is forgotten.
    """

    def change(known: Any) -> dict[str, Any]:
        known = known or {}
        if ctx.iteration is not None and known.get("iteration") == ctx.iteration:
            return dict(known)
        before: Mapping[str, int] = known.get("counts", {})
        counts = {name: _count(before.get(name, 0), one, times) for name, one in samples.items()}
        return {"iteration": ctx.iteration, "counts": {k: n for k, n in counts.items() if n}}

    counted: Mapping[str, int] = ctx.state.update(key, change)["counts"]
    return {name for name in samples if counted.get(name, 0) >= times}


def _count(before: int, sample: Sample, times: int) -> int:
    if sample.value >= sample.limit:
        return min(before + 1, times)
    return before if before >= times and sample.value >= sample.clear else 0
