"""Waves: a step of a procedure over many targets, a few at a time, halted by failures, undone."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from boyd import Agent, ConfigError, Procedure, ProcedureStep, StepAction
from boyd.agent.procedure_plans import wave_ends
from boyd.models import (
    Autonomy,
    Budget,
    CallRequest,
    Observation,
    ProcedureRecord,
    WaveProgress,
    utc_now,
)
from boyd.plugin import Action, Observer
from boyd.store.waves import WaveStore
from boyd.testing import Lab
from kit import overdue, pending_item, person, plugin

ANN, BOB = person("ann"), person("bob")
ASKING = Autonomy(mode="approval-required")
_NOT_BEGUN = ProcedureRecord(
    id="", action="", params={}, state="running", steps=[], started_at=utc_now(), until=utc_now()
)
HOSTS = [f"web-{number}" for number in range(10)]


class Host(BaseModel):
    """The params of an action on a host."""

    host: str


class Fleet:
    """Hosts whose actions record what they did.

    `fails` and `verdicts` are by host: an action raises, or its verification has that verdict.
    """

    def __init__(self) -> None:
        self.done: list[str] = []
        self.fails: dict[str, BaseException] = {}
        self.verdicts: dict[str, str] = {}
        self.lab: Lab

    def patch(self, **settings: Any) -> Action:
        """An action on a host."""

        def execute(params: Host) -> str:
            self.done.append(params.host)
            if params.host in self.fails:
                raise self.fails[params.host]
            return f"{params.host} patched"

        def rollback(params: Host) -> None:
            self.done.append(f"undo {params.host}")
            if f"undo {params.host}" in self.fails:
                raise self.fails[f"undo {params.host}"]

        own: dict[str, Any] = {"params": Host, "execute": execute, "rollback": rollback}
        return Action(name="patch", **{"target": "host", **own, **settings})

    def verify(self, params: Host) -> str:
        """The verification of a host."""
        return self.verdicts.get(params.host, "effective")

    def build(
        self,
        hosts: Sequence[Any],
        more: Sequence[ProcedureStep] = (),
        settings: dict[str, Any] | None = None,
        procedure: dict[str, Any] | None = None,
        observer: Observer | None = None,
        actions: Sequence[Action] = (),
        **step: Any,
    ) -> None:
        """Make a lab with a procedure whose first step is over the *hosts*."""
        action = self.patch(**(settings or {}))
        other = Action(name="other", execute=lambda: self.done.append("other"))
        broken = Action(name="broken", execute=_fail)
        fields = {"params": {"host": "${item}"}, "for_each": list(hosts), **step}
        first = ProcedureStep.model_validate({"id": "patch", "action": "p:patch", **fields})
        whole = Procedure(name="all", steps=[first, *more], **(procedure or {}))
        parts = [whole, action, other, broken, *actions, *([observer] if observer else [])]
        self.lab = Lab(Agent("test", plugins=[plugin(*parts)]))

    def order(self) -> ProcedureRecord:
        """Order the procedure, and let it go as far as it goes."""
        request = CallRequest(kind="execute", action="p:all", params={}, actor=ANN)
        self.call = self.lab.launcher.call(request, None)
        self.lab.deliver()
        return self.go_on()

    def start(
        self, hosts: Sequence[Any] = HOSTS, more: Sequence[ProcedureStep] = (), **parts: Any
    ) -> ProcedureRecord:
        """Build a lab with the procedure and order it."""
        self.build(hosts, more, **parts)
        return self.order()

    def go_on(self, until: Callable[[], bool] = lambda: False) -> ProcedureRecord:
        """Let time pass until nothing changes any more."""
        before, same = None, 0
        while same < 3 and not until():
            due = self.lab.client.zrange("boyd:{test}:due", 0, -1)
            kinds = ("procedure:", "target:", "verify:", "approval:")
            for name in [name for name in due if name.startswith(kinds)]:
                overdue(self.lab, name)
            record = next(iter(self.lab.store.procedures.all()), None)
            same = same + 1 if record == before else 0
            before = record
        return before or _NOT_BEGUN


def _fail() -> None:
    raise OSError("broken")


def due(fleet: Fleet) -> list[str]:
    """The names of the jobs that wait for something."""
    return [str(name) for name in fleet.lab.client.zrange("boyd:{test}:due", 0, -1)]


def wave(record: ProcedureRecord) -> WaveProgress:
    """The progress of the first step."""
    progress = record.progress[0].wave
    assert progress is not None
    return progress


def test_a_step_is_executed_once_for_each_target() -> None:
    fleet = Fleet()
    record = fleet.start()

    assert record.state == "succeeded", record.reason
    assert sorted(fleet.done) == HOSTS
    assert (wave(record).total, wave(record).counts) == (10, {"done": 10})
    names = [entry.id for entry in fleet.lab.store.executions.page().executions]
    assert f"step:{record.id}:patch@7" in names
    assert len(names) == 11


def test_the_next_wave_begins_after_the_verdicts_of_the_last() -> None:
    fleet = Fleet()
    fleet.verdicts = {"web-0": "cannot tell"}
    record = fleet.start(wave=[1, "30%"], settings={"verify": fleet.verify})
    assert fleet.done == ["web-0"]
    assert record.state == "stopped"
    assert wave(record).summary == "1 of 10, wave 1 of 3, 1 failed"
    assert "web-0: cannot tell" in (record.reason or "")

    assert fleet.lab.store.procedures.resume(record.id, "go on", ANN) == "ok"
    record = fleet.go_on()
    assert record.state == "succeeded"
    assert wave(record).ends == [1, 4, 10]
    assert fleet.done[:1] == ["web-0"]
    assert sorted(fleet.done[1:4]) == HOSTS[1:4]
    assert sorted(fleet.done) == HOSTS


def test_no_more_targets_than_may_are_in_flight() -> None:
    fleet = Fleet()
    record = fleet.start(at_once=3, settings={"verify": lambda params: None})

    assert (wave(record).busy, len(fleet.done)) == (3, 3)


def test_it_waits_for_a_person_at_the_limit_of_failures() -> None:
    fleet = Fleet()
    fleet.fails = {f"web-{n}": OSError("no space") for n in (2, 3, 5)}
    record = fleet.start(at_once=1, stop_at=3)

    assert record.state == "stopped"
    assert fleet.done == HOSTS[:6]
    assert "stop_at = 3 is reached; 3 failed (web-2: OSError: no space;" in (record.reason or "")
    assert wave(record).counts == {"pending": 4, "done": 3, "failed": 3}


def test_it_goes_on_in_spite_of_the_failures_or_repeats_them() -> None:
    fleet = Fleet()
    fleet.fails = {"web-1": OSError("no space"), "web-4": OSError("no space")}
    record = fleet.start(at_once=1)
    assert fleet.done == ["web-0", "web-1"]
    del fleet.fails["web-1"]
    assert fleet.lab.store.procedures.resume(record.id, "repeat", ANN) == "ok"
    record = fleet.go_on()
    assert fleet.done == ["web-0", "web-1", "web-1", "web-2", "web-3", "web-4"]
    assert record.state == "stopped"

    assert fleet.lab.store.procedures.resume(record.id, "go on", ANN) == "ok"
    record = fleet.go_on()
    assert record.state == "succeeded"
    assert record.progress[0].detail == "1 failed (web-4: OSError: no space)"
    assert fleet.done[6:] == HOSTS[5:]


def test_one_target_that_became_worse_halts_it_and_is_rolled_back() -> None:
    fleet = Fleet()
    fleet.verdicts = {"web-2": "worse"}
    record = fleet.start(at_once=1, stop_at=5, settings={"verify": fleet.verify})

    assert record.state == "stopped"
    assert fleet.done == ["web-0", "web-1", "web-2", "undo web-2"]
    assert (record.reason or "").startswith("step patch: a target became worse; 1 failed (web-2")


def test_a_cancelled_one_is_undone_in_reverse() -> None:
    fleet = Fleet()
    fleet.fails = {"web-4": OSError("no space")}
    record = fleet.start(at_once=1)
    assert fleet.lab.store.procedures.cancel(record.id, ANN) == "ok"
    record = fleet.go_on()

    assert record.state == "cancelled"
    assert fleet.done[5:] == [f"undo web-{n}" for n in (3, 2, 1, 0)]
    assert wave(record).counts == {"pending": 5, "failed": 1, "undone": 4}


def test_a_later_step_that_fails_undoes_it() -> None:
    fleet = Fleet()
    record = fleet.start(HOSTS[:3], [ProcedureStep(id="broken", action="p:broken")])

    assert record.state == "failed"
    assert fleet.done[3:] == [f"undo web-{n}" for n in (2, 1, 0)]


def test_targets_that_cannot_be_undone_wait_for_a_person() -> None:
    fleet = Fleet()
    fleet.fails = {"undo web-1": OSError("gone")}
    broken = ProcedureStep(id="broken", action="p:broken")
    record = fleet.start(HOSTS[:3], [broken], at_once=1)
    assert record.state == "stopped"
    assert record.reason == "undoing step patch: 1 of 3 not undone (web-1: OSError: gone)"
    assert fleet.done[3:] == [f"undo web-{n}" for n in (2, 1, 0)]

    assert fleet.lab.store.procedures.resume(record.id, "go on", ANN) == "ok"
    record = fleet.go_on()
    undone = record.progress[0].compensation
    assert (record.state, undone and undone.state) == ("failed", "left")
    assert (record.reason or "").endswith("; not undone: patch for 1 of 3 targets (web-1)")


def test_a_step_is_not_undone_where_a_person_denied_to_undo_a_target() -> None:
    fleet = Fleet()
    undo = Action(
        name="undo",
        params=Host,
        execute=lambda params: fleet.done.append(f"undo {params.host}"),
        budget=Budget(limit=1, window=3600),
    )
    fleet.start(
        HOSTS[:2],
        [ProcedureStep(id="broken", action="p:broken")],
        actions=[undo],
        at_once=1,
        compensate=StepAction(action="p:undo", params={"host": "${item}"}),
        settings={"rollback": None},
    )
    fleet.lab.resolver.answer(pending_item(fleet.lab).id, "denied", BOB, "not now")
    record = fleet.go_on()

    assert fleet.done[2:] == ["undo web-1"]
    assert wave(record).counts == {"left": 1, "undone": 1}
    assert record.compensated == []
    assert (record.reason or "").endswith("; not undone: patch for 1 of 2 targets (web-0)")


def test_an_action_of_its_own_undoes_each_target_and_is_repeated_if_a_person_orders_it() -> None:
    fleet = Fleet()
    undo = StepAction(action="p:patch", params={"host": "${item}"})
    broken = ProcedureStep(id="broken", action="p:broken")
    fleet.start(HOSTS[:2], [broken], at_once=1, compensate=undo, settings={"rollback": None})

    assert fleet.done == ["web-0", "web-1", "web-1", "web-0"]


def test_a_freeze_halts_it_until_a_person_resumes_it() -> None:
    fleet = Fleet()
    frozen: list[str] = []

    def execute(params: Host) -> None:
        fleet.done.append(params.host)
        if params.host == "web-2" and not frozen:
            frozen.append("yes")
            fleet.lab.whole.freezes.freeze("maintenance", "test", ANN)

    record = fleet.start(at_once=1, settings={"execute": execute, "rollback": None})
    assert record.state == "stopped"
    assert "frozen" in (record.reason or "")
    assert fleet.done == HOSTS[:3]
    assert wave(record).counts == {"pending": 7, "done": 3}

    fleet.lab.whole.freezes.lift("test", ANN)
    assert fleet.lab.store.procedures.resume(record.id, "go on", ANN) == "ok"
    assert fleet.go_on().state == "succeeded"
    assert fleet.done == HOSTS


def test_a_target_that_begins_again_has_a_new_job() -> None:
    fleet = Fleet()
    fleet.fails = {"web-1": OSError("no space")}
    record = fleet.start(at_once=1)
    assert record.state == "stopped"

    # The end of a job that was cancelled was lost.
    job = f"boyd:{{test}}:target:{record.id}:patch@0"
    fleet.lab.client.hset(job, mapping={"cancelled": 1, "executionState": "running"})
    assert fleet.lab.store.procedures.cancel(record.id, ANN) == "ok"
    assert fleet.go_on().state == "cancelled"
    assert fleet.done == ["web-0", "web-1", "undo web-0"]


def test_a_freeze_on_the_way_back_waits_for_a_person_too() -> None:
    fleet = Fleet()
    frozen: list[str] = []

    def rollback(params: Host) -> None:
        fleet.done.append(f"undo {params.host}")
        if not frozen:
            frozen.append("yes")
            fleet.lab.whole.freezes.freeze("maintenance", "test", ANN)

    broken = ProcedureStep(id="broken", action="p:broken")
    record = fleet.start(HOSTS[:3], [broken], at_once=1, settings={"rollback": rollback})
    assert (record.state, fleet.done[3:]) == ("stopped", ["undo web-2"])
    assert "frozen" in (record.reason or "")

    fleet.lab.whole.freezes.lift("test", ANN)
    assert fleet.lab.store.procedures.resume(record.id, "go on", ANN) == "ok"
    assert fleet.go_on().state == "failed"
    assert fleet.done[3:] == [f"undo web-{n}" for n in (2, 1, 0)]


def test_a_restart_of_redis_halts_it_until_a_person_resumes_it() -> None:
    fleet = Fleet()

    def execute(params: Host) -> None:
        fleet.done.append(params.host)
        if params.host == "web-2":
            [record] = fleet.lab.store.procedures.all()
            fleet.lab.client.hset(f"boyd:{{test}}:wave:{record.id}:patch", "server", "another run")

    record = fleet.start(at_once=1, settings={"execute": execute})
    assert record.state == "stopped"
    assert "Redis restarted and may have forgotten" in (record.reason or "")
    assert fleet.done == HOSTS[:3]

    assert fleet.lab.store.procedures.resume(record.id, "go on", ANN) == "ok"
    assert fleet.go_on().state == "succeeded"
    assert fleet.done == HOSTS


def test_a_cancellation_executes_no_target_that_no_worker_has_begun() -> None:
    fleet = Fleet()

    def execute(params: Host) -> None:
        fleet.done.append(params.host)
        if params.host == "web-1":
            [record] = fleet.lab.store.procedures.all()
            fleet.lab.store.procedures.cancel(record.id, ANN)

    record = fleet.start(at_once=5, settings={"execute": execute})
    assert record.state == "cancelled"
    assert fleet.done == ["web-0", "web-1", "undo web-1", "undo web-0"]


def test_a_cancellation_while_a_wave_is_being_opened_executes_no_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet()
    open_wave = WaveStore.open

    def cancel_first(waves: WaveStore, *arguments: Any) -> list[str] | None:
        [record] = fleet.lab.store.procedures.all()
        fleet.lab.store.procedures.cancel(record.id, ANN)
        return open_wave(waves, *arguments)

    monkeypatch.setattr(WaveStore, "open", cancel_first)
    record = fleet.start(at_once=5)

    assert record.state == "cancelled"
    assert fleet.done == []


def test_the_approval_of_the_whole_covers_each_target() -> None:
    fleet = Fleet()
    fleet.start(HOSTS[:3], at_once=2, settings={"autonomy": ASKING})
    item = pending_item(fleet.lab)
    fleet.lab.resolver.answer(item.id, "approved", BOB)
    record = fleet.go_on()

    assert record.state == "succeeded"
    assert sorted(fleet.done) == HOSTS[:3]


def test_a_target_beyond_the_budget_asks_a_person_and_a_denial_counts_as_a_failure() -> None:
    fleet = Fleet()
    budget = Budget(limit=1, window=3600)
    record = fleet.start(
        ["web-1", "web-1 "], at_once=1, settings={"budget": budget, "target": None}
    )
    assert record.state == "running"
    assert record.summary == ("running, step 1 of 1 (patch): 1 of 2, 1 waiting for approval")
    item = pending_item(fleet.lab)
    fleet.lab.resolver.answer(item.id, "denied", BOB, "not now")
    record = fleet.go_on()

    assert record.state == "stopped"
    assert "web-1 : a person denied it: not now" in (record.reason or "")
    assert fleet.done == ["web-1"]

    assert fleet.lab.store.procedures.resume(record.id, "repeat", ANN) == "ok"
    fleet.go_on()
    item = pending_item(fleet.lab)
    fleet.lab.resolver.answer(item.id, "approved", BOB)
    assert fleet.go_on().state == "succeeded"
    assert fleet.done == ["web-1", "web-1 "]


def test_a_target_that_is_approved_after_a_cancellation_is_not_executed() -> None:
    fleet = Fleet()
    budget = Budget(limit=1, window=3600)
    record = fleet.start(
        ["web-1", "web-1 "], at_once=1, settings={"budget": budget, "target": None}
    )
    item = pending_item(fleet.lab)
    fleet.lab.store.procedures.cancel(record.id, ANN)
    fleet.lab.resolver.answer(item.id, "approved", BOB)
    fleet.lab.deliver()

    assert fleet.go_on().state == "cancelled"
    assert fleet.done == ["web-1", "undo web-1"]


def test_a_target_whose_approval_cannot_be_read_fails_after_some_attempts() -> None:
    fleet = Fleet()
    budget = Budget(limit=1, window=3600)
    fleet.start(["web-1", "web-1 "], at_once=1, settings={"budget": budget, "target": None})
    item = pending_item(fleet.lab)
    fleet.lab.client.hset(f"boyd:{{test}}:approval:{item.id}", "decision", "{")
    [target] = [name for name in due(fleet) if name.startswith("target:")]
    for _ in range(6):
        overdue(fleet.lab, target)
        assert target in due(fleet)
    overdue(fleet.lab, target)
    record = fleet.go_on()

    assert record.state == "stopped"
    assert f"web-1 : UnreadableRecord: approval {item.id} cannot be read" in (record.reason or "")
    assert target not in due(fleet)


def test_the_approval_covers_the_list_of_targets() -> None:
    fleet = Fleet()
    dry_run = {"dry_run": lambda params: "ok"}
    fleet.start([*HOSTS, "web-1"], wave=[1], procedure={"autonomy": ASKING}, settings=dry_run)
    item = pending_item(fleet.lab)
    assert item.plan[0].for_each == HOSTS
    assert item.preview is not None
    output: Any = item.preview.output
    [step] = output["steps"]
    limits = {"targets": 10, "first": HOSTS, "waves": [1, 9], "atOnce": 10, "stopAt": 1}
    assert step == {
        "step": "patch",
        "action": "p:patch",
        "params": {"host": "web-0"},
        "preview": "ok",
        **limits,
    }

    fleet.lab.resolver.answer(item.id, "approved", BOB)
    assert fleet.go_on().state == "succeeded"
    assert sorted(fleet.done) == HOSTS


def test_repetitions_among_the_targets_count_once() -> None:
    fleet = Fleet()
    record = fleet.start(["web-1", "web-2", "web-1"])

    assert sorted(fleet.done) == ["web-1", "web-2"]
    assert wave(record).total == 2


def test_a_step_without_targets_is_skipped() -> None:
    fleet = Fleet()
    record = fleet.start([], [ProcedureStep(id="other", action="p:other")])

    assert (record.state, record.progress[0].state) == ("succeeded", "skipped")
    assert fleet.done == ["other"]


def test_later_steps_know_how_many_targets_failed() -> None:
    fleet = Fleet()
    fleet.fails = {"web-0": OSError("no space")}
    other = ProcedureStep(id="other", action="p:other", when="steps.patch.output.failed > 0")
    record = fleet.start(HOSTS[:3], [other], stop_at=2)

    assert record.state == "succeeded"
    assert fleet.done[-1] == "other"


def test_targets_may_have_parts() -> None:
    fleet = Fleet()
    items = [{"name": "web-1", "zone": "a"}, {"name": "web-2", "zone": "b"}]
    record = fleet.start(items, params={"host": "${item.name}"})

    assert record.state == "succeeded"
    assert sorted(fleet.done) == ["web-1", "web-2"]


def inventory(*reports: Any) -> Observer:
    """An observer that reports each of *reports* in turn, then nothing."""
    left = list(reports)

    def observe() -> list[Observation]:
        if not left:
            raise OSError("no answer")
        return [Observation(source="inventory", type="state", data=left.pop(0))]

    return Observer(name="inventory", observe=observe)


def test_the_targets_of_an_observer_are_those_that_it_has_reported_last() -> None:
    fleet = Fleet()
    source = {"observer": "p:inventory", "path": "servers.names"}
    reports = [{"servers": {"names": names}} for names in (["old"], ["web-1", "web-2"])]
    fleet.build([], observer=inventory(*reports), for_each=source)
    for _ in range(3):
        fleet.lab.run()
    record = fleet.order()

    assert record.state == "succeeded"
    assert sorted(fleet.done) == ["web-1", "web-2"]


def test_a_procedure_whose_observer_has_reported_nothing_does_not_begin() -> None:
    fleet = Fleet()
    source = {"observer": "p:inventory", "path": "servers"}
    fleet.build([], observer=inventory({"other": 1}), for_each=source)
    fleet.lab.run()
    fleet.order()

    call = fleet.lab.store.calls.get(fleet.call)
    assert call is not None
    assert call.result is not None
    assert call.result.error == "step patch: p:inventory has reported no servers"


def test_the_targets_that_were_approved_are_executed_whatever_is_reported_later() -> None:
    fleet = Fleet()
    source = {"observer": "p:inventory", "path": "servers"}
    observer = inventory({"servers": ["web-1"]}, {"servers": ["web-1", "web-2"]})
    fleet.build([], observer=observer, for_each=source, procedure={"autonomy": ASKING})
    fleet.lab.run()
    fleet.order()
    item = pending_item(fleet.lab)
    assert item.plan[0].for_each == ["web-1"]
    fleet.lab.run()
    fleet.lab.resolver.answer(item.id, "approved", BOB)

    assert fleet.go_on().state == "succeeded"
    assert fleet.done == ["web-1"]


MISTAKES: dict[str, dict[str, Any]] = {
    "`for_each` takes no `ask`": {"ask": "Go on?", "action": None, "params": {}, "for_each": ["a"]},
    "takes no `ask`, `until` or `else`": {"until": "output.x", "for_each": ["a"]},
    "need `for_each`": {"wave": [1]},
    "at most 5000": {"for_each": list(range(5001))},
    "0%": {"for_each": ["a"], "wave": ["0%"]},
    "there is no action": {"else": {"action": "p:none"}},
    "${item} with `for_each`": {"params": {"host": "${item}"}},
}


def load(step: dict[str, Any]) -> None:
    """Load an agent whose procedure has that step."""
    procedure = Procedure(name="all", steps=[ProcedureStep.model_validate(step)])
    Agent("test", plugins=[plugin(procedure, Fleet().patch())])


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_found_when_the_agent_is_loaded(message: str) -> None:
    fields = {"id": "patch", "action": "p:patch", "params": {"host": "x"}, **MISTAKES[message]}
    with pytest.raises((ValueError, ConfigError), match=re.escape(message)):
        load(fields)


def test_targets_are_not_approved_one_by_one() -> None:
    with pytest.raises(ConfigError, match="cannot be approved step by step"):
        Fleet().build(HOSTS, procedure={"approve": "each"})


@given(
    total=st.integers(1, 5000),
    sizes=st.lists(st.integers(1, 9000) | st.integers(1, 100).map("{}%".format), max_size=9),
)
def test_the_waves_divide_the_targets(total: int, sizes: list[Any]) -> None:
    step = ProcedureStep(id="x", action="p:x", for_each=[], wave=sizes)
    ends = wave_ends(step, total)

    assert ends[-1] == total
    assert all(start < end for start, end in itertools.pairwise([0, *ends]))
    for size, start, end in zip(sizes, [0, *ends], ends[:-1], strict=False):
        share = size if isinstance(size, int) else math.ceil(total * int(size[:-1]) / 100)
        assert end - start == share


# The branch of a step


def branching(fleet: Fleet, **step: Any) -> ProcedureRecord:
    """A step with an alternative, and one that fails if the file says so."""
    fields = {"id": "first", "else": {"action": "p:other", "params": {}}, **step}
    first = ProcedureStep.model_validate(fields)
    return fleet.start(HOSTS[:1], [first])


@pytest.mark.parametrize(
    ("step", "done"),
    [
        ({"action": "p:broken"}, ["web-0", "other"]),
        ({"action": "p:patch", "params": {"host": "x"}, "when": "false"}, ["web-0", "other"]),
        ({"action": "p:patch", "params": {"host": "x"}, "when": "true"}, ["web-0", "x"]),
    ],
)
def test_the_alternative_is_executed_if_the_condition_is_false_or_the_step_fails(
    step: dict[str, Any], done: list[str]
) -> None:
    fleet = Fleet()
    record = branching(fleet, **step)

    assert record.state == "succeeded"
    assert fleet.done == done


def test_an_alternative_that_fails_fails_the_procedure() -> None:
    fleet = Fleet()
    record = branching(fleet, action="p:broken", **{"else": {"action": "p:broken"}})

    assert record.state == "failed"
    assert fleet.done == ["web-0", "undo web-0"]


def test_an_effect_that_did_not_help_is_undone_and_no_alternative_tried() -> None:
    fleet = Fleet()
    fleet.verdicts = {"x": "no effect"}
    record = fleet.start(
        HOSTS[:1],
        [
            ProcedureStep.model_validate(
                {
                    "id": "first",
                    "action": "p:patch",
                    "params": {"host": "x"},
                    "else": {"action": "p:other"},
                }
            )
        ],
        settings={"verify": fleet.verify},
    )
    assert record.state == "failed"
    assert fleet.done == ["web-0", "x", "undo x", "undo web-0"]


def test_a_person_who_denies_a_question_chooses_the_alternative() -> None:
    fleet = Fleet()
    record = branching(fleet, ask="Go on?")
    fleet.lab.resolver.answer(record.progress[1].approval or "", "denied", BOB)
    record = fleet.go_on()

    assert record.state == "succeeded"
    assert fleet.done == ["web-0", "other"]
    assert (record.progress[1].instead, record.progress[1].execution) == (
        True,
        f"step:{record.id}:first.else",
    )
