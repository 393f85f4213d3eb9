"""The reference's approval page: what it sends is understood, all that it shows is answered.

Bodies are sent as they stand there. Only ids, times and durations of the answers are ours.
"""

from __future__ import annotations

import http.client
import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from agents.seed import ITERATION
from boyd.models import Actor, Scope
from harness import Deployment, wait_until

pytestmark = pytest.mark.real

OPERATOR = "operator@example.com"
#: What cannot be the same here and there.
OURS = {"id", "approvalId", "createdAt", "updatedAt", "expiresAt", "duration"}

QUEUE = """
{
"pending": [
{
"id": "550e8400-e29b-41d4-a716-446655440000",
"status": "pending",
"createdAt": "2025-06-15T10:00:00.000Z",
"updatedAt": "2025-06-15T10:00:00.000Z",
"expiresAt": "2025-06-15T11:00:00.000Z",
"decision": {
"action": "http-monitor:restartService",
"params": { "endpointId": "api" },
"rationale": "Endpoint API Server has failed 5 consecutive times",
"confidence": 0.85,
"risk": "medium",
"requiresApproval": true
},
"actionId": "http-monitor:restartService",
"actionName": "restart-service",
"params": { "endpointId": "api" },
"risk": "medium",
"confidence": 0.85,
"loopIteration": 12,
"situationSummary": "1 endpoint(s) are unhealthy | API Server: 5 consecutive failures"
}
],
"history": [
{
"id": "660e8400-e29b-41d4-a716-446655440001",
"status": "approved",
"createdAt": "2025-06-15T09:30:00.000Z",
"updatedAt": "2025-06-15T09:31:00.000Z",
"result": {
"action": "restart-service",
"success": true,
"duration": 3200
},
"actedBy": "operator@example.com",
"note": "Approved after verifying no active deployments"
}
]
}
"""

APPROVE = """
{
"note": "Approved after verifying no active deployments",
"actedBy": "operator@example.com"
}
"""

APPROVED = """
{
"success": true,
"approval": {
"id": "550e8400-e29b-41d4-a716-446655440000",
"status": "approved",
"updatedAt": "2025-06-15T10:05:00.000Z",
"result": {
"action": "restart-service",
"success": true,
"output": "Successfully restarted service for API Server",
"duration": 3200
},
"note": "Approved after verifying no active deployments",
"actedBy": "operator@example.com"
},
"result": {
"action": "restart-service",
"success": true,
"output": "Successfully restarted service for API Server",
"duration": 3200,
"sideEffects": ["Service restart triggered for https://api.example.com/health"]
}
}
"""

DENY = """
{
"note": "Denied -- deployment in progress, will retry after",
"actedBy": "operator@example.com"
}
"""

DENIED = """
{
"success": true,
"approval": {
"id": "550e8400-e29b-41d4-a716-446655440000",
"status": "denied",
"updatedAt": "2025-06-15T10:05:00.000Z",
"note": "Denied -- deployment in progress, will retry after",
"actedBy": "operator@example.com"
}
}
"""

TAKE = """
{
"params": { "endpointId": "api" },
"rationale": "Manual restart request"
}
"""

QUEUED = """
{
"success": false,
"queued": true,
"approvalId": "770e8400-e29b-41d4-a716-446655440002"
}
"""


