"""An execution whose worker is gone is settled without a worker that could execute it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from boyd import Action
from boyd.models import AuditEntry, Autonomy, CallRequest, from_ms
from boyd.testing import Lab
from kit import agent, choice, chooses, execution_request, person

GATED = Autonomy(mode="approval-required")
DUE = "boyd:{test}:due"


class Cut:
    """An action during which its worker is cut off, and the sweeper looks for it.

    Whatever the sweeper sends stays undelivered: there is no other worker that acts.
    """

    def __init__(self, member: str = "", **settings: Any) -> None:
        self.member = member
        self.runs = 0
        self.then: Callable[[], None] = self.sweep
        action = Action(name="do", execute=self._execute, **settings)
        self.lab = Lab(agent(chooses(choice(params={"size": 1})), action))

    def _execute(self) -> str:
        self.runs += 1
        if self.runs == 1:
            self.lapse()
            self.then()
        return "done"

    def lapse(self) -> None:
        """Let the claim lapse."""
        for key in self.lab.client.scan_iter("boyd:{test}:execution:*"):
            self.lab.client.hset(key, "leaseUntil", 1)

    def sweep(self) -> None:
        """Let the deadline of what is executed pass, and the sweeper find that out."""
        self.lab.client.zadd(DUE, {self.member: 1})
        self.lab.sweeper.sweep()

    def approve(self) -> str:
        """Have the action proposed and approved; the approval's id."""
        self.lab.run()
        [item] = self.lab.store.approvals.page(50).pending
        self.member = f"approval:{item.id}"
        self.lab.resolver.answer(item.id, "approved", person("ann"))
        return item.id

    def call(self) -> str:
        """Call for the action; the call's id."""
        request = CallRequest(kind="execute", action="p:do", actor=person("ann"))
        call_id = self.lab.launcher.call(request, None)
        self.member = f"call:{call_id}"
        return call_id

    def audit(self, kind: str) -> list[AuditEntry]:
        """The entries of that kind in the trail."""
        self.lab.store.audit_trail.seal()
        return [
            entry for entry in self.lab.store.audit_trail.page(50).entries if entry.kind == kind
        ]

    def claim_time(self, execution: str) -> datetime:
        """When the ledger says that it was claimed."""
        key = f"boyd:{{test}}:execution:{execution}"
        return from_ms(float(self.lab.client.hget(key, "startedAt")))


def test_an_approved_action_whose_worker_is_gone_is_unknown_although_no_worker_acts() -> None:
    cut = Cut(autonomy=GATED)
    approval_id = cut.approve()
    states: list[Any] = []

    def then() -> None:
        cut.sweep()
        states.append((cut.lab.store.approvals.get(approval_id), list(cut.lab.dispatcher.hints)))

    cut.then = then
    cut.lab.deliver()
    [(item, hints)] = states

    assert item.execution.state == "unknown"
    assert "worker lab was lost while executing it" in item.result.error
    assert (item.result.unknown, hints, cut.runs) == (True, [], 1)
    assert cut.lab.client.zscore(DUE, cut.member) is None
    assert cut.lab.store.approvals.get(approval_id) == item, "what comes late changes nothing"


def test_an_unknown_outcome_is_in_the_audit_with_its_worker() -> None:
    cut = Cut(autonomy=GATED)
    approval_id = cut.approve()
    cut.lab.deliver()
    [entry] = cut.audit("action.unknown")

    assert entry.what == {
        "execution": f"approval:{approval_id}",
        "action": "p:do",
        "host": "here",
        "worker": "lab",
    }
    assert (entry.who, entry.before, entry.after) == ("ann", "running", "unknown")
    assert entry.note == "worker lab was lost while executing it"


def test_an_execution_says_that_it_was_started_when_it_was_claimed() -> None:
    """Also when another worker has entered the job since, which only finds it lost."""
    cut = Cut(autonomy=GATED)
    approval_id = cut.approve()

    def then() -> None:
        key = f"boyd:{{test}}:{cut.member}"
        cut.lab.client.hset(key, mapping={"executionAttempt": 2, "executionState": "queued"})
        cut.lab.client.hset(f"boyd:{{test}}:execution:{cut.member}", "startedAt", 1000)
        cut.lab.client.hset(key, "executionClaimedAt", 1000)
        cut.lab.jobs.execute(cut.member, 2)

    cut.then = then
    cut.lab.deliver()
    item = cut.lab.store.approvals.get(approval_id)

    assert item is not None
    assert item.execution is not None
    assert (item.execution.state, item.execution.worker) == ("unknown", "lab")
    assert item.execution.started_at == cut.claim_time(cut.member) == from_ms(1000)


def test_a_call_whose_worker_is_gone_is_unknown_although_no_worker_acts() -> None:
    cut = Cut()
    call_id = cut.call()
    cut.lab.deliver()
    call = cut.lab.store.calls.get(call_id)
    entry = cut.lab.store.executions.get(f"call:{call_id}")

    assert call is not None
    assert call.execution is not None
    assert call.result is not None
    assert (call.execution.state, call.result.unknown, cut.runs) == ("unknown", True, 1)
    assert entry is not None
    assert (entry.state, entry.result) == ("unknown", call.result)
    assert len(cut.audit("action.unknown")) == 1


def test_an_iteration_whose_act_phase_lost_its_only_worker_ends_with_an_unknown_outcome() -> None:
    cut = Cut("phase")
    cut.lab.launcher.trigger("test")
    cut.lab.deliver()
    [result] = cut.lab.store.history.results()

    assert result.success
    assert [
        (action_result.unknown, action_result.error) for action_result in result.action_results
    ] == [(True, "Outcome unknown: worker lab was lost while executing it")]
    assert cut.runs == 1
    assert len(cut.audit("action.unknown")) == 1


