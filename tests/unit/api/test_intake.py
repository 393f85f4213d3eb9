"""`/intake`: what others send becomes observations that wake the loop; all of it, or nothing."""

from __future__ import annotations

import base64
import json
import logging
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from api_kit import Site, make_desk
from boyd.intake import IntakeRequest, formats
from boyd.models import Observation, from_ms
from boyd.store import IntakeLimits
from boyd.store.keys import Keys
from boyd_api.routes import intake_routes
from virtual_time import BEGIN, VirtualTime, imaginary_server

KEY = {"Idempotency-Key": "once"}
PLAIN = {"source": "backup", "severity": "error", "data": {"job": "nightly"}}
EVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order", "data": {"n": 1}}
ALERTS: dict[str, Any] = {
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
#: The time of an imaginary Redis, by which the clock of this host is weeks behind.
NOW = from_ms(BEGIN).isoformat().replace("+00:00", "Z")
STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
BINARY = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/shop", "ce-type": "order"}


@pytest.fixture
def eager(server: Any) -> Site:
    """A site whose agent begins as soon as something comes in."""
    return Site(make_desk(server, "event-driven")[0], server)


def outside_observations(site: Site) -> list[Any]:
    """The observations from outside in the last iteration."""
    observations = site.get("/observations").json["observations"]
    return [
        observation for observation in observations if not observation["source"].startswith("desk:")
    ]


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
        ("cloudevents", BATCH, [EVENT, {**EVENT, "id": "2"}], ["cloudevents/order"] * 2),
    ],
)
def test_each_format_becomes_observations_that_wake_the_loop(
    eager: Site, format: str, kind: str, body: Any, sources: list[str]
) -> None:
    answer = eager.post(f"/intake/{format}", data=json.dumps(body), content_type=kind)

    assert answer.status_code == 202
    assert answer.json == {"accepted": len(sources), "iteration": 1}
    assert [observation["source"] for observation in outside_observations(eager)] == sources


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
    [observation] = outside_observations(eager)
    assert observation["source"] == "cloudevents/order"
    assert observation["data"].items() >= data.items()
    assert observation["data"]["id"] == "1"


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "multipart/form-data; x=1"])
def test_the_answer_to_a_form_names_the_setting_that_is_wrong(desk: Site, kind: str) -> None:
    answer = desk.post("/intake/datadog", data=b"payload=%7B%7D", content_type=kind)
    assert answer.status_code == 400
    assert answer.json["detail"].endswith("set its content type to application/json")

    other = desk.post("/intake/datadog", data=b"{", content_type="application/json")
    assert "content type" not in other.json["detail"]


def test_a_manual_agent_keeps_them_for_its_next_iteration(desk: Site) -> None:
    answer = desk.post("/intake/json", PLAIN)

    assert answer.status_code == 202
    assert answer.json == {"accepted": 1}
    assert desk.get("/loop/status").json["iteration"] == 0
    desk.lab.run()
    assert [observation["source"] for observation in outside_observations(desk)] == ["backup"]


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
        ("json", "application/json", [PLAIN] * 10_001),
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
    assert outside_observations(eager) == []


@pytest.mark.parametrize("body", [b"", b"{", b"NaN", b"\xff", b"[" * 10_000])
@pytest.mark.parametrize(
    ("format", "kind"), [("json", "application/json"), ("cloudevents", STRUCTURED)]
)
def test_malformed_json_is_refused_and_does_nothing(
    eager: Site, format: str, kind: str, body: bytes
) -> None:
    answer = eager.post(f"/intake/{format}", data=body, content_type=kind)

    assert answer.status_code == 400
    assert answer.json["type"] == "/problems/malformed-json"
    assert eager.get("/loop/status").json["iteration"] == 0


@pytest.mark.parametrize("value", [b"1e999", b"[" * 150 + b"]" * 150])
def test_observations_that_could_not_be_read_back_are_refused(eager: Site, value: bytes) -> None:
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


def test_a_message_that_is_too_large_is_refused(server: Any) -> None:
    site = Site(make_desk(server)[0], server, intake={"max_body": 100})
    for headers in ({}, KEY):
        answer = site.post("/intake/json", [PLAIN] * 10, headers=headers)
        assert (answer.status_code, answer.json["type"]) == (413, "/problems/too-large")


