"""Coverage: the targets and params of a track record, to which a grant is limited."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pydantic import Field

from boyd.models.base import Model
from boyd.models.situation import CallScope, kind_of

#: Targets of one kind that a record has to have seen before it covers the whole kind.
FEWEST_TARGETS = 3
#: Numbers that differ by less than this part are the same: JSON in Redis has 14 digits.
_SAME = 1e-9


class Coverage(Model):
    """The targets and params of the effective executions in a record.

    Attributes:
        parameter: the param that names the target.
        targets: the first of them, by name.
        ranges: the lowest and the highest value of each param that is a number.
        values: those of each other param, as JSON.
    """

    parameter: str = "target"
    targets: list[str] = Field(default_factory=list)
    ranges: dict[str, list[float]] = Field(default_factory=dict)
    values: dict[str, list[str]] = Field(default_factory=dict)

    @property
    def kind(self) -> str | None:
        """The kind of target that is covered as a whole, if enough of it were seen."""
        kinds = {kind_of(target) for target in self.targets}
        is_fleet = len(kinds) == 1 and len(self.targets) >= FEWEST_TARGETS
        return kinds.pop() if is_fleet else None

    def outside(self, scope: CallScope) -> list[str]:
        """The target and the params of a call that are not covered, as in `by=100`."""
        return [*self._targets_outside(scope), *self._params_outside(scope)]

    def includes(self, other: Coverage) -> bool:
        """Report whether every call that *other* covers is covered here, too."""
        calls: list[dict[str, float | str]] = [
            {name: end} for name, ends in other.ranges.items() for end in ends
        ]
        calls += [{name: text} for name, texts in other.values.items() for text in texts]
        scopes = [CallScope("", (target,), {}) for target in other.targets]
        scopes += [CallScope("", (), call) for call in calls]
        return not any(self.outside(scope) for scope in scopes)

    def _targets_outside(self, scope: CallScope) -> Iterator[str]:
        for target in scope.targets:
            if target not in self.targets and kind_of(target) != self.kind:
                yield f"{scope.parameter or 'target'}={target}"

    def _params_outside(self, scope: CallScope) -> Iterator[str]:
        for name, value in scope.params.items():
            if isinstance(value, str):
                is_covered = value in self.values.get(name, [])
            else:
                low, high = self.ranges.get(name, [math.inf, -math.inf])
                margin = _SAME * abs(value)
                is_covered = low - margin <= value <= high + margin
            if not is_covered:
                yield f"{name}={_number(value)}"

    @property
    def words(self) -> str:
        """The targets and params in one line."""
        parts = [f"{self.parameter}={self._target_words}"] if self.targets else []
        parts += [
            f"{name}={_number(low)}" + (f" to {_number(high)}" if high > low else "")
            for name, (low, high) in sorted(self.ranges.items())
        ]
        parts += [f"{name}={' or '.join(texts)}" for name, texts in sorted(self.values.items())]
        return ", ".join(parts)

    @property
    def _target_words(self) -> str:
        if self.kind:
            return f"{self.kind} ({len(self.targets)} seen)"
        return " or ".join(self.targets)


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.12g}"
