"""What Prometheus Alertmanager's webhook sends (version 4): an observation for each alert."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictStr,
    ValidationError,
)
from pydantic.alias_generators import to_camel

from boyd.intake.request import BadIntake, IntakeRequest, check_count, plausible, read_json
from boyd.intake.severity import severity_of
from boyd.models import JsonObject, Observation, Severity, utc_now

VERSION = "4"


def _text(value: object) -> object:
    if value is not None and not isinstance(value, str):
        raise ValueError("should be a time as text")
    return value or None


def _filled(value: object) -> object:
    return {} if value is None else value


Labels = Annotated[dict[StrictStr, StrictStr], BeforeValidator(_filled)]
Time = Annotated[AwareDatetime | None, BeforeValidator(_text)]


class _Sent(BaseModel):
    """Unknown fields are passed over: other releases have more."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel)


class Alert(_Sent):
    """One alert of a notification."""

    status: Literal["firing", "resolved"]
    labels: Labels
    annotations: Labels = Field(default_factory=dict)
    starts_at: Time = None
    ends_at: Time = None
    generator_url: StrictStr = Field(default="", alias="generatorURL")
    fingerprint: StrictStr = ""


class Notification(_Sent):
    """The body of a request."""

    group_key: StrictStr = ""
    receiver: StrictStr = ""
    external_url: StrictStr = Field(default="", alias="externalURL")
    group_labels: Labels = Field(default_factory=dict)
    truncated_alerts: int = 0
    alerts: list[Alert]


def parse(request: IntakeRequest) -> list[Observation]:
    """The alerts of a notification.

    Raises:
        BadIntake: it is not one, or of another version.
    """
    body = read_json(request.body)
    _check_head(body)
    try:
        sent = Notification.model_validate(body)
        return [_observation(alert, sent) for alert in sent.alerts]
    except ValidationError as error:
        raise BadIntake.of(error) from None


def _check_head(body: Any) -> None:
    if not isinstance(body, dict):
        raise BadIntake("an object is expected, as Alertmanager's webhook sends it")
    if "version" not in body:
        raise BadIntake(f"version: is missing; Alertmanager's webhook sends {VERSION!r}")
    if body["version"] != VERSION:
        raise BadIntake(f"version: is {body['version']!r}; {VERSION!r} is expected")
    if isinstance(body.get("alerts"), list):
        check_count(body["alerts"])


def _observation(alert: Alert, sent: Notification) -> Observation:
    name = alert.labels.get("alertname")
    happened = alert.ends_at if alert.status == "resolved" else alert.starts_at
    return Observation(
        source=f"alertmanager/{name}" if name else "alertmanager",
        type="alert",
        severity=_severity(alert),
        data=_data(alert, sent),
        metadata={
            "intake": "alertmanager",
            "groupLabels": dict(sent.group_labels),
            "truncatedAlerts": sent.truncated_alerts,
        },
        timestamp=plausible(happened) or utc_now(),
    )


def _severity(alert: Alert) -> Severity:
    """What the label says; a firing alert without one that we know deserves a look."""
    if alert.status == "resolved":
        return "info"
    return severity_of(alert.labels.get("severity", "")) or "warning"


def _data(alert: Alert, sent: Notification) -> JsonObject:
    data: JsonObject = {
        "status": alert.status,
        "labels": dict(alert.labels),
        "annotations": dict(alert.annotations),
        "generatorURL": alert.generator_url,
        "fingerprint": alert.fingerprint,
        "groupKey": sent.group_key,
        "receiver": sent.receiver,
        "externalURL": sent.external_url,
    }
    times = {"startsAt": plausible(alert.starts_at), "endsAt": plausible(alert.ends_at)}
    return data | {name: time.isoformat() for name, time in times.items() if time}
