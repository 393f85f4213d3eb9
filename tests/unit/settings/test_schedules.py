"""Cron expressions in time zones, above all where clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boyd.settings.schedules import Schedule, begins, check_cron, check_zone, includes

VIENNA, NEW_YORK = "Europe/Vienna", "America/New_York"
#: Its clocks change by half an hour.
LORD_HOWE = "Australia/Lord_Howe"


def at(text: str) -> datetime:
    """A time in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def starts(schedule: Schedule, after: str, count: int) -> list[str]:
    """The next starts, in UTC."""
    moments = []
    moment = at(after)
    for _ in range(count):
        moment = schedule.following(moment)
        moments.append(f"{moment:%m-%dT%H:%M}")
    return moments


@pytest.mark.parametrize(
    ("zone", "crons", "after", "expected"),
    [
        # 02:30 is skipped on 29 March: right after the gap, that is at 03:00 local time.
        (VIENNA, ["30 2 * * *"], "2026-03-28T12:00", ["03-29T01:00", "03-30T00:30"]),
        # On 25 October it comes twice: once.
        (VIENNA, ["30 2 * * *"], "2026-10-24T12:00", ["10-25T00:30", "10-26T01:30"]),
        # By the minute or the hour there is neither a gap nor a double start.
        (VIENNA, ["0 * * * *"], "2026-03-29T00:00", ["03-29T01:00", "03-29T02:00"]),
        (VIENNA, ["0 * * * *"], "2026-10-24T23:30", ["10-25T00:00", "10-25T01:00", "10-25T02:00"]),
        (
            VIENNA,
            ["*/5 8-18 * * mon-fri"],
            "2026-10-23T16:50",
            ["10-23T16:55", "10-26T07:00", "10-26T07:05"],
        ),
        (NEW_YORK, ["30 2 * * *"], "2026-03-08T00:00", ["03-08T07:00", "03-09T06:30"]),
        (NEW_YORK, ["30 1 * * *"], "2026-11-01T00:00", ["11-01T05:30", "11-02T06:30"]),
        (LORD_HOWE, ["15 2 * * *"], "2026-10-03T00:00", ["10-03T15:30", "10-04T15:15"]),
        ("UTC", ["0 8 * * *", "30 7 * * *"], "2026-01-01T07:00", ["01-01T07:30", "01-01T08:00"]),
        ("Asia/Kolkata", ["0 9 * * *"], "2026-01-01T00:00", ["01-01T03:30", "01-02T03:30"]),
    ],
)
def test_starts_follow_the_clock_of_their_zone(
    zone: str, crons: list[str], after: str, expected: list[str]
) -> None:
    assert starts(Schedule(tuple(crons), zone), after, len(expected)) == expected


@given(
    st.sampled_from([VIENNA, NEW_YORK, LORD_HOWE, "UTC"]),
    st.sampled_from(["30 2 * * *", "*/20 * * * *", "0 1,2,3 * * sun", "15 2 * * *", "5 4 1 * *"]),
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)),
)
def test_every_time_lies_between_the_last_start_and_the_following_one(
    zone: str, cron: str, time: datetime
) -> None:
    schedule, now = Schedule((cron,), zone), time.replace(tzinfo=UTC)
    last, following = schedule.last(now), schedule.following(now)

    assert last <= now < following
    assert schedule.following(last) == following
    assert schedule.last(following) == following
    assert schedule.last(following - timedelta(milliseconds=1)) == last


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("* * * *", "needs minute, hour, day of month, month and day of week"),
        ("@daily", "needs minute"),
        ("60 * * * *", "bad minute"),
        ("0 0 31 2 *", "bad day-of-month"),
        ("0 0 * * foo", "bad day-of-week"),
    ],
)
def test_an_invalid_expression_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check_cron(text)


def test_an_unknown_time_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no such time zone: 'Mars/Base'"):
        check_zone("Mars/Base")


@pytest.mark.parametrize(
    ("cron", "time", "inside", "begin"),
    [
        ("* 8-17 * * mon-fri", "2026-10-23T15:59:59", True, "2026-10-26T07:00"),
        ("* 8-17 * * mon-fri", "2026-10-23T16:00", False, "2026-10-26T07:00"),
        # A range that clocks skip does not open at all on that day.
        ("0-30 2 * * *", "2026-03-29T01:00", False, "2026-03-30T00:00"),
        # The hour that comes twice belongs to the range both times.
        ("* 2 * * *", "2026-10-25T00:10", True, None),
        ("* 2 * * *", "2026-10-25T01:10", True, None),
        ("0-30 2 * * *", "2026-10-25T00:40", False, "2026-10-25T01:00"),
    ],
)
def test_a_range_of_minutes_is_that_of_the_local_clock(
    cron: str, time: str, inside: bool, begin: Any
) -> None:
    local = at(time).astimezone(ZoneInfo(VIENNA))

    assert includes(cron, local) is inside
    if begin and not inside:
        assert begins(cron, local) == at(begin)
