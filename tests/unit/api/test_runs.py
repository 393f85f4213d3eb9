"""`/runs`: submit, list, show, cancel, and what a callback has come to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from api_kit import Site, make_desk
from boyd.models import RunRequest
from boyd.store import runs
from boyd.testing import TESTER
from past_kit import archiving

BODY = {"title": "Checkout fails", "description": "Since noon."}
WHOLE = {
    **BODY,
    "priority": "high",
    "context": {"ticket": {"id": 7}},
    "source": "pager",
    "callbackUrl": "https://192.0.2.7/hook",
    "kind": "incident",
}
KEY = {"Idempotency-Key": "once"}


@pytest.fixture
def idle(desk: Site) -> Site:
    """A site whose workers do nothing until they are told to."""
    desk.dispatcher.held = True
    return desk


def submit_run(site: Site, number: int, **more: Any) -> str:
    """The id of a new run."""
    run_id: str = site.post("/runs", {**BODY, "title": f"{number}", **more}).json["id"]
    return run_id


# Submit


def test_a_run_is_created_pending_with_its_location(idle: Site) -> None:
    answer = idle.post("/runs", BODY)

    assert answer.status_code == 201
    assert set(answer.json) == {"id", "status", "createdAt"}
    assert answer.json["status"] == "pending"
    assert answer.headers["Location"] == f"/api/v0/agents/desk/runs/{answer.json['id']}"
    there = idle.client.get(answer.headers["Location"], headers=idle.admin).json
    assert there.items() >= {("priority", "medium"), ("source", "api"), ("id", answer.json["id"])}
    assert there["context"] == {}
    assert there["requestedBy"] == ["alice"]


def test_a_full_queue_of_runs_refuses_more_with_the_time_to_retry(
    idle: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        submit_run(idle, number)
    monkeypatch.setattr(runs, "PENDING", 2)
    answer = idle.post("/runs", BODY, headers=KEY)

    assert (answer.status_code, answer.json["type"]) == (429, "/problems/too-many-requests")
    assert int(answer.headers["Retry-After"]) >= 1
    assert len(idle.get("/runs").json["runs"]) == 2
    monkeypatch.setattr(runs, "PENDING", 3)
    assert idle.post("/runs", BODY, headers=KEY).status_code == 201


def test_everything_that_was_sent_is_kept(server: Any) -> None:
    lab, _ = make_desk(server)
    site = Site(lab, server)
    body = {**WHOLE, "callbackUrl": "https://8.8.8.8/hook"}
    id = site.post("/runs", body).json["id"]

    assert site.get(f"/runs/{id}").json.items() >= body.items()


@pytest.mark.parametrize(("mode", "started"), [("manual", 1), ("event-driven", 1)])
def test_a_run_starts_an_iteration(server: Any, mode: Any, started: int) -> None:
    lab, _ = make_desk(server, mode)
    site = Site(lab, server)
    id = site.post("/runs", BODY).json["id"]

    assert site.get("/loop/status").json["iteration"] == started
    run = site.get(f"/runs/{id}").json
    assert run["status"] == "completed"
    assert set(run["result"]) >= {
        *("summary", "findings", "actionsPerformed", "loopIterations", "duration")
    }


def test_in_continuous_mode_a_run_waits_for_the_next_iteration(server: Any) -> None:
    lab, _ = make_desk(server, "continuous")
    site = Site(lab, server)
    id = site.post("/runs", BODY).json["id"]

    assert site.get("/loop/status").json["iteration"] == 0
    assert site.get(f"/runs/{id}").json["status"] == "pending"


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({}, ["/title", "/description"]),
        ({"title": "", "description": ""}, ["/title", "/description"]),
        ({**BODY, "title": 1, "priority": "urgent"}, ["/title", "/priority"]),
        ({**BODY, "context": []}, ["/context"]),
        ({**BODY, "source": 1, "kind": ""}, ["/source", "/kind"]),
        ({**BODY, "callbackUrl": "example.com"}, ["/callbackUrl"]),
        ({**BODY, "callbackUrl": "ftp://example.com/"}, ["/callbackUrl"]),
        ({**BODY, "callbackUrl": "http://[::1/"}, ["/callbackUrl"]),
        ({**BODY, "callbackUrl": ""}, ["/callbackUrl"]),
        ({**BODY, "title": "x" * 501}, ["/title"]),
        ([BODY], [""]),
    ],
)
def test_each_field_that_does_not_fit_is_named_and_nothing_is_stored(
    desk: Site, body: Any, pointers: list[str]
) -> None:
    answer = desk.post("/runs", data=json.dumps(body), content_type="application/json")

    assert answer.status_code == 422
    assert sorted(e["pointer"] for e in answer.json["errors"]) == sorted(pointers)
    assert desk.get("/runs").json["runs"] == []


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.1/", "http://10.1.2.3/", "http://169.254.169.254/", "http://[::1]/"),
        *("http://[::ffff:127.0.0.1]/", "http://localhost/", "http://0/", "http://user@[fd00::1]/"),
    ],
)
def test_a_callback_to_a_private_address_is_refused(desk: Site, url: str) -> None:
    answer = desk.post("/runs", {**BODY, "callbackUrl": url})

    assert answer.status_code == 422
    assert answer.json["type"] == "/problems/invalid-request"
    assert [error["pointer"] for error in answer.json["errors"]] == ["/callbackUrl"]
    assert desk.get("/runs").json["runs"] == []


@pytest.mark.parametrize("body", [b"", b"{", b'{"title": NaN}', b"\xff"])
def test_malformed_json_submits_nothing(desk: Site, body: bytes) -> None:
    answer = desk.post("/runs", data=body, content_type="application/json")

    assert answer.status_code == 400
    assert desk.get("/runs").json["runs"] == []
    assert desk.get("/loop/status").json["iteration"] == 0


@pytest.mark.parametrize("value", [b"[" * 190 + b"]" * 190, b"1e999", b"[-1e400]"])
def test_a_context_that_could_not_be_read_back_is_refused(desk: Site, value: bytes) -> None:
    body = b'{"title": "x", "description": "y", "context": {"x": %s}}' % value
    answer = desk.post("/runs", data=body, content_type="application/json")

    assert (answer.status_code, answer.json["type"]) == (422, "/problems/invalid-request")
    assert desk.get("/runs").json["runs"] == []


def test_a_context_at_the_depth_limit_can_be_shown(desk: Site) -> None:
    value = b"[" * 98 + b"]" * 98
    body = b'{"title": "x", "description": "y", "context": {"x": %s}}' % value
    answer = desk.post("/runs", data=body, content_type="application/json")

    assert answer.status_code == 201
    for path in (f"/runs/{answer.json['id']}", "/runs", "/loop/history", "/loop/history/1"):
        assert desk.get(path).status_code == 200, path
    assert desk.get(f"/runs/{answer.json['id']}").json["status"] == "completed"


def test_the_same_run_submitted_again_is_the_same(desk: Site) -> None:
    first = desk.post("/runs", BODY, headers=KEY)
    again = desk.post("/runs", BODY, headers=KEY)
    other = desk.post("/runs", {**BODY, "title": "Another"}, headers=KEY)

    assert (again.status_code, again.json) == (201, first.json)
    assert again.headers["Location"] == first.headers["Location"]
    assert other.status_code == 422
    assert other.json["type"] == "/problems/idempotency-mismatch"
    assert len(desk.get("/runs").json["runs"]) == 1
    assert desk.get("/loop/status").json["iteration"] == 1


def test_an_answer_that_was_lost_with_its_process_is_found_again_by_the_key(
    desk: Site,
) -> None:
    first = desk.post("/runs", BODY, headers=KEY).json
    desk.lab.client.delete(*desk.lab.client.keys("*answer*"))

    assert desk.post("/runs", BODY, headers=KEY).json["id"] == first["id"]
    assert len(desk.get("/runs").json["runs"]) == 1


def test_a_key_without_the_scope_submits_nothing(desk: Site) -> None:
    reader = desk.key("read", "trigger", "actions", "approvals")

    assert desk.post("/runs", BODY, headers=reader).status_code == 403
    assert desk.get("/runs", headers=reader).json["runs"] == []


# List


def test_runs_are_listed_newest_first_page_by_page(idle: Site) -> None:
    ids = [submit_run(idle, number) for number in range(5)]
    run_ids, cursor = [], ""
    while cursor is not None:
        page = idle.get("/runs", query_string={"limit": 2, "cursor": cursor}).json
        assert page["total"] == len(page["runs"]) <= 2
        run_ids += [run["id"] for run in page["runs"]]
        cursor = page.get("nextCursor")

    assert run_ids == ids[::-1]


def test_a_page_goes_on_although_newer_runs_have_come(idle: Site) -> None:
    ids = [submit_run(idle, number) for number in range(3)]
    page = idle.get("/runs?limit=1").json
    submit_run(idle, 9)
    following = idle.get("/runs", query_string={"cursor": page["nextCursor"]}).json

    assert [run["id"] for run in following["runs"]] == ids[1::-1]


def test_runs_are_filtered(idle: Site) -> None:
    run_id = submit_run(idle, 1, priority="high", source="pager")
    submit_run(idle, 2, priority="high")
    submit_run(idle, 3, source="pager")
    cancelled = submit_run(idle, 4)
    idle.post(f"/runs/{cancelled}/cancel")

    def ids(query: str) -> list[str]:
        return [run["id"] for run in idle.get(f"/runs?{query}").json["runs"]]

    assert ids("priority=high&source=pager") == [run_id]
    assert ids("status=cancelled") == [cancelled]
    assert len(ids("status=pending")) == 3
    assert ids("source=PAGER") == []


@pytest.mark.parametrize(
    "query", ["status=done", "priority=urgent", "limit=0", "limit=501", "cursor=x", "page=2"]
)
def test_a_filter_that_does_not_fit_is_refused(desk: Site, query: str) -> None:
    answer = desk.get(f"/runs?{query}")

    assert answer.status_code == 422
    assert answer.json["type"] == "/problems/invalid-request"


# Show and cancel


@pytest.mark.parametrize("id", ["unknown", "%20", "%0a", "*", "a:b", "%C3%A9", "cancel"])
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("POST", "/cancel"), ("GET", "/callback"), ("POST", "/callback/redeliver")],
)
def test_an_unknown_run_is_not_found_whatever_its_name(
    desk: Site, id: str, method: str, path: str
) -> None:
    answer = desk.open(method, f"/runs/{id}{path}")

    assert answer.status_code == 404
    assert answer.json["type"] == "/problems/not-found"


def test_a_run_that_has_not_ended_is_cancelled(idle: Site) -> None:
    id = submit_run(idle, 1)
    answer = idle.post(f"/runs/{id}/cancel", {"reason": "a mistake"})
    run = idle.get(f"/runs/{id}").json

    assert answer.status_code == 200
    assert set(answer.json) == {"id", "status", "updatedAt"}
    assert answer.json["status"] == run["status"] == "cancelled"
    assert "completedAt" in run
    assert run["reason"] == "cancelled by alice: a mistake"
    idle.lab.deliver()
    assert idle.get(f"/runs/{id}").json["status"] == "cancelled"


def test_a_run_that_is_being_looked_into_is_cancelled_too(idle: Site) -> None:
    id = submit_run(idle, 1)
    idle.lab.deliver(lambda: idle.get(f"/runs/{id}").json["status"] == "investigating")

    assert idle.post(f"/runs/{id}/cancel").status_code == 200
    idle.lab.deliver()
    assert idle.get(f"/runs/{id}").json["status"] == "cancelled"


def test_an_ended_run_cannot_be_cancelled_and_keeps_the_approvals_of_others(desk: Site) -> None:
    desk.dispatcher.held = True
    id = submit_run(desk, 1)
    approval = desk.waiting()
    desk.lab.deliver()

    assert desk.post(f"/runs/{id}/cancel").status_code == 409, "it has ended"
    assert desk.get(f"/approvals/{approval}").json["status"] == "pending", "it is another's"


@pytest.mark.parametrize("status", ["completed", "cancelled"])
def test_a_finished_run_refuses(desk: Site, status: str) -> None:
    desk.dispatcher.held = status == "cancelled"
    id = submit_run(desk, 1)
    if status == "cancelled":
        desk.post(f"/runs/{id}/cancel")
    answer = desk.post(f"/runs/{id}/cancel")

    assert answer.status_code == 409
    assert answer.json["type"] == "/problems/finished"
    assert answer.json["status"] == 409
    assert answer.json["state"] == status
    assert desk.get(f"/runs/{id}").json["status"] == status


def test_cancelling_again_under_the_same_key_is_answered_as_before(idle: Site) -> None:
    id = submit_run(idle, 1)
    first = idle.post(f"/runs/{id}/cancel", headers=KEY)

    assert idle.post(f"/runs/{id}/cancel", headers=KEY).json == first.json
    assert idle.post(f"/runs/{id}/cancel").status_code == 409


@pytest.mark.parametrize(
    ("title", "stored_title"),
    [
        ("a\x00b", "a b"),
        ("invoice\u202egpj.exe", "invoice gpj.exe"),
        ("\u2066two\r\n lines\u2069", "two  lines"),
        ("שלום\u200f עולם", "שלום\u200f עולם"),
    ],
)
def test_a_title_holds_nothing_that_makes_it_look_like_another(
    idle: Site, title: str, stored_title: str
) -> None:
    id = idle.post("/runs", {**BODY, "title": title}).json["id"]

    assert idle.get(f"/runs/{id}").json["title"] == stored_title


def test_a_title_of_nothing_visible_is_refused(idle: Site) -> None:
    assert idle.post("/runs", {**BODY, "title": "\x00\u202e"}).status_code == 422


@pytest.mark.parametrize("body", [{"reason": 1}, {"why": "x"}, {"reason": "x" * 1001}])
def test_a_reason_that_does_not_fit_cancels_nothing(idle: Site, body: Any) -> None:
    id = submit_run(idle, 1)

    assert idle.post(f"/runs/{id}/cancel", body).status_code == 422
    assert idle.get(f"/runs/{id}").json["status"] == "pending"


# Callbacks


def with_callback(site: Site) -> str:
    """A run that asked for a callback; past the check of its address."""
    request = RunRequest(title="x", description="y", callback_url="https://192.0.2.7/hook")
    return site.lab.launcher.submit_run(request, TESTER).run.id


def test_a_callback_is_shown_and_sent_again(idle: Site) -> None:
    id = with_callback(idle)
    before = idle.get(f"/runs/{id}/callback")
    idle.post(f"/runs/{id}/cancel")
    answer = idle.get(f"/runs/{id}/callback")
    again = idle.post(f"/runs/{id}/callback/redeliver")

    assert before.status_code == 404, "it has not ended"
    assert answer.status_code == 200
    assert answer.json["runId"] == id
    assert answer.json["url"] == "https://192.0.2.7/hook"
    assert (answer.json["state"], answer.json["deliveries"]) == ("queued", [])
    assert again.status_code == 202
    assert again.json == {"success": True, "id": id}


def test_a_run_without_a_callback_has_none_to_show_or_send(desk: Site) -> None:
    id = submit_run(desk, 1)

    assert desk.get(f"/runs/{id}/callback").status_code == 404
    assert desk.post(f"/runs/{id}/callback/redeliver").status_code == 404


def test_a_key_for_reading_does_not_send_again(desk: Site) -> None:
    reader = desk.key("read")

    assert desk.post("/runs/x/callback/redeliver", headers=reader).status_code == 403
    assert desk.post("/runs/x/cancel", headers=reader).status_code == 403


def test_a_run_that_only_the_archive_has_is_cancelled_no_more(idle: Site, tmp_path: Path) -> None:
    run_id = submit_run(idle, 1)
    idle.post(f"/runs/{run_id}/cancel")
    with archiving(idle, tmp_path) as archive:
        archive.copy()
        idle.lab.client.delete(f"boyd:{{desk}}:run:{run_id}")
        answer = idle.post(f"/runs/{run_id}/cancel")

    assert (answer.status_code, answer.json["type"]) == (409, "/problems/finished")
    assert answer.json["state"] == "cancelled"
