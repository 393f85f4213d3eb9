from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from boyd import Agent, Context, Plugin, observer
from boyd.models import LoopResult, Observation, SituationAssessment
from boyd.plugins.baseline import Baseline
from boyd.replay.differences import judge
from boyd.replay.shadow import Shadow
from boyd.testing import Lab
from plugin_kit import MemoryState, Rig

DAY, MINUTE = 86_400.0, 60.0
STEP = 5 * MINUTE
#: A value from the number of its step.
Values = Callable[[int], Any]


def metric(value: Any, at: datetime, source: str = "web/load", **data: Any) -> Observation:
    return Observation(source=source, type="metric", timestamp=at, data={"value": value, **data})


class Watch(Rig):
    """A rig whose plugin has learned for some time."""

    def __init__(self, **options: Any) -> None:
        super().__init__(Baseline(**options))
        self.findings: list[str] = []

    def judge(self, *observations: Observation) -> SituationAssessment:
        [assessment] = self.orient(list(observations)).assessments
        return assessment

    def see(self, *values: Any, step: float = STEP) -> SituationAssessment:
        """Judge these values, one after the other; the last assessment."""
        for value in values:
            self.clock.forward(step)
            assessment = self.judge(metric(value, self.clock()))
            self.findings += assessment.findings
        return assessment

    def learn(self, values: Values, seconds: float, step: float = STEP) -> SituationAssessment:
        return self.see(*(values(n) for n in range(int(seconds / step))), step=step)


def noise(level: float, spread: float = 1.0, seed: int = 1) -> Values:
    generator = random.Random(seed)
    return lambda _: round(generator.gauss(level, spread), 3)


@pytest.fixture
def watch() -> Watch:
    """A plugin that has learned a noisy series around 50 for two days."""
    watch = Watch()
    watch.learn(noise(50), 2 * DAY)
    return watch


def unusual(assessment: SituationAssessment) -> list[dict[str, Any]]:
    records: Any = (assessment.data or {})["unusual"]
    return list(records)


def test_it_is_silent_until_it_has_learned_for_a_day() -> None:
    watch = Watch()
    watch.learn(noise(50), 0.9 * DAY)

    assessment = watch.see(500)

    assert assessment.anomalies is None
    assert assessment.confidence is None
    assert assessment.findings == ["1 series still being learned"]


def test_a_usual_value_is_no_anomaly(watch: Watch) -> None:
    assessment = watch.see(51)

    assert assessment.anomalies is None
    assert assessment.findings == ["1 series is as usual"]


def test_a_jump_is_reported_with_its_size_in_usual_ones(watch: Watch) -> None:
    assessment = watch.see(90)

    [anomaly] = assessment.anomalies or []
    assert anomaly.type == "unusual-value-high"
    assert anomaly.affected_resources == ["web/load"]
    assert anomaly.description.startswith("web/load value jumped from about ")
    assert "times its usual change; it is 90" in anomaly.description
    [record] = unusual(assessment)
    assert 25 < record["times"] < 60


def test_a_slow_deviation_is_reported_with_what_is_usual_at_this_hour(watch: Watch) -> None:
    for step in range(100):
        assessment = watch.see(round(50 - step / 8, 3))
        if assessment.anomalies:
            break

    [anomaly] = assessment.anomalies or []
    assert anomaly.type == "unusual-value-low"
    assert "times their usual spread below " in anomaly.description
    assert anomaly.description.split(", for ")[0].endswith(", which is usual at this hour")


def test_a_value_that_is_usual_at_an_hour_is_unusual_at_another() -> None:
    def office(step: int) -> float:
        hour = step * STEP / 3600 % 24
        return round(generator.gauss(60 if 8 <= hour < 18 else 10, 1), 3)

    generator, watch = random.Random(3), Watch()
    watch.clock.time = datetime(2026, 1, 5, tzinfo=UTC)
    watch.learn(office, 10 * DAY)
    watch.findings.clear()

    assert watch.learn(office, 1.1 * DAY).anomalies is None
    assert not any("jumped" in finding for finding in watch.findings)
    assert watch.see(*[60] * 6).anomalies


def test_an_anomaly_lasts_until_its_values_are_usual_for_a_while(watch: Watch) -> None:
    watch.see(90, 90, 90)
    assert watch.see(*[50] * 3).anomalies
    assert watch.see(*[50] * 8).anomalies is None
    assert watch.see(*[50] * 20).anomalies is None


