"""Windows in which actions run alone, and conditions on autonomy, budgets and policies."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from boyd import Agent, naming
from boyd.models import ActionResult, Autonomy, Budget, CallRequest, Fence, LoopResult
from boyd.settings.permissions import Window
from boyd.store import ServerClock
from boyd.store.keys import Keys
from boyd.testing import Lab
from kit import (
    Recorder,
    choice,
    chooses,
    execution_request,
    machine,
    overdue,
    person,
    plugin,
    reads,
)

VIENNA = "Europe/Vienna"
OFFICE = {"open": ["* 8-16 * * mon-fri"], "timezone": VIENNA, "name": "office hours"}
#: A Friday at 15:30 in Vienna, and the evening.
FRIDAY, EVENING = "2026-10-23T13:30", "2026-10-23T18:30"
FREEZE = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//test//EN
BEGIN:VEVENT
UID:1
DTSTAMP:20260101T000000Z
SUMMARY:Autumn sale
DTSTART;VALUE=DATE:20261023
DTEND;VALUE=DATE:20261027
END:VEVENT
END:VCALENDAR
"""


def at(text: str) -> datetime:
    """A time in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


class Clock:
    """The clock of the Redis server, which stands still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = FRIDAY
        monkeypatch.setattr(ServerClock, "now", lambda _: at(self.time))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Restart(BaseModel):
    name: str = "web"
    count: int = 1


def lab_for(
    recorder: Recorder | None = None,
    params: dict[str, Any] | None = None,
    folder: Path = Path(),
    action: dict[str, Any] | None = None,
    **settings: Any,
) -> Lab:
    """A lab whose agent decides on its action in each iteration."""
    act = (recorder or Recorder()).action(params=Restart, target="name", **(action or {}))
    decision = choice(params=params or {}, risk="medium")
    parts = plugin(reads("o", "disk is full"), chooses(decision), act)
    return Lab(Agent("test", plugins=[parts], folder=folder, **settings))


def gate_of(result: LoopResult) -> tuple[str, str]:
    """The outcome and the reason of the gate."""
    assert result.gate is not None
    return result.gate.outcome, result.gate.reason


def result_of(result: LoopResult) -> ActionResult:
    return result.action_results[0]


def decide(lab: Lab) -> None:
    """Run an iteration up to its act phase."""
    lab.launcher.trigger("test")
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "act")


# The times of a window


@pytest.mark.parametrize(
    ("settings", "time", "is_open", "opens"),
    [
        (OFFICE, FRIDAY, True, None),
        (OFFICE, EVENING, False, "2026-10-26T07:00"),
        ({"open": [{"start": "08:30", "end": "17:45"}]}, "2026-01-05T17:44:59", True, None),
        (
            {"open": [{"start": "08:30", "end": "17:45", "weekdays": ["mon", "wed"]}]},
            "2026-01-05T17:45",
            False,
            "2026-01-07T08:30",
        ),
        # Over midnight: the hours belong to the day on which they began.
        (
            {"open": [{"start": "22:00", "end": "06:00", "weekdays": ["mon"]}]},
            "2026-01-06T05:59",
            True,
            None,
        ),
        (
            {"open": [{"start": "22:00", "end": "06:00", "weekdays": ["mon"]}]},
            "2026-01-05T05:59",
            False,
            "2026-01-05T22:00",
        ),
        ({"open": [{"weekdays": ["sun"]}]}, "2026-01-04T23:59", True, None),
        # 02:30 does not exist on 29 March in Vienna: the hours begin when the gap ends.
        (
            {"open": [{"start": "02:30", "end": "04:00"}], "timezone": VIENNA},
            "2026-03-29T00:50",
            False,
            "2026-03-29T01:00",
        ),
        # The hour that comes twice on 25 October is open, closed, and open again.
        (
            {"open": [{"start": "02:30", "end": "04:00"}], "timezone": VIENNA},
            "2026-10-25T00:30",
            True,
            None,
        ),
        (
            {"open": [{"start": "02:30", "end": "04:00"}], "timezone": VIENNA},
            "2026-10-25T01:10",
            False,
            "2026-10-25T01:30",
        ),
        (
            {"open": [{"start": "01:15", "end": "01:45"}], "timezone": "America/New_York"},
            "2026-11-01T05:50",
            False,
            "2026-11-01T06:15",
        ),
        # Several times: open in each of them.
        (
            {"open": ["* 8-16 * * mon-fri", {"start": "10:00", "end": "12:00"}]},
            "2026-01-04T11:00",
            True,
            None,
        ),
    ],
)
def test_a_window_is_open_by_the_clock_of_its_zone(
    settings: dict[str, Any], time: str, is_open: bool, opens: str | None
) -> None:
    window = Window.model_validate(settings)

    assert window.is_open(at(time)) is is_open
    if opens:
        assert window.opens(at(time)) == at(opens)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"open": ["* * *"]},
        {"open": [{"start": "08:30:15"}]},
        {"open": [{"weekdays": []}]},
        {"open": ["* * * * *"], "timezone": "Mars/Base"},
        {"open": ["* * * * *"], "outside": "refuse"},
    ],
)
def test_a_window_without_meaning_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Window.model_validate(settings)


