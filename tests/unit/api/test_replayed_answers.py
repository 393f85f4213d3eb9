"""A request whose answer was lost is done once, and answered as the first time."""

from __future__ import annotations

from typing import Any

import pytest

from api_kit import Site

KEY = {"Idempotency-Key": "once"}


def lose_answers(desk: Site) -> None:
    """The process died after it had done what was asked, and before it kept the answer."""
    client = desk.store.client
    client.delete(*client.keys("*answer*"))


def twice(desk: Site, path: str, body: Any = None, **headers: str) -> list[Any]:
    """The answers to the same request, the first of which was lost on the way."""
    first = desk.post(path, body, headers={**KEY, **headers})
    lose_answers(desk)
    return [first, desk.post(path, body, headers={**KEY, **headers})]


@pytest.mark.parametrize(
    ("answer", "status"), [("approve", "approved"), ("deny", "denied"), ("withdraw", "withdrawn")]
)
def test_an_answer_to_an_approval_is_replayed(
    desk: Site, done: list[str], answer: str, status: str
) -> None:
    answers = twice(desk, f"/approvals/{desk.waiting()}/{answer}", {"note": "why"})

    assert [replay.status_code for replay in answers] == [200, 200]
    assert [replay.json["approval"]["status"] for replay in answers] == [status] * 2
    assert len(done) == (answer == "approve")


def test_a_repeated_partial_approval_counts_once(desk: Site) -> None:
    answers = twice(desk, f"/approvals/{desk.waiting(min_approvals=2)}/approve")

    assert [answer.status_code for answer in answers] == [202, 202]
    assert [len(answer.json["approval"]["approvals"]) for answer in answers] == [1, 1]


def test_a_new_request_for_a_resolved_approval_is_refused(desk: Site) -> None:
    path = f"/approvals/{desk.waiting()}/deny"
    desk.post(path, headers=KEY)

    assert desk.post(path, headers={"Idempotency-Key": "another"}).status_code == 404


def test_a_bulk_answer_is_replayed(desk: Site) -> None:
    ids = [desk.waiting("one"), desk.waiting("two")]
    answers = twice(desk, "/approvals/deny", {"ids": ids})

    assert [[result["success"] for result in answer.json["results"]] for answer in answers] == [
        [True, True]
    ] * 2


def test_the_cancellation_of_a_run_is_replayed(desk: Site) -> None:
    desk.post("/pause")
    run = desk.post("/runs", {"title": "a", "description": "b"}).json["id"]
    answers = twice(desk, f"/runs/{run}/cancel")

    assert [answer.status_code for answer in answers] == [200, 200]
    assert desk.post(f"/runs/{run}/cancel").status_code == 409


def test_a_trigger_starts_one_iteration(desk: Site) -> None:
    answers = twice(desk, "/loop/trigger")

    assert [answer.json["iteration"] for answer in answers] == [1, 1]
    assert desk.get("/loop/status").json["iteration"] == 1


def test_a_repeated_intake_message_is_accepted_once(desk: Site) -> None:
    event = {"source": "x", "type": "event", "data": {}}
    answers = twice(desk, "/intake/json", event)

    assert [answer.status_code for answer in answers] == [202, 202]
    assert desk.store.client.llen("boyd:{desk}:intake") == 1