def test_an_anomaly_is_more_severe_the_larger_and_longer_it_is() -> None:
    severities = []
    for value in (65, 90, 400):
        watch = Watch()
        watch.learn(noise(50), 2 * DAY)
        severities += [a.severity for a in watch.see(value).anomalies or []]
    assert severities == ["low", "medium", "high"]

    watch = Watch()
    watch.learn(noise(50), 2 * DAY)
    lasting = watch.see(*[65] * 14).anomalies or []
    assert [anomaly.severity for anomaly in lasting] == ["high"]


def test_an_incident_of_hours_is_not_learned(watch: Watch) -> None:
    watch.learn(noise(90), 0.25 * DAY)
    watch.learn(noise(50), 0.25 * DAY)

    assert watch.see(50).anomalies is None
    assert watch.see(130).anomalies


def test_a_lasting_shift_is_usual_after_twelve_hours(watch: Watch) -> None:
    assert watch.learn(noise(90), 0.45 * DAY).anomalies
    assert watch.learn(noise(90), 0.1 * DAY).anomalies is None
    assert any("is usual from now on" in finding for finding in watch.findings)

    watch.findings.clear()
    watch.learn(noise(90), 2 * DAY)
    assert set(watch.findings) == {"1 series is as usual"}


def test_a_change_of_a_constant_series_is_reported() -> None:
    watch = Watch()
    watch.learn(lambda _: 3, 2 * DAY)

    [anomaly] = watch.see(4).anomalies or []
    assert "33.3 times its usual change" in anomaly.description


def test_the_first_value_that_is_not_zero_is_reported() -> None:
    watch = Watch()
    watch.learn(lambda _: 0, 2 * DAY)

    [anomaly] = watch.see(1).anomalies or []
    assert "more than 1000 times its usual change" in anomaly.description


@pytest.mark.parametrize(
    "value", [True, None, "90", [90], 10**400, 1e300, {"value": 90}], ids=range(7)
)
def test_a_value_that_is_no_measurement_does_not_count(watch: Watch, value: Any) -> None:
    before = dict(watch.state.values)

    assert watch.see(value).findings == ["No number was observed"]
    assert watch.state.values == before


def test_missing_values_and_a_long_gap_are_no_anomaly(watch: Watch) -> None:
    generator = random.Random(7)
    for _ in range(200):
        watch.see(generator.gauss(50, 1), step=STEP * generator.choice((1, 1, 1, 3, 10)))
    watch.clock.forward(2 * DAY)
    watch.findings.clear()
    watch.learn(noise(50), 0.2 * DAY)

    assert set(watch.findings) == {"1 series is as usual"}


def test_a_value_from_the_future_does_not_stop_the_learning(watch: Watch) -> None:
    watch.clock.forward(STEP)
    watch.judge(metric(50, watch.clock() + timedelta(days=400)))

    assert watch.see(90).anomalies


def test_a_counter_is_learned_by_its_rate() -> None:
    generator, total, watch = random.Random(5), 0, Watch()

    def requests(rate: float) -> int:
        nonlocal total
        total += round(generator.gauss(rate, 10))
        return total

    watch.learn(lambda _: requests(3000), 4 * DAY)
    total = 0  # the process restarts
    watch.learn(lambda _: requests(3000), 0.1 * DAY)
    assert not any("jumped" in finding for finding in watch.findings)

    [record] = unusual(watch.see(requests(6000)))
    assert record["usual"] == pytest.approx(10, abs=0.5)
    assert record["value"] == pytest.approx(20, abs=0.5)


def test_the_same_iteration_again_says_the_same_and_changes_nothing(watch: Watch) -> None:
    watch.clock.forward(STEP)
    observation = metric(90, watch.clock())

    first, stored = watch.judge(observation), dict(watch.state.values)
    again = watch.judge(observation)

    assert again == first
    assert watch.state.values == stored


def test_the_same_values_leave_the_same_bytes_in_any_process() -> None:
    def run(fresh: bool) -> tuple[dict[str, str], list[str]]:
        watch, values = Watch(), noise(50)
        for step in range(700):
            if fresh:
                restarted = Watch()
                restarted.state, restarted.clock = watch.state, watch.clock
                restarted.findings = watch.findings
                watch = restarted
            watch.see(values(step) + (40 if step > 650 else 0))
        return watch.state.values, watch.findings

    assert run(fresh=False) == run(fresh=True)


