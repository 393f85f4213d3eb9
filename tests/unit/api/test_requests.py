"""Requests are validated, and refused with the reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import Field

from api_kit import Site, make_lab
from boyd.errors import PayloadTooLarge, StoreError, StoreReadOnly
from boyd.models import JsonObject, Model
from boyd_api.http.problems import PROBLEM_TYPES, HttpProblem, problem_of
from boyd_api.http.request_context import RequestContext
from boyd_api.http.routing import JsonResponse, Routes

PAUSE = "/pause"


def nothing_happened(site: Site) -> bool:
    return site.lab.store.loop_control.status().paused is None


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"reason": NaN}',
        b'{"reason": Infinity}',
        b"\xff\xfe",
        b'{"reason": "\\ud800"}',
        b"[" * 10_000,
        b"{} {}",
    ],
)
def test_malformed_json_is_refused_and_does_nothing(site: Site, body: bytes) -> None:
    answer = site.post(PAUSE, data=body, content_type="application/json")

    assert answer.status_code == 400
    assert answer.json["type"] == "/problems/malformed-json"
    assert nothing_happened(site)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_body_may_begin_with_a_byte_order_mark(site: Site, encoding: str) -> None:
    body = '{"reason": "Wartung für später"}'.encode(encoding)
    answer = site.post(PAUSE, data=body, content_type="application/json")

    assert answer.status_code == 200
    assert site.lab.store.loop_control.status().paused == "Wartung für später (by alice)"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "a/json", ""])
def test_a_body_of_another_type_is_refused(site: Site, kind: str) -> None:
    answer = site.post(PAUSE, data=b'{"reason": "x"}', content_type=kind)

    assert answer.status_code == 415
    assert nothing_happened(site)


@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=utf-8", "application/merge-patch+json"]
)
def test_a_body_of_any_kind_of_json_is_read(site: Site, kind: str) -> None:
    assert site.post(PAUSE, data=b'{"reason": "x"}', content_type=kind).status_code == 200


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({"reason": 1}, ["/reason"]),
        ({"reasons": "x"}, ["/reasons"]),
        ({"reason": "x", "a/b~c": 1}, ["/a~1b~0c"]),
        ([], [""]),
        ("text", [""]),
        (None, [""]),
    ],
)
def test_each_field_that_does_not_fit_is_named_by_a_pointer(
    site: Site, body: Any, pointers: list[str]
) -> None:
    answer = site.post(PAUSE, data=json.dumps(body), content_type="application/json")

    assert answer.status_code == 422
    assert answer.json["type"] == "/problems/invalid-request"
    assert [error["pointer"] for error in answer.json["errors"]] == pointers
    assert nothing_happened(site)


def test_names_are_those_of_the_wire_and_no_others(site: Site) -> None:
    body = {"name": "x", "principal": "x", "scopes": ["read"]}

    assert site.post("/keys", body | {"expiresIn": 1}).status_code == 201
    assert site.post("/keys", body | {"expires_in": 1}).status_code == 422


@pytest.mark.parametrize(
    ("pointer", "change"),
    [
        ("/principal", {"principal": "a\u200blice"}),
        ("/name", {"name": "lap\u200btop"}),
        ("/groups/1", {"groups": ["dba", "o\u200bps"]}),
    ],
)
def test_a_name_that_cannot_be_seen_whole_is_refused(
    site: Site, pointer: str, change: dict[str, Any]
) -> None:
    answer = site.post("/keys", {"name": "x", "principal": "ann", "scopes": ["read"], **change})

    assert [error["pointer"] for error in answer.json["errors"]] == [pointer]
    assert "invisible character U+200B ZERO WIDTH SPACE" in answer.json["errors"][0]["detail"]


def test_a_body_that_may_be_absent_may_be(site: Site) -> None:
    assert site.post(PAUSE).status_code == 200
    assert site.post(PAUSE, content_type="application/json").status_code == 200


def test_a_body_that_is_needed_is_missed(site: Site) -> None:
    assert site.post("/keys").json["type"] == "/problems/malformed-json"


def test_a_body_that_is_too_large_is_refused(server: Any) -> None:
    site = Site(make_lab(server), server, max_body=100)
    answer = site.post(PAUSE, {"reason": "x" * 200})

    assert answer.status_code == 413
    assert answer.json["type"] == "/problems/too-large"
    assert site.post(PAUSE, {"reason": "x" * 50}).status_code == 200


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("limit=abc", "limit"),
        ("limit=-5", "limit"),
        ("limit=0", "limit"),
        ("limit=", "limit"),
        ("limit=1&limit=2", "limit"),
        ("nothing=1", "nothing"),
    ],
)
def test_each_parameter_that_does_not_fit_is_named(site: Site, query: str, parameter: str) -> None:
    answer = site.get(f"/observations?{query}")

    assert answer.status_code == 422
    assert [error["parameter"] for error in answer.json["errors"]] == [parameter]


# Problems


def test_a_problem_says_the_same_to_all_clients(site: Site) -> None:
    answer = site.get("/loop/history/99", headers={"X-Request-Id": "abc-1"})

    assert answer.mimetype == "application/problem+json"
    assert answer.json == {
        "type": "/problems/not-found",
        "title": "Not found",
        "status": 404,
        "detail": "iteration 99 has not ended, or is no longer in history",
        "error": "iteration 99 has not ended, or is no longer in history",
        "instance": "abc-1",
    }


@pytest.mark.parametrize("name", PROBLEM_TYPES)
def test_every_type_of_problem_is_explained(site: Site, name: str) -> None:
    answer = site.client.get(f"/problems/{name}")

    assert answer.json["status"] == PROBLEM_TYPES[name].status
    assert answer.json["explanation"]
    assert site.client.get("/problems/nothing").status_code == 404


@pytest.mark.parametrize("sent", ["", "a b", "x" * 65, "<script>"])
def test_an_id_of_a_request_that_is_not_sane_is_replaced(site: Site, sent: str) -> None:
    answer = site.get("/state", headers={"X-Request-Id": sent})

    assert len(answer.headers["X-Request-Id"]) == 32
    assert site.get("/state", headers={"X-Request-Id": "a.b"}).headers["X-Request-Id"] == "a.b"


def test_an_unexpected_fault_tells_no_internals(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def boom(_: object) -> None:
        raise RuntimeError("the password is x")

    monkeypatch.setattr("boyd_api.routes.agent_routes.last_result", boom)
    answer = site.get("/state", headers={"X-Request-Id": "find-me"})

    assert answer.status_code == 500
    assert answer.json["instance"] == "find-me"
    assert "password" not in answer.text
    assert "find-me" in caplog.text
    assert "the password is x" in caplog.text


def test_errors_map_to_the_problems_that_describe_them(site: Site) -> None:
    with site.app.test_request_context():
        full = problem_of(StoreReadOnly("OOM command not allowed"))
        broken = problem_of(StoreError("ERR user_script:1: attempt to index"))

        assert (full.kind.name, str(full)) == ("unavailable", "Redis does not accept writes now")
        assert broken.kind.name == "internal"
        assert problem_of(PayloadTooLarge()).kind.name == "too-large"
        assert problem_of(HttpProblem("timeout")).kind.status == 504


# A route that somebody adds


class Thing(Model):
    """Something."""

    name: str = Field(min_length=1)
    inner: JsonObject = Field(default_factory=dict)


def test_a_declared_route_knows_what_it_reads_and_may_answer() -> None:
    routes = Routes("things")

    @routes.post("/things/<id>", scope="runs", answers={201: Thing}, idempotent=True)
    def make(ctx: RequestContext, body: Thing, id: str) -> JsonResponse:
        """Make a thing."""
        return JsonResponse(body, headers={"Location": id})

    [route] = routes.all
    assert route.rules == {
        "things.make": "/api/v0/things/<id>",
        "things.make_of_agent": "/api/v0/agents/<agentId>/things/<id>",
    }
    assert (route.body, route.body_optional, route.query) == (Thing, False, None)
    assert {"invalid-request", "idempotency-mismatch", "unknown-agent", "not-found"} <= set(
        route.possible_problems
    )


def test_a_proxy_that_serves_boyd_below_a_path_gets_an_error_that_says_so(site: Site) -> None:
    removed = {"X-Forwarded-Prefix": "/boyd/"}
    answer = site.post(PAUSE, headers=removed)
    page = site.client.get("/console/login", headers=removed)
    answers = [
        site.client.get(f"/ops/boyd{path}") for path in ("/console/", "/api/v0/agents", "/docs")
    ]

    assert (answer.status_code, page.status_code) == (400, 400)
    assert "serves Boyd below /boyd, but it needs a host name of its own" in answer.json["detail"]
    assert "serves Boyd below /boyd, but" in page.text
    assert page.mimetype == "text/html"
    for response in answers:
        assert (response.status_code, "below /ops/boyd, but" in response.json["detail"]) == (
            404,
            True,
        )
    assert nothing_happened(site)


@pytest.mark.parametrize("prefix", ["", "/"])
def test_a_proxy_that_removes_no_path_is_served(site: Site, prefix: str) -> None:
    assert site.post(PAUSE, headers={"X-Forwarded-Prefix": prefix}).status_code == 200
    unknown = site.client.get("/api/v0/agents/console").json
    assert "host name of its own" not in unknown["detail"]
