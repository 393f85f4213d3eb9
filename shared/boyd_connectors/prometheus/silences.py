"""Alertmanager's alerts and silences, over its API v2."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from boyd.models import JsonObject, Model, Severity
from boyd.plugin import Context
from boyd.plugins.http_service import HttpService, ServiceError, StateError

_MATCHER = re.compile(r'([A-Za-z_]\w*)\s*(=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*")\s*(,?)\s*', re.ASCII)
MAX_MATCHERS = 20
_MAKER = "boyd"
#: Characters of a label or an annotation that are kept.
MAX_TEXT = 500


@dataclass(frozen=True)
class Matcher:
    """One condition on a label."""

    name: str
    operator: str
    value: str

    def __str__(self) -> str:
        # Alertmanager reads no other escapes than these.
        value = self.value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        return f'{self.name}{self.operator}"{value}"'

    def to_wire(self) -> JsonObject:
        """The matcher as Alertmanager has it."""
        how = {"isRegex": "~" in self.operator, "isEqual": not self.operator.startswith("!")}
        return {"name": self.name, "value": self.value, **how}


def parse_matchers(text: str) -> list[Matcher]:
    """Matchers as in `alertname="Down",instance=~"web.*"`, sorted, each once.

    Raises:
        ValueError: the text is something else, or no matcher demands a label to have a value.
    """
    found, position = [], 0
    while position < len(text):
        match = _MATCHER.match(text, position)
        if match is None or not (match[4] or match.end() == len(text)):
            raise ValueError(f'expected name="value" at {text[position : position + 30]!r}')
        try:
            value = json.loads(match[3], strict=False)
            value.encode()
        except ValueError:
            raise ValueError(f"{match[1]}: {match[3]} has an unknown escape") from None
        found.append(Matcher(match[1], match[2], value))
        position = match.end()
    if len(found) > MAX_MATCHERS:
        raise ValueError(f"has more than {MAX_MATCHERS} matchers")
    if not any(one.operator == "=" and one.value for one in found):
        raise ValueError('needs a matcher such as alertname="Down", or it may silence everything')
    return sorted(set(found), key=str)


def _canonical(text: str) -> str:
    return ",".join(map(str, parse_matchers(text)))


class SilenceParams(Model):
    """The alerts to silence, for how many seconds, and why."""

    matchers: Annotated[str, AfterValidator(_canonical)] = Field(
        min_length=1,
        max_length=4000,
        description='as in Alertmanager: alertname="Down",instance=~"web.*"',
    )
    duration: int = Field(default=3600, ge=60, le=604_800, description="in seconds")
    comment: str = Field(default="", max_length=500)


class ExpireSilenceParams(Model):
    """A silence by its id."""

    silence_id: str = Field(pattern=r"^[0-9A-Za-z-]{1,64}$")


def matchers_of(silence: Mapping[str, Any]) -> str:
    """The matchers of a silence as text."""
    return ",".join(sorted(str(_matcher(one)) for one in silence["matchers"]))


def _matcher(wire: Mapping[str, Any]) -> Matcher:
    equal, regex = wire.get("isEqual", True), wire["isRegex"]
    operator = ("=~" if equal else "!~") if regex else ("=" if equal else "!=")
    return Matcher(wire["name"], operator, wire["value"])


class Alertmanager:
    """An Alertmanager."""

    def __init__(self, service: HttpService) -> None:
        self._service = service

    def alerts(self, ctx: Context, *matchers: Matcher) -> list[dict[str, Any]]:
        """The alerts that fire and are neither silenced nor inhibited."""
        found: list[dict[str, Any]] = self._service.get(
            ctx,
            "/api/v2/alerts",
            filter=[str(one) for one in matchers],
            active="true",
            silenced="false",
            inhibited="false",
        )
        return found

    def silence(self, ctx: Context, id: str) -> dict[str, Any]:
        """A silence, also an expired one.

        Raises:
            StateError: there is none.
        """
        try:
            found: dict[str, Any] = self._service.get(ctx, f"/api/v2/silence/{id}")
        except ServiceError as error:
            if error.status == 404:
                raise StateError(f"Alertmanager has no silence {id}") from None
            raise
        return found

    def made_by(self, ctx: Context, execution_id: str) -> dict[str, Any] | None:
        """The silence that an execution has made, if it has made one."""
        silences = self._service.get(ctx, "/api/v2/silences")
        mark = _mark(execution_id)
        return next((one for one in silences if one["comment"].endswith(mark)), None)

    def create(self, ctx: Context, silence: Mapping[str, Any]) -> str:
        """Create a silence; its id."""
        answer = self._service.send(ctx, "POST", "/api/v2/silences", body=dict(silence))
        return str(answer["silenceID"])

    def expire(self, ctx: Context, id: str) -> None:
        """Expire a silence."""
        self._service.send(ctx, "DELETE", f"/api/v2/silence/{id}")


def new_silence(
    matchers: list[Matcher], start: datetime, seconds: float, comment: str, execution_id: str
) -> JsonObject:
    """A silence from now on, marked as that of an execution."""
    return {
        "matchers": [one.to_wire() for one in matchers],
        "startsAt": start.isoformat(),
        "endsAt": (start + timedelta(seconds=seconds)).isoformat(),
        "createdBy": _MAKER,
        "comment": f"{comment} {_mark(execution_id)}".strip(),
    }


def _mark(execution_id: str) -> str:
    return f"[boyd {execution_id}]"


def is_as_made(silence: Mapping[str, Any], until: str) -> bool:
    """Tell whether nobody has changed a silence that was made until then."""
    ends = datetime.fromisoformat(silence["endsAt"]), datetime.fromisoformat(until)
    return silence["createdBy"] == _MAKER and abs(ends[0] - ends[1]) < timedelta(seconds=1)


def is_over(silence: Mapping[str, Any]) -> bool:
    """Tell whether a silence has expired."""
    return bool(silence["status"]["state"] == "expired")


#: Severities by the usual values of the label `severity`.
_SEVERITIES: Mapping[str, Severity] = {
    "critical": "critical",
    "page": "critical",
    "error": "error",
    "info": "info",
}


def severity_of(labels: Mapping[str, str]) -> Severity:
    """The severity of an alert, by its label; a warning if that says nothing else."""
    return _SEVERITIES.get(labels.get("severity", "").lower(), "warning")


def alert_data(labels: Mapping[str, str], annotations: Mapping[str, str]) -> JsonObject:
    """An alert for an observation; `matchers` would silence it."""
    kept: JsonObject = {name: value[:MAX_TEXT] for name, value in sorted(labels.items())}
    summary = annotations.get("summary") or annotations.get("description") or ""
    exact = [Matcher(name, "=", value) for name, value in sorted(labels.items())]
    return {
        "alertname": kept.get("alertname", ""),
        "labels": kept,
        "summary": summary[:MAX_TEXT],
        "matchers": ",".join(map(str, exact[:MAX_MATCHERS])),
    }
