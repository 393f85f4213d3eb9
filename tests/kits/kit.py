"""Short names for what tests build over and over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from boyd import Agent, Decision, Observation, Plugin, SituationAssessment
from boyd.models import (
    ActionResult,
    Actor,
    ApprovalItem,
    ApprovalPolicy,
    Call,
    CallRequest,
    ExecutionRequest,
)
from boyd.plugin import Action, Component, Observer, Orienter, Strategy
from boyd.store import Slot
from boyd.testing import Lab


def seen(source: str = "test", **fields: Any) -> Observation:
    """An observation."""
    return Observation(**{"source": source, "type": "metric", "data": {}, **fields})


def choice(action: str = "p:do", **fields: Any) -> Decision:
    """A decision for *action*."""
    return Decision(**{"action": action, "rationale": "test", "confidence": 0.9, **fields})


def sees(name: str, *observations: Observation, **settings: Any) -> Observer:
    """An observer that returns *observations*."""
    return Observer(name=name, observe=lambda: list(observations), **settings)


def fails(name: str = "fails", **settings: Any) -> Observer:
    """An observer that raises."""

    def observe() -> Any:
        raise RuntimeError("boom")

    return Observer(name=name, observe=observe, **settings)


def assessed(*findings: str, confidence: float | None = 0.5, **fields: Any) -> SituationAssessment:
    """An assessment with those findings."""
    defaults = {"source": "p:o", "findings": list(findings), "confidence": confidence}
    return SituationAssessment(**{**defaults, **fields})


def reads(name: str, *findings: str, confidence: float = 0.5, **fields: Any) -> Orienter:
    """An orienter with those findings."""
    assessment = assessed(*findings, confidence=confidence, source=f"p:{name}", **fields)
    return Orienter(name=name, orient=lambda: assessment)


def chooses(decision: Any, name: str = "chooses", **settings: Any) -> Strategy:
    """A strategy that decides for *decision*."""
    return Strategy(name=name, decide=lambda: decision, **settings)


class Recorder:
    """An action that remembers what it was called with."""

    def __init__(self, output: Any = "done", error: Exception | None = None) -> None:
        self.calls: list[Any] = []
        self._output = output
        self._error = error

    def action(self, name: str = "do", **settings: Any) -> Action:
        """The action."""

        def execute(params: Any) -> Any:
            self.calls.append(params)
            if self._error:
                raise self._error
            return self._output

        return Action(name=name, execute=execute, **settings)


def plugin(*components: Component, id: str = "p", **hooks: Any) -> Plugin:
    """A plugin of *components*; *hooks* are functions by hook name, without `self`."""
    methods = {name: staticmethod(function) for name, function in hooks.items()}
    kind = type("Made", (Plugin,), {"id": id, "components": components, **methods})
    instance: Plugin = kind()
    return instance


def agent(*components: Component, **settings: Any) -> Agent:
    """An agent with one plugin of *components*."""
    return Agent("test", plugins=[plugin(*components)], **settings)


def approval_item(at: datetime, **fields: Any) -> ApprovalItem:
    """An approval of `svc:restart` that has waited since then."""
    action = fields.get("action_id", "svc:restart")
    values: dict[str, Any] = {
        "id": "4711",
        "agent_id": "test",
        "status": "pending",
        "fingerprint": "f",
        "decision": choice(action, rationale="down"),
        "action_id": action,
        "params": {},
        "risk": "medium",
        "loop_iteration": 3,
        "created_at": at,
        "updated_at": at,
    }
    return ApprovalItem(**{**values, **fields})


#: What reads a key of each type, with a client or a pipeline.
READS: dict[str, Callable[[Any, str], Any]] = {
    "hash": lambda client, key: client.hgetall(key),
    "zset": lambda client, key: client.zrange(key, 0, -1, withscores=True),
    "set": lambda client, key: client.smembers(key),
    "list": lambda client, key: client.lrange(key, 0, -1),
    "stream": lambda client, key: client.xrange(key),
    "string": lambda client, key: client.get(key),
}


def everything(lab: Lab) -> Iterator[str]:
    """All that Redis holds, as text."""
    for key in lab.client.scan_iter():
        yield f"{key} {READS[lab.client.type(key)](lab.client, key)}"


#: One approval, of anybody.
LAX = ApprovalPolicy(allow_requester=True)


def slot_around(now: float) -> Slot:
    """A slot that is half over *now*: it does not end while a test runs."""
    return Slot(int(now) * 1000 - 1_800_000, 3_600_000)


def execution_request(id: str, **fields: Any) -> ExecutionRequest:
    """An execution of `p:do`, to claim."""
    return ExecutionRequest(id=id, action="p:do", params={}, **fields)


def person(name: str, *groups: str) -> Actor:
    """Somebody who asks or answers."""
    return Actor(principal=name, person=True, groups=list(groups))


def machine(name: str) -> Actor:
    """A program that asks or answers."""
    return Actor(principal=name)


def pending_item(lab: Lab) -> ApprovalItem:
    """The only approval that waits."""
    [item] = lab.store.approvals.page(50).pending
    return item


def call_action(lab: Lab, **fields: Any) -> Call:
    """A call of `p:do` by ann that a worker has taken, with other *fields*."""
    request = {"kind": "execute", "action": "p:do", "actor": person("ann"), **fields}
    call_id = lab.launcher.call(CallRequest(**request), None)
    lab.deliver()
    call = lab.store.calls.get(call_id)
    assert call is not None
    return call


def call_result(lab: Lab, **fields: Any) -> ActionResult:
    """The result of such a call."""
    result = call_action(lab, **fields).result
    assert result is not None
    return result


def overdue(lab: Lab, name: str) -> None:
    """Let the moment pass for which a job waits, and the sweeper and workers find that out."""
    key = f"boyd:{{{lab.agent.id}}}:{name}"
    if lab.client.hexists(key, "executionNotBefore"):
        lab.client.hset(key, "executionNotBefore", 1)
    lab.client.zadd(f"boyd:{{{lab.agent.id}}}:due", {name: 1})
    lab.sweeper.sweep()
    lab.deliver()
