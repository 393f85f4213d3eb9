"""A rota: who is on call now, from an iCalendar file or URL, or from PagerDuty."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import requests
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator, model_validator

from boyd.agent.change_calendar import MAX_BYTES, CalendarError, events_at, parse_calendar
from boyd.errors import ConfigError
from boyd.plugin import Secret
from boyd.settings.schedules import check_zone

if TYPE_CHECKING:
    from boyd.plugin.http_session import Session

#: Seconds for which an answer counts, also that a rota cannot be read.
_FRESH = 60.0
#: The most people on call that are read.
_MOST = 100


class RotaError(Exception):
    """A rota that cannot be read; its text has no part of an address or a token."""


class PagerDuty(BaseModel):
    """A schedule of PagerDuty.

    Attributes:
        schedule: the id of the schedule.
        token: a key of its REST API that may read.
        url: the address of the API.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    schedule: str = Field(min_length=1, max_length=100)
    token: Secret
    url: str = "https://api.pagerduty.com"

    def people(self, at: datetime, http: Session, timeout: float) -> Iterator[str]:
        """The names and mail addresses of those on call.

        The call is that of PagerDuty's REST API v2, `GET /oncalls`.
        """
        moment = at.isoformat()
        query = {"schedule_ids[]": self.schedule, "include[]": "users", "limit": str(_MOST)}
        response = http.get(
            f"{self.url.rstrip('/')}/oncalls",
            params={**query, "since": moment, "until": moment},
            headers={
                "Authorization": f"Token token={self.token.read()}",
                "Accept": "application/vnd.pagerduty+json;version=2",
            },
            timeout=timeout,
            allow_redirects=False,
            stream=True,
        )
        for entry in json.loads(_body(response))["oncalls"]:
            user = entry["user"]
            yield from filter(None, (user.get(name) for name in ("email", "name", "summary")))


class Rota(BaseModel):
    """The people of a group who are on call; nobody else in it is told.

    Attributes:
        calendar: a file or an address (`https://…`) in iCalendar format, whose events name those on
            call in their summaries or as attendees.
        timezone: of times without a zone.
        pagerduty: a schedule there instead.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    calendar: str | None = None
    timezone: str = "UTC"
    pagerduty: PagerDuty | None = None
    _lock: threading.Lock = PrivateAttr(default_factory=threading.Lock)
    _latest: tuple[float, list[str] | RotaError] | None = PrivateAttr(default=None)

    @field_validator("timezone")
    @classmethod
    def _zone(cls, zone: str) -> str:
        return check_zone(zone)

    @model_validator(mode="after")
    def _single(self) -> Rota:
        if (self.calendar is None) == (self.pagerduty is None):
            raise ValueError("needs either `calendar` or `pagerduty`")
        return self

    def people(self, at: datetime, http: Session, timeout: float) -> list[str]:
        """The names of those on call at *at*, which is now: it is read once a minute.

        Raises:
            RotaError: it cannot be read.
        """
        with self._lock:
            if self._latest is None or time.monotonic() - self._latest[0] > _FRESH:
                self._latest = (time.monotonic(), self._read(at, http, timeout))
            people = self._latest[1]
        if isinstance(people, RotaError):
            raise people
        return people

    def _read(self, at: datetime, http: Session, timeout: float) -> list[str] | RotaError:
        try:
            if self.pagerduty is not None:
                return list(self.pagerduty.people(at, http, timeout))
            return list(self._in_calendar(at, http, timeout))
        except (RotaError, CalendarError, ConfigError) as error:
            return RotaError(str(error))
        except requests.RequestException as error:
            # The error itself would show the address.
            return RotaError(f"the request failed: {type(error).__name__}")
        except Exception as error:  # noqa: BLE001 - whatever a broken rota makes its readers raise
            form = "an answer of PagerDuty" if self.pagerduty else "an iCalendar file"
            return RotaError(f"it is not {form}: {type(error).__name__}")

    def _in_calendar(self, at: datetime, http: Session, timeout: float) -> Iterator[str]:
        calendar = parse_calendar(self._raw(http, timeout))
        for event in events_at(calendar, at, ZoneInfo(self.timezone)):
            yield from _people_of(event)

    def _raw(self, http: Session, timeout: float) -> bytes:
        assert self.calendar is not None
        if "://" in self.calendar:
            response = http.get(self.calendar, timeout=timeout, allow_redirects=False, stream=True)
            return _body(response)
        try:
            with Path(self.calendar).open("rb") as file:
                return _check_size(file.read(MAX_BYTES + 1))
        except OSError as error:
            raise RotaError(f"{self.calendar}: {error.strerror}") from None


def is_on_call(names: Iterable[str], people: Iterable[str]) -> bool:
    """Check whether one of *names* is, or stands as whole words in, the name of one on call."""
    patterns = [rf"(?<!\w){re.escape(name.casefold())}(?!\w)" for name in names if name]
    return any(re.search(pattern, person.casefold()) for pattern in patterns for person in people)


def _people_of(event: Any) -> Iterator[str]:
    """The summary of an event, and the names and addresses of its attendees."""
    yield str(event.get("SUMMARY", ""))
    attendees = event.get("ATTENDEE", [])
    for attendee in attendees if isinstance(attendees, list) else [attendees]:
        yield re.sub(r"^mailto:", "", str(attendee), flags=re.IGNORECASE)
        yield str(attendee.params.get("CN", ""))


def _body(response: requests.Response) -> bytes:
    """The body of a response, if it is one with 200 and short enough."""
    with response:
        if response.status_code != 200:
            raise RotaError(f"the server answered {response.status_code}")
        return _check_size(response.raw.read(MAX_BYTES + 1, decode_content=True))


def _check_size(raw: bytes) -> bytes:
    if len(raw) > MAX_BYTES:
        raise RotaError(f"it is longer than {MAX_BYTES} bytes")
    return raw