# The gate


def test_in_its_window_an_action_runs_alone(clock: Clock) -> None:
    recorder = Recorder()
    result = lab_for(recorder, windows=[OFFICE]).run()
    assert result.gate is not None

    assert len(recorder.calls) == 1
    assert gate_of(result) == ("automatic", "the action is auto, and in window 'office hours'")
    assert result.gate.at == at(FRIDAY)


def test_outside_of_its_window_a_person_is_asked(clock: Clock) -> None:
    clock.time = EVENING
    recorder = Recorder()
    lab = lab_for(recorder, windows=[OFFICE])
    result = lab.run()
    item = lab.store.approvals.page(50).pending[0]
    reason = (
        "window 'office hours' is closed: outside its hours;"
        " it opens 2026-10-26 08:00 Europe/Vienna"
    )

    assert gate_of(result) == ("asked", reason)
    assert (item.reason, recorder.calls) == (reason, [])

    assert lab.resolver.answer(item.id, "approved", person("ann")).counts
    lab.deliver()
    assert len(recorder.calls) == 1, "a person may approve at any time"


def test_an_action_may_wait_for_its_window_and_uses_up_nothing(clock: Clock) -> None:
    clock.time = EVENING
    recorder = Recorder()
    budget = Budget(limit=1, window=3600)
    lab = lab_for(recorder, action={"budget": budget}, windows=[{**OFFICE, "outside": "wait"}])
    first = lab.run()

    assert result_of(first).prevented == "closed"
    assert "it opens 2026-10-26 08:00 Europe/Vienna" in str(result_of(first).error)
    assert gate_of(first)[0] == "refused"
    assert lab.store.approvals.page(50).pending == []

    clock.time = "2026-10-26T07:00"
    assert result_of(lab.run()).success
    assert len(recorder.calls) == 1


def test_of_several_closed_windows_the_first_decides(clock: Clock) -> None:
    clock.time = EVENING
    wait = {"open": ["* 3 * * *"], "outside": "wait"}

    assert gate_of(lab_for(windows=[OFFICE, wait]).run())[0] == "asked"
    assert gate_of(lab_for(windows=[wait, OFFICE]).run())[0] == "refused"


def test_a_window_counts_for_its_actions_and_under_its_condition_only(clock: Clock) -> None:
    clock.time = EVENING

    assert gate_of(lab_for(windows=[{**OFFICE, "actions": ["q:*"]}]).run())[0] == "automatic"
    risky = {**OFFICE, "when": 'decision.risk == "high"'}
    assert gate_of(lab_for(windows=[risky]).run())[0] == "automatic"
    medium = {**OFFICE, "when": 'decision.risk == "medium"'}
    assert gate_of(lab_for(windows=[medium]).run())[0] == "asked"


def test_an_action_that_needs_a_person_anyway_does_not_wait(clock: Clock) -> None:
    clock.time = EVENING
    lab = lab_for(
        action={"autonomy": Autonomy(mode="approval-required")},
        windows=[{**OFFICE, "outside": "wait"}],
    )

    assert gate_of(lab.run()) == ("asked", "the action is approval-required")


