"""Procedures: actions composed of actions, durable, gated as a whole, and undone in reverse."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from pydantic import BaseModel

from boyd import Agent, ConfigError, Plugin, Procedure, ProcedureStep, StepAction, naming
from boyd.errors import RollbackRefused
from boyd.models import (
    ActionResult,
    Autonomy,
    CallRequest,
    Fence,
    JsonObject,
    Level,
    ProcedureRecord,
    to_ms,
)
from boyd.plugin import Action
from boyd.plugins.notifier.message import approval_message
from boyd.runtime.procedures import step_moves
from boyd.runtime.procedures.fenced_procedure import FencedProcedure
from boyd.runtime.procedures.procedure_steps import ProcedureSteps
from boyd.store import Stale, Verdict
from boyd.store.jobs import Jobs
from boyd.store.procedures import ResumeMode
from boyd.testing import Lab
from kit import call_result, choice, chooses, machine, overdue, person, plugin

ANN = person("ann")


class Server(BaseModel):
    """The params of the procedure."""

    server: str


class Farm:
    """Servers whose actions record what they did; `fails` has what raises, `answers` results."""

    def __init__(self, **answers: Any) -> None:
        self.done: list[str] = []
        self.answers: dict[str, Any] = answers
        self.told: list[ProcedureRecord] = []

    def action(self, name: str, **settings: Any) -> Action:
        """An action that records its execution."""

        def execute(params: dict[str, Any]) -> Any:
            self.done.append(" ".join([name, *map(str, params.values())]))
            answer = self.answers.get(name)
            answer = answer.pop(0) if isinstance(answer, list) else answer
            if isinstance(answer, Exception):
                raise answer
            return answer

        return Action(name=name, execute=execute, **settings)

    def undo(self, name: str) -> Any:
        """A rollback that records itself."""

        def rollback(params: Any) -> None:
            self.done.append(f"undo {name}")

        return rollback

    def lab(
        self, *steps: ProcedureStep, actions: list[Action] | None = None, **settings: Any
    ) -> Lab:
        """A lab with a procedure of those steps on `server`."""
        agent = settings.pop("agent", {})
        hooks, version = settings.pop("hooks", {}), settings.pop("version", "1")
        client, queues = settings.pop("client", None), settings.pop("queues", ())
        others = settings.pop("others", [])
        own = actions or [
            self.action("drain", rollback=self.undo("drain")),
            self.action("restart"),
            self.action("look", reversibility="read-only"),
            self.action("ready"),
        ]
        options = {"params": Server, "target": "server", **settings}
        procedure = Procedure(name="renew", steps=list(steps), **options)

        def on_procedure(procedure: ProcedureRecord) -> None:
            self.told.append(procedure)

        renewing = plugin(procedure, *own, on_procedure=on_procedure, **hooks)
        renewing.version = version
        plugins = [*others, renewing]
        return Lab(Agent("test", plugins=plugins, **agent), client=client, queues=queues)


def step(id: str, action: str = "", **fields: Any) -> ProcedureStep:
    """A step whose action has the same name."""
    work: dict[str, Any] = {} if "ask" in fields else {"action": f"p:{action or id}"}
    return ProcedureStep(id=id, **work, **fields)


def call(lab: Lab, **fields: Any) -> ActionResult:
    """Ask for the procedure; the result of the call."""
    return call_result(lab, **{"action": "p:renew", "params": {"server": "web1"}, **fields})


def go_on(lab: Lab) -> ProcedureRecord:
    """Let time pass until nothing changes any more; the latest procedure."""
    before, same = None, 0
    while same < 2:
        due = lab.client.zrange("boyd:{test}:due", 0, -1)
        waiting = [job for job in due if job.startswith(("procedure:", "verify:", "approval:"))]
        for name in waiting:
            overdue(lab, name)
        [record, *_] = lab.store.procedures.all()
        if not waiting:
            return record
        same = same + 1 if record == before else 0
        before = record
    assert before is not None
    return before


def start_procedure(lab: Lab, **fields: Any) -> ProcedureRecord:
    """Start the procedure and let it go as far as it goes."""
    result = call(lab, **fields)
    assert result.procedure, result.error
    return go_on(lab)


def test_steps_run_in_order_with_values_from_params_and_earlier_results() -> None:
    farm = Farm(drain={"weight": 7, "names": ["a", "b"]})
    lab = farm.lab(
        step("drain", params={"name": "${params.server}"}),
        step("restart", params={"weight": "${steps.drain.output.weight}", "fixed": "x"}),
        step("ready", params={"name": "${steps.drain.output.names.1}"}),
    )
    record = start_procedure(lab)

    assert farm.done == ["drain web1", "restart 7 x", "ready b"]
    assert (record.state, [progress.state for progress in record.progress]) == (
        "succeeded",
        ["done"] * 3,
    )
    entry = lab.store.executions.get(record.id)
    assert entry is not None
    assert (entry.state, entry.progress) == ("succeeded", "succeeded")
    assert lab.store.holds.all() == []


def test_the_execution_says_where_the_procedure_stands() -> None:
    farm = Farm()
    lab = farm.lab(step("drain"), step("question", ask="Shall it restart?"), step("restart"))
    record = start_procedure(lab)

    entry = lab.store.executions.get(record.id)
    assert entry is not None
    assert entry.state == "running"
    waits = f"waits for approval {record.progress[1].approval[:8]}"  # type: ignore[index]
    assert entry.progress == f"step 2 of 3 (question) {waits}"
    assert farm.done == ["drain"]


def test_a_person_answers_a_step_that_asks() -> None:
    farm = Farm()
    lab = farm.lab(step("drain"), step("question", ask="Shall it restart?"), step("restart"))
    waiting = start_procedure(lab).progress[1].approval or ""
    item = lab.store.approvals.get(waiting)
    assert item is not None
    assert item.params == {"question": "Shall it restart?"}
    lab.resolver.answer(waiting, "approved", person("bob"))
    record = go_on(lab)

    assert record.state == "succeeded"
    assert farm.done == ["drain", "restart"]


@pytest.mark.parametrize(
    ("declared", "after", "risk"),
    [("low", "critical", "critical"), ("high", "low", "high"), ("low", "low", "low")],
)
def test_a_question_has_the_risk_of_the_steps_that_follow_or_the_declared_one(
    declared: Level, after: Level, risk: Level
) -> None:
    farm = Farm()
    actions = [farm.action("first", risk="critical"), farm.action("last", risk=after)]
    steps = step("first"), step("question", ask="Go on?"), step("last")
    lab = farm.lab(*steps, actions=actions, risk=declared)
    item = lab.store.approvals.get(start_procedure(lab).progress[1].approval or "")

    assert item is not None
    assert (item.risk, item.decision.risk) == (risk, risk)


def test_the_risk_of_a_question_includes_compensations() -> None:
    farm = Farm()
    actions = [farm.action("last"), farm.action("undo", risk="high")]
    undo = StepAction(action="p:undo", params={"n": "1"})
    steps = step("question", ask="Go on?"), step("last", compensate=undo)
    lab = farm.lab(*steps, actions=actions)
    item = lab.store.approvals.get(start_procedure(lab).progress[0].approval or "")

    assert item is not None
    assert item.risk == "high"


def test_a_question_names_the_target_and_parameters_of_its_procedure_without_secrets() -> None:
    class Login(BaseModel):
        server: str
        note: str

    farm = Farm()
    lab = farm.lab(step("question", ask="Go on?"), step("restart"), params=Login)
    note = "password=hunter2hunter2"
    record = start_procedure(lab, params={"server": "web1", "note": note})
    item = lab.store.approvals.get(record.progress[0].approval or "")

    assert item is not None
    assert item.decision.rationale == (
        f"step question of p:renew, started as {record.id} on web1,"
        ' with {"server": "web1", "note": "password=[redacted]"}'
    )
    message = approval_message(item, "waiting", "", lab.store.clock.now()).text()
    assert "on web1" in message
    assert "hunter2" not in message


def test_a_denied_step_undoes_what_took_effect_in_reverse() -> None:
    farm = Farm()
    steps = (
        step("drain"),
        step("restart", compensate=StepAction(action="p:ready", params={"n": "${params.server}"})),
        step("question", ask="Go on?"),
    )
    lab = farm.lab(*steps)
    waiting = start_procedure(lab).progress[2].approval or ""
    lab.resolver.answer(waiting, "denied", person("bob"), "not now")
    record = go_on(lab)

    assert farm.done == ["drain", "restart", "ready web1", "undo drain"]
    assert (record.state, record.compensated) == ("failed", ["restart", "drain"])
    assert "a person denied it: not now" in (record.reason or "")


def test_a_failed_step_undoes_the_earlier_ones_and_holds_the_procedure() -> None:
    farm = Farm(restart=OSError("no space"))
    lab = farm.lab(step("drain"), step("restart", compensate="none"), step("ready"))
    record = start_procedure(lab)

    assert farm.done == ["drain", "restart", "undo drain"]
    assert record.state == "failed"
    assert record.reason == "step restart failed: OSError: no space; undone: drain"
    [hold] = lab.store.holds.all()
    assert (hold.action, hold.target, hold.kind) == ("p:renew", "web1", "no effect")
    assert [event.state for event in farm.told] == ["failed"]
    record_after = lab.store.calls.get(record.id.removeprefix("call:"))
    assert record_after is not None
    assert record_after.result is not None
    assert not record_after.result.success


def test_it_does_not_run_twice_on_one_target_at_a_time() -> None:
    farm = Farm()
    lab = farm.lab(step("drain"), step("question", ask="Go on?"))
    first = start_procedure(lab)
    request = CallRequest(kind="execute", action="p:renew", params={"server": "web1"}, actor=ANN)
    second = lab.launcher.call(request, None)
    lab.deliver()
    assert [naming.parts(hold.execution)[1] for hold in lab.store.holds.all()] == [
        naming.parts(first.id)[1],
        second,
    ]
    assert farm.done == ["drain"]

    [item] = lab.store.approvals.page(10).pending
    lab.resolver.answer(item.id, "approved", person("jane"))
    go_on(lab)
    overdue(lab, naming.call(second))
    go_on(lab)
    assert farm.done == ["drain", "drain"]


@pytest.mark.parametrize(("rest", "ran"), [(0, False), (3, True)])
def test_a_step_whose_condition_is_false_is_skipped(rest: int, ran: bool) -> None:
    farm = Farm(look={"sessions": rest})
    lab = farm.lab(step("look"), step("drain", when="steps.look.output.sessions > 0"))
    record = start_procedure(lab)

    assert record.state == "succeeded"
    assert farm.done == (["look", "drain"] if ran else ["look"])
    assert record.progress[1].state == ("done" if ran else "skipped")


def test_a_condition_is_awaited() -> None:
    farm = Farm(look=[{"n": 2}, {"n": 1}, {"n": 0}])
    lab = farm.lab(step("look", until="output.n == 0", every=0.1), step("restart"))
    record = start_procedure(lab)

    assert farm.done == ["look", "look", "look", "restart"]
    assert record.progress[0].polls == 2


def test_a_condition_that_does_not_come_true_in_time_fails_the_step() -> None:
    farm = Farm(look={"n": 2})
    lab = farm.lab(step("drain"), step("look", until="output.n == 0", every=0.1, within=0.01))
    record = start_procedure(lab)

    assert record.state == "failed"
    assert "still false after 0.01 s" in (record.reason or "")
    assert farm.done[-1] == "undo drain"


@pytest.mark.parametrize(
    ("verdict", "state"), [("effective", "succeeded"), ("worse", "failed"), ("no effect", "failed")]
)
def test_the_verdict_is_awaited_before_the_next_step(verdict: str, state: str) -> None:
    farm = Farm()
    actions = [
        farm.action("restart", verify=lambda: verdict, rollback=farm.undo("restart")),
        farm.action("ready"),
    ]
    lab = farm.lab(step("restart"), step("ready"), actions=actions)
    record = start_procedure(lab)

    assert record.state == state
    assert farm.done == (
        ["restart", "ready"] if state == "succeeded" else ["restart", "undo restart"]
    )


def test_a_step_that_is_not_to_be_verified_is_not_waited_for() -> None:
    farm = Farm()
    actions = [farm.action("restart", verify=lambda: None), farm.action("ready")]
    lab = farm.lab(step("restart", verify=False), step("ready"), actions=actions)
    assert start_procedure(lab).state == "succeeded"


def freeze(lab: Lab, frozen: bool) -> None:
    """Freeze or unfreeze the agent."""
    freezes = lab.whole.freezes
    if frozen:
        freezes.freeze("maintenance", "test", ANN)
    else:
        freezes.lift("test", ANN)


def test_a_freeze_stops_it_until_a_person_resumes_it() -> None:
    farm = Farm()
    lab = farm.lab(step("drain"), step("question", ask="Go on?"), step("restart"))
    waiting = start_procedure(lab).progress[1].approval or ""
    lab.resolver.answer(waiting, "approved", person("bob"))
    freeze(lab, True)
    record = go_on(lab)

    assert record.state == "stopped"
    assert "frozen" in (record.reason or "")
    assert [event.state for event in farm.told] == ["stopped"]
    assert [stopped_record.id for stopped_record in lab.store.procedures.list_stopped(10)] == [
        record.id
    ]
    freeze(lab, False)
    assert lab.store.procedures.resume(record.id, "go on", ANN) == "ok"
    assert lab.store.procedures.list_stopped(10) == []
    assert not lab.store.procedures.all()[0].reason
    again = go_on(lab).progress[1].approval or ""
    assert again != waiting
    lab.resolver.answer(again, "approved", person("bob"))
    assert go_on(lab).state == "succeeded"
    assert farm.done == ["drain", "restart"]


class BrokenMail:
    """A plugin that cannot tell people of a procedure; it counts its attempts."""

    def __init__(self) -> None:
        self.attempts: list[str] = []
        self.plugin = plugin(id="broken", on_procedure=self._send)

    def _send(self, procedure: ProcedureRecord) -> None:
        self.attempts.append(procedure.state)
        raise OSError("mail is down")


def try_every_notice(lab: Lab, record: ProcedureRecord) -> None:
    """Let the half hour pass in which people are to be told of the procedure."""
    for _ in range(40):
        overdue(lab, f"procedure:{record.id}")


def test_a_plugin_that_cannot_tell_of_a_failure_does_not_make_others_repeat_it() -> None:
    farm, mail = Farm(restart=OSError("no space")), BrokenMail()
    lab = farm.lab(step("restart"), others=[mail.plugin])
    record = start_procedure(lab)
    try_every_notice(lab, record)

    assert [event.state for event in farm.told] == ["failed"]
    assert mail.attempts == 31 * ["failed"]
    assert f"procedure:{record.id}" not in lab.client.zrange("boyd:{test}:due", 0, -1)


def test_each_stop_of_a_procedure_has_notices_of_its_own() -> None:
    farm, mail = Farm(), BrokenMail()
    lab = farm.lab(step("drain"), others=[mail.plugin])
    call(lab)
    freeze(lab, True)
    record = go_on(lab)
    try_every_notice(lab, record)
    lab.store.procedures.resume(record.id, "go on", ANN)
    try_every_notice(lab, record)

    assert [event.state for event in farm.told] == ["stopped"] * 2
    assert mail.attempts == 62 * ["stopped"]


def test_a_failed_notice_of_a_procedure_that_is_given_up_is_repeated() -> None:
    farm, mail = Farm(), BrokenMail()
    lab = farm.lab(step("drain"), others=[mail.plugin])
    call(lab)
    [record] = lab.store.procedures.all()
    lose_workers(lab, record)
    try_every_notice(lab, record)

    assert [event.state for event in farm.told] == ["failed"]
    assert mail.attempts == 31 * ["failed"]


def test_an_error_of_boyd_that_lasts_stops_it_for_a_person(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    farm = Farm()
    lab = farm.lab(step("drain"))
    with monkeypatch.context() as broken:
        broken.setattr(ProcedureSteps, "action", Mock(side_effect=RuntimeError("a bug")))
        for _ in range(3):
            record = start_procedure(lab) if not lab.store.procedures.all() else go_on(lab)
    assert (record.state, record.reason) == ("stopped", "RuntimeError: a bug")
    assert [event.state for event in farm.told] == ["stopped"]
    assert [stopped_record.id for stopped_record in lab.store.procedures.list_stopped(10)] == [
        record.id
    ]
    lab.store.audit_trail.seal()
    assert "procedure.stopped" in [entry.kind for entry in lab.store.audit_trail.page(50).entries]

    lab.store.procedures.resume(record.id, "go on", ANN)
    assert go_on(lab).state == "succeeded"


def test_its_approval_has_its_outcome_when_it_ends_before_the_job_that_started_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    farm = Farm(drain=OSError("unreachable"))
    lab = farm.lab(step("drain"), autonomy=Autonomy(mode="approval-required"))
    call(lab)
    [item] = lab.store.approvals.page(10).pending
    leave = Jobs.leave

    def leave_late(jobs: Jobs, fence: Fence, *arguments: Any, **options: Any) -> bool:
        while fence.origin == f"approval:{item.id}" and not lab.store.procedures.all()[0].has_ended:
            overdue(lab, f"procedure:approval:{item.id}")
        return leave(jobs, fence, *arguments, **options)

    monkeypatch.setattr(Jobs, "leave", leave_late)
    lab.resolver.answer(item.id, "approved", person("bob"))
    overdue(lab, f"approval:{item.id}")
    after = lab.store.approvals.get(item.id)
    assert after is not None
    assert after.execution is not None
    assert after.execution.state == "failed"


def test_a_person_cancels_it_and_what_took_effect_is_undone() -> None:
    farm = Farm()
    lab = farm.lab(step("drain"), step("question", ask="Go on?"), step("restart"))
    record = start_procedure(lab)
    assert lab.store.procedures.cancel(record.id, ANN, "wrong server") == "ok"
    record = go_on(lab)

    assert (record.state, record.cancelled_by) == ("cancelled", "ann")
    assert farm.done == ["drain", "undo drain"]
    item = lab.store.approvals.get(record.progress[1].approval or "")
    assert item is not None
    assert item.status == "withdrawn"
    assert lab.store.holds.all() == []
    assert lab.store.procedures.cancel(record.id, ANN) == "over"


@pytest.mark.parametrize("noted", [True, False], ids=["", "although its worker was lost"])
def test_a_step_that_is_approved_after_a_cancellation_is_not_executed(noted: bool) -> None:
    farm = Farm()
    lab = farm.lab(step("drain"), step("restart"), approve="each")
    record = start_procedure(lab)
    approval = record.progress[0].approval or ""
    if not noted:
        forget_question(lab, record)
    lab.store.procedures.cancel(record.id, ANN)
    lab.resolver.answer(approval, "approved", person("bob"))
    lab.deliver()
    record = go_on(lab)

    item = lab.store.approvals.get(approval)
    assert item is not None
    assert item.result is not None
    assert item.result.prevented == "cancelled"
    assert record.state == "cancelled"
    assert farm.done == []


def test_a_step_that_was_approved_is_undone_although_the_worker_that_asked_was_lost() -> None:
    farm = Farm()
    lab = farm.lab(step("drain"), step("restart"), approve="each")
    record = start_procedure(lab)
    forget_question(lab, record)
    lab.resolver.answer(record.progress[0].approval or "", "approved", person("bob"))
    lab.deliver()
    lab.store.procedures.cancel(record.id, ANN)

    assert go_on(lab).state == "cancelled"
    assert farm.done == ["drain", "undo drain"]


@pytest.mark.parametrize("answer", ["resume", "cancel"])
def test_a_step_that_was_approved_while_an_error_stopped_it_is_executed_once(
    answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    farm = Farm()
    lab = farm.lab(step("drain"), approve="each")
    record = start_procedure(lab)
    with monkeypatch.context() as broken:
        broken.setattr(ProcedureSteps, "answer", Mock(side_effect=RuntimeError("a bug")))
        for _ in range(3):
            record = go_on(lab)
    assert record.state == "stopped"
    if answer == "resume":
        lab.store.procedures.resume(record.id, "repeat", ANN)
    else:
        lab.store.procedures.cancel(record.id, ANN)
    go_on(lab)
    lab.resolver.answer(record.progress[0].approval or "", "approved", person("bob"))
    lab.deliver()

    assert go_on(lab).state == ("succeeded" if answer == "resume" else "cancelled")
    assert farm.done == (["drain"] if answer == "resume" else [])
    assert lab.store.approvals.page(10).pending == []


@pytest.mark.parametrize("approve", ["each", "whole"])
@pytest.mark.parametrize("answer", ["resume", "cancel"])
def test_a_step_that_was_done_before_an_error_stopped_it_is_executed_once(
    answer: str, approve: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    farm = Farm()
    lab = farm.lab(step("drain"), approve=approve)
    with monkeypatch.context() as broken:
        broken.setattr(FencedProcedure, "advance", Mock(side_effect=RuntimeError("a bug")))
        record = start_procedure(lab)
        if approve == "each":
            lab.resolver.answer(record.progress[0].approval or "", "approved", person("bob"))
        for _ in range(3):
            record = go_on(lab)
    assert record.state == "stopped"
    if answer == "resume":
        lab.store.procedures.resume(record.id, "repeat", ANN)
    else:
        lab.store.procedures.cancel(record.id, ANN)

    assert go_on(lab).state == ("succeeded" if answer == "resume" else "cancelled")
    assert farm.done == (["drain"] if answer == "resume" else ["drain", "undo drain"])


def test_a_procedure_that_an_error_stopped_after_its_last_step_ends_when_it_is_resumed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    farm = Farm()
    lab = farm.lab(step("drain"))
    with monkeypatch.context() as broken:
        broken.setattr(FencedProcedure, "end", Mock(side_effect=RuntimeError("a bug")))
        record = start_procedure(lab)
        for _ in range(3):
            record = go_on(lab)
    assert record.state == "stopped"
    lab.store.procedures.resume(record.id, "go on", ANN)

    assert go_on(lab).state == "succeeded"
    assert farm.done == ["drain"]


@pytest.mark.parametrize("verdict", ["approved", "denied"])
def test_an_answer_that_came_before_the_question_was_noted_is_taken_soon(verdict: Verdict) -> None:
    farm = Farm()
    lab = farm.lab(step("drain"), approve="each")
    record = start_procedure(lab)
    lab.resolver.answer(record.progress[0].approval or "", verdict, person("bob"))
    lab.deliver()
    forget_question(lab, record)
    overdue(lab, f"procedure:{record.id}")
    not_before = lab.client.hget(f"boyd:{{test}}:procedure:{record.id}", "executionNotBefore")

    assert float(not_before or 0) < to_ms(lab.store.clock.now()) + 60_000
    assert go_on(lab).state == ("succeeded" if verdict == "approved" else "failed")


def forget_question(lab: Lab, record: ProcedureRecord) -> None:
    """Let the first step be as if its worker had been lost between asking and noting that."""
    before = record.progress[0].patched({"state": "running", "approval": None})
    lab.client.hset(f"boyd:{{test}}:procedure:{record.id}", "step:0", before.to_json())


@pytest.mark.parametrize("mode", ["go on", "repeat"])
def test_a_step_whose_outcome_is_unknown_does_not_become_failed_by_a_cancellation(
    mode: ResumeMode,
) -> None:
    lost = ActionResult(action="p:drain", success=False, unknown=True, duration=0, error="lost")
    lab = Farm(drain=lost).lab(step("drain"))
    record = start_procedure(lab)
    assert (record.state, record.progress[0].state) == ("stopped", "unknown")

    lab.store.procedures.cancel(record.id, ANN)
    lab.store.procedures.resume(record.id, mode, ANN)
    record = go_on(lab)
    assert (record.state, record.progress[0].state) == ("cancelled", "unknown")


def test_a_cancelled_one_that_cannot_be_undone_ends_when_it_is_cancelled_again() -> None:
    farm = Farm()

    def fails(params: Any) -> None:
        raise OSError("x")

    ready = farm.action("ready", rollback=farm.undo("ready"))
    actions = [ready, farm.action("drain", rollback=fails)]
    lab = farm.lab(step("ready"), step("drain"), step("question", ask="Go on?"), actions=actions)
    record = start_procedure(lab)
    assert lab.store.procedures.cancel(record.id, ANN) == "ok"
    stopped = go_on(lab)
    assert stopped.state == "stopped"
    assert [stopped_record.id for stopped_record in lab.store.procedures.list_stopped(10)] == [
        record.id
    ]

    assert lab.store.procedures.cancel(record.id, ANN, "I did it by hand") == "ok"
    assert lab.store.procedures.list_stopped(10) == []
    record = go_on(lab)
    left = record.progress[1].compensation
    assert (record.state, left and left.state) == ("cancelled", "failed")
    assert farm.done[-1] == "undo ready"


@pytest.mark.parametrize("left", [["ready", "drain"], ["ready"]], ids=["rollback", "action"])
def test_it_stops_where_the_next_version_of_a_plugin_cannot_undo_a_step(left: list[str]) -> None:
    farm = Farm()
    question = step("question", ask="Go on?")
    lab = farm.lab(step("drain"), question)
    approval = start_procedure(lab).progress[1].approval or ""
    # It took away the rollback, or the whole action.
    later = farm.lab(question, actions=list(map(farm.action, left)), client=lab.client)
    later.resolver.answer(approval, "denied", person("bob"))
    record = go_on(later)

    assert record.state == "stopped"
    assert "undoing step drain: " in (record.reason or "")
    assert [event.state for event in farm.told] == ["stopped"]


@pytest.mark.parametrize(
    ("mode", "fate"), [("repeat", "undone: drain"), ("go on", "not undone: drain")]
)
def test_a_failure_keeps_its_reason_through_a_stop_on_the_way_back(
    mode: ResumeMode, fate: str
) -> None:
    farm = Farm()
    question = step("question", ask="Go on?")
    lab = farm.lab(step("drain"), question)
    approval = start_procedure(lab).progress[1].approval or ""
    lacking = farm.lab(question, actions=[farm.action("ready")], client=lab.client)
    lacking.resolver.answer(approval, "denied", person("bob"))
    record = go_on(lacking)
    assert record.reason == "undoing step drain: Unknown action 'p:drain'"

    back = farm.lab(step("drain"), client=lab.client)
    back.store.procedures.resume(record.id, mode, ANN)
    assert back.store.procedures.all()[0].reason == "step question failed: a person denied it"
    assert go_on(back).reason == f"step question failed: a person denied it; {fate}"


def test_a_step_that_was_executed_is_done_though_the_next_worker_lacks_its_action(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    farm = Farm()
    question = step("question", ask="Go on?")
    lab = farm.lab(step("drain"), question)
    with monkeypatch.context() as lost:
        lost.setattr(step_moves, "take_result", Mock(side_effect=Stale("lost")))
        with pytest.raises(Stale):
            start_procedure(lab)
    assert farm.done == ["drain"]

    lacking = farm.lab(question, actions=[farm.action("ready")], client=lab.client)
    assert go_on(lacking).progress[0].state == "done"


def test_a_question_of_an_agent_that_has_lost_its_only_procedure_stops_it() -> None:
    farm = Farm()
    steps = [step("drain"), step("question", ask="Go on?"), step("restart")]
    lab = farm.lab(*steps)
    approval = start_procedure(lab).progress[1].approval or ""
    left = plugin(farm.action("drain", rollback=farm.undo("drain")), farm.action("restart"))
    later = Lab(Agent("test", plugins=[left]), client=lab.client)
    later.resolver.answer(approval, "approved", person("bob"))
    stopped = go_on(later)
    assert (stopped.state, farm.done) == ("stopped", ["drain"])
    assert (stopped.reason or "").startswith("step question: the agent no longer has p:renew")
    later.store.procedures.resume(stopped.id, "repeat", ANN)
    assert go_on(later).reason == stopped.reason, "it is still gone"

    back = farm.lab(*steps, client=lab.client)
    back.store.procedures.resume(stopped.id, "repeat", ANN)
    again = go_on(back).progress[1].approval or ""
    back.resolver.answer(again, "approved", person("bob"))
    assert (go_on(back).state, farm.done) == ("succeeded", ["drain", "restart"])


def test_a_step_whose_action_has_become_a_procedure_fails() -> None:
    farm = Farm()
    lab = farm.lab(step("question", ask="Go on?"), step("restart"))
    approval = start_procedure(lab).progress[0].approval or ""
    inner = Procedure(name="restart", steps=[step("look"), step("inner", ask="And now?")])
    later = farm.lab(step("look"), actions=[inner, farm.action("look")], client=lab.client)
    later.resolver.answer(approval, "approved", person("bob"))

    assert "p:restart is a procedure by now" in (go_on(later).reason or "")
    assert farm.done == []


class Spread(Farm):
    """Servers one of which only the workers of a queue reach, and those workers die."""

    def start(self, queue: str | None, *steps: ProcedureStep) -> Lab:
        """A lab after that, when the actions have that *queue*; the procedure polls on `gpu`."""
        before = self._lab("gpu", steps, queues=["gpu"])
        call(before)
        for _ in range(4):
            overdue(before, self.job(before))
        return self._lab(queue, steps, client=before.client)

    def job(self, lab: Lab) -> str:
        """The job of its only procedure."""
        [record] = lab.store.procedures.all()
        return naming.procedure(record.id)

    def wait_in_vain(self, lab: Lab) -> ProcedureRecord:
        """Let all the time pass for which it waits for a worker after the last one was killed."""
        job = f"boyd:{{test}}:{self.job(lab)}"
        lab.client.hset(job, mapping={"executionState": "running", "executionBy": "gone/1"})
        lab.client.hdel(job, "executionNotBefore")
        overdue(lab, self.job(lab))
        lab.client.hset(job, "queuedAt", 1)
        overdue(lab, self.job(lab))
        return go_on(lab)

    def _lab(self, queue: str | None, steps: tuple[ProcedureStep, ...], **more: Any) -> Lab:
        actions = [
            self.action("ready", rollback=self.undo("ready")),
            self.action("drain", rollback=self.undo("drain"), queue=queue),
            self.action("look", reversibility="read-only", queue=queue),
        ]
        return self.lab(step("ready"), step("drain"), *steps, actions=actions, **more)


UNTIL = step("look", until="output == 1")


def test_it_stops_for_a_person_when_the_last_worker_of_its_queue_is_gone() -> None:
    farm = Spread()
    later = farm.start("gpu", UNTIL)
    looks = len(farm.done)
    record = farm.wait_in_vain(later)

    assert (record.state, len(farm.done)) == ("stopped", looks)
    assert "No live worker consumes queue 'gpu'" in (record.reason or "")
    assert [event.state for event in farm.told] == ["stopped"]


def test_a_step_goes_on_on_the_queue_that_its_action_has_by_now() -> None:
    farm = Spread()
    later = farm.start(None, UNTIL)
    farm.answers["look"] = 1
    assert farm.wait_in_vain(later).state == "succeeded"


def test_a_person_ends_it_although_no_worker_can_undo_a_step() -> None:
    farm = Spread()
    later = farm.start("gpu", UNTIL)
    record = go_on(later)
    assert later.store.procedures.cancel(record.id, ANN) == "ok"
    stopped = go_on(later)
    assert stopped.state == "stopped"
    assert "No live worker consumes queue 'gpu'" in (stopped.reason or "")

    assert later.store.procedures.cancel(record.id, ANN, "that host is no more") == "ok"
    final = go_on(later)
    assert (final.state, final.compensated) == ("cancelled", ["ready"])
    assert farm.done[-1] == "undo ready"


def test_a_hook_that_vetoes_a_step_fails_it() -> None:
    farm = Farm()

    def on_before_act(action: Action) -> None:
        from boyd import Veto

        if action.name == "restart":
            raise Veto("not on Mondays")

    lab = farm.lab(step("drain"), step("restart"), hooks={"on_before_act": on_before_act})
    record = start_procedure(lab)

    assert record.state == "failed"
    assert "not on Mondays" in (record.reason or "")
    assert farm.done == ["drain", "undo drain"]


def test_its_time_is_limited() -> None:
    farm = Farm(look={"n": 2})
    lab = farm.lab(step("drain"), step("look", until="output.n == 0", within=3600))
    call(lab)
    overdue(lab, "procedure:" + lab.store.procedures.all()[0].id)
    [record] = lab.store.procedures.all()
    lab.client.hset(f"boyd:{{test}}:procedure:{record.id}", "until", 1)
    record = go_on(lab)

    assert record.state == "failed"
    assert farm.done[-1] == "undo drain"
    assert "took too long" in (record.reason or "")


def test_the_time_in_which_it_waits_for_a_person_does_not_count() -> None:
    farm = Farm()
    lab = farm.lab(step("question", ask="Go on?"), step("restart"))
    record = start_procedure(lab)
    job, hour = f"boyd:{{test}}:procedure:{record.id}", 3_600_000
    asked_at = int(lab.client.hget(job, "askedAt"))
    lab.client.hset(job, mapping={"askedAt": asked_at - 2 * hour, "until": asked_at - hour})
    assert go_on(lab).progress[0].state == "asked"

    lab.resolver.answer(record.progress[0].approval or "", "approved", person("bob"))
    record = go_on(lab)
    assert record.state == "succeeded"
    assert int(lab.client.hget(job, "until")) >= asked_at + hour


def strict(farm: Farm, **more: Any) -> list[Action]:
    """Actions of which one needs a person."""
    needs = Autonomy(mode="approval-required")
    return [farm.action("drain"), farm.action("restart", autonomy=needs, risk="high", **more)]


def test_it_has_the_class_of_its_strictest_step() -> None:
    farm = Farm()
    actions = strict(farm, reversibility="irreversible")
    lab = farm.lab(step("drain"), step("restart"), actions=actions)
    entry = next(
        action_entry for action_entry in lab.agent.catalog.actions if action_entry.id == "p:renew"
    )

    assert (entry.risk, entry.reversibility) == ("high", "irreversible")
    assert entry.autonomy.mode == "approval-required"


def test_one_approval_counts_for_all_steps_and_shows_the_plan() -> None:
    farm = Farm()
    steps = (step("drain", params={"n": "${params.server}"}), step("restart"))
    lab = farm.lab(*steps, actions=strict(farm))
    waiting = call(lab).waits_for or ""
    item = lab.store.approvals.get(waiting)
    assert item is not None
    assert [step_plan.id for step_plan in item.plan] == ["drain", "restart"]
    assert item.preview is not None
    assert item.preview.output == {
        "steps": [
            {"step": "drain", "action": "p:drain", "params": {"n": "web1"}},
            {"step": "restart", "action": "p:restart", "params": {}},
        ]
    }
    lab.resolver.answer(waiting, "approved", person("bob"))
    lab.deliver()
    record = go_on(lab)

    assert (record.id, record.state) == (f"approval:{waiting}", "succeeded")
    assert farm.done == ["drain web1", "restart"]
    approval = lab.store.approvals.get(waiting)
    assert approval is not None
    assert approval.result is not None
    assert approval.result.success


def test_an_approval_does_not_count_for_a_step_with_a_stricter_policy() -> None:
    farm = Farm()
    policy = {"actions": ["p:restart"], "required": {"min_approvals": 2}}
    lab = farm.lab(
        step("drain"),
        step("restart"),
        actions=strict(farm),
        agent={"approvals": {"policies": [policy]}},
    )
    waiting = call(lab).waits_for or ""
    lab.resolver.answer(waiting, "approved", person("bob"))
    lab.deliver()
    record = go_on(lab)

    assert farm.done == ["drain"]
    assert record.progress[1].state == "asked"


def test_each_step_is_approved_if_that_is_wanted() -> None:
    farm = Farm()
    lab = farm.lab(step("drain"), step("restart"), actions=strict(farm), approve="each")
    record = start_procedure(lab)
    assert farm.done == []
    for number, name in enumerate(["drain", "restart"]):
        lab.resolver.answer(record.progress[number].approval or "", "approved", person("bob"))
        record = go_on(lab)
        assert farm.done[-1] == name
    assert record.state == "succeeded"


def test_a_changed_procedure_is_not_started_with_an_old_approval() -> None:
    farm = Farm()
    lab = farm.lab(step("drain"), step("restart"), actions=strict(farm))
    waiting = call(lab).waits_for or ""
    procedure = lab.agent.host.actions["p:renew"]
    assert isinstance(procedure, Procedure)
    procedure.steps = [step("restart")]
    lab.resolver.answer(waiting, "approved", person("bob"))
    lab.deliver()
    item = lab.store.approvals.get(waiting)

    assert item is not None
    assert item.result is not None
    assert item.result.prevented == "refused"
    assert farm.done == []


def test_the_loop_starts_it_and_does_not_wait() -> None:
    farm = Farm()
    decision = choice("p:renew", params={"server": "web1"})
    procedure = Procedure(
        name="renew", params=Server, target="server", steps=[step("drain"), step("q", ask="ok?")]
    )
    starter = plugin(procedure, farm.action("drain"), chooses(decision))
    lab = Lab(Agent("test", plugins=[starter]))
    result = lab.run()
    [done] = result.action_results

    assert done.success
    assert done.procedure == f"loop:{result.iteration}" or done.procedure is not None
    assert farm.done == []
    go_on(lab)
    later = lab.run()
    assert later.decision is not None
    assert later.decision.is_no_op
    assert "is running" in later.decision.rationale


def test_a_step_that_takes_down_its_workers_ends_the_procedure(caplog: Any) -> None:
    farm = Farm()
    lab = farm.lab(step("drain"), step("restart"))
    call(lab)
    [record] = lab.store.procedures.all()
    lose_workers(lab, record)
    record = go_on(lab)

    assert record.state == "failed"
    assert "its workers were lost repeatedly, the last one was w" in (record.reason or "")
    assert farm.done == []
    assert [event.state for event in farm.told] == ["failed"]


def lose_workers(lab: Lab, record: ProcedureRecord) -> None:
    """Let each worker enter the procedure, and be gone."""
    name = f"procedure:{record.id}"
    for attempt in range(1, 5):
        number = int(lab.client.hget(f"boyd:{{test}}:{name}", "executionAttempt") or attempt)
        lab.store.jobs.enter(name, number, f"w{attempt}/1")
        lab.client.zadd("boyd:{test}:due", {name: 1})
        lab.sweeper.sweep()
        lab.dispatcher.hints.clear()


@pytest.mark.parametrize("noted", [True, False])
def test_a_step_that_waits_for_a_person_is_not_executed_once_its_procedure_is_given_up(
    noted: bool,
) -> None:
    farm = Farm()
    lab = farm.lab(step("drain"), approve="each")
    record = start_procedure(lab)
    if not noted:
        forget_question(lab, record)
    lab.client.hdel(f"boyd:{{test}}:procedure:{record.id}", "executionNotBefore")
    lose_workers(lab, record)
    lab.resolver.answer(record.progress[0].approval or "", "approved", person("bob"))
    lab.deliver()

    item = lab.store.approvals.get(record.progress[0].approval or "")
    assert item is not None
    assert (item.status, go_on(lab).state) == ("withdrawn", "failed")
    assert farm.done == []


def test_a_question_has_the_values_of_the_procedure() -> None:
    farm = Farm(drain={"left": [3, "x" * 500]})
    text = "Go on with ${params.server}, which had ${steps.drain.output.left}?"
    lab = farm.lab(step("drain"), step("question", ask=text))
    record = start_procedure(lab)
    item = lab.store.approvals.get(record.progress[1].approval or "")

    assert item is not None
    question_text = str(item.params["question"])
    assert question_text.startswith('Go on with web1, which had [3, "xxx')
    assert question_text.endswith("xxx…?")
    assert len(question_text) < 300


LEFT = "${steps.drain.output.left}"


@pytest.mark.parametrize(
    ("left", "text", "expected"),
    [
        ("", LEFT, '""'),
        ("x" * 200, LEFT * 11, "x" * 1999 + "…"),
        ("x" * 200, LEFT * 10, "x" * 2000),
    ],
)
def test_a_question_is_asked_whatever_the_length_of_its_values(
    left: str, text: str, expected: str
) -> None:
    farm = Farm(drain={"left": left})
    lab = farm.lab(step("drain"), step("question", ask=text))
    item = lab.store.approvals.get(start_procedure(lab).progress[1].approval or "")

    assert item is not None
    assert item.params["question"] == expected


def test_after_a_restart_of_redis_a_step_that_may_have_run_is_not_repeated() -> None:
    farm = Farm()
    lab = farm.lab(step("drain"), step("question", ask="Go on?", when="true"), step("restart"))
    record = start_procedure(lab)
    lab.client.hset(f"boyd:{{test}}:procedure:{record.id}", "server", "another")
    lab.resolver.answer(record.progress[1].approval or "", "approved", person("bob"))
    record = go_on(lab)

    assert (record.state, record.progress[2].state) == ("stopped", "unknown")
    assert "Redis restarted" in (record.reason or "")
    assert farm.done == ["drain"]
    assert lab.store.procedures.resume(record.id, "repeat", ANN) == "ok"
    assert go_on(lab).state == "succeeded"
    assert farm.done == ["drain", "restart"]


def mistakes() -> list[tuple[list[dict[str, Any]], str]]:
    """Steps that are wrong, and what is said of them."""
    fine = {"id": "drain", "action": "p:drain"}
    return [
        ([{**fine, "action": "p:drian"}], "did you mean 'p:drain'?"),
        ([{**fine, "action": "p:other"}], "is a procedure"),
        ([fine, fine], "two steps have this id"),
        ([{**fine, "params": {"x": "${params.serve}"}}], "there is no parameter 'serve'"),
        ([{**fine, "params": {"x": "${steps.b.output}"}}], "step 'b' does not exist"),
        ([{**fine, "params": {"x": "${steps.drain.output}"}}, fine], "comes later"),
        ([{**fine, "params": {"x": "a ${params.server}"}}], "a reference is the whole text"),
        ([{**fine, "params": {"x": ["${steps.drain.x}"]}}], "comes later"),
        ([{"id": "q", "ask": "Drain ${params.serve}?"}], "there is no parameter 'serve'"),
        ([{"id": "q", "ask": "Drain ${params.server"}], "a reference is the whole text"),
        ([{**fine, "action": "p:typed"}], "needs the parameter 'count'"),
        ([{**fine, "action": "p:typed", "params": {"count": "x"}}], "Invalid params: count"),
        ([{**fine, "action": "p:typed", "params": {"count": 1, "b": 2}}], "no parameter 'b'"),
        ([{**fine, "when": "steps.b.state == 'done'"}], "when: "),
        ([{**fine, "until": "output.x == 1"}], "not declared `read-only`"),
        ([{**fine, "compensate": "rollback"}], "has no rollback"),
        ([], "0 steps"),
        ([{**fine, "id": f"s{n}"} for n in range(21)], "21 steps"),
    ]


@pytest.mark.parametrize(("steps", "message"), mistakes())
def test_mistakes_are_found_when_the_agent_is_loaded(
    steps: list[dict[str, Any]], message: str
) -> None:
    class Count(BaseModel):
        count: int

    farm = Farm()
    other = Procedure(name="other", steps=[step("drain")])
    typed = Action(name="typed", execute=lambda params: None, params=Count)
    parts = [ProcedureStep(**fields) for fields in steps]
    own = Procedure(name="renew", params=Server, steps=parts)
    with pytest.raises(ConfigError, match="procedure p:renew") as caught:
        Agent("test", plugins=[plugin(farm.action("drain"), typed, other, own)])
    assert message in str(caught.value)


def test_an_agent_file_declares_procedures() -> None:
    farm = Farm()
    settings: JsonObject = {
        "renew": {
            "params": {"server": "string"},
            "target": "server",
            "steps": [{"id": "drain", "action": "p:drain", "params": {"n": "${params.server}"}}],
        }
    }
    own: Plugin = plugin(farm.action("drain"))
    lab = Lab(Agent("test", plugins=[own], procedures=settings))
    request = CallRequest(
        kind="execute", action="procedures:renew", params={"server": "web1"}, actor=ANN
    )
    lab.launcher.call(request, None)
    lab.deliver()

    assert go_on(lab).state == "succeeded"
    assert farm.done == ["drain web1"]


# An approval covers what was approved, and no more


def test_a_hook_that_wants_a_person_for_a_step_is_heard_after_the_approval_of_the_whole() -> None:
    farm = Farm()

    def on_decide(action: Any) -> JsonObject | None:
        return {"requires_approval": True} if action and action.name == "restart" else None

    actions, hooks = strict(farm), {"on_decide": on_decide}
    lab = farm.lab(step("drain"), step("restart"), actions=actions, hooks=hooks)
    waiting = call(lab).waits_for or ""
    lab.resolver.answer(waiting, "approved", person("bob"))
    lab.deliver()
    record = go_on(lab)

    assert farm.done == ["drain"]
    assert record.progress[1].state == "asked"


def test_the_caller_of_a_procedure_may_not_approve_its_steps() -> None:
    farm = Farm()
    lab = farm.lab(step("drain"), actions=strict(farm), approve="each")
    record = start_procedure(lab)
    outcome = lab.resolver.answer(record.progress[0].approval or "", "approved", ANN).outcome

    assert not outcome.counts
    assert farm.done == []


def test_votes_for_a_step_do_not_cover_its_repetition() -> None:
    farm = Farm()
    groups = {"actions": ["*"], "required": {"groups": ["dba"]}}
    policies = {"approvals": {"policies": [groups]}}
    lab = farm.lab(step("drain"), step("restart"), actions=strict(farm), agent=policies)
    waiting = call(lab).waits_for or ""
    lab.resolver.answer(waiting, "approved", person("bob", "dba"))
    lab.deliver()
    lost = ActionResult(action="p:restart", success=False, unknown=True, duration=0, error="lost")
    farm.answers["restart"] = lost
    record = go_on(lab)
    assert record.state == "stopped"

    farm.answers.clear()
    assert lab.store.procedures.resume(record.id, "repeat", machine("bot")) == "ok"
    assert go_on(lab).progress[1].state == "asked"
    assert farm.done == ["drain", "restart"]


@pytest.mark.parametrize(("version", "state"), [("1", "done"), ("2", "asked")])
def test_a_step_asks_when_other_code_would_run_than_the_policy_has_allowed(
    version: str, state: str
) -> None:
    farm = Farm()
    policy = {"approvals": {"required": {"code": "same", "allow_requester": True}}}
    steps = [step("question", ask="Go on?"), step("restart")]
    lab = farm.lab(*steps, actions=strict(farm), agent=policy)
    item = call(lab).waits_for or ""
    lab.resolver.answer(item, "approved", person("bob"))
    lab.deliver()
    question = go_on(lab).progress[0].approval or ""
    more = {"actions": strict(farm), "agent": policy, "client": lab.client}
    later = farm.lab(*steps, version=version, **more)
    later.resolver.answer(question, "approved", person("bob"))

    assert go_on(later).progress[1].state == state


def test_the_code_of_a_procedure_is_that_of_its_steps_too() -> None:
    renew = {"steps": [{"id": "drain", "action": "p:drain"}]}
    drains = plugin(Farm().action("drain"))
    drains.version = "2"
    renews = Agent("test", plugins=[drains], procedures={"renew": renew})
    code = renews.code_of("procedures:renew")
    assert code is not None
    assert code.startswith("p 2, procedures ")


def test_an_approval_under_each_does_not_count_when_it_is_whole_now() -> None:
    farm = Farm()
    lab = farm.lab(step("drain"), step("restart"), actions=strict(farm), approve="each")
    waiting = call(lab, requires_approval=True).waits_for or ""
    procedure = lab.agent.host.actions["p:renew"]
    assert isinstance(procedure, Procedure)
    procedure.approve = "whole"
    lab.resolver.answer(waiting, "approved", person("bob"))
    lab.deliver()

    assert lab.store.procedures.all() == []
    assert farm.done == []


# What was done is undone once, or somebody is told


def test_a_harmful_step_that_a_person_approved_is_undone_once() -> None:
    farm = Farm()
    drain = farm.action("drain", verify=lambda: "worse", rollback=farm.undo("drain"))
    undone = step("drain", compensate=StepAction(action="p:ready"))
    lab = farm.lab(undone, actions=[drain, farm.action("ready")], approve="each")
    record = start_procedure(lab)
    lab.resolver.answer(record.progress[0].approval or "", "approved", person("bob"))
    record = go_on(lab)

    assert record.state == "failed"
    assert farm.done == ["drain", "ready"]


def test_a_step_that_nobody_waited_for_is_rolled_back_when_it_did_harm() -> None:
    farm = Farm()
    drain = farm.action("drain", verify=lambda: "worse", rollback=farm.undo("drain"))
    lab = farm.lab(step("drain", verify=False), actions=[drain])
    start_procedure(lab)
    go_on(lab)

    assert farm.done == ["drain", "undo drain"]


def test_a_cancellation_in_the_middle_of_a_compensation_does_not_drop_it() -> None:
    farm = Farm(restart=OSError("x"))
    answers: list[str] = []

    def on_before_act(action: Any) -> None:
        if action.name == "drain" and len(farm.done) == 2 and not answers:
            [record] = lab.store.procedures.all()
            answers.append(lab.store.procedures.cancel(record.id, ANN))

    hooks = {"on_before_act": on_before_act}
    lab = farm.lab(step("drain"), step("restart"), hooks=hooks)
    start_procedure(lab)

    assert answers == ["ok"]
    assert farm.done == ["drain", "restart", "undo drain"]


@pytest.mark.parametrize(
    ("verdict", "note", "state"),
    [("withdrawn", None, "stopped"), ("denied", None, "failed"), ("denied", "not now", "failed")],
)
def test_a_compensation_that_is_withdrawn_waits_for_a_person_and_a_denied_one_is_left(
    verdict: Verdict, note: str | None, state: str
) -> None:
    farm = Farm(restart=OSError("x"))
    ready = farm.action("ready", autonomy=Autonomy(mode="approval-required"))
    actions = [farm.action("drain"), farm.action("restart"), ready]
    drain = step("drain", compensate=StepAction(action="p:ready"))
    lab = farm.lab(drain, step("restart"), actions=actions, approve="each")
    record = start_procedure(lab)
    for number in range(2):
        lab.resolver.answer(record.progress[number].approval or "", "approved", person("bob"))
        record = go_on(lab)
    waiting = record.progress[0].compensation
    assert waiting is not None
    lab.resolver.answer(waiting.approval or "", verdict, person("bob"), note)

    assert go_on(lab).state == state
    assert farm.told[-1].state == state


def test_the_output_of_an_approved_step_reaches_the_next_one_as_it_is() -> None:
    farm = Farm(drain={"api_key": "abcdefgh12345678"})
    ready = step("ready", params={"key": "${steps.drain.output.api_key}"})
    lab = farm.lab(step("drain"), ready, approve="each")
    record = start_procedure(lab)
    for number in range(2):
        lab.resolver.answer(record.progress[number].approval or "", "approved", person("bob"))
        record = go_on(lab)

    assert farm.done == ["drain", "ready abcdefgh12345678"]


def test_a_compensated_step_cannot_be_rolled_back() -> None:
    farm = Farm(restart=OSError("x"))
    lab = farm.lab(step("drain", compensate=StepAction(action="p:ready")), step("restart"))
    record = start_procedure(lab)
    undoes = record.progress[0].execution
    request = CallRequest(kind="rollback", action="p:drain", undoes=undoes, actor=person("bob"))

    with pytest.raises(RollbackRefused):
        lab.launcher.call(request, None)
    assert farm.done == ["drain", "restart", "ready"]