@pytest.mark.parametrize("way", ["approve", "call"])
def test_an_idempotent_action_that_lost_its_worker_is_sent_again(way: str) -> None:
    cut = Cut(idempotent=True, autonomy=GATED if way == "approve" else Autonomy())
    getattr(cut, way)()

    def then() -> None:
        cut.sweep()
        cut.lab.deliver()

    cut.then = then
    cut.lab.deliver()

    assert cut.runs == 2
    assert cut.audit("action.unknown") == []
    assert len(cut.audit("action.succeeded")) == 1


def test_a_claim_that_is_still_held_is_looked_at_again_when_it_lapses() -> None:
    cut = Cut(autonomy=GATED)
    approval_id = cut.approve()
    states: list[Any] = []

    def then() -> None:
        until = int(cut.lab.store.clock.now().timestamp() * 1000) + 900
        cut.lab.client.hset(f"boyd:{{test}}:execution:{cut.member}", "leaseUntil", until)
        cut.sweep()
        item = cut.lab.store.approvals.get(approval_id)
        assert item is not None
        states.append((item.result, list(cut.lab.dispatcher.hints)))
        assert abs(cut.lab.client.zscore(DUE, cut.member) - until) < 2
        cut.lapse()
        cut.sweep()

    cut.then = then
    cut.lab.deliver()
    item = cut.lab.store.approvals.get(approval_id)

    assert states == [(None, [])]
    assert item is not None
    assert item.execution is not None
    assert item.execution.state == "unknown"


def test_the_deadline_of_a_worker_that_has_entered_since_stays_its_own() -> None:
    cut = Cut(autonomy=GATED)
    cut.approve()
    lab = cut.lab
    lab.dispatcher.hints.clear()
    assert lab.store.jobs.enter(cut.member, 1, "other/1")
    lease = lab.client.zscore(DUE, cut.member)
    lab.store.executions.claim(execution_request(cut.member), "t")

    with pytest.raises(Exception, match="still running on lab"):
        lab.store.executions.settle(cut.member, cut.member)
    assert lab.client.zscore(DUE, cut.member) == lease


def test_an_execution_that_ended_before_its_worker_died_settles_the_approval() -> None:
    cut = Cut(autonomy=GATED)
    approval_id = cut.approve()
    lab = cut.lab
    lab.dispatcher.hints.clear()
    assert lab.store.jobs.enter(cut.member, 1, "lost/1")
    claim = lab.store.executions.claim(execution_request(cut.member), "t")
    done = {"action": "p:do", "success": True, "duration": 1, "output": "freed"}
    lab.client.hset(
        f"boyd:{{test}}:execution:{cut.member}",
        mapping={"state": "succeeded", "result": json.dumps(done)},
    )
    cut.sweep()
    item = lab.store.approvals.get(approval_id)

    assert claim.outcome == "claimed"
    assert item is not None
    assert item.execution is not None
    assert item.result is not None
    assert (item.execution.state, item.result.output, cut.runs) == ("succeeded", "freed", 0)


def test_an_execution_given_up_after_killing_every_worker_is_unknown_in_ledger_and_audit() -> None:
    """An idempotent action that takes down every worker was started all the same."""
    cut = Cut(idempotent=True)
    call_id = cut.call()
    lab = cut.lab
    lab.dispatcher.hints.clear()
    for attempt in (1, 2, 3):
        assert lab.store.jobs.enter(cut.member, attempt, f"lost/{attempt}")
        lab.store.executions.claim(execution_request(cut.member, idempotent=True), f"t{attempt}")
        cut.lapse()
        cut.sweep()
    call, entry = lab.store.calls.get(call_id), lab.store.executions.get(cut.member)

    assert call is not None
    assert call.execution is not None
    assert entry is not None
    assert (call.execution.state, entry.state) == ("unknown", "unknown")
    assert len(cut.audit("action.unknown")) == 1


def test_an_act_phase_that_loses_every_worker_leaves_no_execution_running() -> None:
    cut = Cut("phase", idempotent=True)
    lab = cut.lab
    lab.launcher.trigger("test")
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "act")
    execution = lab.store.executions.of_iteration(1)
    for epoch in (1, 2, 3):
        lab.dispatcher.hints.clear()
        assert lab.store.iterations.enter(1, epoch, "act", f"lost/{epoch}")
        lab.store.executions.claim(execution_request(execution, idempotent=True), f"t{epoch}")
        cut.lapse()
        cut.sweep()
    lab.deliver()
    entry = lab.store.executions.get(execution)

    assert entry is not None
    assert (entry.state, lab.store.history.results()[0].success) == ("unknown", False)


def test_an_execution_that_redis_may_have_forgotten_is_unknown_everywhere() -> None:
    cut = Cut(autonomy=GATED)
    approval_id = cut.approve()
    cut.lab.client.hset(f"boyd:{{test}}:{cut.member}", "server", "the one before")
    cut.lab.deliver()
    entry = cut.lab.store.executions.get(f"approval:{approval_id}")
    [record] = cut.audit("action.unknown")

    assert entry is not None
    assert entry.result is not None
    assert (entry.state, entry.action, cut.runs) == ("unknown", "p:do", 0)
    assert "Redis restarted and may have forgotten" in (entry.result.error or "")
    assert record.what["execution"] == f"approval:{approval_id}"
