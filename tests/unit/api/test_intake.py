"""`/intake`: what others send becomes observations that wake the loop; all of it, or nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api_kit import Site, make_desk

KEY = {"Idempotency-Key": "once"}
PLAIN = {"source": "backup", "severity": "error", "data": {"job": "nightly"}}
EVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order", "data": {"n": 1}}
ALERTS = {
    "version": "4",
    "groupKey": "{}",
    "status": "firing",
    "receiver": "boyd",
    "groupLabels": {},
    "commonLabels": {},
    "commonAnnotations": {},
    "externalURL": "http://alertmanager",
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": "Down", "instance": host, "severity": "critical"},
            "annotations": {},
            "startsAt": "2026-01-05T12:00:00Z",
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "",
            "fingerprint": host,
        }
        for host in ("a", "b")
    ],
}
STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
BINARY = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/shop", "ce-type": "order"}


@pytest.fixture
def eager(server: Any) -> Site:
    """A site whose agent begins as soon as something comes in."""
    return Site(make_desk(server, "event-driven")[0], server)


def seen(site: Site) -> list[Any]:
    """What the last iteration has observed from outside."""
    found = site.get("/observations").json["observations"]
    return [one for one in found if not one["source"].startswith("desk:")]


# Formats


@pytest.mark.parametrize(
    ("format", "kind", "body", "sources"),
    [
        ("json", "application/json", PLAIN, ["backup"]),
        ("json", "application/json", [PLAIN, PLAIN], ["backup"] * 2),
        ("json", "application/json", {"observations": [PLAIN]}, ["backup"]),
        ("json", "application/vnd.mine+json; charset=utf-8", PLAIN, ["backup"]),
        ("alertmanager", "application/json", ALERTS, ["alertmanager/Down"] * 2),
        ("cloudevents", STRUCTURED, EVENT, ["cloudevents/order"]),
        ("cloudevents", f"{STRUCTURED}; charset=utf-8", EVENT, ["cloudevents/order"]),
        ("cloudevents", BATCH, [EVENT, EVENT], ["cloudevents/order"] * 2),
    ],
)
def test_each_format_becomes_observations_that_wake_the_loop(
    eager: Site, format: str, kind: str, body: Any, sources: list[str]
) -> None:
    answer = eager.post(f"/intake/{format}", data=json.dumps(body), content_type=kind)

    assert answer.status_code == 202
    assert answer.json == {"accepted": len(sources), "iteration": 1}
    assert [one["source"] for one in seen(eager)] == sources


@pytest.mark.parametrize(
    ("kind", "body", "data"),
    [
        ("application/json", b'{"n": 1}', {"data": {"n": 1}}),
        ("text/plain", b"hello", {"data": "hello"}),
        ("application/octet-stream", b"\xff\x00", {"data_base64": "/wA="}),
        ("", b"", {}),
    ],
)
def test_a_binary_event_is_in_the_headers_and_its_data_in_the_body(
    eager: Site, kind: str, body: bytes, data: dict[str, Any]
) -> None:
    answer = eager.post("/intake/cloudevents", data=body, content_type=kind, headers=BINARY)

    assert answer.status_code == 202
    [one] = seen(eager)
    assert one["source"] == "cloudevents/order"
    assert one["data"].items() >= data.items()
    assert one["data"]["id"] == "1"


def test_a_manual_agent_keeps_them_for_its_next_iteration(desk: Site) -> None:
    answer = desk.post("/intake/json", PLAIN)

    assert answer.status_code == 202
    assert answer.json == {"accepted": 1}
    assert desk.get("/loop/status").json["iteration"] == 0
    desk.lab.run()
    assert [one["source"] for one in seen(desk)] == ["backup"]


def test_nothing_is_accepted_and_starts_nothing(eager: Site) -> None:
    answer = eager.post("/intake/json", [])

    assert (answer.status_code, answer.json) == (202, {"accepted": 0})
    assert eager.get("/loop/status").json["iteration"] == 0


# Refusals


@pytest.mark.parametrize(
    ("format", "kind", "body"),
    [
        ("json", "application/json", {"data": {}}),
        ("json", "application/json", [PLAIN, {"source": ""}, 7]),
        ("json", "application/json", [PLAIN, {**PLAIN, "sorce": "x"}]),
        ("json", "application/json", [PLAIN, {**PLAIN, "source": "run:1"}]),
        ("json", "application/json", [PLAIN] * 1001),
        ("json", "application/json", None),
        ("alertmanager", "application/json", {**ALERTS, "version": "3"}),
        ("alertmanager", "application/json", {**ALERTS, "alerts": [*ALERTS["alerts"], {}]}),
        ("cloudevents", "application/json", EVENT),
        ("cloudevents", STRUCTURED, {**EVENT, "specversion": "0.3"}),
        ("cloudevents", STRUCTURED, [EVENT]),
        ("cloudevents", BATCH, EVENT),
        ("cloudevents", BATCH, [EVENT, {**EVENT, "id": ""}]),
        ("cloudevents", "application/cloudevents+avro", EVENT),
    ],
)
def test_all_of_it_is_taken_or_nothing(eager: Site, format: str, kind: str, body: Any) -> None:
    answer = eager.post(f"/intake/{format}", data=json.dumps(body), content_type=kind)

    assert answer.status_code == 422
    assert answer.json["type"] == "/problems/invalid-request"
    assert eager.get("/loop/status").json["iteration"] == 0
    eager.lab.run()
    assert seen(eager) == []


@pytest.mark.parametrize("body", [b"", b"{", b"NaN", b"\xff", b"[" * 10_000])
@pytest.mark.parametrize(
    ("format", "kind"), [("json", "application/json"), ("cloudevents", STRUCTURED)]
)
def test_malformed_json_is_refused_and_does_nothing_h1(
    eager: Site, format: str, kind: str, body: bytes
) -> None:
    answer = eager.post(f"/intake/{format}", data=body, content_type=kind)

    assert answer.status_code == 400
    assert answer.json["type"] == "/problems/malformed-json"
    assert eager.get("/loop/status").json["iteration"] == 0


@pytest.mark.parametrize("value", [b"1e999", b"[" * 150 + b"]" * 150])
def test_what_could_not_be_read_back_is_refused(eager: Site, value: bytes) -> None:
    body = b'{"source": "x", "data": {"v": %s}}' % value
    answer = eager.post("/intake/json", data=body, content_type="application/json")

    assert answer.status_code == 422
    assert eager.get("/observations").status_code == 200


@pytest.mark.parametrize("format", ["jason", "JSON", "%20", "%0a", "%F0%9F%8E%89"])
def test_an_unknown_format_is_not_found(eager: Site, format: str) -> None:
    answer = eager.post(f"/intake/{format}", PLAIN)

    assert answer.status_code == 404
    assert answer.json["type"] == "/problems/not-found"
    assert "json" in answer.json["detail"]


def test_what_is_too_large_is_refused_h4(server: Any) -> None:
    site = Site(make_desk(server)[0], server, max_body=100)
    for headers in ({}, KEY):
        answer = site.post("/intake/json", [PLAIN] * 10, headers=headers)
        assert (answer.status_code, answer.json["type"]) == (413, "/problems/too-large")


def test_while_too_many_wait_none_is_taken_and_when_to_try_again_is_told(desk: Site) -> None:
    for _ in range(10):
        assert desk.post("/intake/json", [PLAIN] * 1000).status_code == 202
    answer = desk.post("/intake/json", PLAIN, headers=KEY)

    assert answer.status_code == 429
    assert answer.json["type"] == "/problems/too-many-requests"
    assert int(answer.headers["Retry-After"]) >= 1
    desk.lab.run()
    assert desk.post("/intake/json", PLAIN, headers=KEY).status_code == 202


# Once, and who


def test_sent_again_under_the_same_key_it_is_taken_once_h3(eager: Site) -> None:
    first = eager.post("/intake/json", PLAIN, headers=KEY)
    again = eager.post("/intake/json", PLAIN, headers=KEY)
    other = eager.post("/intake/json", [PLAIN], headers=KEY)

    assert (again.status_code, again.json) == (202, first.json)
    assert other.json["type"] == "/problems/idempotency-mismatch"
    assert eager.get("/loop/status").json["iteration"] == 1


def test_it_takes_the_scope_trigger_h2(eager: Site) -> None:
    others = eager.key("read", "runs", "actions", "approvals")

    assert eager.post("/intake/json", PLAIN, headers=others).status_code == 403
    assert eager.post("/intake/json", PLAIN, headers=eager.key("trigger")).status_code == 202


def test_a_paused_agent_keeps_them_until_it_goes_on(eager: Site) -> None:
    eager.post("/pause")
    assert eager.post("/intake/json", PLAIN).json == {"accepted": 1}
    eager.post("/resume")

    assert [one["source"] for one in seen(eager)] == ["backup"]
