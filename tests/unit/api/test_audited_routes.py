"""Whatever changes something through the API leaves who, with which key, and from where."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from api_kit import Site
from boyd import naming
from boyd.models import Actor, CallRequest
from boyd_api.app import ALL

Request = tuple[str, Any]

#: What is not there by itself is made first; a dry run changes nothing.
HARMLESS = {
    "POST /actions/<action:id>/dry-run",
    "POST /approvals/<id>/preview",
    "POST /login-links",  # the login with it is recorded
    "POST /mcp",  # test_assistants.py tries what its tools change
}


def _run(desk: Site, **more: Any) -> str:
    body = {"title": "a", "description": "b", **more}
    return str(desk.post("/runs", body).json["id"])


def _acknowledge(desk: Site) -> str:
    """An approval that somebody takes care of."""
    id = desk.waiting()
    desk.post(f"/approvals/{id}/acknowledge")
    return id


def _anomaly(desk: Site) -> str:
    """An open anomaly."""
    row = ["desk", "news are late", "news", "late", "high", "The news are late.", 1]
    sight = {"open": [row], "more": 0, "blind": []}
    desk.lab.client.set("boyd:{desk}:symptoms", json.dumps(sight))
    return str(desk.get("/anomalies").json["anomalies"][0]["id"])


def _acknowledge_anomaly(desk: Site) -> str:
    id = _anomaly(desk)
    desk.post(f"/anomalies/{id}/acknowledge")
    return id


def _run_with_callback(desk: Site) -> str:
    return _run(desk, callbackUrl="https://example.com/hook")


def _write(desk: Site) -> str:
    return str(desk.post("/actions/desk:write", {"params": {"text": "x"}}).json["executionId"])


def _hold(desk: Site) -> str:
    desk.lab.client.hset(
        "boyd:{desk}:hold:desk:write:",
        mapping={"action": "desk:write", "kind": "suspended", "execution": "loop:1"},
    )
    return "desk:write"


def _grant(desk: Site) -> str:
    grant = {"id": "g", "atLeast": 0.9, "since": 1, "until": 2e12, "by": ["ann"]}
    record = json.dumps({"label": "l", "effective": 99, "grant": grant})
    desk.lab.client.hset("boyd:{desk}:track:desk:write", "s", record)
    return "desk:write"


def _pending_run(desk: Site) -> str:
    desk.post("/pause")
    return _run(desk)


def _announce_model(desk: Site) -> str:
    """Announce that the agent has a model, which no worker of this test asks."""
    desk.store.fleet.register(desk.lab.engine.entry().patched({"model": "x"}))
    return "/investigations"


def _ask(desk: Site, **fields: str) -> str:
    path = _announce_model(desk)
    id = str(desk.post(path, {"question": "why?"}).json["id"])
    if fields:
        desk.lab.client.hset(f"boyd:{{desk}}:investigation:{id}", mapping=fields)
    return f"{path}/{id}"


def _answer(desk: Site) -> str:
    return _ask(desk, status="ended", executionState="succeeded")


def _stop_procedure(desk: Site) -> str:
    """A procedure that waits for a person."""
    fields = {
        "id": "loop:1",
        "action": "desk:write",
        "state": "stopped",
        "params": "{}",
        "steps": "[]",
        "at": 0,
        "startedAt": 1,
        "until": 2,
        "stoppedAt": 1,
    }
    desk.store.client.hset("boyd:{desk}:procedure:loop:1", mapping=fields)
    return "/procedures/loop:1"


def _in_queue(desk: Site) -> str:
    """The id of an execution that no worker has taken."""
    order = CallRequest(kind="execute", action="desk:write", actor=Actor(principal="ann"))
    id, _ = desk.lab.store.calls.submit(order, "nowhere")
    return naming.call(id)


def _in_flight(desk: Site) -> str:
    """Begin an iteration that no worker takes."""
    desk.dispatcher.held = True
    desk.post("/loop/trigger", {"async": True})
    return "/loop/abandon"


def _desert(desk: Site) -> str:
    """Let the agent have no process."""
    for worker in desk.store.fleet.workers():
        desk.store.fleet.leave(worker.name)
    return "/retire"


MADE: dict[str, Callable[[Site], Request]] = {
    "POST /loop/trigger": lambda desk: ("/loop/trigger", None),
    "POST /loop/abandon": lambda desk: (_in_flight(desk), None),
    "POST /actions/<action:id>": lambda desk: ("/actions/desk:write", {"params": {"text": "x"}}),
    "POST /executions/<id>/cancel": lambda desk: (f"/executions/{_in_queue(desk)}/cancel", None),
    "POST /executions/<id>/rollback": lambda desk: (f"/executions/{_write(desk)}/rollback", None),
    "POST /holds/lift": lambda desk: ("/holds/lift", {"action": _hold(desk)}),
    "POST /autonomy/revoke": lambda desk: ("/autonomy/revoke", {"action": _grant(desk)}),
    "POST /procedures/<id>/cancel": lambda desk: (f"{_stop_procedure(desk)}/cancel", None),
    "POST /procedures/<id>/resume": lambda desk: (f"{_stop_procedure(desk)}/resume", None),
    "POST /approvals/<id>/approve": lambda desk: (f"/approvals/{desk.waiting()}/approve", None),
    "POST /approvals/<id>/deny": lambda desk: (f"/approvals/{desk.waiting()}/deny", None),
    "POST /approvals/<id>/withdraw": lambda desk: (f"/approvals/{desk.waiting()}/withdraw", None),
    "POST /approvals/<id>/acknowledge": lambda desk: (
        f"/approvals/{desk.waiting()}/acknowledge",
        None,
    ),
    "POST /approvals/<id>/release": lambda desk: (f"/approvals/{_acknowledge(desk)}/release", None),
    "POST /anomalies/<id>/acknowledge": lambda desk: (
        f"/anomalies/{_anomaly(desk)}/acknowledge",
        None,
    ),
    "POST /anomalies/<id>/release": lambda desk: (
        f"/anomalies/{_acknowledge_anomaly(desk)}/release",
        None,
    ),
    "POST /approvals/approve": lambda desk: ("/approvals/approve", {"ids": [desk.waiting()]}),
    "POST /approvals/deny": lambda desk: ("/approvals/deny", {"ids": [desk.waiting()]}),
    "POST /approvals/withdraw": lambda desk: ("/approvals/withdraw", {"ids": [desk.waiting()]}),
    "POST /runs": lambda desk: ("/runs", {"title": "a", "description": "b"}),
    "POST /runs/<id>/cancel": lambda desk: (f"/runs/{_pending_run(desk)}/cancel", None),
    "POST /runs/<id>/callback/redeliver": lambda desk: (
        f"/runs/{_run_with_callback(desk)}/callback/redeliver",
        None,
    ),
    "POST /investigations": lambda desk: (_announce_model(desk), {"question": "why?"}),
    "POST /investigations/<id>/messages": lambda desk: (
        f"{_answer(desk)}/messages",
        {"text": "and?"},
    ),
    "POST /investigations/<id>/cancel": lambda desk: (
        # No worker has a model here, so it has ended already.
        f"{_ask(desk, status='running', executionState='queued')}/cancel",
        None,
    ),
    "POST /intake/<format>": lambda desk: (
        "/intake/json",
        {"source": "x", "type": "event", "data": {}},
    ),
    "POST /plugins/<plugin>/<rest:path>": lambda desk: ("/plugins/desk/write/x", None),
    "PUT /plugins/<plugin>/<rest:path>": lambda desk: ("/plugins/desk/notes/x", None),
    "PATCH /plugins/<plugin>/<rest:path>": lambda desk: ("/plugins/desk/notes/x", None),
    "DELETE /plugins/<plugin>/<rest:path>": lambda desk: ("/plugins/desk/notes/x", None),
    "POST /pause": lambda desk: ("/pause", None),
    "POST /resume": lambda desk: (desk.post("/pause") and "/resume", None),
    "POST /freeze": lambda desk: ("/freeze", None),
    "POST /unfreeze": lambda desk: (desk.post("/freeze") and "/unfreeze", None),
    "POST /freeze-all": lambda desk: ("/freeze-all", None),
    "POST /unfreeze-all": lambda desk: (desk.post("/freeze-all") and "/unfreeze-all", None),
    "POST /revoke": lambda desk: ("/revoke", None),
    "POST /restore": lambda desk: (desk.post("/revoke") and "/restore", None),
    "POST /retire": lambda desk: (_desert(desk), None),
    "POST /keys": lambda desk: ("/keys", {"name": "k", "principal": "p", "scopes": ["read"]}),
    "DELETE /keys/<id>": lambda desk: (f"/keys/{_key(desk)}", None),
}


def _key(desk: Site) -> str:
    body = {"name": "k", "principal": "p", "scopes": ["read"]}
    return str(desk.post("/keys", body).json["id"])


def test_every_route_that_changes_something_is_tried_here() -> None:
    changing = {f"{route.method} {route.path}" for route in ALL if route.method != "GET"}

    assert changing - HARMLESS == set(MADE)


@pytest.mark.parametrize("route", MADE)
def test_a_change_leaves_who_with_which_key_and_from_where(desk: Site, route: str) -> None:
    path, body = MADE[route](desk)
    mark = desk.key("admin", principal="zoe")
    answer = desk.open(route.partition(" ")[0], path, json=body, headers=mark)
    trails = [
        entry
        for where in ("/audit?limit=50", "/deployment/audit?limit=50")
        for entry in desk.get(where).json["entries"]
        if entry.get("who") == "zoe"
    ]

    assert answer.status_code < 500 or route.startswith("PATCH"), answer.json
    assert any(entry.get("key") and entry.get("from") == "127.0.0.1" for entry in trails), trails
