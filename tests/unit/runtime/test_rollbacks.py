"""An approval that undoes something is recognised as one, and nothing is undone twice."""

from __future__ import annotations

from typing import Any

import pytest

from boyd import Action, Agent, naming
from boyd.errors import RollbackRefused
from boyd.models import ApprovalItem, Autonomy, Call, CallRequest, ExecutionEntry, Hold
from boyd.testing import Lab
from kit import Recorder, agent, choice, chooses, overdue, person, plugin

GATED = Autonomy(mode="approval-required")


class Undoing:
    """A lab whose loop has acted once, and whose action can be rolled back."""

    def __init__(self, **settings: Any) -> None:
        self.undone: list[Any] = []
        self.recorder = Recorder({"freed": "3 GB"})
        action = self.recorder.action(rollback=self._rollback, **settings)
        self.lab = Lab(agent(chooses(choice(params={"size": 1})), action))

    def _rollback(self, result: Any) -> str:
        self.undone.append(result.output)
        return "undone"

    def back(self, execution: str, who: str = "ann", **fields: Any) -> Call:
        """Have an execution rolled back."""
        request = CallRequest(
            kind="rollback", action="p:do", undoes=execution, actor=person(who), **fields
        )
        call_id = self.lab.launcher.call(request, None)
        self.lab.deliver()
        record = self.lab.store.calls.get(call_id)
        assert record is not None
        return record

    @property
    def of_loop(self) -> str:
        """The execution of the first iteration."""
        return self.lab.store.executions.of_iteration(1)

    def pending(self) -> list[ApprovalItem]:
        """The pending items."""
        return self.lab.store.approvals.page(50).pending

    def approve(self, item: ApprovalItem) -> None:
        """Approve an item and let a worker execute it."""
        assert self.lab.resolver.answer(item.id, "approved", person("bob")).counts
        self.lab.deliver()

    def run_gated(self) -> str:
        """Have the gated action proposed, approved and executed; the execution."""
        self.lab.run()
        [item] = self.pending()
        self.approve(item)
        return f"approval:{item.id}"


def test_the_title_of_a_roll_back_names_what_it_undoes() -> None:
    undoing = Undoing(autonomy=GATED)
    execution = undoing.run_gated()
    undoing.back(execution)
    [item] = undoing.pending()

    assert item.title == f"undo of p:do ({execution[: len('approval:') + 8]})"
    assert (item.action_id, item.undoes) == ("p:do", execution)
    assert item.to_wire()["title"] == item.title


def test_a_call_that_names_no_execution_fails_however_long_the_name_is() -> None:
    undoing = Undoing()
    undoing.lab.run()
    with pytest.raises(RollbackRefused, match="is a rollback") as refused:
        undoing.back("rollback:" * 1200 + "loop:1")
    assert len(str(refused.value)) < 400


def test_the_title_of_what_executes_an_action_is_the_action() -> None:
    undoing = Undoing(autonomy=GATED)
    undoing.lab.run()

    assert [item.title for item in undoing.pending()] == ["p:do"]


def test_an_item_of_an_earlier_release_has_a_title_too() -> None:
    undoing = Undoing()
    undoing.lab.run()
    undoing.back(undoing.of_loop, requires_approval=True)
    [item] = undoing.pending()
    undoing.lab.client.hdel(f"boyd:{{test}}:approval:{item.id}", "title")

    assert undoing.pending()[0].title == f"undo of p:do ({undoing.of_loop})"


def test_the_approval_of_a_rollback_shows_the_execution_it_undoes() -> None:
    undoing = Undoing()
    undoing.lab.run()
    undoing.back(undoing.of_loop, requires_approval=True)
    [item] = undoing.pending()

    assert item.undone is not None
    assert item.undone.output == {"freed": "3 GB"}
    assert item.params == {"size": 1}


def test_events_and_the_audit_name_a_roll_back_as_one() -> None:
    undoing = Undoing()
    lab = undoing.lab
    lab.run()
    undoing.back(undoing.of_loop, requires_approval=True, rationale="it was wrong")
    [item] = undoing.pending()
    before = lab.store.events.newest()
    undoing.approve(item)
    events = [event for event in lab.store.events.after("0-0", 100) if "approval" in event.data]
    lab.store.audit_trail.seal()
    trail = {entry.kind: entry for entry in lab.store.audit_trail.page(50).entries}

    assert before != lab.store.events.newest()
    assert {event.kind for event in events} == {
        "approval.pending",
        "approval.approved",
        "approval.executed",
    }
    assert {event.data["title"] for event in events} == {f"undo of p:do ({undoing.of_loop})"}
    for kind in ("call.rollback", "approval.pending", "approval.approved"):
        assert trail[kind].what["undoes"] == undoing.of_loop, kind
    assert trail["call.rollback"].note == "it was wrong"


def test_an_execution_already_rolled_back_is_not_proposed_again() -> None:
    undoing = Undoing(autonomy=GATED)
    execution = undoing.run_gated()
    undoing.back(execution)
    undoing.approve(undoing.pending()[0])
    with pytest.raises(RollbackRefused, match="has been rolled back already"):
        undoing.back(execution, requires_approval=True)

    assert undoing.pending() == []
    assert len(undoing.undone) == 1