@pytest.mark.long
def test_a_full_intake_refuses_messages_with_the_time_to_retry(desk: Site) -> None:
    for _ in range(2):
        assert desk.post("/intake/json", [PLAIN] * 10_000).status_code == 202
    answer = desk.post("/intake/json", PLAIN, headers=KEY)

    assert answer.status_code == 503
    assert answer.json["type"] == "/problems/overloaded"
    assert int(answer.headers["Retry-After"]) >= 1
    desk.lab.run()
    assert desk.post("/intake/json", PLAIN, headers=KEY).status_code == 202


# Once, and who


def test_sent_again_under_the_same_key_it_is_taken_once(eager: Site) -> None:
    first = eager.post("/intake/json", PLAIN, headers=KEY)
    again = eager.post("/intake/json", PLAIN, headers=KEY)
    other = eager.post("/intake/json", [PLAIN], headers=KEY)

    assert (again.status_code, again.json) == (202, first.json)
    assert other.json["type"] == "/problems/idempotency-mismatch"
    assert eager.get("/loop/status").json["iteration"] == 1


def test_it_takes_the_scope_trigger(eager: Site) -> None:
    others = eager.key("read", "runs", "actions", "approvals")

    assert eager.post("/intake/json", PLAIN, headers=others).status_code == 403
    assert eager.post("/intake/json", PLAIN, headers=eager.key("trigger")).status_code == 202


def test_a_paused_agent_keeps_them_until_it_goes_on(eager: Site) -> None:
    eager.post("/pause")
    assert eager.post("/intake/json", PLAIN).json == {"accepted": 1}
    eager.post("/resume")

    assert [observation["source"] for observation in outside_observations(eager)] == ["backup"]


# Storms


def metric(site: Site, name: str, **labels: str) -> float:
    """A number that the process tells Prometheus."""
    prefix = name + "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "} "
    lines = site.client.get("/metrics", headers=site.admin).text.splitlines()
    [number] = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
    return float(number)


def test_more_requests_than_allowed_are_answered_so_that_they_are_sent_again(server: Any) -> None:
    site = Site(make_desk(server)[0], server, intake={"rate": 0.1, "burst": 2})
    answers = [site.post("/intake/json", PLAIN) for _ in range(3)]

    assert [answer.status_code for answer in answers] == [202, 202, 503]
    assert answers[-1].json["type"] == "/problems/overloaded"
    assert int(answers[-1].headers["Retry-After"]) >= 1
    assert site.get("/state").status_code == 200


def test_a_storm_uses_up_nothing_of_what_people_may_ask(server: Any) -> None:
    site = Site(make_desk(server)[0], server, rate=0.1, burst=2)
    for _ in range(10):
        assert site.post("/intake/json", PLAIN).status_code == 202

    assert site.get("/state").status_code == 200


@pytest.mark.long
def test_1500_alerts_of_one_group_are_taken_and_observed_in_order(eager: Site) -> None:
    group = [{**ALERTS["alerts"][0], "fingerprint": f"{n:04}"} for n in range(1500)]
    eager.dispatcher.held = True
    answer = eager.post("/intake/alertmanager", {**ALERTS, "alerts": group})
    assert (answer.status_code, answer.json["accepted"]) == (202, 1500)
    eager.lab.deliver()

    fingerprints = [
        observation.data["fingerprint"]
        for number in (1, 2)
        for observation in eager.lab.store.history.get(number).observations  # type: ignore[union-attr]
    ]
    assert fingerprints == [f"{n:04}" for n in range(1500)]


@pytest.mark.long
def test_a_body_of_ten_megabytes_is_taken_whatever_other_requests_may_bring(eager: Site) -> None:
    note = {"summary": "x" * 10_000}
    group = [
        {**ALERTS["alerts"][0], "annotations": note, "fingerprint": f"{n}"} for n in range(1000)
    ]
    eager.dispatcher.held = True
    answer = eager.post("/intake/alertmanager", {**ALERTS, "alerts": group})
    assert answer.status_code == 202
    eager.lab.deliver()

    sizes = [len(eager.lab.store.history.get(n).observations) for n in (1, 2, 3)]  # type: ignore[union-attr]
    assert sum(sizes) == 1000
    assert all(sizes)


