"""Calendars of change freezes, during which the windows of an agent are closed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

#: Limits of a file and of its recurring events. The first query takes seconds at worst.
MAX_BYTES, MAX_RECURRING, FIRST_YEAR = 262_144, 100, 1970
_FREQUENCIES = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")
#: Parts of a rule that repeat an event within a day.
_WITHIN_A_DAY = ("BYHOUR", "BYMINUTE", "BYSECOND")
#: Consecutive freezes that are followed to find the end of all.
_MOST_EVENTS = 50
#: The most by which the clocks of a zone change.
_CHANGE = timedelta(hours=3)


class CalendarError(ValueError):
    """A calendar cannot be read."""


@dataclass(frozen=True)
class ChangeFreeze:
    """A change freeze: its title, and its end if it has one in sight."""

    title: str
    until: datetime


class ChangeCalendar:
    """The change freezes of a file, which is read again when it has changed.

    Times without a time zone are in that of the calendar.
    """

    def __init__(self, path: Path, timezone: str) -> None:
        self.path = path
        self._zone = ZoneInfo(timezone)
        self._lock = threading.Lock()
        self._known: tuple[object, Any, str] = (None, None, "")

    def freeze(self, at: datetime) -> ChangeFreeze | None:
        """The freeze at that time, if any; it ends when no other one follows without a gap.

        Raises:
            CalendarError: the file cannot be read.
        """
        # The library caches what it computes, which is not meant for several threads.
        with self._lock:
            events = self._events()
            first, until = None, at
            for _ in range(_MOST_EVENTS):
                freezes = events(until)
                if not freezes:
                    break
                first = first or freezes[0]
                until = max(freeze.until for freeze in freezes)
        return ChangeFreeze(first.title, until) if first else None

    def check(self) -> None:
        """Read the file and evaluate the present freezes, so that nothing is left to load.

        Raises:
            CalendarError: it cannot be read, or an event in it cannot.
        """
        self.freeze(datetime.now(UTC))

    def _events(self) -> Callable[[datetime], list[ChangeFreeze]]:
        """A function that gives the freezes at a time."""
        try:
            status = self.path.stat()
            version = (status.st_mtime_ns, status.st_size, status.st_ino)
            if version != self._known[0]:
                self._known = (version, *self._read())
        except OSError as error:
            raise CalendarError(f"{self.path}: {error.strerror}") from None
        _, query, problem = self._known
        if problem:
            raise CalendarError(f"{self.path}: {problem}")

        def freezes_at(at: datetime) -> list[ChangeFreeze]:
            try:
                events = events_at(query, at, self._zone)
            except Exception as error:  # noqa: BLE001 - whatever an event's values make the library raise
                raise CalendarError(f"{self.path}: {type(error).__name__}: {error}") from None
            return [self._freeze(event) for event in events]

        return freezes_at

    def _read(self) -> tuple[Any, str]:
        """Read the file; return a query for its events, or its problem."""
        raw = self.path.read_bytes()
        try:
            if len(raw) > MAX_BYTES:
                raise CalendarError(f"it is longer than {MAX_BYTES} bytes")
            return parse_calendar(raw), ""
        except CalendarError as error:
            return None, str(error)
        except Exception as error:  # noqa: BLE001 - whatever the library makes of a broken file
            return None, f"not an iCalendar file: {str(error)[:200]}"

    def _freeze(self, event: Any) -> ChangeFreeze:
        title = " ".join(str(event.get("SUMMARY", "")).split())[:200]
        return ChangeFreeze(title or "without a title", _moment(event.end, self._zone))


def events_at(calendar: Any, at: datetime, zone: ZoneInfo) -> list[Any]:
    """List the events in progress at a time; *zone* is that of event times without one."""
    local = at.astimezone(zone)
    # The library compares wall clocks, which show some times twice and others never.
    around = calendar.between(local - _CHANGE, local + _CHANGE)
    events = [event for event in around if event.get("STATUS") != "CANCELLED"]
    return [each for each in events if _moment(each.start, zone) <= at < _moment(each.end, zone)]


def _moment(at: date, zone: ZoneInfo) -> datetime:
    if not isinstance(at, datetime):
        at = datetime.combine(at, time())
    return (at if at.tzinfo else at.replace(tzinfo=zone)).astimezone(UTC)


def parse_calendar(raw: bytes) -> Any:
    """A query for the events of a calendar, as `recurring_ical_events` has it.

    Raises:
        CalendarError: it is not one, or has an event that cannot be evaluated.
    """
    try:
        import icalendar
        import recurring_ical_events
    except ImportError as error:
        raise CalendarError(
            f"{error.name} is not installed: run `pip install 'boyd[calendars]'`"
        ) from None
    calendar = icalendar.Calendar.from_ical(raw)
    if calendar.name != "VCALENDAR":
        raise CalendarError(f"it has {calendar.name} where VCALENDAR is expected")
    events = calendar.walk("VEVENT")
    if sum("RRULE" in event for event in events) > MAX_RECURRING:
        raise CalendarError(f"it has more than {MAX_RECURRING} recurring events")
    for event in events:
        for problem in _problems(event):
            raise CalendarError(f"event {str(event.get('SUMMARY', ''))[:100]!r}: {problem}")
    return recurring_ical_events.of(calendar)


def _problems(event: Any) -> Iterator[str]:
    for name, error in event.errors:
        yield f"{name}: {error}"
    if "DTSTART" not in event:
        yield "it has no DTSTART"
    elif event.start.year < FIRST_YEAR:
        yield f"it begins before {FIRST_YEAR}"
    for name in ("DTSTART", "DTEND"):
        value = event.get(name)
        zone = value.params.get("TZID") if value is not None else None
        if zone and value.dt.tzinfo is None:
            yield f"{name}: unknown time zone {zone!r}"
    rules = event.get("RRULE", [])
    for rule in rules if isinstance(rules, list) else [rules]:
        if rule.get("FREQ", [""])[0] not in _FREQUENCIES or set(_WITHIN_A_DAY) & set(rule):
            yield "RRULE: an event may recur daily, weekly, monthly or yearly"
