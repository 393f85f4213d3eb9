"""One in flight: nothing is executed or proposed twice at a time on one target."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from boyd import Agent, Procedure, ProcedureStep, naming
from boyd.errors import ActionHeld, PluginError
from boyd.models import ActionResult, ApprovalItem, Autonomy, Call, CallRequest, Decision, Proposal
from boyd.phases.act_request import ActRequest, Requester
from boyd.plugin import Action, Component
from boyd.runtime.jobs.action_jobs import run_action
from boyd.testing import Lab
from kit import agent, choice, chooses, overdue, person, plugin
from virtual_time import VirtualTime

ANN, JANE = person("ann"), person("jane")
ASKS = Autonomy(mode="approval-required")
RESTART = "p:restart"


class Where(BaseModel):
    """The params of the action of these tests."""

    host: str = "web1"
    reason: str = ""


class Restart:
    """An action during which a test can do something else."""

    def __init__(self, **settings: Any) -> None:
        self.begun: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self.idle = False
        self.settings: dict[str, Any] = {"target": "host", "autonomy": ASKS, **settings}

    def lab(
        self,
        decision: Decision | None = None,
        *parts: Component,
        on_before_act: Callable[[], None] = lambda: None,
        **more: Any,
    ) -> Lab:
        """A lab whose loop always wants the action, unless it is idle."""
        restarting = decision or choice(RESTART, params={"host": "web1"})
        strategy = chooses(restarting, applicable_when=lambda: not self.idle)
        action = Action(name="restart", params=Where, execute=self._execute, **self.settings)
        own = plugin(strategy, action, *parts, on_before_act=on_before_act)
        return Lab(Agent("test", plugins=[own], **more))

    def _execute(self, params: Where) -> None:
        self.begun.append(params.reason or params.host)
        # Only the first one is long.
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()


def pending(lab: Lab) -> list[ApprovalItem]:
    return lab.store.approvals.page(50).pending


def approve(lab: Lab) -> str:
    """Approve the only item that waits; the name of its execution."""
    [item] = pending(lab)
    lab.resolver.answer(item.id, "approved", JANE)
    return naming.approval(item.id)


def call(lab: Lab, reason: str = "by hand", host: str = "web1", **fields: Any) -> str:
    """Ask for the action by hand; the name of its execution."""
    params = {"host": host, "reason": reason}
    defaults: dict[str, Any] = {"kind": "execute", "action": RESTART, "params": params}
    return naming.call(lab.launcher.call(CallRequest(**{**defaults, **fields}, actor=ANN), None))


def call_record(lab: Lab, name: str) -> Call:
    record = lab.store.calls.get(naming.parts(name)[1])
    assert record is not None
    return record


def rationale(lab: Lab) -> str:
    """Run an iteration; why it does nothing."""
    result = lab.run()
    assert result.decision is not None
    assert result.decision.is_no_op
    assert result.action_results == []
    return result.decision.rationale


def test_an_approved_action_that_waits_for_a_worker_is_not_proposed_again() -> None:
    lab = Restart().lab()
    lab.run()
    name = approve(lab)
    job = lab.dispatcher.hints.popleft()

    reason = rationale(lab)
    assert reason.startswith("p:restart on web1 is not repeated yet: ")
    pattern = rf"{naming.short(name)} is queued \(for \d+ s\), approved by {JANE.principal}$"
    assert re.search(pattern, reason)
    assert pending(lab) == []
    lab.dispatcher.hints.append(job)
    lab.deliver()
    assert lab.store.executions.result(name) is not None


def test_a_running_action_is_not_proposed_again() -> None:
    restart = Restart()
    lab = restart.lab()
    lab.run()
    approve(lab)
    reasons: list[str] = []
    restart.meanwhile = lambda: reasons.append(rationale(lab))
    lab.deliver()

    assert restart.begun == ["web1"]
    assert re.search(rf"is running on here \(for \d+ s\), approved by {JANE.principal}", reasons[0])
    assert pending(lab) == []
    lab.run()
    assert len(pending(lab)) == 1


def test_nothing_takes_the_place_of_what_is_running() -> None:
    other = chooses(choice("p:failover"), name="other")
    did: list[str] = []
    restart = Restart()
    strategy = chooses(choice(RESTART, params={"host": "web1"}))
    action = Action(name="restart", params=Where, execute=restart._execute, **restart.settings)
    failover = Action(name="failover", execute=lambda: did.append("failover"))
    lab = Lab(agent(strategy, other, action, failover))
    lab.run()
    approve(lab)
    restart.meanwhile = lambda: rationale(lab)
    lab.deliver()

    assert did == []


def test_an_action_that_is_being_verified_is_not_proposed_again() -> None:
    restart = Restart(verify=lambda: None)
    lab = restart.lab()
    lab.run()
    name = approve(lab)
    lab.deliver()

    assert "is being verified" in rationale(lab)
    assert pending(lab) == []
    [hold] = lab.store.holds.all()
    assert (hold.kind, hold.execution, hold.by) == ("open", name, JANE.principal)
    assert hold.because is None


def test_a_second_approval_is_executed_after_the_first() -> None:
    restart = Restart()
    lab = restart.lab()
    restart.idle = True
    for reason in ("first", "second"):
        call(lab, reason, requires_approval=True)
    lab.deliver()
    for item in pending(lab):
        lab.resolver.answer(item.id, "approved", JANE)
    second: list[Any] = []

    def overlap() -> None:
        lab.deliver()
        second.append(list(restart.begun))

    restart.meanwhile = overlap
    lab.deliver()
    assert len(second[0]) == 1
    assert sorted(restart.begun) == ["first", "second"]


def test_a_call_waits_until_it_is_its_turn() -> None:
    restart = Restart(autonomy=Autonomy())
    lab = restart.lab()
    restart.idle = True
    names: list[str] = []

    def ask() -> None:
        names.append(call(lab, "second"))
        names.append(call(lab, "third"))
        lab.deliver()
        assert [call_record(lab, name).result for name in names] == [None, None]
        assert [hold.kind for hold in lab.store.holds.all()] == ["running", "queued", "queued"]
        assert [hold.execution for hold in lab.store.in_flight.ahead_of(names[0])] == [first]
        ahead = lab.store.in_flight.ahead_of(names[1])
        assert [hold.execution for hold in ahead] == [first, names[0]]

    restart.meanwhile = ask
    first = call(lab, "first")
    lab.deliver()
    assert restart.begun == ["first", "second", "third"]
    assert all(call_record(lab, name).result for name in names)
    assert lab.store.holds.all() == []


def test_a_rollback_waits_for_another_execution_on_its_target() -> None:
    did: list[str] = []
    restart = Restart(autonomy=Autonomy(), rollback=lambda: did.append("undone"))
    lab = restart.lab()
    restart.idle = True
    first = call(lab, "first")
    lab.deliver()

    def undo() -> None:
        undoing = call(lab, kind="rollback", undoes=first)
        lab.deliver()
        assert call_record(lab, undoing).result is None
        ahead = lab.store.in_flight.ahead_of(undoing)
        assert [hold.execution for hold in ahead] == [running]
        assert did == []

    restart.meanwhile = undo
    running = call(lab, "second")
    call(lab, "third")
    lab.deliver()
    assert restart.begun == ["first", "second", "third"]
    assert did == ["undone"]


def test_the_loop_is_refused_what_has_begun_since_it_decided() -> None:
    restart = Restart(autonomy=Autonomy())
    lab = restart.lab()
    lab.launcher.trigger("test")
    while not any(hint[0] == "act" for hint in lab.dispatcher.hints):
        lab.step()
    restart.meanwhile = lab.deliver
    call(lab, "by hand")
    lab.dispatcher.hints.rotate(1)
    lab.deliver()

    [result] = lab.store.history.get(1).action_results  # type: ignore[union-attr]
    assert restart.begun == ["by hand"]
    assert result.prevented == "held"
    assert re.search(r"is running on here \(for \d+ s\), requested by", str(result.error))


def test_a_model_is_refused_an_action_that_is_in_flight() -> None:
    restart = Restart(autonomy=Autonomy())
    lab = restart.lab()
    restart.idle = True
    refused: list[ActionResult] = []

    def ask() -> None:
        decision = choice(RESTART, params={"host": "web1", "reason": "a model"})
        request = ActRequest("investigation:i:1", decision, requester=Requester(for_model=True))
        refused.append(run_action(lab.engine, lab.engine.ledger(), request))

    restart.meanwhile = ask
    call(lab, "by hand")
    lab.deliver()
    assert restart.begun == ["by hand"]
    assert [result.prevented for result in refused] == ["held"]


def test_a_proposal_of_an_assistant_waits_for_the_execution_in_flight() -> None:
    restart = Restart(autonomy=Autonomy())
    lab = restart.lab()
    restart.idle = True

    def propose() -> None:
        call(lab, "an assistant", by_person=True)
        lab.deliver()
        approve(lab)
        lab.deliver()
        assert restart.begun == ["by hand"]

    restart.meanwhile = propose
    call(lab, "by hand")
    lab.deliver()
    assert restart.begun == ["by hand", "an assistant"]


def test_a_step_of_a_procedure_waits_for_its_turn() -> None:
    restart = Restart(autonomy=Autonomy())
    renew = Procedure(
        name="renew", steps=[ProcedureStep(id="one", action=RESTART, params={"host": "web1"})]
    )
    lab = restart.lab(None, renew)
    restart.idle = True

    def start() -> None:
        call(lab, action="p:renew", params={})
        lab.deliver()
        lab.sweeper.sweep()
        lab.deliver()
        [record] = lab.store.procedures.all()
        assert record.progress[0].state == "running"
        assert restart.begun == ["by hand"]

    restart.meanwhile = start
    call(lab, "by hand")
    lab.deliver()
    assert restart.begun == ["by hand", "web1"]


def test_an_order_is_given_up_when_its_turn_does_not_come() -> None:
    restart = Restart(autonomy=Autonomy(), verify=lambda: None)
    lab = restart.lab()
    restart.idle = True
    first = call(lab, "first")
    second = call(lab, "second")
    lab.deliver()
    lab.client.hset(f"boyd:{{test}}:{second}", "createdAt", 1)
    overdue(lab, second)

    result = call_record(lab, second).result
    assert result is not None
    assert result.prevented == "held"
    assert result.error == (
        f"Not executed: {naming.short(first)} has not ended within 1 h; ask for it again"
    )
    assert restart.begun == ["first"]


def test_an_order_waits_for_its_turn_when_the_clock_of_redis_has_just_stepped_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = VirtualTime(monkeypatch)
    restart = Restart(autonomy=Autonomy(), verify=lambda: None)
    lab = restart.lab()
    restart.idle = True
    call(lab, "first")
    lab.deliver()
    lab.store.clock.read()
    clock.now -= 2 * 3_600_000
    second = call(lab, "second")
    lab.deliver()

    assert call_record(lab, second).result is None
    assert restart.begun == ["first"]


def test_an_action_that_is_being_verified_can_be_rolled_back_at_once() -> None:
    undone: list[Any] = []
    restart = Restart(
        autonomy=Autonomy(), verify=lambda: None, rollback=lambda: undone.append(True)
    )
    lab = restart.lab()
    restart.idle = True
    first = call(lab)
    second = call(lab, "waits behind it")
    lab.deliver()
    call(lab, kind="rollback", undoes=first)
    lab.deliver()

    assert undone == [True]
    assert call_record(lab, second).result is None


def test_nothing_is_executed_between_harm_and_its_rollback() -> None:
    undone: list[list[str]] = []
    restart: Restart = Restart(
        autonomy=Autonomy(),
        verify=lambda: "worse",
        rollback=lambda: undone.append(list(restart.begun)),
    )

    def look() -> None:
        if restart.begun and pending(lab):  # it is about to be undone, as people know
            approve(lab)
            lab.sweeper.sweep()
            lab.deliver()

    lab: Lab = restart.lab(on_before_act=look)
    restart.idle = True
    first = call(lab, "first")
    call(lab, "second", requires_approval=True)
    lab.deliver()
    overdue(lab, naming.verification(first))
    assert undone == [["first"]]

    lab.sweeper.sweep()
    lab.deliver()
    assert restart.begun == ["first", "second"]


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        ({"concurrency": 2}, ["first", "second"]),
        ({"concurrency": 0}, ["first", "second", "third"]),
        ({"reversibility": "read-only"}, ["first", "second", "third"]),
        ({"reversibility": "read-only", "concurrency": 1}, ["first"]),
        ({}, ["first"]),
    ],
)
def test_an_action_says_how_many_of_it_may_be_in_flight(
    settings: Any, kinds: Sequence[str]
) -> None:
    restart = Restart(autonomy=Autonomy(), **settings)
    lab = restart.lab()
    restart.idle = True
    kinds_begun: list[str] = []

    def third() -> None:
        call(lab, "third")
        lab.deliver()
        kinds_begun.extend(restart.begun)

    def second() -> None:
        restart.meanwhile = third
        call(lab, "second")
        lab.deliver()
        restart.meanwhile = lambda: None
        if not kinds_begun:
            third()

    restart.meanwhile = second
    call(lab, "first")
    lab.deliver()

    assert kinds_begun == kinds


def test_another_target_is_free() -> None:
    restart = Restart(autonomy=Autonomy())
    lab = restart.lab()
    restart.idle = True

    def elsewhere() -> None:
        call(lab, "elsewhere", host="web2")
        lab.deliver()
        assert restart.begun == ["first", "elsewhere"]

    restart.meanwhile = elsewhere
    call(lab, "first")
    lab.deliver()
    assert restart.begun == ["first", "elsewhere"]


def test_an_action_without_a_target_counts_as_a_whole() -> None:
    restart = Restart(autonomy=Autonomy(), target=None)
    lab = restart.lab()
    restart.idle = True

    def again() -> None:
        call(lab, "second", host="web2")
        lab.deliver()
        assert restart.begun == ["first"]

    restart.meanwhile = again
    call(lab, "first")
    lab.deliver()
    assert restart.begun == ["first", "second"]


def test_an_approval_lists_the_executions_in_flight() -> None:
    restart = Restart()
    lab = restart.lab()
    lab.run()
    first = approve(lab)
    items: list[ApprovalItem] = []

    def ask_anyway() -> None:
        call(lab, "anyway", requires_approval=True)
        lab.deliver()
        items.extend(pending(lab))

    restart.meanwhile = ask_anyway
    lab.deliver()
    [item] = items
    [hold] = item.in_flight
    assert item.target == "web1"
    assert (hold.execution, hold.kind, hold.by) == (first, "running", JANE.principal)
    assert hold.course.startswith(f"{naming.short(first)} is running on here (for ")
    assert pending(lab)[0].in_flight == []


def test_an_item_that_waits_for_its_turn_says_for_what() -> None:
    restart = Restart()
    lab = restart.lab()
    restart.idle = True
    call(lab, "first", requires_approval=True)
    lab.deliver()
    first = approve(lab)

    def wait() -> None:
        call(lab, "second", requires_approval=True)
        lab.deliver()
        [item] = pending(lab)
        lab.resolver.answer(item.id, "approved", JANE)
        lab.deliver()
        waiting = lab.store.approvals.get(item.id)
        assert waiting is not None
        assert waiting.execution is not None
        assert waiting.execution.state == "queued"
        assert [hold.execution for hold in waiting.in_flight] == [first]
        assert restart.begun == ["first"]

    restart.meanwhile = wait
    lab.deliver()
    assert restart.begun == ["first", "second"]


def test_a_proposal_that_was_overtaken_by_an_approval_is_refused() -> None:
    restart = Restart()
    lab = restart.lab()
    lab.run()
    first = approve(lab)
    proposal = Proposal(
        decision=choice(RESTART),
        action_id=RESTART,
        params={"host": "web1"},
        loop_iteration=1,
        target="web1",
        concurrency=1,
    )
    with pytest.raises(ActionHeld, match=naming.short(first)):
        lab.engine.approvals.propose(proposal, "loop:7", by_machine=True)
    assert lab.engine.approvals.propose(proposal, "call:8")


def test_an_execution_lost_with_its_data_blocks_nothing() -> None:
    restart = Restart(autonomy=Autonomy(), verify=lambda: None)
    lab = restart.lab()
    restart.idle = True
    first = call(lab, "first")
    lab.deliver()
    second = call(lab, "second")
    lab.deliver()
    assert call_record(lab, second).result is None

    lab.client.delete(f"boyd:{{test}}:execution:{first}")
    overdue(lab, second)
    assert restart.begun == ["first", "second"]


def test_a_withdrawn_order_blocks_nothing() -> None:
    restart = Restart()
    lab = restart.lab()
    lab.run()
    name = approve(lab)
    lab.client.hset(f"boyd:{{test}}:{name}", "executionState", "failed")
    lab.dispatcher.hints.clear()
    lab.run()

    assert len(pending(lab)) == 1


def test_a_person_lets_run_again_what_is_being_verified_but_not_what_is_running() -> None:
    restart = Restart(autonomy=Autonomy(), verify=lambda: None)
    lab = restart.lab()
    restart.idle = True
    outcomes: list[str] = []
    restart.meanwhile = lambda: outcomes.append(lab.store.holds.lift(RESTART, "web1", JANE))
    call(lab, "first")
    lab.deliver()
    assert outcomes == ["running"]

    assert lab.store.holds.lift(RESTART, "web1", JANE) == "lifted"
    call(lab, "second")
    lab.deliver()
    assert restart.begun == ["first", "second"]


def test_a_verification_that_is_not_waited_for_blocks_nothing() -> None:
    restart = Restart(autonomy=Autonomy(), verify=lambda: None)
    lab = restart.lab(verification={RESTART: {"hold": False}})
    restart.idle = True
    for reason in ("first", "second"):
        call(lab, reason)
        lab.deliver()

    assert restart.begun == ["first", "second"]


@pytest.mark.parametrize("concurrency", [-1, 1.5, True, "two"])
def test_a_concurrency_that_is_no_number_of_executions_is_refused(concurrency: Any) -> None:
    restart = Restart(concurrency=concurrency)
    with pytest.raises(PluginError, match=r"restart: concurrency is .* or 0 for any number"):
        restart.lab()


def test_the_queue_is_gone_when_nothing_is_in_flight() -> None:
    restart = Restart()
    lab = restart.lab()
    lab.run()
    approve(lab)
    lab.deliver()

    assert not lab.client.exists("boyd:{test}:in-flight")


def test_an_approval_names_the_target_as_it_will_be_executed() -> None:
    lab = Restart().lab(choice(RESTART, params={}))
    lab.run()
    assert pending(lab)[0].target == "web1"


def test_the_loop_asks_for_nothing_while_the_target_that_it_leaves_out_is_busy() -> None:
    restart = Restart()
    lab = restart.lab(choice(RESTART, params={}))
    held: list[str] = []

    def look() -> None:
        trace = lab.run().trace
        assert trace is not None
        held.extend(decision.target for decision in trace.held)

    lab.run()
    approve(lab)
    restart.meanwhile = look
    lab.deliver()
    assert held == ["web1"]
