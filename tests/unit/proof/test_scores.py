"""Alarms are matched with labels as docs/prove.md says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import pytest

from boyd.models import Anomaly
from boyd_proof.proof_report import DetectionScores, Label
from boyd_proof.scores import Matches, distinction_of, match, spans_of
from boyd_proof.timeline import WEEK, Timeline, Track, sightings_of

MINUTE = 60.0
TOLERANCE = 2 * MINUTE


def at(minute: float) -> datetime:
    return datetime.fromtimestamp(minute * MINUTE, UTC)


def label(start: float, end: float | None, **fields: str) -> Label:
    return Label(start=at(start), end=None if end is None else at(end), **fields)


def anomalies(resources: Iterable[str], kind: str = "load-high") -> list[Anomaly]:
    return [
        Anomaly(
            type=kind,
            description="high",
            severity="high",
            affected_resources=[resource] if resource else None,
        )
        for resource in resources
    ]


def track(alarms: str) -> Track:
    """A letter a minute: `.` no anomaly, `?` cannot be told, others the resource."""
    track = Track()
    for letter in alarms:
        resources = [] if letter == "." else [letter.strip("#")]
        track.add(None if letter == "?" else sightings_of(anomalies(resources)))
    return track


def match_alarms(
    alarms: str, labels: Sequence[Label], minutes: Sequence[float] | None = None
) -> Matches:
    timeline = Timeline(m * MINUTE for m in (minutes or range(len(alarms))))
    spans = spans_of(labels, timeline)
    return match(timeline, track(alarms), spans, distinction_of(labels), TOLERANCE)


def scores(alarms: str, *labels: Label) -> DetectionScores:
    return match_alarms(alarms, labels).scores()


def test_consecutive_iterations_with_an_anomaly_are_one_alarm() -> None:
    result = scores("..###..#....", label(2, 4), label(20, 30))

    assert (result.alarms, result.true_alarms, result.labels, result.detected) == (2, 1, 1, 1)
    assert (result.precision, result.recall) == (0.5, 1.0)


@pytest.mark.parametrize(
    ("alarms", "is_true"),
    [
        ("...#................", False),  # three minutes too early
        ("....#...............", True),  # two minutes before it begins
        ("........#...........", True),
        ("............#.......", True),  # two minutes after its end
        (".............#......", False),
    ],
)
def test_an_alarm_belongs_to_a_label_if_it_begins_within_the_tolerance(
    alarms: str, is_true: bool
) -> None:
    assert scores(alarms, label(6, 10)).true_alarms == is_true


def test_an_alarm_that_is_always_on_detects_nothing() -> None:
    result = scores("#" * 60, label(20, 25), label(40, 45))

    assert (result.precision, result.recall, result.f1) == (0.0, 0.0, 0.0)


def test_a_division_by_zero_is_undefined() -> None:
    silent, no_labels = scores(".....", label(1, 2)), scores(".#...")
    instant = match_alarms("#", [label(0, 0)]).scores()

    assert (silent.precision, silent.recall, silent.f1) == (None, 0.0, 0.0)
    assert (no_labels.precision, no_labels.recall, no_labels.f1) == (0.0, None, None)
    assert (silent.delay_median, silent.delay_p90) == (None, None)
    assert (instant.recall, instant.false_alarms_per_week) == (1.0, None)


def test_the_delay_is_that_of_the_first_alarm_and_never_negative() -> None:
    result = match_alarms("....#..#.......#.#..", [label(5, 8), label(13, 18)])

    assert [item.delay for item in result.detections if item] == [0.0, 120.0]
    assert (result.scores().delay_median, result.scores().delay_p90) == (60.0, 120.0)


def test_overlapping_labels_of_one_target_are_one() -> None:
    timeline = Timeline(m * MINUTE for m in range(60))
    spans = spans_of(
        [label(5, 10), label(8, 20), label(6, 7), label(9, 12, target="a"), label(21, 22)],
        timeline,
    )

    assert [(span.start / 60, span.end / 60, span.merged) for span in spans] == [
        (5, 20, 3),
        (9, 12, 1),
        (21, 22, 1),
    ]


def test_an_open_label_goes_on_until_the_record_ends() -> None:
    assert scores("......#...", label(3, None)).detected == 1


def test_labels_outside_the_record_are_not_counted() -> None:
    result = match_alarms("..#.......", [label(-30, -20), label(2, 3), label(30, 40)])

    assert [span.state for span in result.spans] == ["outside", "counted", "outside"]
    assert (result.scores().labels, result.scores().recall) == (1, 1.0)


def test_labels_in_gaps_are_not_counted_and_alarms_near_them_are_not_false() -> None:
    minutes = [*range(20), *range(100, 120)]
    labels = [label(40, 60), label(70, 99), label(99.5, 101)]
    result = match_alarms("." * 20 + "#" + "." * 19, labels, minutes)
    silent = match_alarms("." * 40, labels[:2], minutes)

    assert [span.state for span in result.spans] == ["gap", "gap", "counted"]
    assert result.detections[:2] == [None, None]
    # What began in the gap may have been detected sooner: the delay is not known.
    assert result.detections[2] is not None
    assert result.detections[2].delay is None
    assert (result.scores().recall, silent.scores().recall) == (1.0, None)


def test_a_label_between_two_iterations_is_missed_where_there_is_no_gap() -> None:
    hours = [hour * 60 for hour in range(6)]
    result = match_alarms("..?...", [label(80, 100), label(250, 270)], hours)

    assert [span.state for span in result.spans] == ["counted", "counted"]
    assert [item.detection for item in result.detections if item] == ["missed", "missed"]


def test_unknown_iterations_neither_begin_nor_end_an_alarm() -> None:
    result = match_alarms("..#??#....??..", [label(2, 6)])

    assert len(result.alarms) == 1
    assert result.scores().precision == 1.0


def test_a_label_of_unknown_iterations_is_not_counted() -> None:
    result = match_alarms("..????????....#.", [label(5, 7), label(14, 15)])

    assert [item.detection for item in result.detections if item] == ["unknown", "detected"]
    assert result.scores().recall == 1.0
    # That one comes later can be told, not that none came while it lasted.
    assert match_alarms("..????????.", [label(5, 9)]).scores().recall is None


def test_alarms_are_distinguished_as_far_as_labels_are() -> None:
    alarms = "aaaaaaaaaa"
    with_other = match_alarms(alarms, [label(0, 9, target="a"), label(5, 6, target="b")])

    assert [item.detection for item in with_other.detections if item] == ["detected", "missed"]
    # Without a target in any label, resources make no difference.
    assert len(match_alarms("ab..", [label(0, 1)]).alarms) == 1
    assert len(match_alarms("ab..", [label(0, 1, target="*")]).alarms) == 2


def test_an_anomaly_without_a_resource_is_about_every_target() -> None:
    assert match_alarms("..#..", [label(2, 3, target="web")]).scores().detected == 1


@pytest.mark.parametrize("address", ["[2001:db8::1]:9100", "disk[0]"])
def test_a_label_of_an_address_in_brackets_is_about_that_resource(address: str) -> None:
    timeline = Timeline(m * MINUTE for m in range(3))
    sightings = Track()
    for resources in ([], [address], []):
        sightings.add(sightings_of(anomalies(resources)))
    labels = [label(1, 2, target=address)]
    spans = spans_of(labels, timeline)

    assert match(timeline, sightings, spans, distinction_of(labels), 0.0).scores().detected == 1


def test_the_type_of_a_label_is_a_pattern() -> None:
    assert match_alarms("..#..", [label(2, 3, type="load-*")]).scores().detected == 1
    assert match_alarms("..#..", [label(2, 3, type="disk-*")]).scores().detected == 0


def test_gaps_and_unknown_iterations_are_no_recorded_time() -> None:
    timeline = Timeline([m * MINUTE for m in [*range(11), *range(100, 111)]])
    unknown = track("." * 16 + "?" * 6)

    assert timeline.gap_after == 3 * MINUTE
    assert list(timeline.gaps()) == [(600.0, 6000.0)]
    assert timeline.duration() == 20 * MINUTE
    assert timeline.duration(unknown.is_known) == 15 * MINUTE


def test_rates_are_for_a_week_of_recorded_time() -> None:
    hours = 7 * 24
    timeline = Timeline(hour * 3600.0 for hour in range(hours + 1))
    hourly = track(".#" * 3 + "." * (hours - 5))
    pages = [3600.0, 7200.0, 50 * WEEK]
    result = match(timeline, hourly, [], distinction_of([]), TOLERANCE).scores(pages, end=WEEK)

    assert result.weeks == pytest.approx(1.0)
    assert (result.false_alarms_per_week, result.pages_per_week) == (3.0, 2.0)
