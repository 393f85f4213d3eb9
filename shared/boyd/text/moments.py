"""Moments as people write them: a date, a date with a time, `yesterday`, or an age such as `2h`."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo

#: Seconds in each unit of an age.
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
#: Days since these began.
_DAYS = {"today": 0, "yesterday": 1}
_AGE = re.compile(r"([1-9]\d{0,5})([smhdw])", re.ASCII)
_HOW = "write 2h, today, yesterday, 2026-01-05 or 2026-01-05T12:00"


def parse_moment(text: str, now: datetime, zone: tzinfo | None = None) -> datetime:
    """Read a moment.

    Args:
        text: what a person wrote.
        now: the present, from which ages and days count.
        zone: the time zone of what names none; None: that of this machine.

    Raises:
        ValueError: it is none of these.
    """
    age = _AGE.fullmatch(text)
    try:
        if age:
            return now - timedelta(seconds=int(age[1]) * UNITS[age[2]])
        if text in _DAYS:
            day = now.astimezone(zone).date() - timedelta(days=_DAYS[text])
            return _placed(datetime(day.year, day.month, day.day), zone)
        return _placed(datetime.fromisoformat(text), zone)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a time: {_HOW}") from None


def _placed(at: datetime, zone: tzinfo | None) -> datetime:
    """The same wall time in *zone*, unless it names its own."""
    if at.tzinfo is not None:
        return at
    return at.astimezone() if zone is None else at.replace(tzinfo=zone)
