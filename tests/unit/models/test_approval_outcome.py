"""The outcome of an approval in words, and the stages that follow an answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from boyd import naming
from boyd.models import (
    Acknowledgement,
    ActionResult,
    ApprovalItem,
    Compensation,
    EffectVerification,
    JobExecution,
    NotificationRecord,
    NotificationStage,
    Occasion,
    awaits_outcome,
    current_stages,
    describe_outcome,
    next_stage_at,
)
from kit import approval_item

NOW = datetime(2026, 3, 2, 3, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def item(**values: Any) -> ApprovalItem:
    """An approval that ann has approved, unless *values* say otherwise."""
    return approval_item(NOW, **{"status": "approved", "acted_by": "ann", **values})


def result(**values: Any) -> ActionResult:
    """The result of an action that succeeded, unless *values* say otherwise."""
    return ActionResult(**{"action": "svc:restart", "success": True, "duration": 1.0, **values})


def effect(verdict: Any, evidence: str = "", **compensation: Any) -> EffectVerification:
    """A verification with its verdict."""
    fate = Compensation(**compensation) if compensation else None
    until = NOW + MINUTE
    return EffectVerification(
        verdict=verdict, evidence=evidence, until=until, ended_at=until, compensation=fate
    )


ENDED = JobExecution(state="succeeded", worker="w1", started_at=NOW, ended_at=NOW)


@pytest.mark.parametrize(
    ("values", "words", "stage"),
    [
        ({"status": "expired"}, "Expired without an answer", "answered"),
        ({"status": "denied"}, "Denied by ann", "answered"),
        ({"status": "withdrawn"}, "Withdrawn by ann", "answered"),
        ({}, "Approved by ann: waits for a worker", "answered"),
        (
            {"execution": JobExecution(state="running", worker="w1")},
            "Approved by ann: running on w1",
            "answered",
        ),
        (
            {"result": result(procedure="approval:4711")},
            "Approved by ann: running on w1",
            "answered",
        ),
        ({"result": result()}, "Succeeded: nothing verifies its effect", "executed"),
        ({"result": result(), "action_id": naming.GRANT}, "Succeeded", "executed"),
        (
            {"result": result(), "effect": EffectVerification(until=NOW)},
            "Executed: its effect is being verified",
            "executed",
        ),
        ({"result": result(success=False, error="exit code 1")}, "Failed: exit code 1", "executed"),
        (
            {"result": result(success=False, error="Actions are frozen: x", prevented="frozen")},
            "Not executed: Actions are frozen: x",
            "executed",
        ),
        (
            {"result": result(success=False, error="Outcome unknown: host-b died", unknown=True)},
            "Outcome unknown: host-b died. Check by hand.",
            "executed",
        ),
        (
            {"result": result(), "effect": effect("effective", "up again")},
            "Effective: up again",
            "verified",
        ),
        (
            {"result": result(), "effect": effect("no effect", "still down")},
            "No effect: still down",
            "verified",
        ),
        (
            {"result": result(), "effect": effect("cannot tell")},
            "Cannot tell whether it helped",
            "verified",
        ),
        (
            {"result": result(), "effect": effect("worse", "latency got worse")},
            "Made it worse: latency got worse; being undone",
            "executed",
        ),
        (
            {
                "result": result(),
                "effect": effect("worse", "latency got worse", state="rolled back", restored=True),
            },
            "Undone: latency got worse",
            "verified",
        ),
        (
            {
                "result": result(),
                "effect": effect("worse", "latency", state="not restored"),
            },
            "Made it worse: latency; rolled back, but that restored nothing. Check by hand.",
            "verified",
        ),
        (
            {
                "result": result(),
                "effect": effect("worse", state="none", detail="the action has no rollback"),
            },
            "Made it worse: not undone: the action has no rollback",
            "verified",
        ),
        (
            {
                "result": result(success=False, error="Outcome unknown: died", unknown=True),
                "effect": effect("effective", "up again"),
            },
            "Effective: up again; its call: Outcome unknown: died",
            "verified",
        ),
    ],
)
def test_the_outcome_of_an_answer_is_what_is_known_of_it(
    values: dict[str, Any], words: str, stage: NotificationStage
) -> None:
    if "result" in values:
        values = {"execution": ENDED, **values}
    if words.startswith("Approved by ann: running"):
        values = {**values, "execution": JobExecution(state="running", worker="w1")}
    approval = item(**values)

    assert str(describe_outcome(approval)) == words
    assert list(current_stages(approval, NOW)) == [Occasion(stage)]


def test_a_rollback_that_nobody_confirms_is_final_after_the_time_of_the_verification() -> None:
    rolled_back = effect("worse", "latency got worse", state="rolled back")
    approval = item(result=result(), execution=ENDED, effect=rolled_back)

    assert awaits_outcome(approval, NOW + 2 * MINUTE)
    assert not awaits_outcome(approval, NOW + 4 * MINUTE)
    assert list(current_stages(approval, NOW + 4 * MINUTE)) == [Occasion("verified")]
    assert "not known yet whether that restored it" in str(describe_outcome(approval))


@pytest.mark.parametrize("status", ["denied", "expired", "withdrawn"])
def test_nothing_follows_an_answer_that_executes_nothing(status: str) -> None:
    assert not awaits_outcome(item(status=status), NOW)


def pending(**values: Any) -> ApprovalItem:
    """An approval that waits for an hour."""
    return item(status="pending", expires_at=NOW + 60 * MINUTE, **values)


def test_an_approval_that_waits_reaches_half_of_its_time() -> None:
    approval = pending()

    assert list(current_stages(approval, NOW)) == [Occasion("waiting"), Occasion("escalated")]
    assert next_stage_at(approval, NOW) == NOW + 30 * MINUTE
    later = NOW + 30 * MINUTE
    assert list(current_stages(approval, later)) == [Occasion("half-time"), Occasion("escalated")]
    assert next_stage_at(approval, later) == NOW + 60 * MINUTE


def test_an_acknowledged_approval_is_called_to_mind_when_the_acknowledgement_ends() -> None:
    latest = Acknowledgement(number=2, by="eve", at=NOW, until=NOW + 40 * MINUTE)
    approval = pending(acknowledgement=latest)

    later = NOW + 35 * MINUTE
    assert list(current_stages(approval, later)) == [
        Occasion("waiting"),
        Occasion("escalated"),
        Occasion("acknowledged", 2),
    ]
    assert next_stage_at(approval, later) == NOW + 40 * MINUTE
    # The half was passed meanwhile: that is one message, not two.
    assert list(current_stages(approval, NOW + 41 * MINUTE)) == [
        Occasion("waiting"),
        Occasion("escalated"),
        Occasion("reminder", 2),
    ]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        (("waiting", 1), ("escalated", 1)),
        (("waiting", 1), ("half-time", 1)),
        (("acknowledged", 1), ("reminder", 1)),
        (("reminder", 1), ("acknowledged", 2)),
        (("reminder", 2), ("answered", 1)),
        (("half-time", 1), ("answered", 1)),
        (("answered", 1), ("executed", 1)),
        (("executed", 1), ("verified", 1)),
    ],
)
def test_a_later_stage_replaces_an_earlier_one(
    earlier: tuple[Any, int], later: tuple[Any, int]
) -> None:
    first, second = record(*earlier), record(*later)

    assert first.is_obsolete_after(second)
    assert not second.is_obsolete_after(first)
    assert not first.is_obsolete_after(second.patched({"recipient": "another"}))


def test_half_time_and_reminders_replace_each_other_in_no_order() -> None:
    half, reminder = record("half-time"), record("reminder")

    assert not half.is_obsolete_after(reminder)
    assert not reminder.is_obsolete_after(half)


def record(stage: Any, occasion: int = 1) -> NotificationRecord:
    """A notification to one recipient."""
    return NotificationRecord(
        stage=stage, occasion=occasion, plugin="p", recipient="r", group="g", kind="k"
    )
