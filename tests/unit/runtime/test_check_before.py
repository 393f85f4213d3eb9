"""Before an action is executed, its effect is checked once: what is well already is left alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from boyd import Agent, Procedure, ProcedureStep, naming
from boyd.models import (
    UNNEEDED,
    ActionResult,
    Anomaly,
    Autonomy,
    Call,
    EffectVerdict,
    LoopResult,
    Sandbox,
)
from boyd.models.effect import EffectChecks
from boyd.models.responses import outcome, outcome_kind
from boyd.phases import verify as checking
from boyd.plugin import Action
from boyd.store import Stale
from boyd.testing import Lab
from kit import call_action, choice, chooses, overdue, person, plugin

ACTION = "p:mend"
ANN = person("ann")
DUE = "boyd:{test}:due"


class Thing:
    """Something that breaks, and the action that mends it."""

    def __init__(self, **settings: Any) -> None:
        self.well = True
        self.mended = 0
        self.undone = 0
        self.during: Callable[[], None] = lambda: None
        self.after: list[ActionResult] = []
        self.settings: dict[str, Any] = {"verify": self._is_well, **settings}

    def lab(self, *parts: Any, **agent: Any) -> Lab:
        """A lab whose loop always wants to mend it."""
        action = Action(name="mend", execute=self._mend, rollback=self._undo, **self.settings)
        own = plugin(
            chooses(choice(ACTION)),
            action,
            on_after_act=lambda result: self.after.append(result),
            on_orient=lambda: {
                "anomalies": [Anomaly(type="broken", description="", severity="high").to_wire()]
            },
        )
        return Lab(Agent("test", plugins=[own], **agent))

    def _mend(self) -> str:
        self.mended += 1
        self.well = True
        during, self.during = self.during, lambda: None
        during()
        return "mended"

    def _undo(self) -> None:
        self.undone += 1

    def _is_well(self) -> EffectVerdict | bool:
        return EffectVerdict(verdict="effective", evidence="it answers") if self.well else False


def result_of(iteration: LoopResult) -> ActionResult:
    [result] = iteration.action_results
    return result


def call(lab: Lab, **fields: Any) -> Call:
    """A call of the action, when it has ended."""
    return call_action(lab, **{"action": ACTION, **fields})


def test_an_action_on_a_thing_that_is_well_is_not_executed() -> None:
    thing = Thing()
    lab = thing.lab()
    iteration = lab.run()
    result = result_of(iteration)

    assert thing.mended == 0
    assert (result.success, result.prevented, result.state) == (False, "unneeded", "unneeded")
    assert result.error == f"{UNNEEDED}: it answers"
    assert iteration.success
    assert outcome_kind(iteration) == "idle"
    assert outcome(iteration) == f"p:mend not executed: {UNNEEDED}: it answers"
    assert iteration.gate is not None
    assert iteration.gate.outcome == "automatic"
    assert [after.prevented for after in thing.after] == ["unneeded"]


def test_an_unneeded_action_leaves_no_count_hold_or_verification() -> None:
    thing = Thing()
    rule = {"mode": "earned", "holdout": 0, "require_uplift": False}
    lab = thing.lab(autonomy={ACTION: rule}, budgets={ACTION: {"limit": 1, "window": 60}})
    lab.run()
    [item] = lab.store.approvals.page(5).pending
    lab.resolver.answer(item.id, "approved", ANN)
    lab.deliver()

    assert lab.store.executions.get(naming.approval(item.id)) is None
    assert lab.store.holds.all() == []
    assert lab.client.keys("*verify*") + lab.client.keys("*track*") == []
    assert lab.client.keys("*budget*") == []


def test_an_action_on_a_broken_thing_is_executed_as_always() -> None:
    thing = Thing()
    thing.well = False
    lab = thing.lab()
    result = result_of(lab.run())

    assert result.success
    assert thing.mended == 1
    assert [hold.kind for hold in lab.store.holds.all()] == ["open"]


@pytest.mark.parametrize(
    "answer",
    [
        False,
        None,
        "no effect",
        "worse",
        "cannot tell",
        7,
        OSError("no route"),
        SystemExit(1),
        EffectVerdict(verdict="effective", final=False),
    ],
    ids=repr,
)
def test_any_other_answer_lets_the_action_go_on(answer: Any) -> None:
    def look() -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    thing = Thing(verify=look)
    assert result_of(thing.lab().run()).success
    assert thing.mended == 1


def test_a_check_that_hangs_costs_its_limit_and_the_action_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checking, "BEFORE_LIMIT", 0.05)
    thing = Thing(verify=lambda: time.sleep(60))
    began = time.monotonic()
    assert result_of(thing.lab().run()).success
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    "settings",
    [
        {"checks": EffectChecks(before=False)},
        {"verify": lambda result: True},
        {"verify": lambda params, result, ctx: True},
    ],
    ids=["declined", "result", "all"],
)
def test_an_action_is_not_checked_before_if_it_declines_or_needs_its_result(
    settings: dict[str, Any],
) -> None:
    thing = Thing(**settings)
    assert result_of(thing.lab().run()).success
    assert thing.mended == 1


def test_a_check_that_takes_the_result_may_be_asked_before() -> None:
    results: list[Any] = []

    def look(result: ActionResult | None) -> bool:
        results.append(result)
        return True

    thing = Thing(verify=look, checks=EffectChecks(before=True))
    assert result_of(thing.lab().run()).is_unneeded
    assert results == [None]


@pytest.mark.parametrize(("before", "mended"), [(True, 0), (False, 1)])
def test_the_agent_file_decides_in_the_end(before: bool, mended: int) -> None:
    thing = Thing(checks=EffectChecks(before=not before))
    thing.lab(verification={ACTION: {"before": before}}).run()
    assert thing.mended == mended


def test_a_confined_action_is_checked_in_its_sandbox() -> None:
    thing = Thing(sandbox=Sandbox(cpu=5))
    assert result_of(thing.lab().run()).error == f"{UNNEEDED}: it answers"
    thing.well = False
    assert result_of(thing.lab().run()).success


def test_an_approval_of_an_unneeded_action_says_that_nothing_was_executed() -> None:
    thing = Thing(autonomy=Autonomy(mode="approval-required"))
    thing.well = False
    lab = thing.lab()
    run = lab.submit("Mend it")
    lab.deliver()
    [item] = lab.store.approvals.page(5).pending
    thing.well = True
    lab.resolver.answer(item.id, "approved", ANN)
    lab.deliver()

    item_after = lab.store.approvals.get(item.id)
    assert item_after is not None
    assert item_after.execution is not None
    assert item_after.result is not None
    assert (item_after.status, item_after.execution.state) == ("approved", "unneeded")
    assert item_after.result.error == f"{UNNEEDED}: it answers"
    assert thing.mended == 0
    done = lab.store.runs.get(run.run.id)
    assert done is not None
    assert done.result is not None
    assert done.status == "completed"
    assert done.result.actions_performed is not None
    assert done.result.actions_performed[0].success
    assert UNNEEDED in done.result.actions_performed[0].description
    events = lab.store.events.after("0-0")
    [executed] = [event for event in events if event.kind == "approval.executed"]
    assert executed.data["state"] == "unneeded"


@pytest.mark.parametrize("asks", [False, True], ids=["at once", "after an approval"])
def test_an_order_by_hand_is_executed_although_it_is_well(asks: bool) -> None:
    thing = Thing()
    lab = thing.lab()
    lab.run()
    client_call = call(lab, requires_approval=asks)
    if asks:
        assert client_call.approval_id is not None
        lab.resolver.answer(client_call.approval_id, "approved", person("jane"))
        lab.deliver()

    assert thing.mended == 1


def test_a_rollback_is_made_although_it_is_well() -> None:
    thing = Thing()
    lab = thing.lab()
    done = call(lab)
    call(lab, kind="rollback", undoes=naming.call(done.id))

    assert (thing.mended, thing.undone) == (1, 1)


def test_an_idempotent_action_that_began_is_repeated_without_a_check() -> None:
    thing = Thing(idempotent=True)
    thing.well = False
    lab = thing.lab()
    thing.during = lambda: lose_worker(lab)
    result = result_of(lab.run())

    assert result.prevented is None
    assert thing.mended == 2


def lose_worker(lab: Lab) -> None:
    """Let the lease of the act phase and its claim lapse, and another worker go on."""
    [key] = lab.client.keys("boyd:{test}:execution:*")
    lab.client.hset(key, "leaseUntil", 1)
    overdue(lab, "phase")


def procedure_lab(thing: Thing, name: str = "tour", **step: Any) -> Lab:
    steps = [
        ProcedureStep(id="mend", action=ACTION, **step),
        ProcedureStep(id="again", action="p:end"),
    ]
    tour = Procedure(name=name, steps=steps)
    action = Action(name="mend", execute=thing._mend, rollback=thing._undo, **thing.settings)

    def fail() -> None:
        raise RuntimeError("no")

    own = plugin(chooses(choice(f"p:{name}")), action, Action(name="end", execute=fail), tour)
    return Lab(Agent("test", plugins=[own]))


def go_on(lab: Lab) -> None:
    """Let the procedure go on until it has item_after."""
    while names := [n for n in lab.client.zrange(DUE, 0, -1) if n.startswith("procedure:")]:
        overdue(lab, names[0])


def test_a_step_that_is_not_needed_is_skipped_and_not_undone() -> None:
    thing = Thing()
    lab = procedure_lab(thing)
    lab.run()
    go_on(lab)
    [record] = lab.store.procedures.all()

    progress = record.progress[0]
    assert (progress.state, progress.detail) == ("skipped", f"{UNNEEDED}: it answers")
    assert record.progress[1].state == "failed"
    assert (thing.mended, thing.undone) == (0, 0)


def test_the_steps_of_a_procedure_that_was_started_by_hand_are_executed() -> None:
    thing = Thing()
    lab = procedure_lab(thing)
    call(lab, action="p:tour")
    go_on(lab)

    assert thing.mended == 1


def test_a_worker_that_dies_in_the_check_leaves_nothing_unknown() -> None:
    checks: list[str] = []

    def look() -> bool:
        checks.append("check")
        if len(checks) == 1:
            lose_phase(lab)
        return False

    thing = Thing(verify=look)
    lab = thing.lab()
    with pytest.raises(Stale):
        lab.run()

    iteration = lab.store.history.get(1)
    assert iteration is not None
    assert result_of(iteration).success
    assert (thing.mended, len(checks)) == (1, 2)
    assert [entry.state for entry in lab.store.executions.page(9).executions] == ["succeeded"]


def lose_phase(lab: Lab) -> None:
    """Let the lease of the act phase lapse, and another worker go on; this one is too late."""
    assert lab.client.keys("boyd:{test}:execution:*") == []
    overdue(lab, "phase")
