"""Runs: work items that clients submit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from boyd.models.action import ActionPerformed
from boyd.models.base import JsonObject, Level, Model, Timestamp
from boyd.models.situation import SituationAssessment
from boyd.text.trace_context import LONGEST, PATTERN

RunStatus = Literal["pending", "investigating", "completed", "failed", "cancelled"]


def _http_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it must be an http:// or https:// URL with a host")
    return text


#: What a title cannot hold: control characters, and those that change the direction of text.
_HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")


def _visible(value: object) -> object:
    return _HIDDEN.sub(" ", value).strip() if isinstance(value, str) else value


#: One line of text without what makes it look like another.
TitleText = Annotated[str, Field(min_length=1, max_length=500), BeforeValidator(_visible)]

_URL_FORM: JsonObject = {"pattern": "^[Hh][Tt][Tt][Pp][Ss]?://[^/?#]"}
HttpUrlText = Annotated[
    str, Field(max_length=2000, json_schema_extra=_URL_FORM), AfterValidator(_http_url)
]


class RunResult(Model):
    """The result of a run; `duration` is in milliseconds.

    `situation_assessment` is the situation's summary; `assessments` are what it was made of.
    """

    summary: str
    findings: list[str]
    actions_performed: list[ActionPerformed]
    loop_iterations: int
    duration: float
    situation_assessment: str | None = None
    assessments: list[SituationAssessment] | None = None
    recommendations: list[str] = Field(default_factory=list)


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of a run after its iteration; without a status it waits for approval."""

    run_id: str
    status: RunStatus | None
    result: RunResult
    approval_id: str | None


class RunRequest(Model):
    """A client's request to start a run.

    `callback_url` is called when the run has ended. `kind` is a free label, except `investigation`:
    the agent's model investigates such a run without an iteration. `traceparent` is the caller's
    trace context, also taken from the header of that name; the run's span has a link to it.
    """

    title: TitleText
    description: str = Field(min_length=1, max_length=50_000)
    priority: Level = "medium"
    context: JsonObject = Field(default_factory=dict)
    source: str = Field(default="api", min_length=1, max_length=200)
    callback_url: HttpUrlText | None = None
    kind: str | None = Field(default=None, min_length=1, max_length=100)
    traceparent: str | None = Field(default=None, pattern=PATTERN, max_length=LONGEST)


class Run(RunRequest):
    """A run and its state; `reason` says why it ended other than by its iteration."""

    id: str
    status: RunStatus
    created_at: Timestamp
    updated_at: Timestamp
    completed_at: Timestamp | None = None
    iteration: int | None = None
    approval_id: str | None = None
    requested_by: list[str] = Field(default_factory=list)
    reason: str | None = None
    result: RunResult | None = None


class RunPage(Model):
    """Runs, newest first; `total` is how many are on this page.

    `missing` says why archived ones are missing, if the archive does not answer.
    """

    runs: list[Run]
    total: int
    next_cursor: str | None = None
    missing: str | None = None


class Delivery(Model):
    """One attempt to deliver a callback; `duration` is in milliseconds."""

    at: Timestamp
    ok: bool
    status: int | None = None
    error: str | None = None
    duration: float


class Callback(Model):
    """The state of a run's callback; `next_at` is the time of the next attempt."""

    run_id: str
    url: str
    state: Literal["queued", "running", "succeeded", "failed", "unknown"]
    attempts: int
    next_at: Timestamp | None = None
    deliveries: list[Delivery] = Field(default_factory=list)
