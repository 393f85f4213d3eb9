"""A replay judges recorded values by the limits of now."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

import replay_kit
from boyd import (
    Agent,
    Context,
    Decision,
    LoopResult,
    Observation,
    Plugin,
    Situation,
    SituationAssessment,
    observer,
    orienter,
    strategy,
)
from boyd.agent import agent_from_file
from boyd.models import Anomaly
from boyd.models.tape import Course, ReplayedIteration
from boyd.plugins.host_metrics import HostMetrics
from boyd.replay.carried_past import CarriedPast
from boyd.replay.differences import course_of, judge
from boyd.replay.shadow import Shadow
from boyd.testing import Lab
from boyd_connectors.prometheus import Prometheus
from kit import Recorder
from plugin_kit import site
from replay_kit import AGENT, PLUGIN, write_agent

#: The value of each iteration.
VALUES = [10, 50, 70, 75, 72, 40, 90, 95, 20, 88, 87, 86, 10, 10, 66, 67, 68, 50]


class Gauge(Plugin):
    """Observes a value, compares it with a limit, and acts above that."""

    id = "p"

    class Options(Plugin.Options):
        """The plugin's options."""

        limit: int = 80
        scale: int = 1

    options: Options
    components = (Recorder().action(),)

    def observer_options(self) -> str:
        """All but the limit."""
        return self.options.model_dump_json(exclude={"limit"})

    @observer()
    def measure(self, ctx: Context) -> list[Observation]:
        """Observe the value of this iteration."""
        value = VALUES[((ctx.iteration or 1) - 1) % len(VALUES)] * self.options.scale
        return [Observation(source="gauge", type="metric", data={"value": value})]

    @measure.judge
    def _compare(self, observations: list[Observation]) -> list[Observation]:
        return [with_severity(item, value_of(item) > self.options.limit) for item in observations]

    @orienter()
    def weigh(self, observations: list[Observation]) -> SituationAssessment:
        """Find what is above the limit."""
        high = any(item.severity == "error" for item in observations)
        return SituationAssessment(
            source="p:weigh", findings=["x"], confidence=1.0, data={"high": high}
        )

    @strategy(name="acts")
    def act(self, situation: Situation) -> Decision:
        """Act."""
        return Decision(action="p:act", rationale="high", confidence=1.0)

    @act.applicable_when
    def _is_high(self, situation: Situation) -> bool:
        return bool(situation.evidence("p:weigh")["high"])


class PatientGauge(Gauge):
    """Reports a value only after two in a row above the limit."""

    options: Gauge.Options

    @observer()
    def measure(self, ctx: Context) -> list[Observation]:
        """Observe the value of this iteration."""
        value = VALUES[((ctx.iteration or 1) - 1) % len(VALUES)]
        return [Observation(source="gauge", type="metric", data={"value": value})]

    @measure.judge
    def _count(self, observations: list[Observation], ctx: Context) -> list[Observation]:
        is_high = value_of(observations[0]) > self.options.limit
        times = ctx.state.update("times", lambda past: (past or 0) + 1 if is_high else 0)
        return [with_severity(item, times >= 2) for item in observations]


def value_of(observation: Observation) -> int:
    return int(str(observation.data["value"]))


def with_severity(observation: Observation, is_high: bool) -> Observation:
    return observation.model_copy(update={"severity": "error" if is_high else "info"})


def record(plugin: Plugin) -> list[LoopResult]:
    lab = Lab(Agent("test", plugins=[plugin]))
    return [LoopResult.from_json(lab.run().to_json()) for _ in VALUES]


def replay(
    plugin: Plugin, records: Sequence[LoopResult], past: CarriedPast | None = None
) -> list[ReplayedIteration]:
    shadow = Shadow(Agent("test", plugins=[plugin]))
    return [judge(shadow, item, past=past) for item in records]


def fates(courses: Sequence[Course | None]) -> list[str]:
    return [course.fate if course else "cannot tell" for course in courses]


@pytest.fixture(scope="module")
def records() -> list[LoopResult]:
    return record(Gauge())


@pytest.mark.parametrize("limit", [5, 60, 80, 85, 99])
def test_a_changed_limit_decides_as_it_would_have(limit: int, records: list[LoopResult]) -> None:
    judgements = replay(Gauge(limit=limit), records)

    really = [course_of(None, item) for item in record(Gauge(limit=limit))]
    assert fates([item.after for item in judgements]) == fates(really)
    assert {item.why for item in judgements} == {None}


def test_other_options_of_an_observer_are_still_not_known(records: list[LoopResult]) -> None:
    judgements = replay(Gauge(scale=2), records)

    assert all("observers of p have other code or options" in str(item.why) for item in judgements)


