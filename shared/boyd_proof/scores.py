"""Scores alarms against labels.

An alarm belongs to a label if it begins at most a tolerance before the label or after its end, and
is about its target and type. An alarm that was on long before detects nothing: otherwise one that
is always on would be perfect.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from statistics import median

from boyd_proof.proof_report import DetectionScores, Label, LabelDetection, LabelState
from boyd_proof.timeline import WEEK, AlarmSpan, Distinction, Timeline, Track


@dataclass(frozen=True)
class LabelSpan:
    """A label, or several that overlap, in seconds.

    Attributes:
        label: the first of them.
        end: of the last of them; the end of the record if one goes on.
        merged: their number.
        state: how it counts.
    """

    label: Label
    start: float
    end: float
    merged: int = 1
    state: LabelState = "counted"

    def is_about(self, alarm: AlarmSpan) -> bool:
        """Report whether an alarm is of its target and type; one that names none may be."""
        pairs = ((self.label.target, alarm.target), (self.label.type, alarm.type))
        return all(
            # `[::1]` is an address, and as a pattern it would be a single character.
            pattern is None or name in ("", pattern) or fnmatchcase(name, pattern)
            for pattern, name in pairs
        )


def distinction_of(labels: Iterable[Label]) -> Distinction:
    """The distinction of alarms: by target or type, if a label has one."""
    labels = list(labels)
    return Distinction(any(label.target for label in labels), any(label.type for label in labels))


def spans_of(labels: Sequence[Label], timeline: Timeline) -> list[LabelSpan]:
    """The labels in order, those of the same target and type merged where they overlap."""
    spans: list[LabelSpan] = []
    latest: dict[tuple[str | None, str | None], int] = {}
    for label in sorted(labels, key=lambda label: label.start):
        start = label.start.timestamp()
        end = label.end.timestamp() if label.end else max(start, timeline.end)
        key = (label.target, label.type)
        last = latest.get(key)
        if last is not None and start <= spans[last].end:
            before = spans[last]
            spans[last] = replace(before, end=max(before.end, end), merged=before.merged + 1)
            continue
        latest[key] = len(spans)
        spans.append(LabelSpan(label, start, end))
    return [replace(span, state=_state(span, timeline)) for span in spans]


def _state(span: LabelSpan, timeline: Timeline) -> LabelState:
    if span.end < timeline.start or span.start > timeline.end:
        return "outside"
    is_in_gap = not timeline.within(span.start, span.end) and not timeline.is_observed(span.start)
    return "gap" if is_in_gap else "counted"


@dataclass(frozen=True)
class Matches:
    """Alarms with the labels that they belong to.

    Attributes:
        timeline: the recorded time.
        track: what the agent saw.
        spans: the labels.
        alarms: all alarms, in order.
        verdicts: True for each alarm that belongs to a label; None if that does not count.
        detections: of the labels, in order; None for one that does not count.
    """

    timeline: Timeline
    track: Track
    spans: Sequence[LabelSpan]
    alarms: Sequence[AlarmSpan]
    verdicts: Sequence[bool | None]
    detections: Sequence[LabelDetection | None]

    def scores(
        self,
        pages: Sequence[float] = (),
        start: float = float("-inf"),
        end: float = float("inf"),
    ) -> DetectionScores:
        """The scores of alarms, labels and *pages* that begin from *start* until before *end*."""
        counts = Counts()
        delays = []
        for span, detection in zip(self.spans, self.detections, strict=True):
            if detection is None or detection.detection == "unknown":
                continue
            if start <= span.start < end:
                counts.labels += 1
                counts.detected += detection.detection == "detected"
                delays += [detection.delay] if detection.delay is not None else []
        for alarm, verdict in zip(self.alarms, self.verdicts, strict=True):
            if verdict is not None and start <= alarm.start < end:
                counts.alarms += 1
                counts.true_alarms += verdict
        weeks = self.timeline.duration(self.track.is_known, start, end) / WEEK
        page_count = sum(start <= page < end for page in pages)
        return _scores(counts, sorted(delays), weeks, page_count)


def match(
    timeline: Timeline,
    track: Track,
    spans: Sequence[LabelSpan],
    distinction: Distinction,
    tolerance: float,
) -> Matches:
    """Match the alarms of an agent with labels."""
    alarms = track.alarms(timeline, distinction)
    states = [_state_for(track, timeline, span) for span in spans]
    verdicts: list[bool | None] = []
    first: dict[int, float] = {}
    for alarm in alarms:
        own = [
            number
            for number, span in enumerate(spans)
            if span.start - tolerance <= alarm.start <= span.end + tolerance
            and span.is_about(alarm)
        ]
        counting = [number for number in own if states[number] is None]
        verdicts.append(True if counting else None if own else False)
        for number in counting:
            first.setdefault(number, alarm.start)
    detections = [
        state or _detection(timeline, span, first.get(number))
        for number, (span, state) in enumerate(zip(spans, states, strict=True))
    ]
    return Matches(
        timeline,
        track,
        spans,
        alarms,
        verdicts,
        [
            detection if span.state == "counted" else None
            for span, detection in zip(spans, detections, strict=True)
        ],
    )


def _state_for(track: Track, timeline: Timeline, span: LabelSpan) -> LabelDetection | None:
    """The detection of a label for which no alarm counts, or None."""
    looks = timeline.looks(span.start, span.end)
    if span.state == "counted" and any(map(track.is_known, looks)):
        return None
    return LabelDetection(detection="unknown")


def _detection(timeline: Timeline, span: LabelSpan, alarm: float | None) -> LabelDetection:
    if alarm is None:
        return LabelDetection(detection="missed")
    # What began while nothing was recorded may have been detected sooner.
    delay = max(0.0, alarm - span.start) if timeline.is_observed(span.start) else None
    return LabelDetection(detection="detected", delay=delay)


@dataclass
class Counts:
    """Counts from which scores are computed."""

    labels: int = 0
    detected: int = 0
    alarms: int = 0
    true_alarms: int = 0

    def add(self, other: Counts, times: int = 1) -> None:
        """Add the counts of another time, so many *times*."""
        self.labels += times * other.labels
        self.detected += times * other.detected
        self.alarms += times * other.alarms
        self.true_alarms += times * other.true_alarms

    @property
    def precision(self) -> float | None:
        """The share of true alarms; None without an alarm."""
        return self.true_alarms / self.alarms if self.alarms else None

    @property
    def recall(self) -> float | None:
        """The share of detected labels; None without a label."""
        return self.detected / self.labels if self.labels else None

    @property
    def f1(self) -> float | None:
        """The harmonic mean of both; None without a label, and 0 if none was detected."""
        if self.recall is None:
            return None
        if not self.recall or not self.precision:
            return 0.0
        return 2 * self.precision * self.recall / (self.precision + self.recall)


@dataclass
class Blocks:
    """Counts by spans of time of equal length, from a start."""

    start: float
    length: float
    counts: list[Counts] = field(default_factory=list)

    @classmethod
    def of(cls, matches: Matches, start: float, end: float, length: float) -> Blocks:
        """The counts of *matches* from *start* until before *end*."""
        number = max(1, math.ceil((end - start) / length))
        blocks = cls(start, length, [Counts() for _ in range(number)])
        for span, detection in zip(matches.spans, matches.detections, strict=True):
            if detection and detection.detection != "unknown" and start <= span.start < end:
                block = blocks._at(span.start)
                block.labels += 1
                block.detected += detection.detection == "detected"
        for alarm, verdict in zip(matches.alarms, matches.verdicts, strict=True):
            if verdict is not None and start <= alarm.start < end:
                block = blocks._at(alarm.start)
                block.alarms += 1
                block.true_alarms += verdict
        return blocks

    def _at(self, time: float) -> Counts:
        return self.counts[int((time - self.start) // self.length)]

    def total(self, weights: Mapping[int, int] | None = None) -> Counts:
        """The sum of all blocks, or of some, each as often as its number has in *weights*."""
        total = Counts()
        each_once = dict.fromkeys(range(len(self.counts)), 1)
        for number, times in (each_once if weights is None else weights).items():
            total.add(self.counts[number], times)
        return total


def _scores(counts: Counts, delays: Sequence[float], weeks: float, pages: int) -> DetectionScores:
    false_alarms = counts.alarms - counts.true_alarms
    return DetectionScores(
        labels=counts.labels,
        detected=counts.detected,
        alarms=counts.alarms,
        true_alarms=counts.true_alarms,
        weeks=weeks,
        precision=counts.precision,
        recall=counts.recall,
        f1=counts.f1,
        delay_median=median(delays) if delays else None,
        delay_p90=_quantile(delays, 0.9) if delays else None,
        false_alarms_per_week=false_alarms / weeks if weeks else None,
        pages=pages,
        pages_per_week=pages / weeks if weeks else None,
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The least of *ordered* values that at least a *share* of them do not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
