"""Messages of other systems become observations, or are refused with the reason."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from boyd.errors import BoydError
from boyd.intake import (
    MAX_OBSERVATIONS,
    BadIntake,
    IntakeRequest,
    NotJson,
    find_format,
    format_names,
    formats,
    parse,
)
from boyd.intake.request import WORDS
from boyd.models import Observation, utc_now

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
values = st.recursive(
    scalars, lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside), max_leaves=10
)
objects = st.dictionaries(st.text(), values, max_size=4)


def request(
    body: Any, content_type: str = "application/json", headers: Mapping[str, str] | None = None
) -> IntakeRequest:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    return IntakeRequest(content_type, headers or {}, sent)


def only(observations: list[Observation]) -> Observation:
    [observation] = observations
    return observation


def refusal(name: str, sent: IntakeRequest) -> str:
    with pytest.raises(BadIntake) as caught:
        parse(name, sent)
    return str(caught.value)


# Formats


def test_the_built_in_formats_are_installed_like_those_of_others() -> None:
    assert set(format_names()) >= {"alertmanager", "cloudevents", "json"}


def test_an_unknown_format_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(LookupError, match="no format 'alertmanger'; did you mean 'alertmanager'"):
        find_format("alertmanger")
    with pytest.raises(LookupError, match=r"known formats: alertmanager, .*cloudevents, .*json, "):
        find_format("x")


def gives_text(_: IntakeRequest) -> list[Observation]:
    return ["text"]  # type: ignore[list-item]


def too_many(_: IntakeRequest) -> list[Observation]:
    return [Observation(source="x", type="event", data={})] * (MAX_OBSERVATIONS + 1)


def raises_a_lookup_error(_: IntakeRequest) -> list[Observation]:
    raise KeyError("labels")


def too_much(_: IntakeRequest) -> list[Observation]:
    return [Observation(source="x", type="event", data={"a": "x" * 1_000_000})] * 40


def half_a_character(_: IntakeRequest) -> list[Observation]:
    changed = Observation(source="x", type="event", data={})
    changed.data["a"] = "\ud800"
    return [changed]


def one(_: IntakeRequest) -> list[Observation]:
    return [Observation(source="x", type="event", data={}, metadata={"intake": None, "a": 1})]


@pytest.fixture
def own_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Formats of somebody's own, in this module."""
    names = ["gives_text", "too_many", "too_much", "half_a_character", "absent", "STRUCTURED"]
    names += ["raises_a_lookup_error", "one"]
    points = {name: EntryPoint(name, f"{__name__}:{name}", formats.GROUP) for name in names}
    monkeypatch.setattr(formats, "_entry_points", lambda: points)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gives_text", "should return a list"),
        ("STRUCTURED", "is not a function"),
        ("absent", "cannot be imported"),
        ("raises_a_lookup_error", "failed: KeyError: 'labels'"),
    ],
)
@pytest.mark.usefixtures("own_formats")
def test_a_format_that_cannot_be_used_is_an_error_of_its_own(name: str, message: str) -> None:
    with pytest.raises(BoydError, match=message):
        parse(name, request({}))


@pytest.mark.usefixtures("own_formats")
def test_a_format_puts_its_name_on_its_observations() -> None:
    assert parse("one", request({}))[0].metadata == {"intake": "one", "a": 1}


@pytest.mark.usefixtures("own_formats")
def test_a_format_returns_a_limited_number_of_storable_observations() -> None:
    assert "the limit is 10000" in refusal("too_many", request({}))
    assert "the limit is 33554432" in refusal("too_much", request({}))
    assert "observation 0 cannot be stored" in refusal("half_a_character", request({}))


