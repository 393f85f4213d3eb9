"""Outcomes in words: one text for the command line and the console."""

from __future__ import annotations

from typing import Any

import pytest

from boyd.models import Decision, LoopResult, no_op, utc_now
from boyd.models.action import APPROVAL_REQUIRED, ActionResult
from boyd.models.responses import outcome, outcome_kind
from boyd.store.iteration_record import summary_of


def loop_result(*results: ActionResult, **fields: Any) -> LoopResult:
    now = utc_now()
    defaults = {"id": "a:1", "agent_id": "a", "iteration": 1, "trigger": "beat", "success": True}
    defaults |= {"duration": 1.0, "started_at": now, "ended_at": now, "decision": no_op("calm")}
    return LoopResult(**{**defaults, "action_results": list(results), **fields})


def result(success: bool = False, **fields: Any) -> ActionResult:
    return ActionResult(action="p:do", success=success, duration=1.0, **fields)


WAITS = result(error=APPROVAL_REQUIRED, waits_for="1a2b3c4d5e")


@pytest.mark.parametrize(
    ("result", "kind", "text"),
    [
        (loop_result(), "idle", "no-op"),
        (loop_result(result(success=True)), "acted", "p:do ok"),
        (loop_result(WAITS), "waits", "p:do sent for approval 1a2b3c4d"),
        (
            loop_result(result(error="frozen", prevented="frozen")),
            "prevented",
            "p:do failed: frozen",
        ),
        (loop_result(result(error="boom")), "failed", "p:do failed: boom"),
        (loop_result(result(unknown=True, error="lost")), "failed", "p:do outcome unknown: lost"),
        (loop_result(result(success=True), success=False, error="broken"), "failed", "broken"),
        (
            loop_result(decision=Decision(action="p:do", rationale="r", confidence=1.0)),
            "idle",
            "p:do",
        ),
    ],
)
def test_a_whole_result_and_its_outline_have_the_same_outcome(
    result: LoopResult, kind: str, text: str
) -> None:
    assert (outcome_kind(result), outcome(result)) == (kind, text)
    assert (outcome_kind(summary_of(result)), outcome(summary_of(result))) == (kind, text)


def test_of_several_outcomes_the_one_that_needs_a_person_counts() -> None:
    assert outcome_kind(loop_result(result(success=True), WAITS)) == "waits"
    assert outcome_kind(loop_result(WAITS, result(error="boom"))) == "failed"


def test_the_approval_that_an_action_waits_for_is_a_metric_on_the_wire() -> None:
    wire = (
        '{"action":"p:do","success":false,"duration":1.0,"error":"Approval required",'
        '"metrics":{"approvalId":"1a2b3c4d5e"}}'
    )

    assert ActionResult.from_json(wire) == WAITS
    assert (WAITS.metrics, WAITS.to_json()) == (None, wire)
    assert "waitsFor" not in ActionResult.model_json_schema(by_alias=True)["properties"]


def test_a_metric_of_a_result_that_does_not_wait_names_no_approval() -> None:
    failed = result(error="boom", metrics={"approvalId": "1a2b3c4d5e"})

    assert failed.waits_for is None
    assert ActionResult.from_json(failed.to_json()) == failed
