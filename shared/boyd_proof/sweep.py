"""Recommends a value of an option: chosen on earlier weeks, scored on later ones."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from boyd.text.formatting import counted
from boyd_proof.proof_report import Recommendation
from boyd_proof.scores import Blocks, Counts, Matches
from boyd_proof.timeline import WEEK

DAY = 86_400.0
#: The fewest labels of either part, and the fewest weeks of the whole record.
FEWEST_LABELS, FEWEST_WEEKS = 5, 2
#: Samples of days, and the seed that makes them the same each time.
_SAMPLES, _SEED = 500, 20260101
#: A value is worse than the best one if it scores less in this share of samples.
_CONFIDENCE = 0.95
#: The ends of the interval of a held-out score: nine of ten samples lie within.
_LOW, _HIGH = 0.05, 0.95


class TooLittleData(Exception):
    """A recommendation would rest on too little."""


@dataclass(frozen=True)
class Split:
    """The times of both parts: the end of the earlier one is the start of the later one."""

    start: float
    middle: float
    end: float


def split(matches: Mapping[float, Matches]) -> Split:
    """Split the record at the end of a week, so that both parts have about as many labels.

    Raises:
        TooLittleData: one of the parts would have too few.
    """
    first = next(iter(matches.values()))
    timeline = first.timeline
    weeks = int((timeline.end - timeline.start) // WEEK)
    if weeks < FEWEST_WEEKS:
        days = (timeline.end - timeline.start) / DAY
        raise TooLittleData(
            f"the record has {days:.1f} days: choosing on one week and scoring on another needs "
            f"{FEWEST_WEEKS * 7}; give an earlier --since"
        )
    starts = [span.start for span in first.spans if span.state == "counted"]
    middles = [timeline.start + WEEK * week for week in range(1, weeks)]
    earlier = {middle: sum(start < middle for start in starts) for middle in middles}
    best = min(middles, key=lambda middle: abs(2 * earlier[middle] - len(starts)))
    least = min(earlier[best], len(starts) - earlier[best])
    if least < FEWEST_LABELS:
        raise TooLittleData(
            f"{counted(len(starts), 'label counts', 'labels count')}, and no end of a week has "
            f"{FEWEST_LABELS} of them before and after it; give more labels, or an earlier --since"
        )
    return Split(timeline.start, best, math.nextafter(timeline.end, math.inf))


def recommend(matches: Mapping[float, Matches], present: float | None = None) -> Recommendation:
    """The value with the best F1 on the earlier weeks, and its F1 on the later ones.

    *matches* has what each value detects; *present* is the value of now.

    Raises:
        TooLittleData: there are too few labels or weeks, or no value detects anything.
    """
    parts = split(matches)
    earlier = _blocks(matches, parts.start, parts.middle)
    later = _blocks(matches, parts.middle, parts.end)
    value = choose(matches, parts)
    beside = _beside(sorted(matches), value, earlier)
    held_out = _samples([later[value]])
    return Recommendation(
        value=value,
        low=beside[0],
        high=beside[-1],
        split=datetime.fromtimestamp(parts.middle, UTC),
        chosen_f1=earlier[value].total().f1 or 0.0,
        held_out_f1=later[value].total().f1 or 0.0,
        held_out_low=_quantile([sample[0] for sample in held_out], _LOW),
        held_out_high=_quantile([sample[0] for sample in held_out], _HIGH),
        present=present,
        present_f1=later[present].total().f1 if present in later else None,
    )


def choose(matches: Mapping[float, Matches], parts: Split) -> float:
    """The value with the best F1 on the earlier weeks; the middle one of several in a row.

    Raises:
        TooLittleData: no value detects anything.
    """
    earlier = _blocks(matches, parts.start, parts.middle)
    scores = {value: earlier[value].total().f1 or 0.0 for value in sorted(matches)}
    highest = max(scores.values())
    if not highest:
        raise TooLittleData("no value detects any label of the earlier weeks; sweep another range")
    row: list[float] = []
    for value, score in scores.items():
        if score == highest:
            row.append(value)
        elif row:
            break
    return row[len(row) // 2]


def _blocks(matches: Mapping[float, Matches], start: float, end: float) -> dict[float, Blocks]:
    return {value: Blocks.of(item, start, end, DAY) for value, item in matches.items()}


def _beside(values: Sequence[float], best: float, blocks: Mapping[float, Blocks]) -> list[float]:
    """The values beside the best one, and it, that days chosen at random do not tell apart."""
    samples = _samples([blocks[value] for value in values])
    position = values.index(best)

    def is_alike(number: int) -> bool:
        worse = sum(sample[number] < sample[position] for sample in samples)
        return worse < _CONFIDENCE * len(samples)

    first = last = position
    while first > 0 and is_alike(first - 1):
        first -= 1
    while last < len(values) - 1 and is_alike(last + 1):
        last += 1
    return list(values[first : last + 1])


def _samples(blocks: Sequence[Blocks]) -> list[list[float]]:
    """The F1 of each, for as many days as there are, chosen at random with repetition.

    The same days for all, so that they can be compared. Samples without a label are left out.
    """
    dice = random.Random(_SEED)
    # A day of which nothing counts adds nothing.
    days = range(len(blocks[0].counts))
    busy = [[day for day in days if block.counts[day] != Counts()] for block in blocks]
    samples = []
    for _ in range(_SAMPLES):
        times = Counter(dice.choices(days, k=len(days)))
        pairs = zip(blocks, busy, strict=True)
        sample = [block.total({day: times[day] for day in some}).f1 for block, some in pairs]
        samples.append([f1 for f1 in sample if f1 is not None])
    return [sample for sample in samples if len(sample) == len(blocks)]


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
