"""The OODA ring: the four phases of an iteration as arrows that follow one another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import cos, radians, sin
from typing import Literal

from boyd.models import LoopResult, Phase
from boyd.models.outcomes import outcome
from boyd.text.formatting import counted
from boyd_api.console.rendering import ms

#: The phases on the ring, clockwise from the top; `start` and `complete` lie between them.
STEPS: tuple[Phase, ...] = ("observe", "orient", "decide", "act")
_ORDER: Mapping[Phase, int] = {"start": -1, **{n: i for i, n in enumerate(STEPS)}, "complete": 4}

#: Half the width of the picture, and the outer and inner radius of the ring.
CENTRE = 160
_OUTER, _INNER = 150, 106
#: Degrees of each arrow, and of its point.
_LENGTH, _POINT = 84, 8
#: From the middle of the ring to the line on which its letters stand.
_BASELINE = 5.5

StepState = Literal["rest", "done", "now", "next"]


@dataclass(frozen=True)
class RingStep:
    """A phase on the ring.

    Attributes:
        state: `rest` between iterations; in an iteration it is `done`, `now` or `next`.
        path: the outline of its arrow.
        line: the line on which its name is written.
        took: its duration, once it has ended.
        note: what came of it.
    """

    phase: Phase
    state: StepState
    path: str
    line: str
    took: str
    note: str


def ring(phase: Phase, shown: LoopResult | None) -> list[RingStep]:
    """The steps for an agent in *phase*; *shown* is the iteration in flight, or else the last."""
    return [
        RingStep(
            step,
            _state(phase, index),
            _arrow(index),
            _line(index),
            ms(shown.phases[step]) if shown and step in shown.phases else "",
            _note(step, shown) if shown else "",
        )
        for index, step in enumerate(STEPS)
    ]


def _state(phase: Phase, index: int) -> StepState:
    if phase == "idle":
        return "rest"
    at = _ORDER[phase]
    return "now" if index == at else "done" if index < at else "next"


def _note(step: Phase, shown: LoopResult) -> str:
    if step == "observe":
        return _seen(shown) if shown.observations or "observe" in shown.phases else ""
    if step == "orient":
        found = shown.situation
        return (
            f"{counted(len(found.assessments), 'assessment')}, {found.priority} priority"
            if found
            else ""
        )
    if step == "decide":
        chosen = shown.trace.chosen if shown.trace else None
        if shown.decision is None:
            return ""
        action = shown.decision.action
        return f"{action}, by {chosen}" if chosen else f"{action}: no strategy applied"
    return outcome(shown) if shown.action_results or not shown.success else ""


def _seen(shown: LoopResult) -> str:
    failed = len({problem.id for problem in shown.observer_errors})
    parts = [
        counted(len(shown.observations), "observation"),
        f"{counted(failed, 'observer')} failed" if failed else "",
        f"{counted(len(shown.not_due), 'observer')} not due" if shown.not_due else "",
    ]
    return ", ".join(filter(None, parts))


def _arrow(index: int) -> str:
    """An arc with a point at its end, and a notch of the same form at its start."""
    begin = 90 * index - 90 + (90 - _LENGTH) / 2 - _POINT / 2
    end = begin + _LENGTH
    middle = (_OUTER + _INNER) / 2
    return " ".join(
        [
            f"M{_at(_OUTER, begin)} A{_OUTER} {_OUTER} 0 0 1 {_at(_OUTER, end)}",
            f"L{_at(middle, end + _POINT)} L{_at(_INNER, end)}",
            f"A{_INNER} {_INNER} 0 0 0 {_at(_INNER, begin)} L{_at(middle, begin + _POINT)} Z",
        ]
    )


def _line(index: int) -> str:
    """An arc from left to right, so that no name stands on its head."""
    begin = 90 * index - 90
    middle = (_OUTER + _INNER) / 2
    if index in (0, 3):
        radius = middle - _BASELINE
        return f"M{_at(radius, begin)} A{radius} {radius} 0 0 1 {_at(radius, begin + 90)}"
    radius = middle + _BASELINE
    return f"M{_at(radius, begin + 90)} A{radius} {radius} 0 0 0 {_at(radius, begin)}"


def _at(radius: float, degrees: float) -> str:
    """A point at that distance from the centre, clockwise from three o'clock."""
    x, y = cos(radians(degrees)), sin(radians(degrees))
    return f"{CENTRE + radius * x:.2f} {CENTRE + radius * y:.2f}"
