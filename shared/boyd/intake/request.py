"""An intake request, its errors, and helpers for all formats."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import jiter
from pydantic import ValidationError

from boyd.errors import BoydError
from boyd.models import Severity, explain, unstorable, utc_now
from boyd.text.json_limits import TooManyValues, check_read, check_values

#: Maximum observations of one request, and their size in bytes of JSON.
MAX_OBSERVATIONS = 10_000
MAX_BYTES = 33_554_432
#: Maximum JSON values of one request; an object or a list counts as two.
MAX_VALUES = 500_000
#: A time further in the future is a mistake, not a clock difference.
MAX_AHEAD = timedelta(hours=1)
MAX_MESSAGE = 1000


class BadIntake(ValueError):
    """The request is invalid; the message says what is wrong and where."""

    def __init__(self, message: str) -> None:
        short = message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 1]}…"
        super().__init__(short)

    @classmethod
    def of(cls, error: ValidationError, where: str = "") -> BadIntake:
        """Convert a validation error below *where*."""
        text = explain(error)
        return cls(f"{where}: {text}" if where else text)


class IntakeUnready(BoydError):
    """Messages cannot be read for want of something on this side; the sender should try again."""

    def __init__(self, format: str, message: str) -> None:
        super().__init__(f"the format {format!r} {message}")


class NotJson(BadIntake):
    """The body is not JSON."""


@dataclass(frozen=True)
class IntakeRequest:
    """A request; `headers` have lower-case names, `now` is the time by the clock of Redis."""

    content_type: str
    headers: Mapping[str, str]
    body: bytes
    now: datetime = field(default_factory=utc_now)

    @property
    def media_type(self) -> str:
        """The content type without parameters, in lower case."""
        return media_type(self.content_type)

    def plausible(self, time: datetime | None) -> datetime | None:
        """*time* in UTC; None if it is before 1970 or in the future."""
        if time is None or time.year < 1970:
            return None
        return time.astimezone(UTC) if time < self.now + MAX_AHEAD else None


def media_type(content_type: str) -> str:
    """A content type without parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def read_json(body: bytes | str, most: int = MAX_VALUES) -> Any:
    """Parse a JSON text with at most *most* values.

    Raises:
        NotJson: it is not JSON, or an object has a duplicate field.
        BadIntake: it has too many values, or cannot be stored.
    """
    body = to_utf8(body)
    try:
        check_values(body, most)
    except TooManyValues as error:
        raise BadIntake(f"JSON that is too large: {error}") from None
    try:
        raw = body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass")
        value = jiter.from_json(raw, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError as error:
        raise NotJson(f"not JSON: {error}") from None
    flaw = unstorable(value)
    if flaw:
        raise BadIntake(f"JSON that cannot be stored: {flaw}")
    return value


def to_utf8(body: bytes | str) -> bytes | str:
    """The text in UTF-8 without a byte order mark; with one it may be in UTF-16.

    Raises:
        NotJson: it is not the UTF-16 that its mark says.
    """
    if not isinstance(body, bytes):
        return body
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            return body.decode("utf-16").encode()
        except UnicodeError as error:
            raise NotJson(f"not UTF-16, as its first bytes say: {error}") from None
    return body.removeprefix(codecs.BOM_UTF8)


def check_one(value: Any, where: str = "") -> None:
    """Reject an observation below *where* that has too many values.

    Raises:
        BadIntake: it has too many values.
    """
    try:
        check_read(value)
    except TooManyValues as error:
        raise BadIntake(f"{where}: {error}" if where else str(error)) from None


def check_count(items: list[Any]) -> None:
    """Reject more than `MAX_OBSERVATIONS`.

    Raises:
        BadIntake: there are more.
    """
    if len(items) > MAX_OBSERVATIONS:
        raise BadIntake(f"{len(items)} in one request; the limit is {MAX_OBSERVATIONS}")


WORDS: dict[Severity, str] = {
    "critical": "critical crit fatal emergency emerg disaster page",
    "error": "error err major high",
    "warning": "warning warn minor medium moderate",
    "info": "info information informational notice none low debug ok normal",
}
_SEVERITIES = {word: severity for severity, words in WORDS.items() for word in words.split()}


def severity_of(word: str) -> Severity | None:
    """The severity that *word* means, ignoring case."""
    return _SEVERITIES.get(word.strip().lower())