def test_a_change_freeze_closes_a_window(clock: Clock, tmp_path: Path) -> None:
    (tmp_path / "freezes.ics").write_text(FREEZE)
    window = {**OFFICE, "freezes": "freezes.ics"}
    lab = lab_for(folder=tmp_path, windows=[window])
    # The freeze ends on Tuesday at midnight, and the hours begin at eight.
    reason = (
        "window 'office hours' is closed: change freeze 'Autumn sale' until"
        " 2026-10-27 00:00 Europe/Vienna; it opens 2026-10-27 08:00 Europe/Vienna"
    )
    assert gate_of(lab.run()) == ("asked", reason)

    (tmp_path / "freezes.ics").write_text(FREEZE.replace("20261027", "20261024"))
    clock.time = "2026-10-24T12:00"
    assert "it opens 2026-10-26 08:00" in gate_of(lab.run())[1]
    clock.time = "2026-10-26T12:00"
    assert gate_of(lab.run())[0] == "automatic"


def test_an_unreadable_calendar_closes_the_window_and_is_a_problem(
    clock: Clock, tmp_path: Path
) -> None:
    lab = lab_for(folder=tmp_path, windows=[{"freezes": "none.ics", "outside": "wait"}])
    outcome, reason = gate_of(lab.run())

    assert outcome == "asked", "nobody knows when it opens"
    assert reason == f"window 'windows.0' is closed: {tmp_path}/none.ics: No such file or directory"
    assert [str(tmp_path) in problem for problem in lab.agent.rules.problems()] == [True]


def test_an_approval_that_was_decided_on_is_requested_though_the_window_opens(
    clock: Clock,
) -> None:
    clock.time = EVENING
    recorder = Recorder()
    lab = lab_for(recorder, windows=[OFFICE])
    decide(lab)
    clock.time = "2026-10-26T07:00"
    lab.deliver()

    assert recorder.calls == []
    assert len(lab.store.approvals.page(50).pending) == 1


def test_a_window_that_closes_before_the_action_starts_is_closed(clock: Clock) -> None:
    recorder = Recorder()
    lab = lab_for(recorder, windows=[{**OFFICE, "outside": "wait"}])
    decide(lab)
    clock.time = EVENING
    lab.deliver()
    result = lab.store.history.get(1)
    assert result is not None

    assert recorder.calls == []
    assert result_of(result).prevented == "closed"


def test_an_action_started_in_its_window_is_retried_after_the_window_closed(
    clock: Clock,
) -> None:
    recorder = Recorder()
    lab = lab_for(recorder, action={"idempotent": True}, windows=[OFFICE])
    decide(lab)
    lab.dispatcher.hints.clear()
    assert lab.store.iterations.enter(1, 1, "act", "h.1.abcd/1")
    keys = Keys("test")
    name = naming.iteration_execution(
        naming.iteration(1, lab.client.hget(keys.iteration, "timeline"))
    )
    fence = Fence(1, 1, "h.1.abcd/1")
    lab.store.executions.claim(execution_request(name, idempotent=True, fence=fence), "t")
    lab.client.hset(keys.execution(name), "leaseUntil", 1)
    clock.time = EVENING
    overdue(lab, "phase")
    result = lab.store.history.get(1)
    assert result is not None

    assert result_of(result).success
    assert lab.store.approvals.page(50).pending == []


def test_a_call_outside_of_the_window_is_asked_for(clock: Clock) -> None:
    clock.time = EVENING
    recorder = Recorder()
    lab = lab_for(recorder, windows=[OFFICE])
    request = CallRequest(kind="execute", action="p:do", actor=machine("ci"))
    call = lab.launcher.call(request, None)
    lab.deliver()

    record = lab.store.calls.get(call)
    assert record is not None
    assert record.approval_id is not None
    assert recorder.calls == []


# Conditions


@pytest.mark.parametrize(("count", "outcome"), [(3, "automatic"), (4, "asked")])
def test_an_action_runs_alone_only_while_its_condition_is_true(
    clock: Clock, count: int, outcome: str
) -> None:
    when = 'params.count <= 3 && situation.priority == "low" && action.target == "web"'
    result = lab_for(params={"count": count}, autonomy={"p:do": {"when": when}}).run()

    assert gate_of(result)[0] == outcome
    if outcome == "asked":
        assert gate_of(result)[1] == f"autonomy.p:do.when is false: {when}"


