"""The orient phase: orienters and how their assessments are combined."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from boyd import Agent, Anomaly, Correlation, Observation, SituationAssessment
from boyd.models import Situation
from boyd.plugin import Orienter
from boyd.testing import Lab
from kit import agent, assessed, choice, chooses, plugin, reads, seen, sees


def situation(result: Any) -> Situation:
    """The situation of an iteration."""
    assert result.situation is not None
    oriented: Situation = result.situation
    return oriented


def test_every_orienter_sees_every_observation() -> None:
    counts: list[int] = []

    def look(observations: list[Observation]) -> SituationAssessment:
        counts.append(len(observations))
        return SituationAssessment(source="x", findings=[], confidence=1)

    orienters = [Orienter(name=name, orient=look) for name in ("a", "b")]
    Lab(agent(sees("o", seen(), seen()), *orienters)).run()

    assert counts == [2, 2]


def test_text_that_utf8_cannot_hold_costs_only_its_orienter() -> None:
    def read() -> SituationAssessment:
        return assessed("no file \udcff")

    result = Lab(agent(Orienter(name="bad", orient=read), reads("good", "fine"))).run()

    assert situation(result).summary == "fine"


def test_changes_in_place_by_a_component_reach_nobody_else() -> None:
    values: list[Any] = []

    def spoil(observations: list[Observation]) -> SituationAssessment:
        values.append(observations[0].data)
        observations[0].data["n"] = 99
        things: Any = observations[0].data["list"]
        things.append("x")
        observations.clear()
        return SituationAssessment(source="x", findings=["hot"], confidence=1)

    def on_observe(observations: list[Observation]) -> None:
        values.append(observations[0].data["n"])
        observations[0].data["n"] = 98

    def on_orient(situation: Situation, observations: list[Observation]) -> None:
        values.append(observations[0].data["n"])
        situation.assessments[0].findings.append("from a hook")

    def when(situation: Situation) -> bool:
        values.append(situation.assessments[0].findings)
        situation.assessments[0].findings.append("from a strategy")
        return False

    orienters = [Orienter(name=name, orient=spoil) for name in ("a", "b")]
    strategies = [chooses(choice(), name=name, applicable_when=when) for name in ("c", "d")]
    parts = sees("o", seen(data={"n": 1, "list": []})), *orienters, *strategies
    own = plugin(*parts, on_observe=on_observe, on_orient=on_orient)
    result = Lab(Agent("test", plugins=[own])).run()

    data = {"n": 99, "list": ["x"]}
    assert values == [1, data, data, 1, *[["hot", "from a strategy"]] * 2]
    assert result.observations[0].data == {"n": 1, "list": []}
    assert situation(result).assessments[0].findings == ["hot"]
    assert result.situation_changes == []


def test_orienters_run_side_by_side_and_merge_in_registration_order() -> None:
    second_ran = threading.Event()

    def first() -> SituationAssessment:
        assert second_ran.wait(120)
        return SituationAssessment(source="first", findings=["first"], confidence=1)

    def second() -> SituationAssessment:
        second_ran.set()
        return SituationAssessment(source="second", findings=["second"], confidence=1)

    orienters = [Orienter(name="first", orient=first), Orienter(name="second", orient=second)]
    result = Lab(agent(*orienters)).run()

    assert situation(result).summary == "first | second"


def test_an_orienter_that_takes_the_situation_reads_what_all_others_made_of_it() -> None:
    anomaly = Anomaly(type="spike", description="high", severity="high")
    situations: list[Situation] = []

    def conclude(situation: Situation) -> SituationAssessment:
        situations.append(situation)
        return SituationAssessment(source="p:last", findings=["so it is"])

    concluding = Orienter(name="last", orient=conclude)
    result = Lab(agent(concluding, reads("a", "one", anomalies=[anomaly]), reads("b", "two"))).run()

    assert [each.summary for each in situations] == ["one | two"]
    assert situations[0].anomalies == [anomaly]
    assert situation(result).summary == "so it is | one | two"


def test_orienters_that_take_the_situation_do_not_see_each_other() -> None:
    def conclude(situation: Situation) -> SituationAssessment:
        return SituationAssessment(source="x", findings=[f"after {situation.summary}"])

    orienters = [Orienter(name=name, orient=conclude) for name in ("c", "d")]
    result = Lab(agent(*orienters, reads("a", "one"))).run()

    assert situation(result).summary == "after one | after one | one"


def test_an_assessment_without_findings_is_not_in_the_summary() -> None:
    assert situation(Lab(agent(reads("a"), reads("b", "two"))).run()).summary == "two"


def test_findings_are_joined_and_confidence_is_the_mean() -> None:
    orienters = [reads("a", "one", "two", confidence=1.0), reads("b", "three", confidence=0.5)]
    result = situation(Lab(agent(*orienters)).run())

    assert result.summary == "one; two | three"
    assert result.confidence == 0.75
    assert result.priority == "low"


def test_anomalies_and_correlations_are_those_that_orienters_report() -> None:
    anomaly = Anomaly(type="spike", description="high", severity="high")
    correlation = Correlation(observations=["a", "b"], description="together", confidence=0.5)
    orienters = [reads("a", anomalies=[anomaly]), reads("b", correlations=[correlation])]
    result = situation(Lab(agent(*orienters)).run())

    assert ([anomaly], [correlation]) == (result.anomalies, result.correlations)


def test_an_assessment_without_a_confidence_does_not_lower_that_of_the_others() -> None:
    silent = {"source": "p:silent", "findings": ["nothing is known"]}
    quiet = Orienter(name="quiet", orient=lambda: silent)

    assert situation(Lab(agent(reads("sure", confidence=0.9), quiet)).run()).confidence == 0.9
    assert situation(Lab(agent(quiet)).run()).confidence == 0.0


def test_without_orienters_nothing_is_significant() -> None:
    result = situation(Lab(agent(sees("o", seen()))).run())

    assert (result.summary, result.confidence) == ("No significant observations", 0.0)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (RuntimeError("boom"), "RuntimeError: boom"),
        (None, "returned no assessment"),
        ({"source": "x", "findings": [], "confidence": float("nan")}, "confidence"),
        ({"source": "x", "findings": [], "confidence": 1.5}, "confidence"),
        ("text", "invalid assessment"),
    ],
)
def test_an_orienter_that_fails_is_recorded_and_left_out(answer: Any, error: str) -> None:
    def orient() -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    result = Lab(agent(Orienter(name="bad", orient=orient), reads("good", "fine"))).run()

    assert situation(result).summary == "fine"
    assert result.problems[0].id == "p:bad"
    assert error in result.problems[0].error
    assert result.success


def test_hooks_lay_named_fields_over_what_earlier_hooks_made() -> None:
    seen_by_second: list[Situation] = []

    def first() -> dict[str, Any]:
        return {"priority": "high", "summary": "first"}

    def second(situation: Situation) -> dict[str, Any]:
        seen_by_second.append(situation)
        return {"summary": "second"}

    plugins = [plugin(id="a", on_orient=first), plugin(id="b", on_orient=second)]
    result = situation(Lab(Agent("test", plugins=[*plugins, plugin(reads("o", "x"))])).run())

    assert (result.priority, result.summary, result.confidence) == ("high", "second", 0.5)
    assert seen_by_second[0].summary == "first"


@pytest.mark.parametrize("answer", [{"priority": "urgent"}, {"colour": "red"}, "text", [1]])
def test_a_hook_that_returns_rubbish_changes_nothing(answer: Any) -> None:
    result = Lab(Agent("test", plugins=[plugin(reads("o", "x"), on_orient=lambda: answer)])).run()

    assert situation(result).priority == "low"
    assert result.problems[0].id == "p.on_orient"


@pytest.mark.parametrize(
    ("severity", "priority"),
    [("info", "low"), ("warning", "medium"), ("error", "high"), ("critical", "critical")],
)
def test_the_priority_rises_to_the_worst_severity(severity: Any, priority: str) -> None:
    observers = sees("o", seen(severity="info"), seen(severity=severity), seen())

    assert priority == situation(Lab(agent(observers)).run()).priority


def test_the_bundled_plugin_can_be_left_out() -> None:
    observers = sees("o", seen(severity="critical"))

    assert situation(Lab(agent(observers, default_plugins=[])).run()).priority == "low"
