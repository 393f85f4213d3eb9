"""The observations of one check of another system: what is in trouble, and a summary."""

from __future__ import annotations

from collections.abc import Mapping

from boyd.models import JsonObject, Observation, ObservationType, Severity
from boyd.plugin import Context


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