@pytest.mark.parametrize("name", ["alertmanager", "json"])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b'{"a": NaN}', "not JSON"),
        (b'{"a": 1, "a": 2}', "not JSON: Detected duplicate key"),
        (b'"\\ud800"', "not JSON"),
        (b"[" * 40_000, "not JSON"),
        (b"[" * 150 + b"]" * 150, "deeper"),
    ],
)
def test_invalid_json_is_refused(name: str, body: bytes, message: str) -> None:
    assert message in refusal(name, request(body))


NAMES = ["alertmanager", "cloudevents", "json"]
TYPES = ["", "application/json", "text/plain", "application/octet-stream", STRUCTURED, BATCH]
HEADERS = ["ce-specversion", "ce-id", "ce-type", "ce-source", "ce-time", "ce-x", "ce-data", "x"]


@given(
    name=st.sampled_from(NAMES),
    content_type=st.sampled_from(TYPES) | st.text(),
    headers=st.dictionaries(
        st.sampled_from(HEADERS), st.text() | st.sampled_from(["1.0", "%ff", '"a\\"']), max_size=8
    ),
    body=st.binary() | values.map(lambda value: json.dumps(value).encode()),
)
def test_anything_gives_observations_or_a_refusal(
    name: str, content_type: str, headers: dict[str, str], body: bytes
) -> None:
    _holds(name, IntakeRequest(content_type, headers, body))


def _holds(name: str, sent: IntakeRequest) -> None:
    for observation in _take(name, sent):
        assert Observation.from_json(observation.to_json()) == observation


def _take(name: str, sent: IntakeRequest) -> list[Observation]:
    with suppress(BadIntake):
        return parse(name, sent)
    return []