@pytest.mark.long
def test_bytes_that_wait_are_bounded_too(server: Any) -> None:
    site = Site(make_desk(server)[0], server, intake={"max_body": 20_000_000})
    large = [{**PLAIN, "data": {"x": "x" * 1_000_000}}] * 16
    codes = [site.post("/intake/json", large).status_code for _ in range(5)]

    assert codes == [202, 202, 202, 202, 503]
    assert site.post("/intake/json", [PLAIN] * 100).status_code == 202
    for _ in range(30):
        site.lab.run()
    assert site.post("/intake/json", large).status_code == 202


def test_an_alert_that_is_repeated_while_it_waits_is_one_observation_with_a_count(
    desk: Site,
) -> None:
    for _ in range(3):
        desk.post("/intake/alertmanager", ALERTS)
    resolved = {**ALERTS["alerts"][1], "status": "resolved"}
    desk.post("/intake/alertmanager", {**ALERTS, "alerts": [resolved]})
    desk.lab.run()

    first, second = outside_observations(desk)
    assert first["metadata"]["occurrences"] == 3
    assert first["data"]["status"] == "firing"
    assert second["metadata"]["occurrences"] == 4
    assert second["data"]["status"] == "resolved"

    later = alert("a", startsAt="2026-01-05T13:00:00Z")
    desk.post("/intake/alertmanager", {**ALERTS, "alerts": [later]})
    desk.lab.run()
    assert [
        "occurrences" in observation["metadata"] for observation in outside_observations(desk)
    ] == [False]


def alert(host: str, status: str = "firing", **fields: str) -> dict[str, Any]:
    """An alert that began at noon, or ended ten minutes later."""
    ends_at = "2026-01-05T12:10:00Z" if status == "resolved" else "0001-01-01T00:00:00Z"
    template: dict[str, Any] = ALERTS["alerts"][0]
    labels = {**template["labels"], "instance": host}
    return {
        **template,
        "status": status,
        "labels": labels,
        "endsAt": ends_at,
        "fingerprint": host,
        **fields,
    }


def observe_alerts(site: Site, *alerts: dict[str, Any]) -> list[str]:
    """The observations of the next iteration when each alert comes in a request of its own."""
    for alert_sent in alerts:
        assert (
            site.post("/intake/alertmanager", {**ALERTS, "alerts": [alert_sent]}).status_code == 202
        )
    site.lab.run()
    return [
        f"{observation['data']['status']} {observation['metadata']['fingerprint']}"
        for observation in outside_observations(site)
    ]


AGAIN = {"startsAt": "2026-01-05T12:20:00Z"}


@pytest.mark.parametrize("replicas", [2, 3])
def test_an_alert_from_each_of_a_cluster_of_alertmanagers_is_observed_once(
    desk: Site, replicas: int
) -> None:
    fires, ends = alert("a"), alert("a", "resolved")

    assert [observe_alerts(desk, fires) for _ in range(replicas)] == [
        ["firing a"],
        *[[]] * (replicas - 1),
    ]
    assert [observe_alerts(desk, ends) for _ in range(replicas)] == [
        ["resolved a"],
        *[[]] * (replicas - 1),
    ]


def test_an_end_that_two_tell_with_different_times_is_observed_once(desk: Site) -> None:
    assert observe_alerts(desk, alert("a"), alert("b")) == ["firing a", "firing b"]
    assert observe_alerts(desk, alert("a", "resolved")) == ["resolved a"]
    assert observe_alerts(desk, alert("a", "resolved", endsAt="2026-01-05T12:10:07Z")) == []


def test_an_alert_that_began_before_its_end_was_seen_is_over(desk: Site) -> None:
    assert observe_alerts(desk, alert("a", "resolved")) == ["resolved a"]
    assert observe_alerts(desk, alert("a"), alert("b")) == ["firing b"]


def test_an_end_that_waits_is_not_replaced_by_what_came_before_it(desk: Site) -> None:
    assert observe_alerts(desk, alert("a"), alert("a", "resolved"), alert("a")) == ["resolved a"]
    assert observe_alerts(desk, alert("a", **AGAIN), alert("a", "resolved")) == ["firing a"]


