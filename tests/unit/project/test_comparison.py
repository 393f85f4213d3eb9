"""The comparison of figures with those of the last release."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.comparison import YARDSTICK, Change, compare, tell


def row(name: str, value: float, unit: str, target: str) -> dict[str, Any]:
    """A row of a report."""
    return {"name": name, "value": value, "unit": unit, "target": target, "met": True}


def one(before: float, now: float, unit: str, target: str, *, slower: float = 1.0) -> Change:
    """The change of a measure on a machine that is so much slower."""
    then = [row(YARDSTICK, 20.0, "ms", ""), row("measure", before, unit, target)]
    here = [row(YARDSTICK, 20.0 * slower, "ms", ""), row("measure", now, unit, target)]
    (change,) = compare(then, here)
    return change


@pytest.mark.parametrize(
    ("before", "now", "unit", "target", "regressed"),
    [
        (65, 66, "", "<= 92", False),
        (65, 70, "", "<= 92", True),
        (0.4, 0.45, "x", "<= 0.55", False),
        (0.4, 0.6, "x", "<= 0.55", True),
        (4.0, 2.0, "x", ">= 2", True),
        (100, 130, "ms", "<= 150", False),
        (100, 200, "ms", "<= 150", True),
        (1000, 500, "/s", ">= 1000", True),
        (0.5, 1.9, "ms", "< 10", False),
        (0, 0, "", "0", False),
        (0, 3, "", "0", True),
    ],
)
def test_a_change_for_the_worse_beyond_what_varies_is_a_regression(
    before: float, now: float, unit: str, target: str, regressed: bool
) -> None:
    assert one(before, now, unit, target).is_regression is regressed


def test_times_and_rates_are_judged_by_the_speed_of_the_machine() -> None:
    assert one(100, 200, "ms", "<= 150", slower=2).worse == pytest.approx(1)
    assert one(100, 100, "ms", "<= 150", slower=0.5).is_regression
    assert one(1000, 500, "/s", ">= 1000", slower=2).worse == pytest.approx(1)
    assert one(65, 65, "", "<= 92", slower=2).worse == pytest.approx(1)


def test_a_measure_of_only_one_run_is_not_compared() -> None:
    yardstick = row(YARDSTICK, 20.0, "ms", "")
    assert compare([yardstick, row("old", 1, "", "0")], [yardstick, row("new", 1, "", "0")]) == []
    with pytest.raises(ValueError, match="run s1 too"):
        compare([yardstick], [row("new", 1, "", "0")])


def test_a_change_reads_as_a_sentence() -> None:
    assert str(one(65, 130, "", "<= 92")) == "measure: 65 -> 130  (2.00 x worse)"
    assert str(one(2.0, 4.0, "x", ">= 2")) == "measure: 2 -> 4 x (2.00 x better)"


def test_regressions_come_first_and_what_was_not_measured_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    same = [row(YARDSTICK, 20.0, "ms", ""), row("time", 100, "ms", "<= 150")]
    commands = row("commands", 65, "", "<= 92")
    assert tell([*same, commands], same) is False
    assert "commands: 65  then, not measured now" in capsys.readouterr().out

    assert tell([*same, commands], [*same, {**commands, "value": 130}]) is True
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("REGRESSION commands: 65 -> 130")
