"""CloudEvents 1.0 over HTTP, structured, binary or batched; each event becomes an observation.

The data of an observation are the event in the JSON format, whichever way it was sent.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    JsonValue,
    StrictStr,
    ValidationError,
)

from boyd.intake.request import (
    BadIntake,
    IntakeRequest,
    check_count,
    check_one,
    media_type,
    read_json,
    severity_of,
)
from boyd.models import JsonObject, Observation, Severity

VERSION = "1.0"
STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"

_PREFIX = "ce-"
_JSON = re.compile(r"(application|text)/([\w.+-]+\+)?json")
_TEXT = re.compile(r"text/.*|application/([\w.+-]+\+)?(xml|yaml)|")
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_NAME = re.compile(r"[a-z0-9]+")


def parse(request: IntakeRequest) -> list[Observation]:
    """Parse the events of a request.

    Raises:
        BadIntake: there is no event, or one is invalid or not of version 1.0.
    """
    if request.media_type == BATCH:
        return _batch(read_json(request.body), request)
    if request.media_type == STRUCTURED:
        return [_parse_event(read_json(request.body), request)]
    if request.media_type.startswith("application/cloudevents"):
        raise BadIntake(f"Content-Type: unknown event format; send {STRUCTURED} or {BATCH}")
    if any(name.startswith(_PREFIX) for name in request.headers):
        return [_binary(request)]
    raise BadIntake(
        f"not a CloudEvent: send the Content-Type {STRUCTURED} or {BATCH}, or ce- headers"
    )


def _batch(body: Any, request: IntakeRequest) -> list[Observation]:
    if not isinstance(body, list):
        raise BadIntake("a batch should be a list of events")
    check_count(body)
    return [_parse_event(event, request, f"{index}") for index, event in enumerate(body)]


def _parse_event(event: Any, request: IntakeRequest, where: str = "") -> Observation:
    at = f"{where}: " if where else ""
    if not isinstance(event, dict):
        raise BadIntake(f"{at}an event should be an object")
    attributes = {k: v for k, v in event.items() if k not in ("data", "data_base64")}
    data = {k: v for k, v in event.items() if k == "data" or (k == "data_base64" and v is not None)}
    if len(data) == 2:
        raise BadIntake(f"{at}an event has data or data_base64, not both")
    if "data_base64" in data:
        try:
            data = _decode_base64(data["data_base64"], attributes.get("datacontenttype"))
        except BadIntake as error:
            raise BadIntake(f"{at}data_base64: {error}") from None
    return _observation(attributes, data, request, where)


def _binary(request: IntakeRequest) -> Observation:
    attributes = {
        name.removeprefix(_PREFIX): _header(name, value)
        for name, value in request.headers.items()
        if name.startswith(_PREFIX)
    }
    if request.content_type:
        attributes["datacontenttype"] = request.content_type
    return _observation(attributes, _payload(request.body, request.content_type), request)


def _header(name: str, text: str) -> str:
    """A header value without quotes and percent-encoding."""
    plain = text.strip()
    if len(plain) > 1 and plain[0] == plain[-1] == '"':
        plain = re.sub(r"\\(.)", r"\1", plain[1:-1])
    try:
        return unquote(plain, errors="strict")
    except UnicodeDecodeError:
        raise BadIntake(f"{name}: is not UTF-8 in percent-encoding") from None


def _decode_base64(text: Any, content_type: Any) -> JsonObject:
    try:
        body = base64.b64decode(text, validate=True)
    except (ValueError, TypeError):
        raise BadIntake("is not base64") from None
    return _payload(body, content_type if isinstance(content_type, str) else "")


def _payload(body: bytes, content_type: str) -> JsonObject:
    """A body in the JSON format: JSON and text verbatim, anything else as base64."""
    if not body:
        return {}
    kind = media_type(content_type)
    if _JSON.fullmatch(kind):
        return {"data": read_json(body)}
    if _TEXT.fullmatch(kind):
        try:
            return {"data": body.decode("utf-8")}
        except UnicodeDecodeError:
            pass
    return {"data_base64": base64.b64encode(body).decode("ascii")}


def _require_text(text: str) -> str:
    if not text:
        raise ValueError("should not be empty")
    return text


def _rfc3339(value: object) -> object:
    if not isinstance(value, str) or not _RFC3339.fullmatch(value):
        raise ValueError("should be a time as in RFC 3339, such as 2026-01-05T12:00:00Z")
    return value


Filled = Annotated[StrictStr, AfterValidator(_require_text)]


class Attributes(BaseModel):
    """The attributes of an event; any others are extensions."""

    model_config = ConfigDict(extra="allow", frozen=True)

    id: Filled
    source: Filled
    type: Filled
    time: Annotated[AwareDatetime | None, BeforeValidator(_rfc3339)] = None
    subject: Filled | None = None
    datacontenttype: Filled | None = None
    dataschema: Filled | None = None
    specversion: Literal["1.0"]


def _observation(
    attributes: Mapping[str, Any], data: JsonObject, request: IntakeRequest, where: str = ""
) -> Observation:
    present: dict[str, Any] = {k: v for k, v in attributes.items() if v is not None}
    at = f"{where}: " if where else ""
    _check_version(present, at)
    check_one({**present, **data}, where)
    try:
        event = Attributes.model_validate(present)
        _check_extensions(event.model_extra or {}, at)
        return Observation(
            source=f"cloudevents/{event.type}",
            type="event",
            severity=_severity(present.get("severity")),
            data={**present, **data},
            metadata={"intake": "cloudevents", "eventId": f"{event.source} {event.id}"},
            timestamp=request.plausible(event.time) or request.now,
        )
    except ValidationError as error:
        raise BadIntake.of(error, where) from None


def _check_version(present: Mapping[str, Any], at: str) -> None:
    if "specversion" not in present:
        raise BadIntake(f"{at}specversion: is missing; expected {VERSION!r}")
    if present["specversion"] != VERSION:
        raise BadIntake(f"{at}specversion: is {present['specversion']!r}; expected {VERSION!r}")


def _check_extensions(extensions: Mapping[str, JsonValue], at: str) -> None:
    for name, value in extensions.items():
        if not _NAME.fullmatch(name) or name == "data":
            raise BadIntake(
                f"{at}{name!r}: attribute names consist of lower-case letters and digits"
            )
        if not isinstance(value, bool | int | str):
            raise BadIntake(f"{at}{name}: should be text, a whole number, true or false")


def _severity(value: Any) -> Severity | None:
    return severity_of(value) if isinstance(value, str) else None