@dataclass(frozen=True)
class Reference:
    """An API with the page's agent behind it, and the operator's key."""

    deployment: Deployment
    port: int
    key: str

    def send(self, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
        """Send *body* as it stands; the status and the answer."""
        headers = {"Authorization": f"Bearer {self.key}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, f"/api/v0{path}", body, headers)
        answer = connection.getresponse()
        data = json.loads(answer.read())
        connection.close()
        return answer.status, data

    def iterate(self, last: int) -> None:
        """Run iterations up to that one."""
        for number in range(self._iterations() + 1, last + 1):
            self.deployment.launcher("seed").trigger("test")
            self.deployment.ended("seed", number)

    def waiting(self) -> str:
        """The id of the only item that waits."""
        [item] = self.send("GET", "/approvals?includeHistory=false")[1]["pending"]
        approval_id: str = item["id"]
        return approval_id

    def _iterations(self) -> int:
        return self.deployment.agent("seed").loop_control.status().iteration


@pytest.fixture
def reference(deployment: Deployment) -> Reference:
    """The page's agent, before its first iteration."""
    deployment.worker("w", "agents.seed:seed")
    deployment.start("api", "api", "--port", "0", ready=False)
    port = wait_until(lambda: re.search(r"API on \S+:(\d+)", deployment.log("api")))
    scopes: list[Scope] = ["read", "actions", "approvals"]
    maker = Actor(principal="maker")
    _, text = deployment.store.api_keys.create("operator", OPERATOR, scopes, by=maker, person=True)
    assert text
    return Reference(deployment, int(port[1]), text)


def test_the_queue_has_all_that_the_page_shows(reference: Reference) -> None:
    reference.iterate(1)
    reference.send("POST", f"/approvals/{reference.waiting()}/approve", APPROVE)
    reference.iterate(ITERATION)

    status, answer = reference.send("GET", "/approvals")

    assert status == 200
    check(json.loads(QUEUE), answer)
    [item] = answer["pending"]
    assert seconds(item["expiresAt"]) - seconds(item["createdAt"]) == 3600


def test_the_history_can_be_left_out(reference: Reference) -> None:
    reference.iterate(1)
    reference.send("POST", f"/approvals/{reference.waiting()}/deny", DENY)

    assert len(reference.send("GET", "/approvals")[1]["history"]) == 1
    assert reference.send("GET", "/approvals?includeHistory=false")[1]["history"] == []


def test_approving_answers_with_the_item_and_the_result(reference: Reference) -> None:
    reference.iterate(1)
    waiting = reference.waiting()

    status, answer = reference.send("POST", f"/approvals/{waiting}/approve", APPROVE)

    assert status == 200
    check(json.loads(APPROVED), answer)
    assert answer["approval"]["id"] == waiting
    assert "claimedBy" not in answer["approval"], "the operator acts for nobody else"


def test_denying_answers_with_the_item(reference: Reference) -> None:
    reference.iterate(1)
    waiting = reference.waiting()

    status, answer = reference.send("POST", f"/approvals/{waiting}/deny", DENY)

    assert status == 200
    check(json.loads(DENIED), answer)
    assert "result" not in answer["approval"], "nothing was executed"


@pytest.mark.parametrize("answer", ["approve", "deny"])
def test_a_resolved_or_unknown_approval_is_not_found(reference: Reference, answer: str) -> None:
    reference.iterate(1)
    waiting = reference.waiting()
    reference.send("POST", f"/approvals/{waiting}/deny")

    assert reference.send("POST", f"/approvals/{waiting}/{answer}")[0] == 404
    assert reference.send("POST", f"/approvals/660e8400/{answer}")[0] == 404


def test_an_action_that_needs_an_approval_is_queued(reference: Reference) -> None:
    status, answer = reference.send("POST", "/actions/http-monitor:restartService", TAKE)

    assert status == 202
    check(json.loads(QUEUED), answer)
    assert answer["approvalId"] == reference.waiting()


def test_any_action_can_be_made_to_need_one(reference: Reference) -> None:
    body = json.dumps({**json.loads(TAKE), "requiresApproval": True})

    status, answer = reference.send("POST", "/actions/http-monitor:restartService", body)

    assert status == 202
    check(json.loads(QUEUED), answer)
    assert reference.deployment.agent("seed").approvals.get(answer["approvalId"]) is not None


def test_the_iteration_tells_that_its_action_waits(reference: Reference) -> None:
    reference.iterate(1)

    [result] = reference.deployment.ended("seed", 1).action_results
    expected = {
        "action": "http-monitor:restartService",
        "success": False,
        "error": "Approval required",
        "duration": 0,
        "metrics": {"approvalId": reference.waiting()},
    }
    assert result.to_wire() == expected


def check(expected: Any, real: Any, where: str = "answer") -> None:
    """Check that every field that is shown is there, with that value unless it is ours."""
    if isinstance(expected, dict):
        for name, value in expected.items():
            assert name in real, f"{where}: no {name}"
            if name in OURS:
                assert type(value) is str or real[name] >= 0, f"{where}.{name}"
                assert isinstance(real[name], str) == isinstance(value, str), f"{where}.{name}"
            else:
                check(value, real[name], f"{where}.{name}")
    elif isinstance(expected, list):
        assert len(expected) == len(real), where
        for number, value in enumerate(expected):
            check(value, real[number], f"{where}[{number}]")
    else:
        assert expected == real, where


def seconds(stamp: str) -> float:
    """An RFC 3339 time as seconds."""
    return datetime.fromisoformat(stamp).timestamp()
