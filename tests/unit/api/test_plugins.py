"""`/plugins`: requests are answered by a plugin's endpoints, on a worker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api_kit import Site, make_desk

NOTE = "/plugins/desk/notes/today"
KEY = {"Idempotency-Key": "once"}


def test_an_endpoint_is_asked_with_path_query_and_who_asks(desk: Site) -> None:
    answer = desk.get(f"{NOTE}?style=short&empty=")

    assert answer.status_code == 200
    assert answer.mimetype == "application/json"
    assert answer.json["method"] == "GET"
    assert answer.json["path"] == {"name": "today"}
    assert answer.json["query"] == {"style": "short", "empty": ""}
    assert answer.json["actor"]["principal"] == "alice"


@pytest.mark.parametrize(
    ("encoded", "name"),
    [
        *(("a%20b", "a b"), ("caf%C3%A9", "café"), ("100%25", "100%"), ("a%3Fb", "a?b")),
        *(("%0A", "\n"), ("a+b", "a+b"), ("..", ".."), ("%F0%9F%8E%89", "🎉")),
    ],
)
def test_a_part_of_the_path_is_decoded_once(desk: Site, encoded: str, name: str) -> None:
    assert desk.get(f"/plugins/desk/notes/{encoded}").json["path"] == {"name": name}


def test_the_root_of_a_plugin_is_an_endpoint_like_others(desk: Site) -> None:
    answer = desk.get("/plugins/desk/")

    assert (answer.status_code, answer.json) == (200, [])


def test_the_body_is_any_json_and_the_status_that_of_the_endpoint(desk: Site) -> None:
    bodies: list[Any] = [{"a": [1, None]}, [], "text", 7, None, False]
    for body in bodies:
        answer = desk.open("PUT", NOTE, data=json.dumps(body), content_type="application/json")
        assert answer.status_code == 201
        assert answer.json == {"sent": body, "by": "alice"}


def test_a_body_may_be_absent(desk: Site) -> None:
    assert desk.open("PUT", NOTE).json["sent"] is None


def test_an_answer_without_a_body_has_none(desk: Site) -> None:
    answer = desk.open("DELETE", NOTE)

    assert (answer.status_code, answer.data) == (204, b"")


@pytest.mark.parametrize("body", [b"{", b"NaN", b"\xff", b"[" * 10_000])
def test_a_body_that_is_not_json_is_refused_and_does_nothing(
    desk: Site, done: list[str], body: bytes
) -> None:
    answer = desk.open("PUT", NOTE, data=body, content_type="application/json")

    assert answer.status_code == 400
    assert answer.json["type"] == "/problems/malformed-json"
    assert done == []


def test_a_body_of_another_type_is_refused(desk: Site, done: list[str]) -> None:
    answer = desk.open("PUT", NOTE, data=b"a=b", content_type="text/plain")

    assert answer.status_code == 415
    assert done == []


def test_a_body_that_is_too_large_is_refused(server: Any) -> None:
    lab, plugin = make_desk(server)
    site = Site(lab, server, max_body=100)
    for headers in ({}, KEY):
        answer = site.open("PUT", NOTE, json="x" * 200, headers=headers)
        assert (answer.status_code, answer.json["type"]) == (413, "/problems/too-large")
    assert plugin.done == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        *((b"[" * 100 + b"]" * 100, 201), (b"[" * 101 + b"1" + b"]" * 101, 422)),
        *((b"[" * 190 + b"]" * 190, 422), (b"1e308", 201), (b"1e309", 422), (b"[-1e999]", 422)),
    ],
)
def test_a_body_that_could_not_be_read_back_is_refused(
    desk: Site, body: bytes, status: int
) -> None:
    answer = desk.open("PUT", NOTE, data=body, content_type="application/json")

    assert answer.status_code == status


@pytest.mark.parametrize(
    "path",
    [
        *("/plugins/other/notes/today", "/plugins/desk/none", "/plugins/desk/notes"),
        *("/plugins/desk/notes/a/b", "/plugins/desk/notes/", "/plugins/desk//notes/today"),
        *("/plugins/desk/notes/a%2Fb", "/plugins/desk/x", "/plugins/desk", "/plugins/%20/x"),
    ],
)
def test_a_path_without_an_endpoint_is_not_found(desk: Site, path: str) -> None:
    answer = desk.get(path)

    assert answer.status_code == 404
    assert answer.json["type"] == "/problems/not-found"


def test_another_method_is_refused_with_those_that_there_are(desk: Site) -> None:
    answer = desk.post("/plugins/desk/printed")
    listed = desk.open("PATCH", "/plugins/desk/")

    assert answer.status_code == listed.status_code == 405
    assert answer.json["type"] == "/problems/method-not-allowed"
    assert answer.headers["Allow"] == listed.headers["Allow"] == "GET, HEAD"
    assert desk.open("OPTIONS", NOTE).status_code == 405


def test_head_is_answered_like_get_without_the_body(desk: Site) -> None:
    answer = desk.open("HEAD", NOTE)

    assert (answer.status_code, answer.data) == (200, b"")


def test_an_endpoint_that_fails_says_so_and_nothing_of_its_inside(
    desk: Site, caplog: pytest.LogCaptureFixture
) -> None:
    answer = desk.open("PATCH", NOTE)

    assert answer.status_code == 502
    assert answer.content_type == "application/problem+json"
    assert answer.json["type"] == "/problems/endpoint-failed"
    assert answer.json["instance"] == answer.headers["X-Request-Id"]
    assert "desk:change failed" in answer.json["error"]
    assert "the paper is too strong" not in answer.text
    # The log of the worker has it all, and the call by which to find it.
    assert "the paper is too strong" in caplog.text
    assert answer.json["callId"] in caplog.text


def test_without_a_worker_for_its_queue_nothing_is_ordered(desk: Site) -> None:
    answer = desk.get("/plugins/desk/printed")

    assert answer.status_code == 503
    assert answer.json["type"] == "/problems/no-worker"


def test_an_endpoint_that_does_not_answer_in_time_is_a_timeout(server: Any) -> None:
    lab, _ = make_desk(server)
    site = Site(lab, server, max_wait=0.05)
    site.dispatcher.held = True
    answer = site.get(NOTE)

    assert answer.status_code == 504
    assert answer.json["type"] == "/problems/timeout"


def test_a_request_that_waits_gets_the_answer_when_a_worker_has_it(desk: Site) -> None:
    assert desk.while_it_waits(lambda: desk.get(NOTE)).status_code == 200


# Acting


def test_an_endpoint_that_acts_does_so_through_the_one_path(desk: Site, done: list[str]) -> None:
    answer = desk.post("/plugins/desk/write/hello")

    assert answer.status_code == 200
    assert answer.json["success"] is True
    assert answer.json["result"]["output"] == "wrote hello"
    assert done == ["write hello"]


def test_a_gated_action_of_an_endpoint_waits_for_approval(desk: Site, done: list[str]) -> None:
    answer = desk.post("/plugins/desk/publish/hello")

    assert answer.status_code == 202
    assert answer.json.items() >= {("success", False), ("queued", True)}
    item = desk.get(f"/approvals/{answer.json['approvalId']}").json
    assert (item["status"], item["requestedBy"]) == ("pending", ["alice"])
    assert done == []


def test_an_endpoint_that_wants_an_unknown_action_does_nothing(desk: Site) -> None:
    answer = desk.post("/plugins/desk/burn/hello")

    assert answer.status_code == 200
    assert answer.json["success"] is False


# Once, and who


@pytest.mark.parametrize(
    ("method", "path", "effect"),
    [("POST", "/plugins/desk/write/x", "write x"), ("PUT", NOTE, "replace today")],
)
def test_asked_again_under_the_same_key_it_is_answered_as_before_and_done_once(
    desk: Site, done: list[str], method: str, path: str, effect: str
) -> None:
    first = desk.open(method, path, headers=KEY)
    again = desk.open(method, path, headers=KEY)
    other = desk.open(method, path, json={"other": 1}, headers=KEY)

    assert (again.status_code, again.json) == (first.status_code, first.json)
    assert other.status_code == 422
    assert done == [effect]


def test_a_request_that_timed_out_gets_its_own_answer_under_its_key(
    desk: Site, done: list[str]
) -> None:
    desk.services.stopping.set()  # nobody waits any more
    desk.dispatcher.held = True
    first = desk.open("PUT", NOTE, json="first", headers=KEY)
    desk.lab.deliver()
    again = desk.open("PUT", NOTE, json="first", headers=KEY)

    assert (first.status_code, again.status_code) == (504, 201)
    assert again.json["sent"] == "first"
    assert done == ["replace today"]


def test_reading_takes_the_scope_read_and_the_rest_actions(desk: Site, done: list[str]) -> None:
    reader, actor = desk.key("read"), desk.key("actions")

    assert desk.get(NOTE, headers=reader).status_code == 200
    assert desk.get(NOTE, headers=actor).status_code == 403
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert desk.open(method, NOTE, headers=reader).status_code == 403
    assert desk.open("PUT", NOTE, headers=actor).status_code == 201
    assert done == ["replace today"]