@pytest.mark.long
@pytest.mark.parametrize("limit", [5, 60, 85])
def test_a_judge_that_counts_is_followed_in_a_closed_loop(limit: int) -> None:
    records = record(PatientGauge())

    judgements = replay(PatientGauge(limit=limit), records, CarriedPast())

    really = [course_of(None, item) for item in record(PatientGauge(limit=limit))]
    assert fates([item.after for item in judgements]) == fates(really)
    assert [item.diverged for item in judgements].count(None) == len(judgements) - 1
    assert "replay with --closed-loop" in str(replay(PatientGauge(limit=limit), records)[0].why)


def test_a_judge_that_counts_is_taken_as_recorded_if_it_has_not_changed() -> None:
    judgements = replay(PatientGauge(), record(PatientGauge()), CarriedPast())

    assert [item.differences for item in judgements] == [[]] * len(VALUES)
    assert {item.diverged for item in judgements} == {None}


def test_a_judge_that_fails_is_reported(records: list[LoopResult]) -> None:
    class BrokenGauge(Gauge):
        options: Gauge.Options

        @observer()
        def measure(self, ctx: Context) -> list[Observation]:
            return []

        @measure.judge
        def _fail(self, observations: list[Observation]) -> list[Observation]:
            raise LookupError("no limit")

    [judgement] = replay(BrokenGauge(), records[:1])

    assert "error" in judgement.differences


@pytest.mark.parametrize(("warning", "anomalies"), [(85, 0), (60, 1), (70, 1), (71, 0)])
def test_a_lower_threshold_of_memory_is_judged_on_recorded_values(
    warning: float, anomalies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def metrics(memory: float) -> Agent:
        never: dict[str, Any] = {"warning": 200, "error": 200}
        limits = {"memory": {"warning": memory, "error": 99}, "cpu": never, "disk": never}
        return Agent("test", plugins=[HostMetrics(load=never, cpu_sample=0.01, **limits)])

    memory = psutil.virtual_memory()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory._replace(percent=70.0))
    record = LoopResult.from_json(Lab(metrics(90)).run().to_json())

    judgement = judge(Shadow(metrics(warning)), record)

    assert (judgement.why, len(judgement.anomalies or [])) == (None, anomalies)


class Exceeding(Plugin):
    """Finds an anomaly in each series beyond its threshold."""

    id = "e"

    @orienter()
    def find(self, observations: list[Observation]) -> SituationAssessment:
        """Find them."""
        anomalies = [
            Anomaly(type="queue-long", description=str(item.data["value"]), severity="high")
            for item in observations
            if item.source == "prometheus/query"
        ]
        return SituationAssessment(
            source="e:find", findings=["x"], confidence=1.0, anomalies=anomalies
        )


@pytest.mark.long
@pytest.mark.parametrize("above", [40, 60, 80, 92])
def test_a_threshold_of_a_query_is_judged_on_recorded_values_in_a_closed_loop(above: float) -> None:
    with site() as server:

        def watching(above: float) -> Agent:
            query = {"name": "queue", "expr": "q", "above": above, "clear": above - 10}
            prometheus = Prometheus(url=server.url, queries=[query])
            return Agent("test", plugins=[prometheus, Exceeding()])

        def run(lab: Lab, value: int) -> LoopResult:
            result = [{"metric": {"queue": "mail"}, "value": [0, str(value)]}]
            data = {"resultType": "vector", "result": result}
            server.body = json.dumps({"data": data}).encode()
            return LoopResult.from_json(lab.run().to_json())

        lab, changed = Lab(watching(70)), Lab(watching(above))
        records = [run(lab, value) for value in VALUES]
        really = [run(changed, value).situation for value in VALUES]

    shadow, past = Shadow(watching(above)), CarriedPast()
    judgements = [judge(shadow, item, past=past) for item in records]

    assert {item.why for item in judgements} == {None}
    assert [len(item.anomalies or ()) for item in judgements] == [
        len(item.anomalies) if item else None for item in really
    ]


@pytest.mark.parametrize(
    ("code", "factor"),
    [
        ("FACTORS = {'load': 13}", "FACTORS['load']"),
        ("class Factors:\n    LOAD = 13", "Factors.LOAD"),
        ("def factor(*, load=13):\n    return load", "factor()"),
        ("def make(n):\n    return lambda: n\n\nfactor = make(13)", "factor()"),
    ],
)
def test_observers_that_compute_with_another_constant_cannot_be_judged(
    code: str, factor: str, tmp_path: Path
) -> None:
    plugin = PLUGIN.replace("number * 13 % 101", f"number * {factor} % 101")
    plugin = plugin.replace("LIMIT = 60", f"{code}\n\nLIMIT = 60")
    agent = agent_from_file(write_agent(tmp_path / "then", AGENT, plugin))
    records = replay_kit.record(agent, 2)
    same = write_agent(tmp_path / "same", AGENT, plugin)
    other = write_agent(tmp_path / "other", AGENT, plugin.replace("13", "14"))

    assert replay_kit.differing(replay_kit.replay_with(same, records)) == set()
    assert replay_kit.differing(replay_kit.replay_with(other, records)) == {"cannot tell"}
