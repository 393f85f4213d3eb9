"""Leanings of the agent: what it favours, what it would rather not do, what it never does (M13)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from boyd.goals.profiles import PROFILES
from boyd.goals.shapes import Archetype, Danger, Psyche, ShadowPattern
from boyd.models import Model

#: Which side of the psyche a tool's success strengthens.
ARCHETYPES: dict[str, Archetype] = {
    name: profile.archetype for name, profile in PROFILES.items() if profile.archetype
}
DANGERS: tuple[Danger, ...] = ("Safe", "Cautious", "Danger")
#: What every agent with a psyche begins with.
SHADOW = (
    ShadowPattern(
        name="destructive_action",
        triggers=["delete all", "drop table", "rm -rf"],
        explanation="it destroys what cannot be brought back",
    ),
    ShadowPattern(
        name="filesystem_write",
        danger="Danger",
        severity=0.3,
        explanation="it changes the host",
        veto=False,
    ),
)
_MIDDLE = 0.5
_STEP = 0.02
_LEAST, _MOST = 0.1, 0.95
_EFFECTIVE, _USES = 0.7, 2
_GROWTH, _COUNTED = 0.01, 5


class ToolInsight(Model):
    """How well a tool has worked."""

    tool: str
    uses: int
    successes: int
    ineffective: bool = False

    @property
    def rate(self) -> float:
        """The share of uses that succeeded."""
        return self.successes / self.uses if self.uses else 0.0


class Verdict(NamedTuple):
    """What the shadow says of an action.

    Attributes:
        veto: the first pattern that forbids it.
        bias: the severities of all patterns that would rather not, summed.
        against: those patterns.
    """

    veto: ShadowPattern | None
    bias: float
    against: list[ShadowPattern]


def new_psyche(
    weights: Mapping[Archetype, float] | None = None, shadow: Iterable[ShadowPattern] = ()
) -> Psyche:
    """How an agent begins: the default shadow and that *shadow*, the *weights* or the default."""
    known = Psyche()
    return known.patched(
        {"weights": {**known.weights, **(weights or {})}, "shadow": [*SHADOW, *shadow]}
    )


def action_text(tool: str, params: Mapping[str, Any]) -> str:
    """What triggers are looked for in: the tool and all that it is given."""
    given = " ".join(f"{name}={_flat(value)}" for name, value in params.items())
    return f"tool={tool} input={given}"


def shadow(psyche: Psyche | None, tool: str, danger: Danger, text: str) -> Verdict:
    """What the shadow says of using *tool*, which is that dangerous, for *text* (`action_text`)."""
    patterns = psyche.shadow if psyche else []
    searched = _even(f"{tool} {text}")
    matching = [one for one in patterns if _matches(one, danger, searched)]
    against = [one for one in matching if not one.veto]
    veto = next((one for one in matching if one.veto), None)
    return Verdict(veto, sum(one.severity for one in against), against)


def encountered(psyche: Psyche, times: int = 1) -> Psyche:
    """The psyche after its shadow has stopped it so often."""
    return psyche.model_copy(update={"shadow_encounters": psyche.shadow_encounters + times})


def evolve(psyche: Psyche, tools: Iterable[ToolInsight], abandoned: int, cycle: int) -> Psyche:
    """The psyche after the reflection at *cycle*; the same, if it has evolved then already.

    It is told how well each of the *tools* has worked, and for how many goals it was suggested that
    they be *abandoned*.
    """
    if psyche.last_evolution_cycle >= cycle:
        return psyche
    weights = _shifted(psyche.weights, tools)
    encounters = psyche.shadow_encounters + abandoned
    grown = psyche.individuation + _GROWTH * min(encounters, _COUNTED)
    changes = {
        "weights": weights,
        "rebalance_count": psyche.rebalance_count + (weights != psyche.weights),
        "shadow_encounters": encounters,
        "individuation": min(1.0, round(grown, 6)),
        "last_evolution_cycle": cycle,
    }
    return psyche.model_copy(update=changes)


def _shifted(
    weights: Mapping[Archetype, float], tools: Iterable[ToolInsight]
) -> dict[Archetype, float]:
    shifts: dict[Archetype, float] = {}
    for insight in tools:
        archetype = ARCHETYPES.get(insight.tool)
        if archetype:
            shifts[archetype] = shifts.get(archetype, 0.0) + _shift(insight)
    moved = {name: _bounded(weights.get(name, _MIDDLE) + by) for name, by in shifts.items() if by}
    return {**weights, **moved}


def _shift(insight: ToolInsight) -> float:
    if insight.ineffective:
        return -_STEP
    return _STEP if insight.uses >= _USES and insight.rate > _EFFECTIVE else 0.0


def _bounded(weight: float) -> float:
    # Rounded, so that a step up and a step down are nothing.
    return min(_MOST, max(_LEAST, round(weight, 6)))


def _matches(pattern: ShadowPattern, danger: Danger, searched: str) -> bool:
    if pattern.danger and DANGERS.index(danger) >= DANGERS.index(pattern.danger):
        return True
    triggers = (_even(trigger) for trigger in pattern.triggers)
    return any(trigger in searched for trigger in triggers if trigger)


def _even(text: str) -> str:
    # More spaces between two words must not hide them.
    return " ".join(text.lower().split())


def _flat(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_flat(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return " ".join(map(_flat, value))
    return str(value)