def test_a_condition_sees_defaults_and_the_situation(clock: Clock) -> None:
    when = (
        'params.name == "web" && params.count == 1 && situation.summary == "disk is full"'
        ' && agent.id == "test" && agent.mode == "manual" && action.plugin == "p"'
        ' && decision.confidence > 0.8 && now == timestamp("2026-10-23T13:30:00Z")'
        " && situation.anomalies.size() == 0"
    )

    assert gate_of(lab_for(autonomy={"p:do": {"when": when}}).run())[0] == "automatic"


@pytest.mark.parametrize("count", [2**70, "many"])
def test_when_a_condition_cannot_be_evaluated_a_person_is_asked(clock: Clock, count: Any) -> None:
    recorder = Recorder()
    lab = lab_for(
        recorder, params={"count": count}, autonomy={"p:do": {"when": "params.count < 3"}}
    )
    outcome, reason = gate_of(lab.run())

    # Invalid params are refused when the approval is to be requested.
    assert outcome == ("asked" if count == 2**70 else "refused")
    assert recorder.calls == []
    if outcome == "asked":
        assert reason == "autonomy.p:do.when cannot be evaluated: int too big to convert"


def test_a_budget_counts_only_while_its_condition_is_true(clock: Clock) -> None:
    budgets = {"p:do": {"limit": 1, "window": 60, "when": 'params.name != "web"'}}
    lab = lab_for(budgets=budgets)
    assert [gate_of(lab.run())[0] for _ in range(2)] == ["automatic", "automatic"]

    other = lab_for(params={"name": "db"}, budgets=budgets)
    assert [gate_of(other.run())[0] for _ in range(2)] == ["automatic", "asked"]


def test_without_its_own_condition_the_budget_of_the_action_counts(clock: Clock) -> None:
    lab = lab_for(
        action={"budget": Budget(limit=1, window=60)},
        budgets={"p:do": {"limit": 5, "window": 60, "when": "params.count > 100"}},
    )

    assert [gate_of(lab.run())[0] for _ in range(2)] == ["automatic", "asked"]


POLICIES = {
    "policies": [{"when": "params.count > 3", "required": {"min_approvals": 2}}],
}


@pytest.mark.parametrize(("count", "needed"), [(3, 1), (4, 2)])
def test_a_policy_applies_only_under_its_condition(clock: Clock, count: int, needed: int) -> None:
    lab = lab_for(
        params={"count": count},
        action={"autonomy": Autonomy(mode="approval-required")},
        approvals=POLICIES,
    )
    lab.run()

    assert lab.store.approvals.page(50).pending[0].required.min_approvals == needed


def test_a_policy_whose_condition_cannot_be_evaluated_needs_a_person(clock: Clock) -> None:
    lab = lab_for(
        params={"count": 2**70},
        action={"autonomy": Autonomy(mode="approval-required")},
        approvals=POLICIES,
    )
    lab.run()
    item = lab.store.approvals.page(50).pending[0]

    assert item.required.person
    assert item.reason == (
        "the action is approval-required;"
        " approvals.policies.0.when cannot be evaluated: int too big to convert"
    )


def test_the_policy_of_an_approval_is_that_of_its_situation(clock: Clock) -> None:
    """It counts as tightened only when the settings are, not when it has become late."""
    recorder = Recorder()
    late = {"when": "now.getFullYear() >= 2999", "required": {"min_approvals": 2}}
    calm = {"when": 'situation.summary != "disk is full"', "required": {"min_approvals": 3}}
    lab = lab_for(
        recorder,
        action={"autonomy": Autonomy(mode="approval-required")},
        approvals={"policies": [late, calm]},
    )
    lab.run()
    item = lab.store.approvals.page(50).pending[0]
    clock.time = "2999-10-23T18:30"
    lab.resolver.answer(item.id, "approved", person("ann"))
    lab.deliver()

    assert len(recorder.calls) == 1
