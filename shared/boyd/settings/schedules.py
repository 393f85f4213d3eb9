"""Times by the clock of a time zone: cron expressions and their slots.

Expressions have five fields: minute, hour, day of month, month, day of week. Starts follow Debian's
cron when clocks change: a start at a fixed time that is skipped happens right after the gap, and
one in the repeated hour happens once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

_MINUTE = timedelta(minutes=1)
_NEVER = datetime.fromtimestamp(0, UTC)
#: Times to look back for the last start, from that of frequent ones to that of any.
_BACK = [timedelta(hours=1), *(timedelta(days=days) for days in (1, 32, 366, 3000, 36_600))]


def check_zone(name: str) -> str:
    """Return the name of a time zone.

    Raises:
        ValueError: there is none of that name.
    """
    try:
        ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        raise ValueError(f"no such time zone: {name!r}") from None
    return name


def check_cron(text: str) -> str:
    """Return a cron expression.

    Raises:
        ValueError: it is invalid, or never comes true.
    """
    if len(text.split()) != 5:
        raise ValueError(
            f"{text!r} is not a cron expression: it needs minute, hour, day of month, month and"
            " day of week"
        )
    try:
        next(CronSim(text, datetime(2000, 1, 1, tzinfo=UTC)))
    except CronSimError as error:
        raise ValueError(f"{text!r} is not a cron expression: {str(error).lower()}") from None
    except StopIteration:
        raise ValueError(f"{text!r} never comes true") from None
    return text


@dataclass(frozen=True)
class Schedule:
    """Starts by cron expressions in a time zone."""

    expressions: tuple[str, ...]
    timezone: str

    def last(self, now: datetime) -> datetime:
        """The last start up to *now*, in UTC; 1970 if there was none for a century."""
        return max(map(partial(self._last, now), self.expressions))

    def following(self, now: datetime) -> datetime:
        """The first start after *now*, in UTC."""
        return min(next(self._starts(text, now)) for text in self.expressions)

    def _last(self, now: datetime, text: str) -> datetime:
        for back in _BACK:
            starts = self._starts(text, now - back)
            if past := list(takewhile(lambda start: start <= now, starts)):
                return past[-1]
        return _NEVER

    def _starts(self, text: str, after: datetime) -> Iterator[datetime]:
        ticks = CronSim(text, after.astimezone(ZoneInfo(self.timezone)))
        # In a repeated hour, the library may begin with a start of its first pass.
        return (start for start in (tick.astimezone(UTC) for tick in ticks) if start > after)


def includes(text: str, local: datetime) -> bool:
    """Report whether a cron expression, as a range of minutes, includes a local time."""
    cron = CronSim(text, local)
    return (
        local.minute in cron.minutes
        and local.hour in cron.hours
        and local.month in cron.months
        and cron.match_day(local.date())
    )


def begins(text: str, local: datetime) -> datetime:
    """The first minute after a local time that a cron expression includes, in UTC."""
    # With seconds, an expression means just the minutes that it includes, also when clocks change.
    return next(CronSim(f"0 {text}", local)).astimezone(UTC)


def minutes_after(now: datetime, most: timedelta) -> Sequence[datetime]:
    """The full minutes after *now*, in UTC."""
    first = now.astimezone(UTC).replace(second=0, microsecond=0)
    return [first + _MINUTE * number for number in range(1, most // _MINUTE + 1)]
