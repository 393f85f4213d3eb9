"""Webhooks of Prometheus Alertmanager (version 4) and Grafana (version 1).

Each alert becomes an observation; Grafana adds a few fields.
"""

from __future__ import annotations

import hashlib
import json
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

from boyd.intake.request import (
    BadIntake,
    IntakeRequest,
    check_count,
    check_one,
    read_json,
    severity_of,
)
from boyd.models import JsonObject, Observation, Severity, explain

#: Senders by version of the webhook.
SENDERS = {"4": "alertmanager", "1": "grafana"}
#: Maximum bytes of the shared fields, once each alert repeats them.
MAX_REPEATED = 16_777_216


def _text(value: object) -> object:
    if value is not None and not isinstance(value, str):
        raise ValueError("should be a time as text")
    return value or None


def _empty_for_null(value: object) -> object:
    return {} if value is None else value


Labels = Annotated[dict[StrictStr, StrictStr], BeforeValidator(_empty_for_null)]
Time = Annotated[AwareDatetime | None, BeforeValidator(_text)]


class _Sent(BaseModel):
    """Base of the models; ignores unknown fields, which other releases may send."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel)


class Alert(_Sent):
    """One alert of a notification."""

    status: Literal["firing", "resolved"]
    labels: Labels = Field(default_factory=dict)
    annotations: Labels = Field(default_factory=dict)
    starts_at: Time = None
    ends_at: Time = None
    generator_url: StrictStr = Field(default="", alias="generatorURL")
    fingerprint: StrictStr = ""
    values: JsonObject | None = None
    value_string: StrictStr = ""
    silence_url: StrictStr = Field(default="", alias="silenceURL")
    dashboard_url: StrictStr = Field(default="", alias="dashboardURL")
    panel_url: StrictStr = Field(default="", alias="panelURL")
    image_url: StrictStr = Field(default="", alias="imageURL")


class Notification(_Sent):
    """The body of a request."""

    version: Literal["4", "1"]
    group_key: StrictStr = ""
    receiver: StrictStr = ""
    external_url: StrictStr = Field(default="", alias="externalURL")
    group_labels: Labels = Field(default_factory=dict)
    truncated_alerts: int = 0
    alerts: list[Any]

    @property
    def sender(self) -> str:
        """The sender: `alertmanager` or `grafana`."""
        return SENDERS[self.version]

    @property
    def common_fields(self) -> JsonObject:
        """Fields that every alert repeats."""
        return {
            "groupKey": self.group_key,
            "receiver": self.receiver,
            "externalURL": self.external_url,
        }


def parse(request: IntakeRequest) -> list[Observation]:
    """Parse a notification.

    Raises:
        BadIntake: the notification is invalid, of another version, or too large.
    """
    body = read_json(request.body)
    _check_head(body)
    try:
        sent = Notification.model_validate(body)
    except ValidationError as error:
        raise BadIntake.of(error) from None
    _check_repeated(sent)
    alerts = (_alert(alert, index) for index, alert in enumerate(sent.alerts))
    return [_observation(alert, sent, request) for alert in alerts]


def _check_head(body: Any) -> None:
    if not isinstance(body, dict):
        raise BadIntake("expected an object, as sent by Alertmanager's webhook")
    check_one({name: value for name, value in body.items() if name != "alerts"})
    if "version" not in body:
        raise BadIntake("version: is missing; Alertmanager's webhook sends '4', Grafana's '1'")
    if body["version"] not in ("4", "1"):
        raise BadIntake(f"version: is {body['version']!r}; expected '4' or '1'")
    if isinstance(body.get("alerts"), list):
        check_count(body["alerts"])


def _alert(value: Any, index: int) -> Alert:
    """Parse one alert; parsing all at once would hold the interpreter for too long."""
    check_one(value, f"alerts.{index}")
    try:
        return Alert.model_validate(value)
    except ValidationError as error:
        raise BadIntake(explain(error, "alerts", index)) from None


def _check_repeated(sent: Notification) -> None:
    size = len(json.dumps([sent.common_fields, sent.group_labels])) * len(sent.alerts)
    if size > MAX_REPEATED:
        raise BadIntake(
            f"groupLabels and groupKey take {size} bytes when repeated for {len(sent.alerts)} "
            f"alerts; the limit is {MAX_REPEATED}"
        )


def _observation(alert: Alert, sent: Notification, request: IntakeRequest) -> Observation:
    name = alert.labels.get("alertname")
    happened = alert.ends_at if alert.status == "resolved" else alert.starts_at
    return Observation(
        source=f"{sent.sender}/{name}" if name else sent.sender,
        type="alert",
        severity=_severity(alert),
        data=_data(alert, sent, request),
        metadata={
            "intake": sent.sender,
            "fingerprint": alert.fingerprint or _fingerprint(alert),
            "groupLabels": dict(sent.group_labels),
            "truncatedAlerts": sent.truncated_alerts,
        },
        timestamp=request.plausible(happened) or request.now,
    )


def _fingerprint(alert: Alert) -> str:
    """An identity derived from the labels, for senders that give none; else from other fields."""
    identity = alert.labels or [alert.generator_url, alert.annotations]
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def _severity(alert: Alert) -> Severity:
    """The severity in the label; a firing alert without a known one is a warning."""
    if alert.status == "resolved":
        return "info"
    return severity_of(alert.labels.get("severity", "")) or "warning"


def _data(alert: Alert, sent: Notification, request: IntakeRequest) -> JsonObject:
    data: JsonObject = {
        "status": alert.status,
        "labels": dict(alert.labels),
        "annotations": dict(alert.annotations),
        "generatorURL": alert.generator_url,
        "fingerprint": alert.fingerprint,
        **sent.common_fields,
        **_grafana_fields(alert),
    }
    times = {"startsAt": alert.starts_at, "endsAt": alert.ends_at}
    plausible = {name: request.plausible(time) for name, time in times.items()}
    return data | {name: time.isoformat() for name, time in plausible.items() if time}


def _grafana_fields(alert: Alert) -> JsonObject:
    """Fields that only Grafana sends."""
    more: JsonObject = {
        "values": alert.values,
        "valueString": alert.value_string,
        "silenceURL": alert.silence_url,
        "dashboardURL": alert.dashboard_url,
        "panelURL": alert.panel_url,
        "imageURL": alert.image_url,
    }
    return {name: value for name, value in more.items() if value}
