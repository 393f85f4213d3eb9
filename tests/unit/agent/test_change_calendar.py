"""Change freezes from iCalendar files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from boyd.agent.change_calendar import MAX_BYTES, MAX_RECURRING, CalendarError, ChangeCalendar

VIENNA = "Europe/Vienna"


def event(*lines: str, title: str = "Freeze") -> str:
    """An event with those lines."""
    head = ["BEGIN:VEVENT", f"UID:{title}", "DTSTAMP:20260101T000000Z", f"SUMMARY:{title}"]
    return "\r\n".join([*head, *lines, "END:VEVENT"])


def calendar(folder: Path, *events: str, zone: str = VIENNA) -> ChangeCalendar:
    """A calendar with those events."""
    path = folder / "freezes.ics"
    head = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//test//EN"]
    path.write_text("\r\n".join([*head, *events, "END:VCALENDAR", ""]), newline="")
    return ChangeCalendar(path, zone)


def at(text: str) -> datetime:
    """A time in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


CHRISTMAS = event("DTSTART;VALUE=DATE:20261224", "DTEND;VALUE=DATE:20261227", title="Christmas")
#: Each last Friday of a month at noon, until Monday.
WEEKEND = event(
    f"DTSTART;TZID={VIENNA}:20260130T120000",
    "DURATION:P2DT20H",
    "RRULE:FREQ=MONTHLY;BYDAY=-1FR;UNTIL=20261101T000000Z",
    f"EXDATE;TZID={VIENNA}:20260227T120000",
    title="Weekend",
)


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        # Days are those of the calendar's time zone.
        ("2026-12-23T22:59", None),
        ("2026-12-23T23:00", ("Christmas", "2026-12-26T23:00")),
        ("2026-12-26T23:00", None),
        # Recurrences follow the local clock when it changes on the last Sunday in March.
        ("2026-03-27T10:59", None),
        ("2026-03-27T11:00", ("Weekend", "2026-03-30T06:00")),
        ("2026-02-27T12:00", None),
    ],
)
def test_freezes_follow_their_rules_and_the_local_clock(
    time: str, expected: tuple[str, str] | None, tmp_path: Path
) -> None:
    freeze = calendar(tmp_path, CHRISTMAS, WEEKEND).freeze(at(time))

    assert (freeze and (freeze.title, freeze.until)) == (
        expected and (expected[0], at(expected[1]))
    )


@pytest.mark.parametrize("zone", [f";TZID={VIENNA}", ""])
@pytest.mark.parametrize(
    ("day", "time", "is_frozen"),
    [
        # Clocks show the hour from two to three twice: the freeze begins in the first.
        ("20261025", "2026-10-25T00:29", False),
        ("20261025", "2026-10-25T00:30", True),
        ("20261025", "2026-10-25T01:15", True),
        # They never show that hour: it begins as if they had not changed yet.
        ("20260329", "2026-03-29T01:15", False),
        ("20260329", "2026-03-29T01:30", True),
    ],
)
def test_a_freeze_lasts_through_a_change_of_clocks(
    zone: str, day: str, time: str, is_frozen: bool, tmp_path: Path
) -> None:
    night = event(f"DTSTART{zone}:{day}T023000", f"DTEND{zone}:{day}T080000")
    assert (calendar(tmp_path, night).freeze(at(time)) is not None) == is_frozen


def test_a_freeze_ends_when_no_other_one_follows(tmp_path: Path) -> None:
    first = event("DTSTART:20260601T100000Z", "DTEND:20260601T110000Z", title="first")
    second = event("DTSTART:20260601T110000Z", "DTEND:20260601T130000Z", title="second")
    freeze = calendar(tmp_path, first, second).freeze(at("2026-06-01T10:30"))
    assert freeze is not None

    assert (freeze.title, freeze.until) == ("first", at("2026-06-01T13:00"))


def test_times_without_a_zone_are_in_that_of_the_calendar(tmp_path: Path) -> None:
    floating = event("DTSTART:20260601T100000", "DTEND:20260601T110000")
    freezes = calendar(tmp_path, floating, zone="Asia/Tokyo")

    assert freezes.freeze(at("2026-06-01T01:30"))
    assert not freezes.freeze(at("2026-06-01T10:30"))


def test_a_cancelled_event_is_no_freeze(tmp_path: Path) -> None:
    cancelled_event = event(
        "DTSTART:20260601T100000Z", "DTEND:20260601T110000Z", "STATUS:CANCELLED"
    )

    assert calendar(tmp_path, cancelled_event).freeze(at("2026-06-01T10:30")) is None


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    freezes = calendar(tmp_path)
    assert freezes.freeze(at("2026-12-24T12:00")) is None

    calendar(tmp_path, CHRISTMAS)
    assert freezes.freeze(at("2026-12-24T12:00"))

    freezes.path.write_text("nothing")
    with pytest.raises(CalendarError, match="not an iCalendar file"):
        freezes.freeze(at("2026-12-24T12:00"))

    calendar(tmp_path, CHRISTMAS)
    assert freezes.freeze(at("2026-12-24T12:00"))

    freezes.path.unlink()
    with pytest.raises(CalendarError, match="No such file"):
        freezes.freeze(at("2026-12-24T12:00"))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (event("DTSTART:yesterday"), "event 'Freeze': DTSTART"),
        (event("DTSTART;TZID=Mars/Base:20260601T100000"), "unknown time zone 'Mars/Base'"),
        (event("DTSTART:20260601T100000Z", "RRULE:FREQ=SECONDLY"), "daily, weekly, monthly or"),
        (
            event("DTSTART:20260601T100000Z", "RRULE:FREQ=DAILY;BYMINUTE=1,2,3"),
            "daily, weekly, monthly or yearly",
        ),
        (event("DTSTART:20260601T100000Z", "RRULE:FREQ=OFTEN"), "RRULE"),
        (event("DTEND:20260601T100000Z"), "it has no DTSTART"),
        (event("DTSTART:16010101T000000Z", "RRULE:FREQ=DAILY"), "it begins before 1970"),
        ("\r\n".join([WEEKEND] * (MAX_RECURRING + 1)), "more than 100 recurring events"),
        ("X" * MAX_BYTES, "longer than"),
    ],
)
def test_a_file_that_is_not_understood_is_no_calendar(
    content: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(CalendarError, match=reason):
        calendar(tmp_path, content).check()


def test_a_file_that_holds_an_event_alone_is_no_calendar(tmp_path: Path) -> None:
    path = tmp_path / "x.ics"
    path.write_text(CHRISTMAS + "\r\n", newline="")
    with pytest.raises(CalendarError, match="VEVENT where VCALENDAR is expected"):
        ChangeCalendar(path, "UTC").check()
