"""Asks every route of the API about the agent `routed`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from itertools import count
from typing import Any
from uuid import uuid4

import requests

from boyd import naming
from boyd.models import Actor, CallRequest, to_ms, utc_now
from boyd.testing.model_server import Received, Reply, hang, say
from boyd_api.app import ALL
from boyd_api.http.routing import BASE, Route
from harness import Deployment, wait_until

#: Where the routes with a name in path or query lie, with the names of things that there are.
PATHS = {
    "loop.one": "/loop/history/1",
    "actions.take": "/actions/counter:add",
    "actions.dry_run": "/actions/counter:add/dry-run",
    "actions.execution": "/executions/{known.execution}",
    "actions.cancel": "/executions/{known.queued_execution}/cancel",
    "actions.rollback": "/executions/{known.execution}/rollback",
    "procedures.show": "/procedures/{known.procedure}",
    "procedures.cancel": "/procedures/{known.procedure}/cancel",
    "procedures.resume": "/procedures/{known.procedure}/resume",
    "approvals.show": "/approvals/{known.approval}",
    "approvals.preview": "/approvals/{known.approval}/preview",
    "approvals.approve": "/approvals/{known.approval}/approve",
    "approvals.acknowledge": "/approvals/{known.approval}/acknowledge",
    "approvals.release": "/approvals/{known.approval_in_care}/release",
    "anomalies.acknowledge": "/anomalies/{known.anomaly}/acknowledge",
    "anomalies.release": "/anomalies/{known.anomaly}/release",
    "approvals.deny": "/approvals/{known.approval}/deny",
    "approvals.withdraw": "/approvals/{known.approval}/withdraw",
    "incidents.list": "/incidents?target=web",
    "incidents.show": "/incidents/{known.incident}?target=web",
    "incidents.report": "/incident-reports/{known.incident}?target=web",
    "rights.explain": "/rights?verb=approve&action=counter:add",
    "runs.show": "/runs/{known.run}",
    "runs.cancel": "/runs/{known.waiting_run}/cancel",
    "runs.callback": "/runs/{known.run}/callback",
    "runs.redeliver": "/runs/{known.run}/callback/redeliver",
    "investigations.show": "/investigations/{known.investigation}",
    "investigations.log": "/investigations/{known.investigation}/log",
    "investigations.follow": "/investigations/{known.investigation}/events",
    "investigations.say": "/investigations/{known.investigation}/messages",
    "investigations.cancel": "/investigations/{known.open_investigation}/cancel",
    "intake.take": "/intake/json",
    "plugins.read": "/plugins/counter/",
    "plugins.post": "/plugins/counter/",
    "plugins.put": "/plugins/counter/",
    "plugins.patch": "/plugins/counter/",
    "plugins.delete": "/plugins/counter/",
    "keys.revoke": "/keys/{known.key}",
    "documents.asset": "/docs/swagger-ui.css",
    "documents.problem": "/problems/not-found",
}
#: What is sent to the routes that need a body.
BODIES: dict[str, Any] = {
    "actions.lift_hold": {"action": "{known.action_on_hold}"},
    "autonomy.revoke_autonomy": {"action": "{known.free_action}"},
    "approvals.approve_all": {"ids": ["{known.approval}"]},
    "approvals.deny_all": {"ids": ["{known.approval}"]},
    "approvals.withdraw_all": {"ids": ["{known.approval}"]},
    "runs.submit": {"title": "t", "description": "d"},
    "investigations.ask": {"question": "Why?"},
    "investigations.say": {"text": "And now?"},
    "intake.take": {"source": "s", "type": "event", "data": {}},
    "mcp.answer": {
        "jsonrpc": "2.0",
        "id": "1",
        "method": "tools/call",
        "params": {
            "name": "boyd_propose_action",
            "arguments": {"agent": "routed", "action": "counter:add", "rationale": "r"},
        },
    },
    "keys.create": {"name": "n", "principal": "p", "scopes": ["read"]},
}


#: What is asked once no worker runs the agent any more, in this job.
LAST = ("loop.abandon", "control.retire")


class Client:
    """Asks the API at *base*, as the person ann unless something else is said."""

    def __init__(self, running: Deployment, base: str, trust: str = "") -> None:
        """Make its keys; *trust* is a file with the authorities that HTTPS is checked with."""
        self.base = base
        self.verify: str | bool = trust or True
        self.headers = {name: running.key(name, "admin") for name in ("ann", "bob")}
        self.headers["bot"] = running.key("bot", "admin", person=False)

    def __call__(
        self, method: str, path: str, body: Any = None, expect: int = 200, by: str = "ann"
    ) -> Any:
        got = self.send(method, f"{self.base}{path}", body, by)
        assert got.status_code == expect, (path, got.text)
        return got.json() if got.headers["Content-Type"].startswith("application/") else got.text

    def send(self, method: str, url: str, body: Any, by: str) -> requests.Response:
        """The response to a request, whose body may be a stream."""
        headers = self.headers[by]
        return requests.request(
            method, url, json=body, headers=headers, timeout=60, stream=True, verify=self.verify
        )


#: A question over which the model thinks for long.
SLOW = "Why, after all?"


def model_reply(request: Received) -> Reply:
    """The model's answer."""
    return hang(60, say("Because.")) if SLOW in str(request.body["messages"]) else say("Because.")