class CountedState(MemoryState):
    """A state that counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def get_many(self, keys: list[str]) -> dict[str, Any]:
        self.calls.append("get_many")
        return super().get_many(keys)

    def set(self, key: str, value: Any, ttl: float | None = None) -> None:
        self.calls.append("set")
        super().set(key, value, ttl)


def fleet(count: int, at: datetime, seed: int) -> list[Observation]:
    generator = random.Random(seed)
    return [
        metric(generator.gauss(1000, 30), at, f"host-metrics/web-{number}/load")
        for number in range(count)
    ]


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 300])
def test_the_number_of_commands_does_not_grow_with_the_series(count: int) -> None:
    watch, state = Watch(max_series=300), CountedState()
    watch.state = state
    most: list[int] = []
    for step in range(40):
        watch.clock.forward(STEP)
        state.calls.clear()
        watch.judge(*fleet(count, watch.clock(), step))
        most.append(len(state.calls))
        assert state.calls.count("get_many") <= 2
    assert max(most) <= 12


def test_a_series_takes_few_bytes_that_do_not_grow() -> None:
    watch, sizes = Watch(), []
    for week in range(3):
        for step in range(7 * 24):
            watch.clock.forward(3600)
            watch.judge(*fleet(10, watch.clock(), 1000 * week + step))
        sizes.append(sum(map(len, watch.state.values.values())) / 10)
    assert sizes[1] == pytest.approx(sizes[2], rel=0.02)
    assert sizes[2] < 10_000


def test_more_series_than_the_most_are_counted() -> None:
    watch = Watch(max_series=2)
    for _ in range(2):
        watch.clock.forward(STEP)
        assessment = watch.judge(*fleet(5, watch.clock(), 1))

    assert assessment.findings[-1] == "3 series are not learned: max_series is 2"
    assert assessment.data == {"series": 2, "learning": 2, "omitted": 3, "unusual": []}


def test_a_series_that_is_gone_makes_room_for_another() -> None:
    watch = Watch(max_series=1)
    watch.judge(metric(1, watch.clock(), "old"))
    watch.clock.forward(15 * DAY)

    watch.judge(metric(1, watch.clock(), "new"))
    assessment = watch.judge(metric(1, watch.clock(), "new"))

    assert (assessment.data or {})["omitted"] == 0


def test_things_of_one_source_are_series_of_their_own() -> None:
    watch = Watch()
    at = watch.clock()
    assessment = watch.judge(
        metric(1, at, "host-metrics/a/disk", host="a", mount="/"),
        metric(90, at, "host-metrics/a/disk", host="a", mount="/srv"),
        metric(5, at, "prometheus/query", labels={"pod": "a"}),
        metric(5, at, "prometheus/query", labels={"pod": "b"}),
    )
    assert (assessment.data or {})["series"] == 4


def test_settings_in_observations_are_no_series() -> None:
    watch = Watch()
    observation = metric(1, watch.clock(), threshold=3, expectedStatus=200, memoryLimit=5)
    assert (watch.judge(observation).data or {})["series"] == 1


def test_patterns_choose_the_series() -> None:
    watch = Watch(include=["web/*"], exclude=["* size"])
    at = watch.clock()
    assessment = watch.judge(metric(1, at, size=2, other=3), metric(1, at, "db/load"))
    assert (assessment.data or {})["series"] == 2


def test_only_metrics_and_states_are_learned() -> None:
    watch = Watch()
    kinds: Iterable[Any] = ("metric", "state", "log", "alert", "event")
    observations = [Observation(source=kind, type=kind, data={"value": 1}) for kind in kinds]
    assert (watch.judge(*observations).data or {})["series"] == 2


def test_an_anomaly_stands_while_its_observer_is_not_due(watch: Watch) -> None:
    watch.see(90)
    watch.clock.forward(2 * STEP)
    assert watch.judge().anomalies

    watch.clock.forward(5 * STEP)
    assert watch.judge().anomalies is None


class Fleet(Plugin):
    """Observes a hundred numbers."""

    id = "fleet"

    @observer()
    def look(self, ctx: Context) -> list[Observation]:
        return fleet(100, ctx.now(), ctx.iteration or 0)


def test_iterations_with_a_hundred_series_are_replayed_as_recorded() -> None:
    agent = Agent("fleet", plugins=[Fleet(), Baseline()])
    lab, shadow = Lab(agent), Shadow(agent)
    for _ in range(5):
        result = LoopResult.from_json(lab.run().to_json())
        reads = [
            read for part in result.reads for read in part.reads if part.by == "baseline:judge"
        ]

        assert {read.note for read in reads} <= {None, "absent"}
        assert judge(shadow, result).differences == []