def change_some(whole: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An object with some of its fields replaced by anything, or left out."""
    observations = st.sets(st.sampled_from(sorted(whole)), max_size=2)
    new = st.dictionaries(st.sampled_from(sorted(whole)), values, max_size=2)
    return st.builds(
        lambda less, more: {k: v for k, v in {**whole, **more}.items() if k not in less},
        observations,
        new,
    )


# Alertmanager


ALERT: dict[str, Any] = {
    "status": "firing",
    "labels": {"alertname": "DiskFull", "severity": "critical", "instance": "db1"},
    "annotations": {"summary": "The disk of db1 is full"},
    "startsAt": "2026-01-05T12:00:00.123456789Z",
    "endsAt": "0001-01-01T00:00:00Z",
    "generatorURL": "http://prometheus.example/graph",
    "fingerprint": "c0ffee",
}
NOTIFICATION: dict[str, Any] = {
    "version": "4",
    "groupKey": '{}:{alertname="DiskFull"}',
    "truncatedAlerts": 0,
    "status": "firing",
    "receiver": "boyd",
    "groupLabels": {"alertname": "DiskFull"},
    "commonLabels": {"alertname": "DiskFull"},
    "commonAnnotations": {},
    "externalURL": "http://alertmanager.example",
    "alerts": [ALERT],
}


def alerts(*changes: dict[str, Any], **more: Any) -> IntakeRequest:
    return request({**NOTIFICATION, "alerts": [{**ALERT, **change} for change in changes], **more})


def alert_labels(severity: str, **more: Any) -> dict[str, Any]:
    return {"labels": {"alertname": "A", "severity": severity}, **more}


def test_an_alert_is_an_observation() -> None:
    observation = only(parse("alertmanager", request(NOTIFICATION)))

    assert (observation.source, observation.type, observation.severity) == (
        "alertmanager/DiskFull",
        "alert",
        "critical",
    )
    assert observation.timestamp == datetime(2026, 1, 5, 12, 0, 0, 123456, tzinfo=UTC)
    assert observation.data == {
        "status": "firing",
        "labels": ALERT["labels"],
        "annotations": ALERT["annotations"],
        "startsAt": "2026-01-05T12:00:00.123456+00:00",
        "generatorURL": "http://prometheus.example/graph",
        "fingerprint": "c0ffee",
        "groupKey": NOTIFICATION["groupKey"],
        "receiver": "boyd",
        "externalURL": "http://alertmanager.example",
    }
    assert observation.metadata == {
        "intake": "alertmanager",
        "fingerprint": "c0ffee",
        "groupLabels": {"alertname": "DiskFull"},
        "truncatedAlerts": 0,
    }


def test_every_alert_of_a_notification_is_one() -> None:
    observations = parse("alertmanager", alerts({}, alert_labels("none"), {"labels": {}}))

    assert [observation.source for observation in observations] == [
        "alertmanager/DiskFull",
        "alertmanager/A",
        "alertmanager",
    ]


@pytest.mark.parametrize(
    ("label", "severity"),
    [
        ("critical", "critical"),
        ("PAGE", "critical"),
        ("Error", "error"),
        ("major", "error"),
        ("high", "error"),
        ("warning", "warning"),
        ("minor", "warning"),
        ("medium", "warning"),
        ("info", "info"),
        ("none", "info"),
        ("", "warning"),
        ("team-a", "warning"),
    ],
)
def test_severity_is_what_the_label_means(label: str, severity: str) -> None:
    assert only(parse("alertmanager", alerts(alert_labels(label)))).severity == severity


def test_the_words_for_a_severity_are_those_that_the_docs_tell() -> None:
    page = (Path(__file__).parents[3] / "docs" / "intake.md").read_text(encoding="utf-8")
    section = page.partition("## Severities")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.MULTILINE))

    assert {severity: words.split(", ") for severity, words in rows.items()} == {
        severity: words.split() for severity, words in WORDS.items()
    }


def test_a_resolved_alert_is_information_of_when_it_ended() -> None:
    fields = {"status": "resolved", "endsAt": "2026-01-05T14:00:00+01:00"}
    observation = only(parse("alertmanager", alerts(alert_labels("critical", **fields))))

    assert observation.severity == "info"
    assert observation.timestamp == datetime(2026, 1, 5, 13, 0, tzinfo=UTC)
    assert observation.data["endsAt"] == "2026-01-05T13:00:00+00:00"


@pytest.mark.parametrize(
    "time", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z", "", None]
)
def test_a_time_that_cannot_be_is_now(time: str | None) -> None:
    observation = only(parse("alertmanager", alerts({"startsAt": time})))

    assert utc_now() - observation.timestamp < timedelta(minutes=1)
    assert "startsAt" not in observation.data


def test_an_alert_without_a_fingerprint_is_known_by_its_labels() -> None:
    observations = parse(
        "alertmanager", alerts({"fingerprint": ""}, alert_labels("info", fingerprint=""))
    )
    again = parse("alertmanager", alerts({"fingerprint": "", "status": "resolved"}))

    first, two, three = (
        (observation.metadata or {})["fingerprint"] for observation in [*observations, *again]
    )
    assert first == three != two


def test_alerts_without_labels_have_distinct_fingerprints() -> None:
    bare = {"status": "firing"}
    alerts_sent = [bare, {**bare, "generatorURL": "http://a"}, {**bare, "annotations": {"n": "1"}}]
    observations = parse("alertmanager", request({"version": "1", "alerts": [*alerts_sent, bare]}))

    assert [observation.source for observation in observations] == ["grafana"] * 4
    prints = [(observation.metadata or {})["fingerprint"] for observation in observations]
    assert (len(set(prints)), prints[0]) == (3, prints[3])


def test_the_size_of_repeated_group_labels_is_limited() -> None:
    sent = alerts(*[{}] * 100, groupLabels={"a": "x" * 200_000})

    assert "when repeated for 100 alerts" in refusal("alertmanager", sent)


#: As Grafana sends it, by its documentation.
GRAFANA: dict[str, Any] = {
    "receiver": "boyd",
    "status": "firing",
    "orgId": 1,
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": "High memory usage", "team": "blue", "zone": "us-1"},
            "annotations": {"description": "The system has high memory usage"},
            "startsAt": "2026-01-05T09:51:03.157076+02:00",
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "https://play.grafana.example/alerting/1afz29v7z/edit",
            "fingerprint": "c6eadffa33fcdf37",
            "silenceURL": "https://play.grafana.example/alerting/silence/new",
            "dashboardURL": "",
            "panelURL": "",
            "values": {"B": 44.23943737541908, "C": 1},
        },
        {
            "status": "resolved",
            "labels": {"alertname": "High CPU usage"},
            "annotations": {},
            "startsAt": "2026-01-05T09:51:03.157076+02:00",
            "endsAt": "2026-01-05T10:51:03.157076+02:00",
            "generatorURL": "",
            "fingerprint": "d1e4",
            "values": None,
            "valueString": "[ var='B' value=44.2 ]",
        },
    ],
    "groupLabels": {},
    "commonLabels": {"team": "blue"},
    "commonAnnotations": {},
    "externalURL": "https://play.grafana.example/",
    "version": "1",
    "groupKey": "{}:{}",
    "truncatedAlerts": 0,
    "title": "[FIRING:2]  (blue)",
    "state": "alerting",
    "message": "**Firing**",
}


def test_the_webhook_of_grafana_is_read_like_that_of_alertmanager() -> None:
    first, second = parse("alertmanager", request(GRAFANA))

    assert (first.source, first.type, first.severity) == (
        "grafana/High memory usage",
        "alert",
        "warning",
    )
    assert (first.metadata or {})["intake"] == "grafana"
    assert first.data["values"] == {"B": 44.23943737541908, "C": 1}
    assert first.data["silenceURL"] == "https://play.grafana.example/alerting/silence/new"
    assert "dashboardURL" not in first.data
    assert (second.severity, second.data["valueString"]) == ("info", "[ var='B' value=44.2 ]")


def test_fields_of_other_releases_are_passed_over() -> None:
    assert parse("alertmanager", alerts({"new": 1}, newer={"a": []}))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "expected an object"),
        ({"alerts": []}, "version: is missing"),
        ({**NOTIFICATION, "version": "3"}, "version: is '3'; expected '4' or '1'"),
        ({**NOTIFICATION, "version": 4}, "version: is 4; expected '4' or '1'"),
        ({"version": "4"}, "alerts: Field required"),
        ({**NOTIFICATION, "alerts": {}}, "alerts: "),
        ({**NOTIFICATION, "alerts": [ALERT, {**ALERT, "status": "odd"}]}, "alerts.1.status: "),
        ({**NOTIFICATION, "alerts": [{**ALERT, "labels": {"a": 1}}]}, "alerts.0.labels.a: "),
        ({**NOTIFICATION, "alerts": [{**ALERT, "startsAt": "today"}]}, "alerts.0.startsAt: "),
        ({**NOTIFICATION, "alerts": [{**ALERT, "startsAt": 5}]}, "alerts.0.startsAt: "),
        ({**NOTIFICATION, "alerts": [ALERT] * 10_001}, "10001 in one request; the limit is 10000"),
    ],
)
def test_an_invalid_notification_is_refused_with_the_field(body: Any, message: str) -> None:
    assert message in refusal("alertmanager", request(body))


@given(body=change_some(NOTIFICATION), alert=change_some(ALERT), whole=st.booleans())
def test_a_spoilt_notification_is_read_or_refused(
    body: dict[str, Any], alert: dict[str, Any], whole: bool
) -> None:
    _holds("alertmanager", request({**NOTIFICATION, "alerts": [alert]} if whole else body))


# CloudEvents


EVENT: dict[str, Any] = {
    "specversion": "1.0",
    "id": "7",
    "source": "/shop/orders",
    "type": "com.example.order.failed",
    "subject": "order/5",
    "time": "2026-01-05T12:00:00Z",
    "datacontenttype": "application/json",
    "severity": "Error",
    "data": {"order": 5},
}


def event(**changes: Any) -> IntakeRequest:
    """A structured event; what is changed to `...` is left out."""
    whole = {k: v for k, v in {**EVENT, **changes}.items() if v is not ...}
    return request(whole, f"{STRUCTURED}; charset=UTF-8")


def binary(body: bytes, content_type: str = "application/json", **attributes: str) -> IntakeRequest:
    event_attributes = {"specversion": "1.0", "id": "7", "source": "/s", "type": "t", **attributes}
    headers = {f"ce-{name}": value for name, value in event_attributes.items()}
    return request(body, content_type, {**headers, "user-agent": "x"})


def test_an_event_is_an_observation_that_holds_it() -> None:
    observation = only(parse("cloudevents", event()))

    assert observation.source == "cloudevents/com.example.order.failed"
    assert (observation.type, observation.severity) == ("event", "error")
    assert observation.timestamp == datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
    assert observation.data == EVENT
    assert observation.metadata == {"intake": "cloudevents", "eventId": "/shop/orders 7"}


def test_a_binary_event_is_the_same_as_a_structured_one() -> None:
    attributes = {k: v for k, v in EVENT.items() if k not in ("data", "datacontenttype")}

    [observation] = parse("cloudevents", binary(b'{"order": 5}', **attributes))

    assert [observation] == parse("cloudevents", event())


def test_a_batch_is_an_observation_for_each_event() -> None:
    body = [EVENT, {**EVENT, "id": "8", "type": "other"}]

    observations = parse("cloudevents", request(body, BATCH))

    assert [(observation.source, observation.data["id"]) for observation in observations] == [
        ("cloudevents/com.example.order.failed", "7"),
        ("cloudevents/other", "8"),
    ]
    assert parse("cloudevents", request([], BATCH)) == []


@pytest.mark.parametrize(
    ("body", "content_type", "data"),
    [
        (b"[1, null]", "application/json", {"data": [1, None]}),
        (b"[1]", "application/vnd.x+json; v=1", {"data": [1]}),
        (b"[1]", "text/json", {"data": [1]}),
        (b"h\xc3\xa9", "text/plain", {"data": "hé"}),
        (b"<a/>", "application/soap+xml", {"data": "<a/>"}),
        (b"h\xe9", "text/plain", {"data_base64": "aOk="}),
        (b"\x00\x01", "application/octet-stream", {"data_base64": "AAE="}),
        (b"", "application/json", {}),
        (b"hi", "", {"data": "hi"}),
        (b"\xff", "", {"data_base64": "/w=="}),
    ],
)
def test_data_is_json_text_or_base64_in_both_modes(
    body: bytes, content_type: str, data: dict[str, Any]
) -> None:
    observation = only(parse("cloudevents", binary(body, content_type)))
    encoded = base64.b64encode(body).decode()
    sent = event(data=..., data_base64=encoded, datacontenttype=content_type or ...)
    structured = only(parse("cloudevents", sent))

    for event_read in (observation, structured):
        data_fields = {k: v for k, v in event_read.data.items() if k in ("data", "data_base64")}
        assert data_fields == data
        assert event_read.data.get("datacontenttype", "") == content_type


@pytest.mark.parametrize("data", [None, 5, "text", [1], {"a": {"b": None}}])
def test_data_of_a_structured_event_is_any_json(data: Any) -> None:
    assert only(parse("cloudevents", event(data=data))).data["data"] == data


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("plain", "plain"),
        ("Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro € 😀"),
        ('"quoted \\"a\\" %41"', 'quoted "a" A'),
        ("100%", "100%"),
    ],
)
def test_headers_are_decoded(header: str, value: str) -> None:
    assert only(parse("cloudevents", binary(b"", subject=header))).data["subject"] == value


@pytest.mark.parametrize("severity", [..., "loud", 3, True])
def test_an_event_whose_severity_is_not_known_has_none(severity: Any) -> None:
    assert only(parse("cloudevents", event(severity=severity))).severity is None


@pytest.mark.parametrize("time", [..., None, "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59"])
def test_an_event_without_a_usable_time_is_of_now(time: Any) -> None:
    observation = only(parse("cloudevents", event(time=time)))

    assert utc_now() - observation.timestamp < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (event(specversion="0.3"), "specversion: is '0.3'; expected '1.0'"),
        (event(specversion=...), "specversion: is missing"),
        (event(id=...), "id: Field required"),
        (event(source=None), "source: Field required"),
        (event(type=""), "type: should not be empty"),
        (event(id=5), "id: Input should be a valid string"),
        (event(time="yesterday"), "time: should be a time as in RFC 3339"),
        (event(time="2026-02-30T00:00:00Z"), "time: "),
        (event(time=1767614400), "time: "),
        (event(traceParent="x"), "'traceParent': attribute names consist of lower-case"),
        (event(trace={"a": 1}), "trace: should be text, a whole number, true or false"),
        (event(data_base64="AA=="), "data or data_base64, not both"),
        (event(data=..., data_base64="%"), "data_base64: is not base64"),
        (event(data=..., data_base64=5), "data_base64: is not base64"),
        (event(data=..., data_base64="ew=="), "data_base64: not JSON"),
        (binary(b"{"), "not JSON"),
        (binary(b"", specversion="2.0"), "specversion: is '2.0'"),
        (binary(b"", id=""), "id: should not be empty"),
        (binary(b"", data="x"), "'data': attribute names consist of"),
        (binary(b"", subject="%ff"), "ce-subject: is not UTF-8"),
        (request([EVENT], STRUCTURED), "an event should be an object"),
        (request(EVENT, BATCH), "a batch should be a list"),
        (request([EVENT, {**EVENT, "id": ""}], BATCH), "1: id: "),
        (request([EVENT, 5], BATCH), "1: an event should be an object"),
        (request([EVENT] * 10_001, BATCH), "10001 in one request; the limit is 10000"),
        (request(EVENT), "not a CloudEvent: send the Content-Type"),
        (request(b"", "application/cloudevents+avro"), "unknown event format"),
    ],
)
def test_an_invalid_cloudevent_is_refused_with_the_attribute(
    sent: IntakeRequest, message: str
) -> None:
    assert message in refusal("cloudevents", sent)


@given(body=change_some({**EVENT, "ext": 1, "data_base64": "AA=="}), batch=st.booleans())
def test_a_spoilt_event_is_read_or_refused(body: dict[str, Any], batch: bool) -> None:
    sent = request([EVENT, body], BATCH) if batch else request(body, STRUCTURED)
    _holds("cloudevents", sent)


words = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), min_size=1)


@given(source=words, subject=words, data=objects)
def test_events_written_by_the_cloudevents_sdk_are_read(
    source: str, subject: str, data: dict[str, Any]
) -> None:
    attributes = {
        "type": "t",
        "source": source,
        "subject": subject,
        "time": datetime(2026, 1, 5, 12, tzinfo=UTC),
        "datacontenttype": "application/json",
        "severity": "critical",
    }
    written = CloudEvent(attributes, data)
    observations = [
        only(parse("cloudevents", _receive(message)))
        for message in (to_binary_event(written), to_structured_event(written))
    ]

    for observation in observations:
        assert (observation.data["source"], observation.data["subject"]) == (source, subject)
        assert observation.data["data"] == data
        assert observation.severity == "critical"
        assert observation.timestamp == attributes["time"]


def _receive(message: HTTPMessage) -> IntakeRequest:
    headers = {name.lower(): value for name, value in message.headers.items()}
    return IntakeRequest(headers.pop("content-type"), headers, message.body)


# JSON


POSTED: dict[str, Any] = {
    "source": "backup",
    "type": "state",
    "severity": "error",
    "data": {"job": "nightly"},
    "metadata": {"host": "a"},
    "timestamp": "2026-01-05T12:00:00Z",
}


def test_an_observation_is_taken_as_it_is_and_marked_as_sent() -> None:
    metadata = {**POSTED["metadata"], "intake": "json"}
    forged = {**POSTED, "metadata": {**POSTED["metadata"], "intake": None}}
    for sent in (POSTED, forged):
        assert only(parse("json", request(sent))).to_wire() == {**POSTED, "metadata": metadata}


def test_only_source_and_data_have_to_be_there() -> None:
    observation = only(parse("json", request({"source": "a", "data": {}})))

    assert (observation.type, observation.severity, observation.metadata) == (
        "event",
        None,
        {"intake": "json"},
    )
    assert utc_now() - observation.timestamp < timedelta(minutes=1)


@pytest.mark.parametrize("body", [[POSTED, POSTED], {"observations": [POSTED, POSTED]}])
def test_several_observations_are_a_list_or_in_an_object(body: Any) -> None:
    assert len(parse("json", request(body))) == 2


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (5, "expected an observation, such as"),
        ({"anything": 1}, "expected an observation, such as"),
        ([POSTED, "x"], "1: expected an observation"),
        ({"observations": {}}, "expected an observation"),
        ({"observations": [], "source": "a"}, "source: unknown field next to observations"),
        ({"source": "a"}, "data: Field required"),
        ({**POSTED, "colour": "red"}, "colour: Extra inputs"),
        ({**POSTED, "data": []}, "data: "),
        ([POSTED, {**POSTED, "severity": "loud"}], "1: severity: "),
        ({**POSTED, "type": "rumour"}, "type: "),
        ({**POSTED, "source": ""}, "source: "),
        ({**POSTED, "source": "run:api"}, "source: the prefix 'run:' is reserved for runs"),
        ({**POSTED, "timestamp": "2026-01-05T12:00:00"}, "timestamp: "),
        ({**POSTED, "timestamp": "9999-01-01T00:00:00Z"}, "timestamp: should be between"),
        ({**POSTED, "timestamp": "0001-01-01T00:00:00+14:00"}, "timestamp: should be between"),
        ([POSTED] * 10_001, "10001 in one request; the limit is 10000"),
    ],
)
def test_anything_else_is_refused_with_what_is_expected(body: Any, message: str) -> None:
    assert message in refusal("json", request(body))


@given(change_some(POSTED))
def test_a_spoilt_observation_is_read_or_refused(body: dict[str, Any]) -> None:
    _holds("json", request(body))


@given(
    st.lists(
        st.builds(
            Observation,
            source=st.text(min_size=1).filter(lambda text: not text.startswith("run:")),
            type=st.sampled_from(["metric", "log", "alert", "event", "state"]),
            data=objects,
            severity=st.sampled_from([None, "info", "critical"]),
            timestamp=st.datetimes(
                datetime(1970, 1, 2), datetime(2026, 1, 1), timezones=st.just(UTC)
            ),
        ),
        max_size=3,
    )
)
def test_observations_survive_a_round_trip_through_json(observations: list[Observation]) -> None:
    sent = [observation.to_wire() for observation in observations]

    marked = [
        observation.patched({"metadata": {**(observation.metadata or {}), "intake": "json"}})
        for observation in observations
    ]
    assert parse("json", request(sent)) == marked


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_json_is_read_with_and_without_a_byte_order_mark(encoding: str) -> None:
    text = '{"source": "s", "data": {"word": "grün"}}'
    [observation] = parse("json", IntakeRequest("application/json", {}, text.encode(encoding)))
    assert observation.data == {"word": "grün"}


def test_a_mark_that_promises_something_else_is_refused() -> None:
    with pytest.raises(NotJson, match="not UTF-16"):
        parse("json", IntakeRequest("application/json", {}, b"\xff\xfe{"))