def test_a_late_end_does_not_hide_that_the_alert_fires_again(desk: Site) -> None:
    assert observe_alerts(desk, alert("a")) == ["firing a"]
    assert observe_alerts(desk, alert("a", **AGAIN)) == ["firing a"]
    assert observe_alerts(desk, alert("a", "resolved")) == []
    late = alert("a", "resolved", endsAt="2026-01-05T12:30:00Z", **AGAIN)
    assert observe_alerts(desk, late) == ["resolved a"]


def test_an_alert_that_fires_again_is_observed_again(desk: Site) -> None:
    assert observe_alerts(desk, alert("a")) == ["firing a"]
    assert observe_alerts(desk, alert("a", "resolved")) == ["resolved a"]
    assert observe_alerts(desk, alert("a", **AGAIN)) == ["firing a"]


def test_an_end_without_a_time_ends_no_alert_that_began_later(desk: Site) -> None:
    untimed = alert("a", "resolved", endsAt="")
    assert observe_alerts(desk, alert("a")) == ["firing a"]
    assert observe_alerts(desk, untimed) == ["resolved a"]
    assert observe_alerts(desk, alert("a")) == []
    assert observe_alerts(desk, alert("a", startsAt="2026-01-05T12:05:00Z")) == ["firing a"]


def test_an_alert_that_has_become_worse_is_observed_again(desk: Site) -> None:
    labels = {"alertname": "Down", "instance": "a", "severity": "warning"}
    assert observe_alerts(desk, alert("a", labels=labels)) == ["firing a"]  # type: ignore[arg-type]
    assert observe_alerts(desk, alert("a")) == ["firing a"]


def test_both_ends_of_an_alert_in_one_request_are_put_in_order(desk: Site) -> None:
    body = {**ALERTS, "alerts": [alert("a", "resolved"), alert("a"), alert("b"), alert("b")]}
    desk.post("/intake/alertmanager", body)
    desk.lab.run()

    assert [observation["data"]["status"] for observation in outside_observations(desk)] == [
        "resolved",
        "firing",
    ]


def test_an_alert_is_remembered_for_minutes_so_that_reminders_are_observed(desk: Site) -> None:
    assert observe_alerts(desk, alert("a")) == ["firing a"]
    client, key = desk.lab.client, Keys("desk").intake_alerts
    for member, score in client.zscan_iter(key):
        client.zadd(key, {member: score - 301_000})

    assert observe_alerts(desk, alert("a")) == ["firing a"]


def test_an_alert_refused_for_lack_of_room_is_taken_at_the_next_attempt(
    desk: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake_routes, "IntakeLimits", lambda *_: IntakeLimits(observations=20))
    desk.post("/intake/json", [PLAIN] * 20)
    body = {**ALERTS, "alerts": [alert("a")]}
    assert desk.post("/intake/alertmanager", body).status_code == 503
    desk.lab.run()
    while desk.lab.client.llen(Keys("desk").intake):
        desk.lab.run()

    assert observe_alerts(desk, alert("a")) == ["firing a"]


@pytest.mark.long
def test_a_repeated_alert_takes_no_room(server: Any) -> None:
    site = Site(make_desk(server)[0], server)
    for _ in range(2):
        site.post("/intake/json", [PLAIN] * 9_999)
    assert site.post("/intake/alertmanager", ALERTS).status_code == 202
    assert site.post("/intake/json", PLAIN).status_code == 503

    assert site.post("/intake/alertmanager", ALERTS).status_code == 202


def test_the_same_cloud_event_is_observed_once_even_after_an_iteration(desk: Site) -> None:
    others = [{**EVENT, "id": "2"}, {**EVENT, "source": "/other"}]
    for event in (EVENT, EVENT, *others):
        sent = desk.post("/intake/cloudevents", data=json.dumps(event), content_type=STRUCTURED)
        assert sent.json["accepted"] == 1
    desk.lab.run()
    assert len(outside_observations(desk)) == 3

    desk.post("/intake/cloudevents", data=json.dumps(EVENT), content_type=STRUCTURED)
    desk.lab.run()
    assert outside_observations(desk) == []


