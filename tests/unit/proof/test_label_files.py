"""Labels from CSV, PagerDuty and Alertmanager; each mistake is named with its place."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from boyd.errors import ConfigError
from boyd_proof.label_files import LabelFields, read_labels
from boyd_proof.proof_report import Label

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
ONE = datetime(2026, 11, 1, 13, tzinfo=UTC)


def labels(path: Path, content: object, **fields: Any) -> list[Label]:
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text, encoding="utf-8")
    return read_labels(path, LabelFields(**fields))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "labels"


def test_a_row_of_csv_is_a_label_with_its_line(file: Path) -> None:
    text = "start,end,target,type\n2026-11-01T12:00:00Z,2026-11-01T14:00:00+01:00,web-*,\n"

    [label] = labels(file, text)

    assert label == Label(start=NOON, end=ONE, target="web-*", source="line 2")


def test_an_empty_end_is_open(file: Path) -> None:
    assert labels(file, "start,end\n2026-11-01T12:00:00Z,\n")[0].end is None
    assert labels(file, "start\n2026-11-01T12:00:00Z\n")[0].end is None


def test_incidents_of_pagerduty_are_labels(file: Path) -> None:
    exported = "id,created_on,resolved_on,service_name\nP1,2026-11-01 12:00:00,,shop\n"
    reply = {
        "incidents": [
            {
                "created_at": "2026-11-01T12:00:00Z",
                "status": "resolved",
                "last_status_change_at": "2026-11-01T13:00:00Z",
                "service": {"summary": "shop"},
            },
            {"created_at": "2026-11-01T12:00:00Z", "status": "acknowledged"},
        ]
    }

    [row] = labels(file, exported, zone=ZoneInfo("UTC"), target="service_name")
    resolved, going_on = labels(file, reply, target="service.summary")

    assert (row.start, row.end, row.target) == (NOON, None, "shop")
    assert (resolved.end, resolved.target, going_on.end) == (ONE, "shop", None)


def test_alerts_of_alertmanager_are_labels(file: Path) -> None:
    alert = {
        "startsAt": "2026-11-01T12:00:00.123456789Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "labels": {"alertname": "HighLoad", "instance": "web-1"},
    }

    [listed] = labels(file, [alert], target="labels.instance", type="labels.alertname")
    [sent] = labels(file, {"version": "4", "alerts": [alert]})

    assert (listed.target, listed.type, listed.end) == ("web-1", "HighLoad", None)
    assert (sent.target, sent.type, sent.start.microsecond) == (None, None, 123456)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "line 1: the header has no column start"),
        ("start,end\n", "it holds no label"),
        ("begin,end\n2026-11-01T12:00:00Z,\n", "line 1: the header has no column start"),
        ("strat,end\n2026-11-01T12:00:00Z,\n", "did you mean 'start'"),
        ("start,end\n2026-11-01T12:00:00Z\n", "line 2: it has more or fewer cells"),
        ("start,end\n,2026-11-01T12:00:00Z\n", "line 2: start is empty"),
        ("start,end\nyesterday,\n", "line 2: start 'yesterday' is no time: write it as"),
        ("start,end\n2026-11-01T12:00:00,\n", "has no time zone: write"),
        ("start,end\n2026-11-01T12:00:00Z,2026-11-01T11:00:00Z\n", "end .* is before start"),
        ("[1]", "label 1: it is not an object"),
        ("{}", "it holds no list of labels"),
        ("[", "not JSON"),
    ],
)
def test_a_file_that_is_not_valid_is_refused_with_the_place(
    file: Path, content: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        labels(file, content)


def test_times_without_a_zone_are_in_the_one_that_is_named(file: Path) -> None:
    [label] = labels(file, "start\n2026-11-01T13:00:00\n", zone=ZoneInfo("Europe/Vienna"))

    assert label.start == NOON


@pytest.mark.parametrize(
    ("time", "problem"),
    [
        ("2026-03-29T02:30:00", "does not exist in Europe/Vienna"),
        ("2026-10-25T02:30:00", "occurs twice in Europe/Vienna: write it with its offset"),
    ],
)
def test_times_that_a_change_of_clocks_skips_or_repeats_are_refused(
    file: Path, time: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        labels(file, f"start\n{time}\n", zone=ZoneInfo("Europe/Vienna"))


def test_a_field_that_no_label_has_is_named(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"no label has the field 'hots'; did you mean 'host'"):
        labels(file, "start,host\n2026-11-01T12:00:00Z,web-1\n", target="hots")