def test_an_undo_that_waits_is_not_asked_for_by_somebody_else_too() -> None:
    undoing = Undoing(autonomy=GATED)
    execution = undoing.run_gated()
    undoing.back(execution)
    [item] = undoing.pending()
    with pytest.raises(RollbackRefused, match=f"waits for approval {item.id[:8]}"):
        undoing.back(execution, who="carol")

    assert undoing.pending()[0].requested_by == ["ann"]


def test_the_rationale_of_a_call_is_in_the_audit() -> None:
    undoing = Undoing()
    request = CallRequest(
        kind="execute", action="p:do", actor=person("ann"), rationale="disk alarm 42"
    )
    undoing.lab.launcher.call(request, None)
    undoing.lab.store.audit_trail.seal()
    [entry] = [
        e for e in undoing.lab.store.audit_trail.page(50).entries if e.kind == "call.execute"
    ]

    assert (entry.note, entry.who) == ("disk alarm 42", "ann")


class Mending:
    """A lab whose action breaks something, and a rollback that may restore nothing."""

    def __init__(self, restores: bool, asks: bool = False) -> None:
        self.is_broken = False
        self.restores = restores
        self.asks = asks
        self.reports: list[Hold] = []
        self.stages: list[str] = []
        action = Action(
            name="do",
            execute=self._break,
            rollback=self._undo,
            verify=lambda result: "worse" if self.is_broken else False,
        )
        own = plugin(
            chooses(choice("p:do")),
            action,
            on_suspend=lambda hold: self.reports.append(hold),
            on_approval=lambda stage: self.stages.append(stage),
        )
        forbids = {"p:do": {"roll_back": False, "within": 5}}
        self.lab = Lab(Agent("test", plugins=[own], verification=forbids))
        self.lab.run()
        self.execution = self.lab.store.executions.of_iteration(1)
        self.check(self.execution)

    def _break(self) -> None:
        self.is_broken = True

    def _undo(self) -> None:
        self.is_broken = not self.restores

    def roll_back(self) -> ExecutionEntry:
        """Roll it back by hand, and let it be verified; the rollback."""
        request = CallRequest(
            kind="rollback",
            action="p:do",
            undoes=self.execution,
            requires_approval=self.asks,
            actor=person("ann"),
        )
        self.lab.launcher.call(request, None)
        self.lab.deliver()
        for item in self.lab.store.approvals.page(5).pending:
            self.lab.resolver.answer(item.id, "approved", person("bob"))
        self.lab.deliver()
        self.sweep()
        name = naming.rollback(self.execution)
        self.check(name)
        self.lab.client.hset(f"boyd:{{test}}:execution:{name}", "verifyUntil", 1)
        self.check(name)
        entry = self.lab.store.executions.get(name)
        assert entry is not None
        assert entry.verification is not None
        return entry

    def sweep(self) -> None:
        """Let everything be done that is due by itself."""
        self.lab.sweeper.sweep()
        self.lab.deliver()

    def check(self, execution: str) -> None:
        """Let the time of the next check pass."""
        if self.lab.client.exists(f"boyd:{{test}}:verify:{execution}"):
            overdue(self.lab, naming.verification(execution))

    def verdict(self) -> str | None:
        """The verdict on the rollback."""
        verification = self.roll_back().verification
        return verification.verdict if verification else None


@pytest.mark.parametrize("asks", [False, True], ids=["call", "approval"])
def test_a_rollback_by_hand_is_effective_once_a_check_sees_no_harm(asks: bool) -> None:
    mending = Mending(restores=True, asks=asks)
    mending.reports.clear()

    assert mending.verdict() == "effective"
    assert mending.reports == []
    assert [hold.kind for hold in mending.lab.store.holds.all()] == ["suspended"]


def test_the_verdict_on_an_approved_rollback_is_notified_at_once() -> None:
    mending = Mending(restores=True, asks=True)
    mending.roll_back()
    # Nobody has moved the time of the job that notifies people.
    mending.sweep()

    assert mending.stages[-1] == "verified"


def test_a_rollback_by_hand_that_restores_nothing_suspends_the_action() -> None:
    mending = Mending(restores=False)
    mending.lab.store.holds.lift("p:do", "", person("ann"))
    mending.reports.clear()

    assert mending.verdict() == "no effect"
    [hold] = mending.lab.store.holds.all()
    assert [report.kind for report in mending.reports] == ["suspended"]
    name = mending.execution.partition(".")[0]
    assert hold.reason == f"p:do is suspended: rollback:{name} restored nothing"


def test_a_rollback_of_an_effective_action_leaves_its_holds_as_they_are() -> None:
    mending = Mending(restores=True)
    mending.is_broken = False
    before = mending.lab.store.holds.all()

    assert mending.verdict() == "effective"
    assert mending.lab.store.holds.all() == before
