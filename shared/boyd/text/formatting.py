"""Texts for people: numbers with their nouns, invisible characters, times as people write them."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, tzinfo
from math import floor, log10

_SURROGATES = re.compile("[\ud800-\udfff]")


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun, as in `1 run` and `2 runs`.

    Args:
        number: how many.
        noun: the noun, in the singular.
        plural: the same in the plural; without it *noun* with an s.
    """
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def call_text(action: str, target: str | None) -> str:
    """An action and what it acts on, if that is anything, in words."""
    return f"{action} on {target}" if target else action


def dollars(amount: float) -> str:
    """An amount in plain decimals with two digits that count, as in `$1.25` and `$0.000021`."""
    if amount <= 0:
        return "$0"
    if amount >= 1:
        return f"${amount:.2f}"
    places = 1 - floor(log10(amount))
    return "$" + f"{amount:.{places}f}".rstrip("0").rstrip(".")


def seconds(number: float) -> str:
    """A number of seconds in words, in the two largest units."""
    if number < 60:
        return f"{number:g} s"
    whole = int(number)
    units = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
    for size, unit, smaller_size, smaller in units:
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    raise AssertionError(number)


def visible(text: str) -> str:
    """JSON whose invisible characters are escaped, so that nobody approves them unseen."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def one_line(text: str) -> str:
    """The text on one line, without what nobody sees or what moves a cursor."""
    return " ".join(printable(text).split())


def printable(text: str) -> str:
    """The text with a blank for each character that is not printable."""
    return "".join(c if c.isprintable() else " " for c in text)


def rejoin_surrogates(text: str) -> str:
    """*text* with matching surrogate halves joined; a lone half stays."""
    if not _SURROGATES.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def storable(text: str) -> str:
    """*text* with surrogate halves joined and lone ones replaced, as nothing could store them."""
    return _SURROGATES.sub("\ufffd", rejoin_surrogates(text))


def message_of(error: object) -> str:
    """The text of an error; empty if making it fails, as it does with some errors of libraries."""
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - whatever it is, it is about the text only
        return ""


def error_line(error: BaseException) -> str:
    """The type of an error, and its text if it has one."""
    text = message_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


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
        zone: the time zone of texts that name none; by default that of this machine.

    Raises:
        ValueError: it is none of these.
    """
    age = _AGE.fullmatch(text)
    try:
        if age:
            return now - timedelta(seconds=int(age[1]) * UNITS[age[2]])
        if text in _DAYS:
            day = now.astimezone(zone).date() - timedelta(days=_DAYS[text])
            return _in_zone(datetime(day.year, day.month, day.day), zone)
        return _in_zone(datetime.fromisoformat(text), zone)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a time: {_HOW}") from None


def _in_zone(at: datetime, zone: tzinfo | None) -> datetime:
    """The same wall time in *zone*, unless it names its own."""
    if at.tzinfo is not None:
        return at
    return at.astimezone() if zone is None else at.replace(tzinfo=zone)