class Known:
    """Things of the agent `routed` that paths can name; each is made when it is asked for."""

    def __init__(self, ask: Client, running: Deployment) -> None:
        self._ask = ask
        self._running = running
        #: Each iteration has a number of its own, as the archive may have the last one by now.
        self._numbers = count(900_000)

    @property
    def execution(self) -> str:
        return str(self._post("/actions/counter:add")["executionId"])

    @property
    def queued_execution(self) -> str:
        """One on a queue that no worker consumes."""
        order = CallRequest(kind="execute", action="counter:add", actor=Actor(principal="ann"))
        id, _ = self._running.agent("routed").calls.submit(order, "nowhere")
        return naming.call(id)

    @property
    def approval_in_care(self) -> str:
        """An approval that somebody takes care of."""
        id = self.approval
        self._ask("POST", f"{BASE}/agents/routed/approvals/{id}/acknowledge", {}, 200)
        return id

    @property
    def anomaly(self) -> str:
        """An open anomaly."""
        row = ["counter", "counts are late", "counts", "late", "high", "The counts are late.", 1]
        sight = json.dumps({"open": [row], "more": 0, "blind": []})
        self._running.store.client.set("boyd:{routed}:symptoms", sight)
        return hashlib.sha256("\n".join(map(str, row[:2])).encode()).hexdigest()[:8]

    @property
    def action_on_hold(self) -> str:
        """An action that is held."""
        fields = {"action": "counter:add", "kind": "suspended", "execution": "loop:1"}
        self._running.store.client.hset("boyd:{routed}:hold:counter:add:", mapping=fields)
        return fields["action"]

    @property
    def free_action(self) -> str:
        """An action that was let run alone."""
        grant = {"id": "g", "atLeast": 0.9, "since": 1, "until": 2e12, "by": ["ann"]}
        record = json.dumps({"label": "l", "effective": 99, "grant": grant})
        self._running.store.client.hset("boyd:{routed}:track:counter:add", "s", record)
        return "counter:add"

    @property
    def procedure(self) -> str:
        """One that waits for a person."""
        id = f"loop:{uuid4()}"
        fields = {
            "id": id,
            "action": "counter:add",
            "state": "stopped",
            "params": "{}",
            "steps": "[]",
            "at": 0,
            "startedAt": 1,
            "until": 2,
            "stoppedAt": 1,
        }
        client = self._running.store.client
        client.hset(f"boyd:{{routed}}:procedure:{id}", mapping=fields)
        client.zadd("boyd:{routed}:procedures", {id: fields["startedAt"]})
        return id

    @property
    def incident(self) -> str:
        """The latest incident of `web`, with an anomaly in an iteration that has just ended."""
        now = to_ms(utc_now())
        anomaly = {"type": "down", "description": "d", "severity": "low"}
        situation = {"anomalies": [{**anomaly, "affectedResources": ["web"]}]}
        number = next(self._numbers)
        fields = {"iteration": number, "trigger": "test", "startedAt": now, "endedAt": now}
        record = {**fields, "situation": json.dumps(situation)}
        client = self._running.store.client
        client.hset(f"boyd:{{routed}}:iteration:{number}", mapping=record)
        client.zadd("boyd:{routed}:history", {str(number): now})
        # The archive copies it at once: soon it will look only for newer ones.
        client.xadd("boyd:{routed}:events", {"kind": "iteration.completed", "iteration": number})
        history = self._ask("GET", f"{BASE}/incidents?target=web")
        return str(max(incident["id"] for incident in history["incidents"]))

    @property
    def approval(self) -> str:
        return str(self._post("/actions/counter:reset", expect=202)["approvalId"])

    @property
    def waiting_run(self) -> str:
        run = {"title": "t", "description": "d", "callbackUrl": "http://127.0.0.1:9/"}
        self._post("/pause")
        # An iteration that began before would take the run along.
        iterations = self._running.agent("routed").iterations
        wait_until(lambda: iterations.current() is None)
        return str(self._post("/runs", run, 201)["id"])

    @property
    def run(self) -> str:
        """One that has ended, so that it has a callback."""
        run_id = self.waiting_run
        self._post(f"/runs/{run_id}/cancel")
        self._post("/resume")
        return run_id

    @property
    def open_investigation(self) -> str:
        return self._investigation(SLOW)

    @property
    def investigation(self) -> str:
        """One that has ended."""
        investigation_id = self._investigation("Why?")
        store = self._running.agent("routed").investigations
        wait_until(
            lambda: (record := store.get(investigation_id)) is not None and record.status == "ended"
        )
        return investigation_id

    @property
    def key(self) -> str:
        return str(self._ask("POST", f"{BASE}/keys", BODIES["keys.create"], 201)["id"])

    def _investigation(self, question: str) -> str:
        return str(self._post("/investigations", {"question": question}, 201)["id"])

    def _post(self, path: str, body: Any = None, expect: int = 200) -> Any:
        return self._ask("POST", f"{BASE}/agents/routed{path}", body or {}, expect)


def fill(value: Any, ids: Known) -> Any:
    """A path or body with the names of things that there are."""
    if isinstance(value, str):
        return value.format(known=ids)
    if isinstance(value, list):
        return [fill(item, ids) for item in value]
    return {name: fill(inner, ids) for name, inner in value.items()}


def ask_everything(ask: Client, ids: Known) -> Iterator[str]:
    """Ask every route, of the default agent and of a named one; those without success."""
    for route in (each_route for each_route in ALL if each_route.name not in LAST):
        for rule in route.rules.values():
            refusal = _refusal(ask, ids, route, rule.removesuffix(route.path))
            if refusal:
                yield refusal


def _refusal(ask: Client, ids: Known, route: Route, base: str) -> str:
    path = fill(PATHS.get(route.name, route.path), ids)
    body = fill(BODIES[route.name], ids) if route.name in BODIES else None
    url = ask.base + base.replace("<agentId>", "routed") + path
    with ask.send(route.method, url, body, "bot" if route.noun == "mcp" else "bob") as got:
        if got.headers["Content-Type"].startswith("text/event-stream"):
            next(got.iter_content(1))
            return ""
        return "" if got.ok else f"{route.method} {url}: {got.status_code} {got.text}"
