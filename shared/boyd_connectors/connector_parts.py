"""Parts that connectors share: approved previews, reports, hysteresis, separate reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from boyd import naming
from boyd.errors import ConfigError
from boyd.models import JsonObject, Observation, ObservationType, Severity
from boyd.plugin import Context
from boyd.text.formatting import message_of


def approved_preview(ctx: Context) -> JsonObject:
    """The output of the dry run of the approval that is executed; empty: there was none."""
    _, id = naming.parts(ctx.execution_id or "")
    if naming.approval(id) != ctx.execution_id:
        return {}
    try:
        item = ctx.approvals.get(id)
    except ConfigError:  # in a sandbox
        return {}
    preview = item.preview if item else None
    output: Any = preview.output if preview and preview.success else None
    return output if isinstance(output, dict) else {}


class CheckReport:
    """Collects what a check finds; at most *max_items* things are reported, the rest is counted.

    Each observation has the data *common*, too.
    """

    def __init__(self, ctx: Context, max_items: int, **common: str) -> None:
        self._ctx = ctx
        self._common = common
        self._max_items = max_items
        self._found: list[Observation] = []

    def add(
        self,
        what: str,
        severity: Severity,
        data: JsonObject,
        type: ObservationType = "state",
    ) -> None:
        """Report a thing in trouble, of the kind *what*."""
        self._found.append(self._observation(what, severity, data, type))

    def observations(self, what: str, **counts: int) -> list[Observation]:
        """The first things, and one observation with *counts* and the number of things left out."""
        kept = self._found[: self._max_items]
        omitted = len(self._found) - len(kept)
        return [*kept, self._observation(what, "info", {**counts, "omitted": omitted}, "state")]

    def _observation(
        self, what: str, severity: Severity, data: Mapping[str, object], type: ObservationType
    ) -> Observation:
        return Observation.model_validate(
            {
                "source": f"{self._ctx.plugin_id}/{what}",
                "type": type,
                "severity": severity,
                "timestamp": self._ctx.now(),
                "data": {**data, **self._common},
            }
        )


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


_K = TypeVar("_K", bound=str)
_V = TypeVar("_V")


class SeparateReads:
    """Reads things one after another, within *seconds* in all.

    Those that failed come last the next time, so that they use up the time of no others.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._failed: set[str] = set()

    def make(
        self, names: Iterable[_K], read: Callable[[_K], _V]
    ) -> tuple[dict[_K, _V], dict[_K, str]]:
        """Read each; the results, and the errors of the others, in the order of *names*.

        Raises:
            Exception: none could be read; it is the error of the first.
        """
        wanted, until = list(names), self._clock() + self._seconds
        found: dict[_K, _V] = {}
        errors: dict[_K, Exception] = {}
        for name in sorted(wanted, key=self._failed.__contains__):
            try:
                if self._clock() > until:
                    raise TimeoutError("was not asked: the others took too long")
                found[name] = read(name)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is about this one only
                errors[name] = error
        self._failed = (self._failed - set(wanted)) | errors.keys()
        if errors and not found:
            raise next(iter(errors.values()))
        lost = {name: _text_of(errors[name]) for name in wanted if name in errors}
        return {name: found[name] for name in wanted if name in found}, lost


def _text_of(error: Exception) -> str:
    return message_of(error) or type(error).__name__
