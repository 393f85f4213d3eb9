"""A recommended value is chosen on earlier weeks and scored on later ones: simulated histories."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from math import sqrt
from statistics import fmean, stdev

import pytest

from boyd_proof.proof_report import Label
from boyd_proof.scores import Matches, distinction_of, match, spans_of
from boyd_proof.sweep import DAY, TooLittleData, choose, recommend, split
from boyd_proof.timeline import WEEK, Timeline, Track

HOUR = 3600.0
VALUES = [2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0]
ALARM = frozenset({("", "high")})


def history(
    seed: int, weeks: int = 4, a_day: float = 0.6, limits: Sequence[float] = VALUES
) -> dict[float, Matches]:
    """Thresholds over noise that is high for some hours of each label."""
    dice = random.Random(seed)
    times = [hour * HOUR for hour in range(int(weeks * WEEK / HOUR) + 1)]
    labels = []
    for day in range(weeks * 7):
        if dice.random() < a_day:
            start = day * DAY + dice.uniform(0, 18) * HOUR
            labels.append((start, start + dice.uniform(2, 5) * HOUR))
    values = [dice.gauss(0, 1.4) for _ in times]
    for start, end in labels:
        height = dice.uniform(1, 5)
        for hour in range(int(start // HOUR) + 1, int(end // HOUR) + 1):
            values[hour] += height
    return {limit: _matches(times, values, labels, limit) for limit in limits}


def _matches(
    times: list[float], values: list[float], labels: list[tuple[float, float]], limit: float
) -> Matches:
    timeline, track = Timeline(times), Track()
    for value in values:
        track.add(ALARM if value > limit else frozenset())
    stated = [Label(start=_at(start), end=_at(end)) for start, end in labels]
    spans = spans_of(stated, timeline)
    return match(timeline, track, spans, distinction_of(stated), HOUR)


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def f1_of(matches: Matches, start: float, end: float) -> float:
    return matches.scores(start=start, end=end).f1 or 0.0


def test_the_held_out_score_is_unbiased_and_that_of_the_choice_too_good() -> None:
    bias, optimism = [], []
    for seed in range(50):
        matches = history(seed)
        parts = split(matches)
        value = choose(matches, parts)
        # The same value on weeks that nobody has seen.
        [fresh] = history(1000 + seed, limits=[value]).values()
        expected = f1_of(fresh, parts.middle, parts.end)
        bias.append(f1_of(matches[value], parts.middle, parts.end) - expected)
        optimism.append(f1_of(matches[value], parts.start, parts.middle) - expected)

    assert abs(fmean(bias)) < 2 * stdev(bias) / sqrt(len(bias))
    assert fmean(optimism) > 2 * stdev(optimism) / sqrt(len(optimism))


@pytest.mark.long
def test_the_best_value_is_among_those_that_the_data_does_not_tell_apart() -> None:
    # The best one over four hundred weeks is 3.5.
    best = [recommend(history(seed)) for seed in range(20)]

    assert sum(item.low <= 3.5 <= item.high for item in best) >= 18
    # With more data fewer values are left.
    narrow = recommend(history(1, weeks=30, a_day=0.9))
    assert narrow.high - narrow.low < fmean(item.high - item.low for item in best)


def test_a_recommendation_has_the_scores_of_both_parts() -> None:
    matches = history(3)
    parts = split(matches)
    best = recommend(matches, present=2.0)

    assert best.value == choose(matches, parts)
    assert best.split.timestamp() == parts.middle
    assert best.chosen_f1 == f1_of(matches[best.value], parts.start, parts.middle)
    assert best.held_out_f1 == f1_of(matches[best.value], parts.middle, parts.end)
    assert best.held_out_low <= best.held_out_f1 <= best.held_out_high
    assert best.present_f1 == f1_of(matches[2.0], parts.middle, parts.end)
    assert recommend(matches) == recommend(matches)


def test_the_parts_meet_at_the_end_of_a_week() -> None:
    parts = split(history(3))

    assert (parts.middle - parts.start) % WEEK == 0


@pytest.mark.parametrize(
    ("weeks", "a_day", "reason"),
    [
        (1, 0.9, "the record has 7.0 days: choosing on one week .* needs 14"),
        (4, 0.15, "and no end of a week has 5 of them before and after it"),
    ],
)
def test_too_little_data_is_refused_with_what_is_missing(
    weeks: int, a_day: float, reason: str
) -> None:
    with pytest.raises(TooLittleData, match=reason):
        recommend(history(1, weeks, a_day))


def test_values_that_detect_nothing_are_not_recommended() -> None:
    with pytest.raises(TooLittleData, match="no value detects any label"):
        recommend(history(1, limits=[99.0, 100.0]))
