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


def approval_preview(ctx: Context) -> JsonObject:
    """The output of the dry run of the approval that is executed, or an empty one."""
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
    """Collects the findings of a check: reports up to *max_items*, and counts the rest.

    Each observation has the data *common*, too.
    """

    def __init__(self, ctx: Context, max_items: int, **common: str) -> None:
        self._ctx = ctx
        self._common = common
        self._max_items = max_items
        self._found: list[Observation] = []

    def add(
        self,
        kind: str,
        severity: Severity,
        data: JsonObject,
        type: ObservationType = "state",
    ) -> None:
        """Report something in trouble, as an observation of that *kind*."""
        self._found.append(self._observation(kind, severity, data, type))

    def observations(self, kind: str, **counts: int) -> list[Observation]:
        """The first findings, and an observation with *counts* and the number of the others."""
        first = self._found[: self._max_items]
        omitted = len(self._found) - len(first)
        return [*first, self._observation(kind, "info", {**counts, "omitted": omitted}, "state")]

    def _observation(
        self, kind: str, severity: Severity, data: Mapping[str, object], type: ObservationType
    ) -> Observation:
        return Observation.model_validate(
            {
                "source": f"{self._ctx.plugin_id}/{kind}",
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


def names_in_alarm(
    ctx: Context,
    key: str,
    samples: Mapping[str, Sample],
    times: int,
    is_unseen: Callable[[str], bool] = lambda _: False,
) -> set[str]:
    """The names of *samples* that are in alarm, after *times* bad samples in a row.

    The counts are kept in the plugin's state under *key*; each iteration counts once. Names that
    are no longer among the samples are dropped, unless they could not be seen this time.
    """

    def change(stored: Any) -> dict[str, Any]:
        stored = stored or {}
        if ctx.iteration is not None and stored.get("iteration") == ctx.iteration:
            return dict(stored)
        before: Mapping[str, int] = stored.get("counts", {})
        counts = {name: count for name, count in before.items() if is_unseen(name)}
        counts |= {
            name: _count(before.get(name, 0), sample, times) for name, sample in samples.items()
        }
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
        keys, until = list(names), self._clock() + self._seconds
        results: dict[_K, _V] = {}
        errors: dict[_K, Exception] = {}
        for name in sorted(keys, key=self._failed.__contains__):
            try:
                if self._clock() > until:
                    raise TimeoutError("was not asked: the others took too long")
                results[name] = read(name)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is about this one only
                errors[name] = error
        self._failed = (self._failed - set(keys)) | errors.keys()
        if errors and not results:
            raise next(iter(errors.values()))
        lost = {name: _text_of(errors[name]) for name in keys if name in errors}
        return {name: results[name] for name in keys if name in results}, lost


def _text_of(error: Exception) -> str:
    return message_of(error) or type(error).__name__
