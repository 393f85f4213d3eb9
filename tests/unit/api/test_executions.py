"""`/executions`: look up what was executed, however it came about, and undo it once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from api_kit import Site
from boyd.testing import Lab
from kit import Recorder, agent, choice, chooses
from lab_redis import client_of
from past_kit import archive_past, archiving, execution

WRITE = "/actions/desk:write"
BODY = {"params": {"text": "x"}}
KEY = {"Idempotency-Key": "once"}


def write_once(desk: Site) -> str:
    """The id of a successful execution."""
    execution_id: str = desk.post(WRITE, BODY).json["executionId"]
    return execution_id


# Look up


def test_an_execution_by_a_client_is_shown(desk: Site) -> None:
    id = write_once(desk)
    execution = desk.get(f"/executions/{id}").json

    assert execution.items() >= {("id", id), ("state", "succeeded"), ("action", "desk:write")}
    assert execution["by"] == "alice"
    assert execution["params"] == {"text": "x"}
    assert execution["result"]["output"] == "wrote x"
    assert {"worker", "startedAt", "endedAt"} <= set(execution)


def test_an_execution_that_was_approved_is_shown(desk: Site) -> None:
    approval = desk.waiting()
    desk.post(f"/approvals/{approval}/approve")
    execution = desk.get(f"/executions/approval:{approval}").json

    assert execution.items() >= {
        ("state", "succeeded"),
        ("action", "desk:publish"),
        ("by", "alice"),
    }


def test_an_execution_of_the_loop_is_shown(site: Site) -> None:
    site.lab.run()
    execution = site.get("/executions/loop:1").json

    assert site.get(f"/executions/{execution['id']}").json == execution
    assert execution["id"].startswith("loop:1.")
    assert execution.items() >= {("state", "succeeded"), ("action", "p:do")}


def test_a_roll_back_and_a_dry_run_are_shown(desk: Site) -> None:
    id = write_once(desk)
    desk.post(f"/executions/{id}/rollback")
    tried = desk.post(f"{WRITE}/dry-run", BODY).json["executionId"]

    assert desk.get(f"/executions/rollback:{id}").json["result"]["output"] == "wiped x"
    assert desk.get(f"/executions/{tried}").json["result"]["output"] == "would write x"


def test_a_roll_back_of_a_roll_back_is_unknown_however_long_its_name_is(desk: Site) -> None:
    id = write_once(desk)
    desk.post(f"/executions/{id}/rollback")

    for depth in (2, 1200):
        for name in (id, "loop:1"):
            path = f"/executions/{'rollback:' * depth}{name}"
            assert desk.get(path).status_code == 404
            assert desk.post(f"{path}/rollback").status_code == 404


@pytest.mark.parametrize(
    ("answer", "state"), [(None, "waiting"), ("approve", "succeeded"), ("deny", "failed")]
)
def test_a_call_that_asks_a_person_is_what_becomes_of_the_approval(
    desk: Site, answer: str | None, state: str
) -> None:
    call = desk.post("/actions/desk:publish", BODY).json
    approval = call["approvalId"]
    if answer:
        desk.post(f"/approvals/{approval}/{answer}", headers=desk.key("approvals", principal="bob"))
    execution = desk.get(f"/executions/{call['executionId']}").json

    assert (execution["state"], execution["approvalId"]) == (state, approval)
    assert execution["result"]["success"] is (state == "succeeded")


def test_a_call_that_was_approved_can_be_judged_and_undone_by_its_own_id(
    desk: Site, done: list[str]
) -> None:
    call = desk.post(WRITE, {**BODY, "requiresApproval": True}).json
    bob = desk.key("approvals", principal="bob", person=True)
    desk.post(f"/approvals/{call['approvalId']}/approve", headers=bob)
    execution = desk.get(f"/executions/{call['executionId']}").json
    entry = desk.get(f"/executions/approval:{call['approvalId']}").json
    assert execution == {**entry, "id": call["executionId"], "approvalId": call["approvalId"]}

    undone = desk.post(f"/executions/{call['executionId']}/rollback")
    assert (undone.status_code, undone.json["success"]) == (200, True)
    assert done == ["write x", "wipe x"]
    again = desk.post(f"/executions/approval:{call['approvalId']}/rollback")
    assert (again.status_code, again.json["type"]) == (409, "/problems/rollback-refused")


def test_an_approved_execution_keeps_its_name_when_its_call_is_forgotten(
    desk: Site, done: list[str]
) -> None:
    call = desk.post(WRITE, {**BODY, "requiresApproval": True}).json
    id = call["executionId"]
    bob = desk.key("approvals", principal="bob", person=True)
    desk.post(f"/approvals/{call['approvalId']}/approve", headers=bob)
    before = desk.get(f"/executions/{id}").json
    desk.lab.client.delete(desk.lab.store._keys.job(id))

    assert desk.get(f"/executions/{id}").json == before
    assert desk.post(f"/executions/{id}/rollback").status_code == 200
    assert done == ["write x", "wipe x"]


@pytest.mark.parametrize(
    "id", ["unknown", "loop:1", "loop:x", "call:", "call:x", "rollback:", "%20", "%0a", "*", "::"]
)
def test_an_unknown_execution_is_not_found(desk: Site, id: str) -> None:
    for method, path in (("GET", ""), ("POST", "/rollback")):
        answer = desk.open(method, f"/executions/{id}{path}")
        assert (answer.status_code, answer.json["type"]) == (404, "/problems/not-found")


# List


def test_executions_are_listed_newest_first_without_their_results(desk: Site) -> None:
    first, second = write_once(desk), write_once(desk)
    executions = desk.get("/executions").json["executions"]

    assert [execution["id"] for execution in executions] == [second, first]
    assert executions[0].items() >= {
        *(("action", "desk:write"), ("state", "succeeded"), ("host", "here")),
        *(("worker", "lab"), ("by", "alice")),
    }
    assert "result" not in executions[0]


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("host=here", 3),
        ("host=there", 0),
        ("worker=lab&action=desk:tear", 1),
        ("state=failed", 1),
        ("state=succeeded&action=desk:write", 2),
        ("action=desk:none", 0),
        ("since=2000-01-01T00:00:00Z&until=2999-01-01T00:00:00Z", 3),
        ("since=2999-01-01T00:00:00Z", 0),
        ("until=2000-01-01T00:00:00Z", 0),
    ],
)
def test_executions_are_looked_for_by_what_they_were(desk: Site, query: str, count: int) -> None:
    write_once(desk)
    desk.post("/actions/desk:tear")
    write_once(desk)

    assert len(desk.get(f"/executions?{query}").json["executions"]) == count


def test_a_page_of_executions_leads_to_the_next(desk: Site) -> None:
    ids = [write_once(desk) for _ in range(3)]
    first = desk.get("/executions?limit=2&host=here").json
    second = desk.get(f"/executions?limit=2&host=here&cursor={first['nextCursor']}").json

    assert [execution["id"] for execution in [*first["executions"], *second["executions"]]] == ids[
        ::-1
    ]
    assert "nextCursor" not in second


def test_the_list_forgets_what_the_ledger_forgets(desk: Site) -> None:
    id = write_once(desk)
    index = "boyd:{desk}:executions"
    desk.store.client.zadd(index, {"call:old": 1000})
    again = write_once(desk)

    assert desk.store.client.zrange(index, 0, -1) == [id, again]
    assert 0 < desk.store.client.pttl(index) <= 7 * 86400 * 1000


@pytest.mark.parametrize("query", ["state=done", "since=5", "limit=0", "cursor=x", "colour=red"])
def test_a_question_for_executions_that_makes_no_sense_is_refused(desk: Site, query: str) -> None:
    assert desk.get(f"/executions?{query}").status_code in (400, 422)


# Cancel


def queue_execution(desk: Site) -> str:
    """The id of an execution that no worker has taken yet."""
    desk.dispatcher.held = True
    id: str = desk.post(f"{WRITE}?wait=0", BODY).json["executionId"]
    assert desk.get(f"/executions/{id}").json["state"] == "queued"
    return id


def test_the_scope_that_orders_an_execution_also_cancels_it_while_queued(
    desk: Site, done: list[str]
) -> None:
    id = queue_execution(desk)
    path, operator = f"/executions/{id}/cancel", desk.key("actions", principal="bob")
    assert desk.post(path, headers=desk.key("read", "approvals")).status_code == 403
    cancelled = desk.post(path, {"note": "wrong host"}, headers=operator)
    desk.lab.deliver()

    assert cancelled.status_code == 200
    assert cancelled.json.items() >= {("id", id), ("state", "failed"), ("by", "alice")}
    result = cancelled.json["result"]
    assert result["prevented"] == "cancelled"
    assert result["error"] == "Not executed: cancelled by bob: wrong host"
    assert done == []
    assert desk.post(path, headers=operator).json == desk.get(f"/executions/{id}").json


def test_a_started_execution_is_not_cancelled(desk: Site) -> None:
    id = queue_execution(desk)
    desk.store.client.hset(f"boyd:{{desk}}:execution:{id}", mapping={"state": "running"})
    refused = desk.post(f"/executions/{id}/cancel")

    assert (refused.status_code, refused.json["type"]) == (409, "/problems/started")
    assert f"{id} has started" in refused.json["detail"]


def test_ended_executions_and_pending_approvals_are_not_cancelled(desk: Site) -> None:
    waits = desk.post("/actions/desk:publish", BODY).json
    refused = desk.post(f"/executions/{waits['executionId']}/cancel")
    assert (refused.status_code, refused.json["type"]) == (409, "/problems/finished")
    assert refused.json["approvalId"] == waits["approvalId"]

    refused = desk.post(f"/executions/{write_once(desk)}/cancel")
    assert (refused.status_code, refused.json["type"]) == (409, "/problems/finished")
    assert desk.post("/executions/call:none/cancel").status_code == 404
    assert desk.post(f"/executions/approval:{waits['approvalId']}/cancel").status_code == 404


# Undo


def test_a_successful_execution_is_undone(desk: Site, done: list[str]) -> None:
    answer = desk.post(f"/executions/{write_once(desk)}/rollback", {"rationale": "a mistake"})

    assert answer.status_code == 200
    assert answer.json["success"] is True
    assert answer.json["result"]["output"] == "wiped x"
    assert done == ["write x", "wipe x"]


def test_it_is_undone_once(desk: Site, done: list[str]) -> None:
    id = write_once(desk)
    desk.post(f"/executions/{id}/rollback")
    again = desk.post(f"/executions/{id}/rollback")

    assert (again.status_code, again.json["type"]) == (409, "/problems/rollback-refused")
    assert done == ["write x", "wipe x"]


def test_undone_again_under_the_same_key_it_is_answered_as_before(
    desk: Site, done: list[str]
) -> None:
    id = write_once(desk)
    first = desk.post(f"/executions/{id}/rollback", headers=KEY)
    again = desk.post(f"/executions/{id}/rollback", headers=KEY)

    assert (again.status_code, again.json) == (200, first.json)
    assert done == ["write x", "wipe x"]


def test_undoing_waits_for_a_person_when_that_is_asked_for(desk: Site, done: list[str]) -> None:
    answer = desk.post(f"/executions/{write_once(desk)}/rollback", {"requiresApproval": True})
    bob = desk.key("approvals", principal="bob", person=True)

    assert answer.status_code == 202
    assert answer.json["queued"] is True
    assert done == ["write x"]
    desk.post(f"/approvals/{answer.json['approvalId']}/approve", headers=bob)
    assert done == ["write x", "wipe x"]


def test_an_execution_that_cannot_be_rolled_back_is_refused(desk: Site, done: list[str]) -> None:
    failed = desk.post("/actions/desk:tear").json["executionId"]
    approval = desk.waiting()
    desk.post(f"/approvals/{approval}/approve")
    id = write_once(desk)
    desk.post(f"/executions/{id}/rollback")
    before = list(done)

    for refusable in (failed, f"approval:{approval}", f"rollback:{id}"):
        answer = desk.post(f"/executions/{refusable}/rollback")
        assert (answer.status_code, answer.json["type"]) == (409, "/problems/rollback-refused"), (
            refusable
        )
    assert done == before


def test_a_dry_run_and_a_call_that_waits_have_nothing_to_undo(desk: Site) -> None:
    tried = desk.post(f"{WRITE}/dry-run", BODY).json["executionId"]
    waits = desk.post("/actions/desk:publish", BODY).json["executionId"]

    assert desk.post(f"/executions/{tried}/rollback").status_code == 404
    assert desk.post(f"/executions/{waits}/rollback").status_code == 404


@pytest.mark.parametrize("body", [{"rationale": 1}, {"params": {}}, {"requiresApproval": None}])
def test_a_body_that_does_not_fit_undoes_nothing(desk: Site, done: list[str], body: Any) -> None:
    answer = desk.post(f"/executions/{write_once(desk)}/rollback", body)

    assert answer.status_code == 422
    assert done == ["write x"]


def test_an_execution_of_the_loop_can_be_rolled_back(server: Any) -> None:
    undone: list[Any] = []
    action = Recorder().action(rollback=lambda params: undone.append(params))
    lab = Lab(
        agent(chooses(choice("p:do", params={"n": 1})), action),
        client=client_of(server),
    )
    site = Site(lab, server)
    lab.run()

    assert site.post("/executions/loop:1/rollback").json["success"] is True
    assert undone == [{"n": 1}]


def test_an_execution_that_only_the_archive_has_is_not_undone(desk: Site, tmp_path: Path) -> None:
    with archiving(desk, tmp_path) as archive:
        archive_past(archive, executions=[execution("loop:7.a", 1, action="desk:write")])
        assert desk.get("/executions/loop:7.a").status_code == 200
        answer = desk.post("/executions/loop:7.a/rollback")

    assert (answer.status_code, answer.json["type"]) == (409, "/problems/rollback-refused")
    assert "no longer in the ledger" in answer.json["detail"]
