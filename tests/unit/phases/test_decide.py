"""The decide phase: strategies, their order, and which decision wins."""

from __future__ import annotations

from typing import Any

import pytest

from boyd import Agent, Decision, LoopResult, Veto, hook
from boyd.models import Refusal
from boyd.plugin import Plugin, Strategy
from boyd.testing import Lab
from kit import Recorder, agent, choice, chooses, plugin, reads


def broken() -> Any:
    """Raise."""
    raise RuntimeError("boom")


def run_hooks(*hooks: Plugin, decision: Any = None) -> tuple[LoopResult, Recorder]:
    """Run a decision past the hooks of *hooks*; the result, and what the action was called with."""
    recorder = Recorder()
    own = plugin(chooses(decision or choice()), recorder.action())
    return Lab(Agent("test", plugins=[own, *hooks])).run(), recorder


def test_the_first_applicable_strategy_in_registration_job_decides() -> None:
    result = Lab(
        agent(
            chooses(choice("p:a"), "never", applicable_when=lambda: False),
            chooses(choice("p:b"), "second"),
            chooses(choice("p:c"), "third"),
        )
    ).run()

    assert result.decision is not None
    assert result.decision.action == "p:b"


def test_a_predicate_sees_the_situation() -> None:
    strategy = chooses(choice(), applicable_when=lambda situation: situation.summary == "x")

    result = Lab(agent(reads("o", "x"), strategy)).run()

    assert result.trace is not None
    assert result.trace.applicable == ["p:chooses"]


def test_a_predicate_that_raises_excludes_only_its_strategy() -> None:
    result = Lab(
        agent(chooses(choice("p:a"), "bad", applicable_when=broken), chooses(choice("p:b"), "good"))
    ).run()

    assert result.decision is not None
    assert result.decision.action == "p:b"
    assert [problem.id for problem in result.problems] == ["p:bad"]


@pytest.mark.parametrize(
    "fields", [{"rationale": "\udcff"}, {"params": {"\udcff": 1}}, {"params": {"file": "\udcff"}}]
)
def test_text_that_utf8_cannot_hold_costs_only_its_strategy(fields: dict[str, Any]) -> None:
    result = Lab(agent(Strategy(name="bad", decide=lambda: choice(**fields)))).run()

    assert (result.success, [problem.id for problem in result.problems]) == (True, ["p:bad"])


def test_without_an_applicable_strategy_nothing_is_done() -> None:
    result = Lab(agent(chooses(choice(), applicable_when=lambda: False))).run()

    assert result.decision is not None
    assert (
        result.decision.action,
        result.decision.confidence,
        result.decision.risk,
    ) == ("no-op", 0.0, "low")
    assert result.action_results == []
    assert result.success


def test_a_strategy_that_raises_makes_a_no_op_that_says_why() -> None:
    decisions: list[int] = []
    plugins = [plugin(Strategy(name="bad", decide=broken), on_decide=lambda: decisions.append(1))]
    result = Lab(Agent("test", plugins=plugins)).run()

    assert result.decision is not None
    assert result.decision.action == "no-op"
    assert "RuntimeError: boom" in result.decision.rationale
    assert result.success
    assert decisions == [], "on_decide must not run"


def test_a_veto_makes_a_no_op_whatever_later_hooks_say() -> None:
    def veto() -> None:
        raise Veto("not on a Friday")

    first = plugin(id="first", on_decide=veto)
    later = plugin(id="later", on_decide=lambda: {"action": "p:do", "confidence": 1.0})
    result, recorder = run_hooks(first, later)

    assert result.decision is not None
    assert (
        result.decision.action,
        result.decision.confidence,
        result.decision.risk,
    ) == ("no-op", 0.0, "low")
    assert result.trace is not None
    assert Refusal(by="first", reason="not on a Friday", action="p:do") == result.trace.vetoed
    assert recorder.calls == []


