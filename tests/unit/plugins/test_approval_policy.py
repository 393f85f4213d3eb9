from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from boyd.errors import PluginError
from boyd.models import Decision, Situation, no_op
from boyd.plugin import Action
from boyd.plugins.approval_policy import ApprovalRules
from plugin_kit import Clock, Rig

APPROVAL = {"requires_approval": True}
MONDAY_NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


def decision(**values: Any) -> Decision:
    return Decision(**{"action": "a:b", "rationale": "r", "confidence": 0.9, **values})


def ask(
    choice: Decision, now: datetime = MONDAY_NOON, action: Action | None = None, **options: Any
) -> Any:
    rig = Rig(ApprovalRules(**options))
    rig.clock = Clock(now)
    [hook] = rig.host.hooks("on_decide")
    return hook(decision=choice, situation=Situation(), action=action, ctx=rig.ctx)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("risk", "answer"),
    [("low", None), ("medium", None), ("high", APPROVAL), ("critical", APPROVAL)],
)
def test_high_and_critical_risk_need_approval_by_default(risk: str, answer: object) -> None:
    assert ask(decision(risk=risk)) == answer


def test_the_risk_of_the_action_counts_like_that_of_the_decision() -> None:
    risky = Action(name="b", execute=lambda: None, risk="high")
    assert ask(decision(risk="low"), action=risky) == APPROVAL


def test_the_risks_can_be_chosen() -> None:
    assert ask(decision(risk="medium"), risks=["medium"]) == APPROVAL
    assert ask(decision(risk="high"), risks=[]) is None


@pytest.mark.parametrize(
    ("time", "answer"),
    [
        ("2026-01-05T07:59", APPROVAL),
        ("2026-01-05T08:00", None),
        ("2026-01-05T17:59", None),
        ("2026-01-05T18:00", APPROVAL),
    ],
)
def test_outside_of_the_hours_approval_is_needed(time: str, answer: object) -> None:
    assert ask(decision(), at(time), hours={"start": 8, "end": 18}) == answer


def test_hours_are_those_of_their_time_zone() -> None:
    hours = {"start": 8, "end": 18, "timezone": "Asia/Tokyo"}
    assert ask(decision(), at("2026-01-05T00:00"), hours=hours) is None
    assert ask(decision(), MONDAY_NOON, hours=hours) == APPROVAL


def test_hours_hold_on_their_weekdays_only() -> None:
    hours = {"start": 8, "end": 18, "weekdays": ["mon"]}
    assert ask(decision(), MONDAY_NOON, hours=hours) is None
    assert ask(decision(), at("2026-01-06T12:00"), hours=hours) == APPROVAL


@pytest.mark.parametrize(
    ("time", "answer"),
    [
        ("2026-01-05T21:59", APPROVAL),
        ("2026-01-05T22:00", None),
        ("2026-01-06T05:59", None),
        ("2026-01-06T06:00", APPROVAL),
        ("2026-01-06T23:00", APPROVAL),
        ("2026-01-05T03:00", APPROVAL),
    ],
)
def test_hours_over_midnight_belong_to_the_day_they_began(time: str, answer: object) -> None:
    hours = {"start": 22, "end": 6, "weekdays": ["mon"]}
    assert ask(decision(), at(time), hours=hours) == answer


def test_listed_actions_need_approval() -> None:
    assert ask(decision(action="process:restart"), actions=["process:*"]) == APPROVAL
    assert ask(decision(action="processes:restart"), actions=["process:*"]) is None


@pytest.mark.parametrize(
    ("params", "answer"),
    [
        ({"name": "db-1"}, APPROVAL),
        ({"name": ["web", "db-1"]}, APPROVAL),
        ({"name": "web"}, None),
        ({"other": "db-1"}, None),
        ({}, None),
    ],
)
def test_listed_targets_need_approval(params: dict[str, Any], answer: object) -> None:
    assert ask(decision(params=params), targets={"name": ["db-*"]}) == answer


def test_a_no_op_is_left_alone() -> None:
    assert ask(no_op("nothing to do"), actions=["*"]) is None


def test_it_is_a_guard() -> None:
    [hook] = Rig(ApprovalRules()).host.hooks("on_decide")
    assert hook.fail_closed


@pytest.mark.parametrize(
    "options",
    [
        {"risks": ["huge"]},
        {"hours": {"start": 8, "end": 8}},
        {"hours": {"start": 8, "end": 18, "timezone": "Mars/Base"}},
        {"hours": {"start": 8, "end": 18, "weekdays": []}},
        {"hour": {}},
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(PluginError):
        ApprovalRules(**options)
