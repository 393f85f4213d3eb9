"""`/approvals`: what waits, and each answer and refusal."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from api_kit import Site, make_desk
from boyd.export.archive.access import ArchiveAccess
from past_kit import approval, archive_past, archiving

PERSON = {"person": True, "groups": ["ops"]}
KEY = {"Idempotency-Key": "once"}
GARBAGE = ["", "x", '"x"', '"-1"', "W/", '"1", "2"', '"٣"', "9" * 30]


@pytest.fixture
def bob(desk: Site) -> dict[str, str]:
    """The key of another person, who may only answer."""
    return desk.key("approvals", principal="bob", **PERSON)


# The queue


def test_the_queue_shows_what_waits_and_what_was_resolved(desk: Site) -> None:
    first, second = desk.waiting("one"), desk.waiting("two")
    desk.post(f"/approvals/{second}/deny")
    answer = desk.get("/approvals")

    assert answer.status_code == 200
    assert [item["id"] for item in answer.json["pending"]] == [first]
    assert [(i["id"], i["status"]) for i in answer.json["history"]] == [(second, "denied")]
    assert "nextCursor" not in answer.json


def test_history_can_be_left_out(desk: Site) -> None:
    desk.post(f"/approvals/{desk.waiting()}/deny")

    assert desk.get("/approvals?includeHistory=false").json == {"pending": [], "history": []}
    assert len(desk.get("/approvals?includeHistory=true").json["history"]) == 1


def test_expired_items_are_listed_in_the_history(desk: Site) -> None:
    expired = desk.waiting(ttl=0)
    answer = desk.get("/approvals").json

    assert answer["pending"] == []
    assert [(item["id"], item["status"]) for item in answer["history"]] == [(expired, "expired")]


def test_an_expired_item_is_shown_as_expired_and_cannot_be_answered(desk: Site) -> None:
    expired = desk.waiting(ttl=0)

    assert desk.get(f"/approvals/{expired}").json["status"] == "expired"
    answer = desk.post(f"/approvals/{expired}/approve")
    assert answer.status_code == 404
    assert answer.json["approval"]["status"] == "expired"


def test_reading_what_is_past_its_deadline_changes_nothing_and_shows_what_it_will_be(
    desk: Site,
) -> None:
    def dump_keys() -> dict[str, Any]:
        client = desk.lab.client
        return {key: client.dump(key) for key in client.scan_iter("boyd:{desk}:*")}

    expired = desk.waiting(ttl=0)
    before = dump_keys()
    listed = desk.get("/approvals").json["history"]
    response = desk.get(f"/approvals/{expired}")
    assert desk.get("/approvals?includeHistory=false").json == {"pending": [], "history": []}
    assert dump_keys() == before
    assert [item["version"] for item in listed] == [response.json["version"]]

    assert desk.post(f"/approvals/{expired}/approve").status_code == 404
    assert dump_keys() == before
    desk.lab.sweeper.sweep()
    later = desk.get(f"/approvals/{expired}")
    assert dump_keys() != before
    assert (later.json["status"], later.headers["ETag"]) == ("expired", response.headers["ETag"])


def test_an_expired_item_gets_no_new_preview(desk: Site) -> None:
    answer = desk.post(f"/approvals/{desk.waiting(ttl=0)}/preview")

    assert answer.status_code == 404
    assert answer.json["approval"]["status"] == "expired"


def test_each_approval_past_its_deadline_is_listed_once_however_it_is_paged(desk: Site) -> None:
    expired = {desk.waiting(f"late {number}", ttl=0) for number in range(5)}
    pending = desk.waiting("in time")
    ids_seen, waits, cursor, pages = [], [], "", 0
    while pages == 0 or cursor:
        page = desk.get("/approvals", query_string={"limit": 2, "cursor": cursor}).json
        ids_seen += [item["id"] for item in page["history"] if item["status"] == "expired"]
        waits += [item["id"] for item in page["pending"]]
        cursor, pages = page.get("nextCursor", ""), pages + 1

    assert sorted(ids_seen) == sorted(expired)
    assert waits == [pending]


def test_an_item_that_expired_unseen_cannot_be_approved(desk: Site, done: list[str]) -> None:
    answer = desk.post(f"/approvals/{desk.waiting(ttl=0)}/approve")

    assert answer.status_code == 404
    assert answer.json["approval"]["status"] == "expired"
    assert done == []


def test_a_cursor_goes_on_in_what_waits_and_in_history(desk: Site) -> None:
    waiting = [desk.waiting(f"waits {number}", ttl=3600 + number) for number in range(5)]
    resolved = [desk.waiting(f"denied {number}") for number in range(3)]
    for id in resolved:
        desk.post(f"/approvals/{id}/deny")
    pending, history, cursor, pages = [], [], "", 0
    while pages == 0 or cursor:
        page = desk.get("/approvals", query_string={"limit": 2, "cursor": cursor}).json
        assert len(page["pending"]) <= 2
        assert len(page["history"]) <= 2
        pending += [item["id"] for item in page["pending"]]
        history += [item["id"] for item in page["history"]]
        cursor, pages = page.get("nextCursor"), pages + 1

    assert pending == waiting, "first deadline first"
    assert history == resolved[::-1], "last first"
    assert pages == 3


@pytest.mark.parametrize("cursor", ["x", "W10", "W251bGxd", "%00", "a" * 501])
def test_a_cursor_that_was_not_given_out_is_refused(desk: Site, cursor: str) -> None:
    answer = desk.get(f"/approvals?cursor={cursor}")

    assert answer.status_code == 422
    assert answer.json["type"] == "/problems/invalid-request"


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "includeHistory=perhaps", "before=1"])
def test_a_query_that_does_not_fit_is_refused(desk: Site, query: str) -> None:
    assert desk.get(f"/approvals?{query}").status_code == 422


def test_one_approval_is_shown_with_its_version(desk: Site) -> None:
    id = desk.waiting()
    answer = desk.get(f"/approvals/{id}")

    assert answer.headers["ETag"] == '"1"'
    assert answer.json.items() >= {("id", id), ("status", "pending"), ("actionId", "desk:publish")}


@pytest.mark.parametrize("id", ["unknown", "%20", "%0a", "*", "%F0%9F%8E%89", "a:b", "approve"])
@pytest.mark.parametrize("verb", ["", "/approve", "/deny", "/withdraw"])
def test_an_unknown_approval_is_not_found_whatever_its_name(desk: Site, id: str, verb: str) -> None:
    answer = desk.open("POST" if verb else "GET", f"/approvals/{id}{verb}")

    assert answer.status_code == 404
    assert answer.json["type"] == ("/problems/not-pending" if verb else "/problems/not-found")


# Approve


def test_approving_answers_with_the_result(
    desk: Site, bob: dict[str, str], done: list[str]
) -> None:
    answer = desk.post(f"/approvals/{desk.waiting()}/approve", {"note": "go"}, headers=bob)

    assert answer.status_code == 200
    assert answer.json["success"] is True
    assert answer.json["result"]["output"] == "published news"
    item = answer.json["approval"]
    assert (item["status"], item["actedBy"], item["note"]) == ("approved", "bob", "go")
    assert item["execution"]["state"] == "succeeded"
    assert answer.headers["ETag"] == f'"{item["version"]}"'
    assert done == ["publish news"]


def test_a_request_that_waits_gets_the_result_when_a_worker_has_it(desk: Site) -> None:
    id = desk.waiting()
    answer = desk.while_it_waits(lambda: desk.post(f"/approvals/{id}/approve"))

    assert answer.status_code == 200
    assert answer.json["result"]["output"] == "published news"


@pytest.mark.parametrize("wait", ["0", "0.05"])
def test_an_approval_whose_action_outlasts_the_wait_is_accepted(desk: Site, wait: str) -> None:
    desk.dispatcher.held = True
    id = desk.waiting()
    answer = desk.post(f"/approvals/{id}/approve?wait={wait}")

    assert answer.status_code == 202
    assert answer.json["success"] is True
    assert "result" not in answer.json
    assert answer.json["approval"]["status"] == "approved"
    assert answer.json["approval"]["execution"]["state"] == "queued"
    desk.lab.deliver()
    assert desk.get(f"/approvals/{id}").json["result"]["success"] is True


@pytest.mark.parametrize("wait", ["-1", "nan", "inf", "x", "3601"])
def test_a_wait_that_is_no_time_is_refused(desk: Site, done: list[str], wait: str) -> None:
    id = desk.waiting()

    assert desk.post(f"/approvals/{id}/approve?wait={wait}").status_code == 422
    assert desk.get(f"/approvals/{id}").json["status"] == "pending"
    assert done == []


def test_a_failing_action_leaves_the_item_approved_with_the_result(desk: Site) -> None:
    answer = desk.post(f"/approvals/{desk.waiting(action='desk:tear')}/approve")

    assert answer.status_code == 200
    assert answer.json["success"] is False
    assert answer.json["approval"]["status"] == "approved"
    assert answer.json["approval"]["execution"]["state"] == "failed"
    assert "too strong" in answer.json["result"]["error"]


def test_nothing_is_approved_while_the_agent_is_frozen_and_it_stays_pending(
    desk: Site, done: list[str]
) -> None:
    id = desk.waiting()
    desk.post("/freeze", {"reason": "the office moves"})
    answer = desk.post(f"/approvals/{id}/approve")

    assert answer.status_code == 409
    assert answer.json["type"] == "/problems/frozen"
    assert "Actions are frozen: the office moves" in answer.json["detail"]
    assert desk.get(f"/approvals/{id}").json["status"] == "pending"
    desk.post("/unfreeze")
    assert desk.post(f"/approvals/{id}/approve").json["success"] is True
    assert len(done) == 1


def test_while_the_agent_is_frozen_an_approval_can_be_denied(desk: Site) -> None:
    id = desk.waiting()
    desk.post("/freeze", {"reason": "the office moves"})

    assert desk.post(f"/approvals/{id}/deny").json["approval"]["status"] == "denied"


def test_one_of_several_needed_is_accepted_and_the_last_is_done(
    desk: Site, bob: dict[str, str], done: list[str]
) -> None:
    id = desk.waiting(min_approvals=2)
    first = desk.post(f"/approvals/{id}/approve", {"note": "yes"})
    second = desk.post(f"/approvals/{id}/approve", headers=bob)

    assert first.status_code == 202
    assert first.json["approval"]["status"] == "pending"
    assert [vote["by"] for vote in first.json["approval"]["approvals"]] == ["alice"]
    assert second.status_code == 200
    assert second.json["approval"]["actedBy"] == "bob"
    assert done == ["publish news"]


def test_a_second_approval_by_the_same_principal_is_a_conflict(desk: Site) -> None:
    id = desk.waiting(min_approvals=2)
    other_key = desk.key("approvals", name="other")
    desk.post(f"/approvals/{id}/approve")
    answer = desk.post(f"/approvals/{id}/approve", headers=other_key)

    assert answer.status_code == 409
    assert answer.json["type"] == "/problems/already-approved"
    assert len(desk.get(f"/approvals/{id}").json["approvals"]) == 1


def test_the_requester_may_not_approve(desk: Site, bob: dict[str, str], done: list[str]) -> None:
    body = {"params": {"text": "mine"}}
    id = desk.post("/actions/desk:publish", body).json["approvalId"]
    refused = desk.post(f"/approvals/{id}/approve")

    assert refused.status_code == 403
    assert refused.json["type"] == "/problems/requester"
    assert refused.json["approval"]["status"] == "pending"
    assert desk.post(f"/approvals/{id}/approve", headers=bob).status_code == 200
    assert done == ["publish mine"]


@pytest.mark.parametrize(
    ("policy", "detail"),
    [
        ({"groups": ["night"]}, "night"),
        ({"principals": ["carol"]}, "carol"),
        ({"person": True}, "a person"),
    ],
)
def test_a_refused_approver_learns_who_may_approve(
    desk: Site, done: list[str], policy: dict[str, Any], detail: str
) -> None:
    id = desk.waiting(**policy)
    answer = desk.post(f"/approvals/{id}/approve")

    assert answer.status_code == 403
    assert answer.json["type"] == "/problems/not-an-approver"
    assert detail in answer.json["detail"]
    assert done == []


def test_a_person_of_the_group_may_approve(desk: Site, bob: dict[str, str]) -> None:
    id = desk.waiting(groups=["ops"], person=True)

    assert desk.post(f"/approvals/{id}/approve", headers=bob).status_code == 200


@pytest.mark.parametrize("verb", ["approve", "deny"])
@pytest.mark.parametrize("body", [None, {}, {"note": "  "}])
def test_a_note_that_the_policy_wants_is_missed(desk: Site, verb: str, body: Any) -> None:
    id = desk.waiting(require_note=True)
    answer = desk.post(f"/approvals/{id}/{verb}", body)

    assert answer.status_code == 422
    assert answer.json["type"] == "/problems/note-required"
    assert desk.post(f"/approvals/{id}/{verb}", {"note": "so"}).status_code == 200


def test_a_key_without_the_scope_answers_nothing(desk: Site) -> None:
    reader, id = desk.key("read", "actions", "runs", "trigger"), desk.waiting()
    for path in (f"/approvals/{id}/approve", f"/approvals/{id}/deny", "/approvals/approve"):
        answer = desk.post(path, {"ids": [id]}, headers=reader)
        assert (answer.status_code, answer.json["type"]) == (403, "/problems/forbidden")

    assert desk.get(f"/approvals/{id}").json["status"] == "pending"


# Deny and withdraw


@pytest.mark.parametrize(("verb", "status"), [("deny", "denied"), ("withdraw", "withdrawn")])
def test_denied_or_withdrawn_nothing_runs(
    desk: Site, bob: dict[str, str], done: list[str], verb: str, status: str
) -> None:
    id = desk.waiting()
    answer = desk.post(f"/approvals/{id}/{verb}", {"note": "not now"}, headers=bob)

    assert answer.status_code == 200
    assert answer.json["success"] is True
    assert "result" not in answer.json
    item = answer.json["approval"]
    assert (item["status"], item["actedBy"], item["note"]) == (status, "bob", "not now")
    assert answer.headers["ETag"] == f'"{item["version"]}"'
    assert done == []


@pytest.mark.parametrize("first", ["approve", "deny", "withdraw"])
@pytest.mark.parametrize("second", ["approve", "deny", "withdraw"])
def test_a_late_answer_is_refused_with_the_status_and_the_first_answerer(
    desk: Site, bob: dict[str, str], done: list[str], first: str, second: str
) -> None:
    id = desk.waiting()
    desk.post(f"/approvals/{id}/{first}", headers=bob)
    before = list(done)
    answer = desk.post(f"/approvals/{id}/{second}")
    status = {"approve": "approved", "deny": "denied", "withdraw": "withdrawn"}[first]

    assert answer.status_code == 404
    assert answer.mimetype == "application/problem+json"
    assert answer.json["type"] == "/problems/not-pending"
    assert answer.json["detail"] == answer.json["error"] == f"the approval is {status} by bob"
    assert answer.json["status"] == 404, "`status` is that of HTTP"
    assert answer.json["approval"].items() >= {("id", id), ("status", status), ("actedBy", "bob")}
    assert done == before


# Who acts


def test_the_claimed_name_is_recorded_beside_the_principal(desk: Site, bob: dict[str, str]) -> None:
    answer = desk.post(f"/approvals/{desk.waiting()}/deny", {"actedBy": "the boss"}, headers=bob)
    item = answer.json["approval"]
    entries = desk.get("/audit").json["entries"]
    [entry] = [entry for entry in entries if entry["kind"] == "approval.denied"]

    assert (item["actedBy"], item["claimedBy"]) == ("bob", "the boss")
    assert (entry["who"], entry["claims"]) == ("bob", "the boss")


def test_a_claim_gives_nobody_a_second_vote(desk: Site) -> None:
    id = desk.waiting(min_approvals=2)
    desk.post(f"/approvals/{id}/approve", {"actedBy": "one"})

    assert desk.post(f"/approvals/{id}/approve", {"actedBy": "two"}).status_code == 409


def test_a_claim_does_not_make_anybody_an_approver(desk: Site) -> None:
    id = desk.waiting(principals=["carol"])

    assert desk.post(f"/approvals/{id}/approve", {"actedBy": "carol"}).status_code == 403


# Bodies


@pytest.mark.parametrize("verb", ["approve", "deny", "withdraw"])
def test_malformed_json_answers_nothing(desk: Site, done: list[str], verb: str) -> None:
    id = desk.waiting()
    answer = desk.post(f"/approvals/{id}/{verb}", data=b"{", content_type="application/json")

    assert answer.status_code == 400
    assert desk.get(f"/approvals/{id}").json["status"] == "pending"
    assert done == []


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"note": 1}, "/note"),
        ({"actedBy": []}, "/actedBy"),
        ({"acted_by": "x"}, "/acted_by"),
        ({"note": "x" * 5001}, "/note"),
        ([], ""),
    ],
)
def test_a_body_that_does_not_fit_answers_nothing(desk: Site, body: Any, pointer: str) -> None:
    id = desk.waiting()
    answer = desk.post(
        f"/approvals/{id}/approve", data=json.dumps(body), content_type="application/json"
    )

    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json["errors"]] == [pointer]
    assert desk.get(f"/approvals/{id}").json["status"] == "pending"


# Versions


@pytest.mark.parametrize("tag", ['"1"', 'W/"1"', "1", "*", " * "])
@pytest.mark.parametrize("verb", ["approve", "deny", "withdraw"])
def test_an_answer_to_the_current_version_counts(desk: Site, verb: str, tag: str) -> None:
    id = desk.waiting()

    assert desk.post(f"/approvals/{id}/{verb}", headers={"If-Match": tag}).status_code == 200


@pytest.mark.parametrize("tag", ['"2"', '"0"', *GARBAGE])
@pytest.mark.parametrize("verb", ["approve", "deny", "withdraw"])
def test_an_answer_to_another_version_does_not_count(desk: Site, verb: str, tag: str) -> None:
    id = desk.waiting()
    headers = {"If-Match": tag.encode().decode("latin-1")}
    answer = desk.post(f"/approvals/{id}/{verb}", headers=headers)

    assert answer.status_code == 412
    assert answer.json["type"] == "/problems/changed"
    assert answer.json["approval"]["version"] == 1
    assert desk.get(f"/approvals/{id}").json["status"] == "pending"


def test_proposed_again_it_is_the_same_version_so_that_answers_count(desk: Site) -> None:
    id = desk.waiting()
    assert desk.waiting() == id
    response = desk.get(f"/approvals/{id}")

    assert (response.headers["ETag"], response.json["seen"]) == ('"1"', 2)
    assert desk.post(f"/approvals/{id}/deny", headers={"If-Match": '"1"'}).status_code == 200


def test_with_a_vote_it_is_another_version(desk: Site, bob: dict[str, str]) -> None:
    id = desk.waiting(min_approvals=2)
    tag = desk.post(f"/approvals/{id}/approve", headers={"If-Match": '"1"'}).headers["ETag"]

    assert tag == '"2"'
    for sent, status in (('"1"', 412), (tag, 200)):
        headers = {**bob, "If-Match": sent}
        assert desk.post(f"/approvals/{id}/approve", headers=headers).status_code == status


# Once


def test_approving_again_under_the_same_key_is_answered_as_before_and_done_once(
    desk: Site, done: list[str]
) -> None:
    id = desk.waiting()
    first = desk.post(f"/approvals/{id}/approve", headers=KEY)
    again = desk.post(f"/approvals/{id}/approve", headers=KEY)
    other = desk.post(f"/approvals/{id}/approve", {"note": "x"}, headers=KEY)

    assert (again.status_code, again.json) == (200, first.json)
    assert again.headers["ETag"] == first.headers["ETag"]
    assert again.headers["Idempotency-Replayed"] == "true"
    assert (other.status_code, other.json["type"]) == (422, "/problems/idempotency-mismatch")
    assert done == ["publish news"]


def test_a_vote_that_comes_again_counts_once(desk: Site) -> None:
    id = desk.waiting(min_approvals=2)
    for _ in range(2):
        assert desk.post(f"/approvals/{id}/approve", headers=KEY).status_code == 202

    assert len(desk.get(f"/approvals/{id}").json["approvals"]) == 1


def test_a_corrected_answer_may_reuse_its_idempotency_key(
    desk: Site,
) -> None:
    id = desk.waiting(require_note=True)
    assert desk.post(f"/approvals/{id}/deny", headers=KEY).status_code == 422

    assert desk.post(f"/approvals/{id}/deny", {"note": "so"}, headers=KEY).status_code == 200


# Several


def test_each_of_several_gets_what_it_would_have_got_alone(desk: Site, done: list[str]) -> None:
    good, denied = desk.waiting("good"), desk.waiting("denied")
    two, secret = desk.waiting("two", min_approvals=2), desk.waiting("secret", person=True)
    desk.post(f"/approvals/{denied}/deny")
    ids = [good, denied, "unknown", two, secret, good]
    answer = desk.post("/approvals/approve", {"ids": ids, "note": "all", "actedBy": "the boss"})
    results = answer.json["results"]

    assert answer.status_code == 200
    assert [result["id"] for result in results] == ids[:-1], "each once"
    assert [result["success"] for result in results] == [True, False, False, True, False]
    types = [
        result.get("problem", {}).get("type", "").removeprefix("/problems/") for result in results
    ]
    assert types == ["", "not-pending", "not-pending", "", "not-an-approver"]
    assert results[0]["approval"]["claimedBy"] == "the boss"
    assert results[1]["approval"]["status"] == "denied"
    assert "approval" not in results[2]
    assert results[3]["approval"]["status"] == "pending"
    assert done == ["publish good"]


@pytest.mark.parametrize(("verb", "status"), [("deny", "denied"), ("withdraw", "withdrawn")])
def test_several_are_denied_or_withdrawn(
    desk: Site, done: list[str], verb: str, status: str
) -> None:
    ids = [desk.waiting(f"{number}") for number in range(100)]
    answer = desk.post(f"/approvals/{verb}", {"ids": ids, "note": "all of it"})

    assert {result["approval"]["status"] for result in answer.json["results"]} == {status}
    assert {result["approval"]["note"] for result in answer.json["results"]} == {"all of it"}
    assert desk.get("/approvals").json["pending"] == []
    assert done == []


@pytest.mark.parametrize("verb", ["approve", "deny", "withdraw"])
@pytest.mark.parametrize("ids", [None, [], ["x"] * 101, "x", [1]])
def test_several_are_one_to_a_hundred(desk: Site, verb: str, ids: Any) -> None:
    body = {} if ids is None else {"ids": ids}

    assert desk.post(f"/approvals/{verb}", body).status_code == 422


def test_several_answered_again_under_the_same_key_are_answered_as_before(
    desk: Site, done: list[str]
) -> None:
    body = {"ids": [desk.waiting("one"), desk.waiting("two")]}
    first = desk.post("/approvals/approve", body, headers=KEY)

    assert desk.post("/approvals/approve", body, headers=KEY).json == first.json
    assert done == ["publish one", "publish two"]


def test_a_key_for_other_agents_sees_none_of_it(desk: Site) -> None:
    id, other = desk.waiting(), desk.key("admin", agents=["other"])
    for method, path in (("GET", ""), ("GET", f"/{id}"), ("POST", f"/{id}/approve")):
        answer = desk.open(method, f"/agents/desk/approvals{path}", headers=other)
        assert (answer.status_code, answer.json["type"]) == (404, "/problems/unknown-agent")


def test_the_api_without_redis_says_so(server: Any) -> None:
    lab, _ = make_desk(server)
    site = Site(lab, server)
    id = site.waiting()
    server.connected = False
    answer = site.post(f"/approvals/{id}/approve")

    assert (answer.status_code, answer.json["type"]) == (503, "/problems/unavailable")
    server.connected = True
    assert site.lab.store.approvals.get(id).status == "pending"  # type: ignore[union-attr]


def test_an_approval_with_a_key_that_was_revoked_since_does_not_count(
    desk: Site, done: list[str]
) -> None:
    id = desk.waiting(min_approvals=2)
    ann, bob, cid = (desk.key("approvals", principal=name) for name in ("ann", "bob", "cid"))
    assert desk.post(f"/approvals/{id}/approve", {}, headers=ann).status_code == 202
    key = ann["Authorization"].split("_")[1]
    assert desk.open("DELETE", f"/keys/{key}").status_code == 200
    desk.post(f"/approvals/{id}/approve", {}, headers=bob)

    item = desk.lab.store.approvals.get(id)
    assert item is not None
    assert (item.status, [vote.by for vote in item.approvals]) == ("pending", ["bob"])
    assert "approval.vote-dropped" in [
        entry["kind"] for entry in desk.get("/audit").json["entries"]
    ]
    desk.post(f"/approvals/{id}/approve", {}, headers=cid)
    assert done == ["publish news"]


# What an answer costs


@pytest.mark.parametrize(
    ("path", "concurrency", "trips"),
    [
        # The key; the approval; the answer, with the approval after it.
        ("deny", 1, 3),
        ("withdraw", 1, 3),
        ("approve?wait=0", None, 3),
        # What it waits for.
        ("approve?wait=0", 1, 4),
    ],
)
def test_an_answer_takes_few_round_trips(
    desk: Site, path: str, concurrency: int | None, trips: int
) -> None:
    desk.dispatcher.held = True

    def answer(id: str) -> None:
        assert desk.post(f"/approvals/{id}/{path}").status_code in (200, 202)

    ids = [desk.waiting(f"{number}", concurrency=concurrency) for number in range(3)]
    counts = [desk.round_trips(partial(answer, id)) for id in ids]

    assert min(counts) == trips


def test_each_of_several_answers_takes_two_round_trips(desk: Site) -> None:
    def trips(number: int) -> int:
        ids = [desk.waiting(f"{number} {other}") for other in range(number)]
        return desk.round_trips(lambda: desk.post("/approvals/deny", {"ids": ids}))

    assert min(trips(9) for _ in range(3)) - min(trips(4) for _ in range(3)) == 5 * 2


# Acknowledgements


def test_an_acknowledgement_names_the_principal_and_a_release_ends_it(
    desk: Site, bob: dict[str, str]
) -> None:
    id = desk.waiting()
    body = {"seconds": 600, "note": "mine"}
    response = desk.post(f"/approvals/{id}/acknowledge", body, headers=bob)
    assert response.status_code == 200
    latest = response.json["acknowledgement"]
    assert (latest["by"], latest["note"], latest["number"]) == ("bob", "mine", 1)
    assert response.json["version"] == 1

    released = desk.post(f"/approvals/{id}/release", headers=bob).json["acknowledgement"]
    assert released["releasedBy"] == "bob"


def test_an_answered_approval_cannot_be_acknowledged(desk: Site) -> None:
    id = desk.waiting()
    desk.post(f"/approvals/{id}/deny")

    refused = desk.post(f"/approvals/{id}/acknowledge")
    assert (refused.status_code, refused.json["type"]) == (404, "/problems/not-pending")
    assert desk.post("/approvals/unknown/acknowledge").status_code == 404
    assert desk.post("/anomalies/unknown/acknowledge").status_code == 404
    assert desk.post("/anomalies/unknown/release").status_code == 404


def test_a_late_answer_tells_what_only_the_archive_knows(
    desk: Site, bob: dict[str, str], tmp_path: Path
) -> None:
    pending = desk.waiting()
    with archiving(desk, tmp_path) as archive:
        archive_past(archive, approvals=[approval("a1", 300, 3)])
        refused = desk.post("/approvals/a1/deny", headers=bob)
        several = desk.post("/approvals/deny", {"ids": ["a1", pending]}, headers=bob)

    assert (refused.status_code, refused.json["type"]) == (404, "/problems/not-pending")
    assert refused.json["detail"] == "the approval is approved by eve"
    assert refused.json["approval"]["id"] == "a1"
    assert [result["success"] for result in several.json["results"]] == [False, True]


def test_an_archive_that_is_down_refuses_no_answers(desk: Site, bob: dict[str, str]) -> None:
    desk.services.archive = ArchiveAccess("sqlite:////nowhere/at/all.db")
    ids = [desk.waiting("one"), "a1", desk.waiting("two")]
    answer = desk.post("/approvals/deny", {"ids": ids}, headers=bob)

    assert [result["success"] for result in answer.json["results"]] == [True, False, True]
