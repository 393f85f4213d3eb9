"""Comparison of two iterations: where they differ, by name."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from boyd.models import LoopResult, Phase
from boyd.models.responses import outcome
from boyd_api.console.rendering import ms

#: The most differences of a section that are shown, and characters of a value.
_SHOWN = 40
_VALUE = 400

#: Values by name.
_Facts = Mapping[str, str]


@dataclass(frozen=True)
class Difference:
    """A value that differs; empty where an iteration has none."""

    name: str
    here: str
    there: str


@dataclass(frozen=True)
class Section:
    """The differences of one kind; `more` are not shown."""

    title: str
    differences: list[Difference]
    more: int


def compare(here: LoopResult, there: LoopResult) -> list[Section]:
    """The differences between two iterations, section by section."""
    kinds = {
        "Observations": _observations,
        "Situation": _situation,
        "Decision": _decision,
        "Durations": _durations,
        "Agent and plugins": _builds,
    }
    return [
        _section(title, dict(facts(here)), dict(facts(there))) for title, facts in kinds.items()
    ]


def _section(title: str, here: _Facts, there: _Facts) -> Section:
    names = [*here, *(name for name in there if name not in here)]
    # The data of an observation that one iteration lacks are not listed one by one.
    single = here.keys() ^ there.keys()
    differences = [
        Difference(name, here.get(name, ""), there.get(name, ""))
        for name in names
        if here.get(name) != there.get(name) and name.rpartition(": ")[0] not in single
    ]
    return Section(title, differences[:_SHOWN], max(0, len(differences) - _SHOWN))


def _observations(result: LoopResult) -> Iterator[tuple[str, str]]:
    times: Counter[str] = Counter()
    for observation in result.observations:
        times[observation.source] += 1
        name = (
            observation.source
            if times[observation.source] == 1
            else f"{observation.source} ({times[observation.source]})"
        )
        yield name, observation.severity or "seen"
        for key, value in observation.data.items():
            yield f"{name}: {key}", _text(value)


def _situation(result: LoopResult) -> Iterator[tuple[str, str]]:
    situation = result.situation
    if situation is None:
        return
    yield "summary", _text(situation.summary)
    yield "priority", situation.priority
    yield "confidence", f"{situation.confidence:.2f}"
    for assessment in situation.assessments:
        yield assessment.source, _text("; ".join(assessment.findings))
    for anomaly in situation.anomalies:
        yield f"anomaly: {anomaly.type}", _text(f"{anomaly.severity}: {anomaly.description}")


def _decision(result: LoopResult) -> Iterator[tuple[str, str]]:
    if result.trace:
        yield "strategy", result.trace.chosen or "none applied"
        for verdict in result.trace.verdicts:
            yield verdict.strategy, f"{verdict.verdict}: {_text(verdict.why)}"
    if result.decision:
        yield "action", result.decision.action
        yield "rationale", _text(result.decision.rationale)
        for key, value in result.decision.params.items():
            yield f"param {key}", _text(value)
    yield "outcome", _text(outcome(result))


def _durations(result: LoopResult) -> Iterator[tuple[str, str]]:
    yield "whole iteration", ms(result.duration)
    for phase in get_args(Phase):
        if phase in result.phases:
            yield phase, ms(result.phases[phase])


def _builds(result: LoopResult) -> Iterator[tuple[str, str]]:
    for build in result.builds[:1]:
        yield "settings", build.settings
        yield "Boyd", build.boyd
        for plugin in build.plugins:
            yield plugin.id, plugin.version or plugin.digest or "unknown"


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _VALUE else f"{text[:_VALUE]}…"
