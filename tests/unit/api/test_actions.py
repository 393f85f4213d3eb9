"""`/actions`: take an action, try it out, have it wait for a person."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api_kit import Site

WRITE = "/actions/desk:write"
PUBLISH = "/actions/desk:publish"
BODY = {"params": {"text": "x"}}
KEY = {"Idempotency-Key": "once"}


def test_actions_are_listed_with_what_they_take(desk: Site) -> None:
    actions = {action["id"]: action for action in desk.get("/actions").json["actions"]}

    assert set(actions) == {"desk:write", "desk:publish", "desk:tear", "desk:print_it"}
    assert actions["desk:write"]["params"]["required"] == ["text"]
    assert actions["desk:write"].items() >= {("dryRun", True), ("rollback", True)}
    assert actions["desk:publish"]["autonomy"]["mode"] == "approval-required"
    assert actions["desk:print_it"]["queue"] == "printer"


# Take


def test_an_action_is_executed_and_its_result_returned(desk: Site, done: list[str]) -> None:
    answer = desk.post(WRITE, BODY)

    assert answer.status_code == 200
    assert answer.json["success"] is True
    assert answer.json["result"]["output"] == "wrote x"
    assert answer.json["executionId"].startswith("call:")
    assert done == ["write x"]


def test_a_request_that_waits_gets_the_result_when_a_worker_has_it(desk: Site) -> None:
    answer = desk.while_it_waits(lambda: desk.post(WRITE, BODY))

    assert (answer.status_code, answer.json["result"]["output"]) == (200, "wrote x")


@pytest.mark.parametrize("wait", ["0", "0.05"])
def test_an_action_that_outlasts_the_wait_can_be_looked_up(desk: Site, wait: str) -> None:
    desk.dispatcher.held = True
    answer = desk.post(f"{WRITE}?wait={wait}", BODY)
    where = f"/executions/{answer.json['executionId']}"

    assert answer.status_code == 202
    assert answer.json.items() >= {("success", False), ("queued", False)}
    assert desk.get(where).json["state"] == "queued"
    desk.lab.deliver()
    assert desk.get(where).json["state"] == "succeeded"


def test_a_failing_action_is_an_answer(desk: Site) -> None:
    answer = desk.post("/actions/desk:tear")

    assert answer.status_code == 200
    assert answer.json["success"] is False
    assert "too strong" in answer.json["result"]["error"]


@pytest.mark.parametrize("body", [None, {}, {"params": {"text": ""}}, {"params": {"words": "x"}}])
def test_params_that_do_not_fit_are_a_failed_result_and_nothing_runs(
    desk: Site, done: list[str], body: Any
) -> None:
    answer = desk.post(WRITE, body)

    assert answer.status_code == 200
    assert answer.json["success"] is False
    assert "text" in answer.json["result"]["error"]
    assert done == []


def test_a_frozen_agent_refuses_actions_of_clients(desk: Site, done: list[str]) -> None:
    desk.post("/freeze", {"reason": "the office moves"})
    answer = desk.post(WRITE, BODY)

    assert answer.json["success"] is False
    assert "the office moves" in answer.json["result"]["error"]
    assert done == []


def test_the_audit_tells_who_had_it_taken(desk: Site) -> None:
    desk.post(WRITE, BODY, headers=desk.key("actions", principal="bob"))
    entries = desk.get("/audit").json["entries"]

    assert ("bob", "127.0.0.1") in {(entry.get("who"), entry.get("from")) for entry in entries}


@pytest.mark.parametrize("id", ["desk:burn", "write", "%20", "%0a", "desk%3Aburn", "%F0%9F%8E%89"])
@pytest.mark.parametrize("path", ["", "/dry-run"])
def test_an_unknown_action_is_not_found(desk: Site, done: list[str], id: str, path: str) -> None:
    answer = desk.post(f"/actions/{id}{path}", BODY)

    assert answer.status_code == 404
    assert answer.json["type"] == "/problems/not-found"
    assert done == []


def test_an_action_is_found_by_its_encoded_id(desk: Site) -> None:
    assert desk.post("/actions/desk%3Awrite", BODY).json["success"] is True


def test_without_a_worker_for_its_queue_nothing_is_ordered(desk: Site) -> None:
    answer = desk.post("/actions/desk:print_it", headers=KEY)

    assert answer.status_code == 503
    assert answer.json["type"] == "/problems/no-worker"
    assert "printer" in answer.json["detail"]
    assert not desk.lab.client.keys("*call:*")


@pytest.mark.parametrize("body", [b"{", b'{"params": NaN}', b"{} {}", b"\xff"])
@pytest.mark.parametrize("path", ["", "/dry-run"])
def test_malformed_json_does_nothing(desk: Site, done: list[str], body: bytes, path: str) -> None:
    answer = desk.post(f"{WRITE}{path}", data=body, content_type="application/json")

    assert (answer.status_code, answer.json["type"]) == (400, "/problems/malformed-json")
    assert done == []
    assert not desk.lab.client.keys("*call:*")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"params": []}, "/params"),
        ({"params": None}, "/params"),
        ({"rationale": 1}, "/rationale"),
        ({"requiresApproval": "yes"}, "/requiresApproval"),
        ({"parms": {}}, "/parms"),
    ],
)
def test_a_body_that_does_not_fit_does_nothing(
    desk: Site, done: list[str], body: Any, pointer: str
) -> None:
    answer = desk.post(WRITE, data=json.dumps(body), content_type="application/json")

    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json["errors"]] == [pointer]
    assert done == []


@pytest.mark.parametrize("value", [b"[" * 190 + b"]" * 190, b"1e999", b"[-1e400]"])
@pytest.mark.parametrize("action", [WRITE, PUBLISH, f"{WRITE}/dry-run"])
def test_params_that_could_not_be_read_back_are_refused(
    desk: Site, action: str, value: bytes
) -> None:
    body = b'{"params": {"text": "x", "more": %s}}' % value
    answer = desk.post(action, data=body, content_type="application/json")

    assert (answer.status_code, answer.json["type"]) == (422, "/problems/invalid-request")
    assert not desk.lab.client.keys("*call:*")


def test_params_at_the_depth_limit_can_be_shown(desk: Site) -> None:
    body = b'{"params": {"text": "x", "more": %s}}' % (b"[" * 98 + b"]" * 98)
    answer = desk.post(PUBLISH, data=body, content_type="application/json")

    assert answer.status_code == 202
    assert len(desk.get("/approvals").json["pending"]) == 1
    assert desk.get(f"/executions/{answer.json['executionId']}").status_code == 200


# Gated


def test_a_gated_action_waits_for_a_person(desk: Site, done: list[str]) -> None:
    answer = desk.post(PUBLISH, {**BODY, "rationale": "all should know"})
    item = desk.get(f"/approvals/{answer.json['approvalId']}").json

    assert answer.status_code == 202
    assert answer.json.items() >= {("success", False), ("queued", True)}
    assert (item["status"], item["params"]) == ("pending", {"text": "x"})
    assert item["decision"]["rationale"] == "all should know"
    assert item["requestedBy"] == ["alice"]
    assert done == []


def test_any_action_waits_for_a_person_when_that_is_asked_for(desk: Site, done: list[str]) -> None:
    answer = desk.post(WRITE, {**BODY, "requiresApproval": True})

    assert answer.status_code == 202
    assert answer.json["queued"] is True
    assert done == []
    bob = desk.key("approvals", principal="bob", person=True)
    approved = desk.post(f"/approvals/{answer.json['approvalId']}/approve", headers=bob)
    assert approved.json["result"]["output"] == "wrote x"
    assert done == ["write x"]


def test_the_gate_cannot_be_asked_away(desk: Site, done: list[str]) -> None:
    assert desk.post(PUBLISH, {**BODY, "requiresApproval": False}).status_code == 202
    assert done == []


def test_asked_for_twice_it_is_one_approval(desk: Site) -> None:
    first, second = desk.post(PUBLISH, BODY).json, desk.post(PUBLISH, BODY).json

    assert first["approvalId"] == second["approvalId"]
    assert desk.get(f"/approvals/{first['approvalId']}").json["seen"] == 2


# Try out


def test_a_dry_run_tells_and_does_not_do(desk: Site, done: list[str]) -> None:
    answer = desk.post(f"{WRITE}/dry-run", BODY)

    assert answer.status_code == 200
    assert answer.json["success"] is True
    assert answer.json["result"]["output"] == "would write x"
    assert done == []


def test_an_action_without_a_dry_run_says_so(desk: Site, done: list[str]) -> None:
    answer = desk.post("/actions/desk:tear/dry-run")

    assert answer.status_code == 200
    assert answer.json["success"] is False
    assert done == []


def test_a_dry_run_needs_no_approval_but_fitting_params(desk: Site) -> None:
    assert "text" in desk.post(f"{WRITE}/dry-run").json["result"]["error"]
    assert desk.post(f"{WRITE}/dry-run", {"rationale": "x"}).status_code == 422


# Once, and who


def test_taken_again_under_the_same_key_it_is_answered_as_before_and_done_once(
    desk: Site, done: list[str]
) -> None:
    first = desk.post(WRITE, BODY, headers=KEY)
    again = desk.post(WRITE, BODY, headers=KEY)
    other = desk.post(WRITE, {"params": {"text": "y"}}, headers=KEY)

    assert (again.status_code, again.json) == (200, first.json)
    assert (other.status_code, other.json["type"]) == (422, "/problems/idempotency-mismatch")
    assert done == ["write x"]


def test_an_answer_that_was_lost_with_its_process_is_found_again_by_the_key(
    desk: Site, done: list[str]
) -> None:
    first = desk.post(WRITE, BODY, headers=KEY)
    desk.lab.client.delete(*desk.lab.client.keys("*answer*"))
    again = desk.post(WRITE, BODY, headers=KEY)

    assert again.json == first.json
    assert done == ["write x"]


def test_without_a_key_for_it_every_request_is_done(desk: Site, done: list[str]) -> None:
    desk.post(WRITE, BODY)
    desk.post(WRITE, BODY)

    assert done == ["write x", "write x"]


@pytest.mark.parametrize("path", [WRITE, f"{WRITE}/dry-run", "/executions/loop:1/rollback"])
def test_a_key_without_the_scope_does_nothing(desk: Site, done: list[str], path: str) -> None:
    reader = desk.key("read", "trigger", "runs", "approvals")

    assert desk.post(path, BODY, headers=reader).status_code == 403
    assert done == []


# Undone before


def test_a_second_rollback_is_refused_without_an_approval(desk: Site, done: list[str]) -> None:
    execution = desk.post(WRITE, BODY).json["executionId"]
    path = f"/executions/{execution}/rollback"
    first = desk.post(path)
    again = desk.post(path, {"requiresApproval": True})

    assert (first.status_code, again.status_code) == (200, 409)
    assert again.json["type"] == "/problems/rollback-refused"
    assert "has been rolled back already" in again.json["detail"]
    assert desk.get("/approvals").json["pending"] == []
    assert len(done) == 2


def test_an_approval_that_is_asked_for_has_the_iteration_and_says_that_it_is_required(
    desk: Site,
) -> None:
    desk.lab.run()
    desk.lab.run()
    answer = desk.post(PUBLISH, BODY)
    item = desk.get(f"/approvals/{answer.json['approvalId']}").json

    assert item["loopIteration"] == 2
    assert item["decision"]["requiresApproval"] is True


def test_an_approval_has_no_situation_where_nothing_was_seen_yet(desk: Site) -> None:
    answer = desk.post(PUBLISH, BODY)

    assert "situationSummary" not in desk.get(f"/approvals/{answer.json['approvalId']}").json