def test_refused_messages_are_logged_and_counted(
    server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(make_desk(server)[0], server, intake={"max_body": 1000})
    with caplog.at_level(logging.WARNING, "boyd.api"):
        site.post("/intake/alertmanager", {**ALERTS, "version": "9"})
        site.post("/intake/alertmanager", {**ALERTS, "version": "9"})
        site.post("/intake/json", [PLAIN] * 100)
        site.post("/intake/nonsense", PLAIN)
        site.post("/intake/json", PLAIN, headers={"Authorization": "Bearer x"})

    name = "boyd_intake_refused_total"
    assert metric(site, name, format="alertmanager", reason="invalid-request") == 2
    assert metric(site, name, format="json", reason="too-large") == 1
    assert metric(site, name, format="unknown", reason="not-found") == 1
    assert metric(site, name, format="json", reason="overloaded") == 0
    assert metric(site, name, format="json", reason="unauthenticated") == 1
    lines = [record.message for record in caplog.records]
    assert len(lines) == 4
    assert "intake alertmanager refused, invalid-request: alice: version: is '9'" in lines[0]


def test_accepted_and_waiting_observations_are_counted(desk: Site) -> None:
    desk.post("/intake/json", [PLAIN] * 3)

    assert metric(desk, "boyd_intake_observations_total", format="json") == 3
    assert metric(desk, "boyd_intake_waiting", agent="desk") == 3


# Senders


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def test_senders_that_know_no_bearer_keys_send_theirs_as_a_password_or_in_a_header(
    desk: Site,
) -> None:
    text = desk.key("trigger")["Authorization"].removeprefix("Bearer ")
    for headers in (basic("grafana", text), basic("", text), {"X-API-Key": text}):
        sent = desk.client.post("/api/v0/intake/json", json=PLAIN, headers=headers)
        assert sent.status_code == 202, sent.text


def test_other_routes_take_a_bearer_key_only(desk: Site) -> None:
    text = desk.admin["Authorization"].removeprefix("Bearer ")
    for headers in (basic("x", text), {"X-API-Key": text}):
        assert desk.client.get("/api/v0/state", headers=headers).status_code == 401


@pytest.mark.parametrize("header", ["Basic", "Basic !!", "Basic eA==", "Basic eDo=", "Digest x"])
def test_an_authorization_header_without_a_key_is_refused(desk: Site, header: str) -> None:
    headers = {"Authorization": header}
    answer = desk.client.post("/api/v0/intake/json", json=PLAIN, headers=headers)

    assert answer.status_code == 401


def test_a_compressed_body_is_refused_as_what_it_is(desk: Site) -> None:
    answer = desk.post("/intake/json", PLAIN, headers={"Content-Encoding": "gzip"})

    assert answer.status_code == 415
    assert "gzip" in answer.json["detail"]
    assert answer.headers["Accept-Encoding"] == "identity"


def broken(_: IntakeRequest) -> list[Observation]:
    raise KeyError("labels")


def test_a_format_that_fails_is_a_fault_of_the_server_and_not_an_unknown_path(
    desk: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    point = EntryPoint("broken", f"{__name__}:broken", formats.GROUP)
    monkeypatch.setattr(formats, "_entry_points", lambda: {"broken": point})
    answer = desk.post("/intake/broken", PLAIN)

    assert (answer.status_code, answer.json["type"]) == (500, "/problems/internal")
    assert "labels" not in answer.text
    assert "KeyError" in caplog.text


@imaginary_server()
@pytest.mark.parametrize(
    ("format", "body"),
    [
        ("json", PLAIN),
        ("json", {**PLAIN, "timestamp": NOW}),
        ("cloudevents", {**EVENT, "time": NOW}),
        ("alertmanager", ALERTS | {"alerts": [{**ALERTS["alerts"][0], "startsAt": NOW}]}),
        ("datadog", {"event_type": "full", "date": str(BEGIN)}),
    ],
    ids=["now", "observation", "event", "alert", "mapping"],
)
def test_a_message_of_now_is_of_now_though_the_clock_of_this_host_is_weeks_behind(
    format: str, body: Any, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    VirtualTime(monkeypatch)
    site = Site(make_desk(server, "event-driven")[0], server)
    kind = STRUCTURED if format == "cloudevents" else "application/json"
    answer = site.post(f"/intake/{format}", data=json.dumps(body), content_type=kind)

    assert answer.status_code == 202, answer.json
    assert [observation["timestamp"] for observation in outside_observations(site)] == [NOW]