def test_partial_decisions_are_laid_over_in_order() -> None:
    second_saw: list[Decision] = []

    def second(decision: Decision) -> dict[str, Any]:
        second_saw.append(decision)
        return {"params": {"from": "second"}}

    first = plugin(id="first", on_decide=lambda: {"params": {"from": "first"}, "risk": "high"})
    result, recorder = run_hooks(first, plugin(id="second", on_decide=second))

    assert recorder.calls == [{"from": "second"}]
    assert result.decision is not None
    assert result.decision.risk == "high"
    assert second_saw[0].params == {"from": "first"}


def test_a_hook_that_raises_is_recorded_and_the_loop_goes_on() -> None:
    hooks = {
        name: (lambda: broken())
        for name in (
            *("on_loop_start", "on_observe", "on_orient", "on_decide"),
            *("on_before_act", "on_after_act", "on_loop_complete"),
        )
    }
    result, recorder = run_hooks(plugin(id="bad", **hooks))

    assert len(recorder.calls) == 1
    assert result.success
    assert {f"bad.{name}" for name in hooks} == {problem.id for problem in result.problems}


@pytest.mark.parametrize(
    "name", ["on_loop_start", "on_observe", "on_orient", "on_decide", "on_before_act"]
)
def test_a_guard_that_raises_blocks_the_action(name: str) -> None:
    guard = plugin(id="guard", **{name: hook(fail_closed=True)(lambda: broken())})
    result, recorder = run_hooks(guard)

    assert recorder.calls == []
    assert result.success
    reason = f"guard guard.{name} failed: RuntimeError: boom"
    if name == "on_before_act":
        assert [reason] == [r.error for r in result.action_results]
    else:
        assert result.trace is not None
        assert result.trace.vetoed is not None
        assert reason == result.trace.vetoed.reason


@pytest.mark.parametrize(
    ("decision", "error"),
    [
        ({"action": "p:do", "rationale": "x", "confidence": float("nan")}, "finite number"),
        ({"action": "p:do", "rationale": "x", "confidence": 1.5}, "less than or equal to 1"),
        ({"action": "p:do", "rationale": "x", "confidence": 1, "risk": "enormous"}, "risk"),
        ({"action": "p:do", "rationale": "x", "confidence": 1, "params": [1]}, "params"),
        ({"action": "p:do", "rationale": "x"}, "confidence"),
        (Decision.model_construct(action="p:do", rationale="x", confidence=7.0), "confidence"),
        ("p:do", "decision"),
        (None, "decision"),
    ],
)
def test_an_invalid_decision_is_not_executed_and_the_result_says_why(
    decision: Any, error: str
) -> None:
    recorder = Recorder()
    result = Lab(agent(chooses(decision), recorder.action())).run()

    assert recorder.calls == []
    assert len(result.action_results) == 1
    assert error.lower() in (result.action_results[0].error or "").lower()
    assert result.success


def test_a_hook_that_makes_the_decision_invalid_stops_the_action() -> None:
    result, recorder = run_hooks(plugin(id="bad", on_decide=lambda: {"confidence": "high"}))

    assert recorder.calls == []
    assert "confidence" in (result.action_results[0].error or "")


def test_the_trace_tells_how_the_decision_came_about() -> None:
    other = choice("p:other")
    result, _ = run_hooks(
        plugin(chooses(choice(), "unused", applicable_when=lambda: False), id="second"),
        plugin(id="third", on_decide=lambda: {"requires_approval": True}),
        decision=choice(alternatives=[other]),
    )

    assert result.trace is not None
    assert result.trace.strategies == ["p:chooses", "second:unused"]
    assert (result.trace.applicable, result.trace.chosen) == (["p:chooses"], "p:chooses")
    assert [(c.plugin, c.fields) for c in result.trace.changes] == [
        ("third", ["requires_approval"])
    ]
    assert result.decision is not None
    assert [other] == result.decision.alternatives
