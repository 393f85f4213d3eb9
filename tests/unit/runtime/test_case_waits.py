"""A random part of the cases waits before the action, to learn how many end without it."""

from __future__ import annotations

from typing import Any

import pytest

from autonomy_kit import ACTION, EARNED, Ward
from boyd import Agent, naming
from boyd.errors import ConfigError, StoreUnavailable
from boyd.models import CallRequest, EffectVerdict, Fence, JsonObject
from boyd.replay.differences import judge
from boyd.replay.shadow import Shadow
from boyd.runtime.autonomy import case_draws
from boyd.store.holdouts import Wait
from boyd_cli.views.approval_view import progress
from kit import Recorder, overdue, person, plugin


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A list whose last number is the draw of the next case; without any, cases do not wait."""
    values: list[float] = []
    monkeypatch.setattr(case_draws, "uniform", lambda *_: values[-1] if values else 0.9)
    return values


@pytest.fixture
def waiting(draws: list[float]) -> Ward:
    """An agent with an action that a person has approved, and whose case waits."""
    ward = Ward()
    draws.append(0.05)
    ward.lab.run()
    ward.approve()
    return ward


def alone(draws: list[float], draw: float) -> Ward:
    """An agent whose action runs alone since its first case has ended; the next one's *draw*."""
    ward = Ward()
    ward.lab.run()
    ward.approve()
    ward.verdict = True
    ward.look()
    ward.let_run_alone()
    ward.sick = False
    ward.lab.run()
    ward.sick, ward.verdict = True, False
    draws.append(draw)
    return ward


def test_an_approved_case_that_ends_by_itself_is_well_without_the_action(waiting: Ward) -> None:
    hold = waiting.wait_hold
    assert hold is not None
    assert "waits: held out to learn whether it heals by itself until" in hold.reason
    execution = waiting.item.execution
    assert execution is not None
    assert (execution.state, execution.held_until) == ("queued", hold.until)
    until = f"held out until {hold.until:%H:%M} UTC"
    assert progress(waiting.item) == f"{until} to learn whether it heals by itself"

    waiting.verdict = True
    waiting.look()
    assert waiting.lab.store.holds.all() == []
    assert waiting.trial == (0, 1, 1, 0)
    assert waiting.recorder.calls == []
    execution = waiting.item.execution
    assert execution is not None
    assert (execution.state, execution.held_until) == ("unneeded", None)


def test_an_approved_case_that_does_not_end_by_itself_is_acted_on(waiting: Ward) -> None:
    waiting.look()
    assert waiting.recorder.calls == []
    waiting.look(final=True)
    assert len(waiting.recorder.calls) == 1
    assert waiting.trial == (0, 1, 0, 0)

    waiting.verdict = True
    waiting.look()
    assert waiting.trial == (0, 1, 0, 1)
    assert waiting.record.trial.well_after == 0


def test_nothing_is_drawn_before_people_have_answered(draws: list[float]) -> None:
    ward = Ward()
    draws.append(0.05)
    result = ward.lab.run()

    assert result.gate is not None
    assert result.gate.holdout is None
    assert ward.lab.store.track_records.all([ACTION]) == []
    assert ward.lab.store.holds.all() == []


def test_nothing_else_is_asked_while_an_approved_case_waits(waiting: Ward) -> None:
    result = waiting.lab.run()

    assert result.gate is None or result.gate.outcome != "asked"
    assert waiting.pending is None
    assert waiting.recorder.calls == []


def test_a_claim_that_comes_again_waits_for_the_same_time(
    waiting: Ward, draws: list[float]
) -> None:
    until = waiting.wait_hold and waiting.wait_hold.until
    draws.append(0.9)
    overdue(waiting.lab, naming.approval(waiting.item.id))

    assert waiting.wait_hold is not None
    assert waiting.wait_hold.until == until
    assert waiting.recorder.calls == []
    assert waiting.trial == (0, 1, 0, 0)


def test_an_order_goes_on_although_nobody_looks_during_its_wait(waiting: Ward) -> None:
    client, case = waiting.lab.client, f"boyd:{{test}}:case:{ACTION}:web-1"
    client.delete(f"boyd:{{test}}:{waiting.wait}")
    client.hset(case, "until", 1)
    overdue(waiting.lab, naming.approval(waiting.item.id))

    assert len(waiting.recorder.calls) == 1
    # Nobody knows how the wait has ended.
    waiting.verdict = True
    waiting.look()
    assert waiting.trial == (0, 1, 0, 0)


def test_a_case_waits_as_long_as_the_longest_effective_execution_took_besides(
    draws: list[float],
) -> None:
    ward = Ward()
    ward.lab.run()
    ward.approve()
    [name] = [job for job in ward.lab.client.zrange("boyd:{test}:due", 0, -1) if "verify:" in job]
    entry = "boyd:{test}:execution:" + name.removeprefix("verify:")
    ward.lab.client.hincrby(entry, "startedAt", -90_000)
    ward.verdict = True
    ward.look()
    ward.sick = False
    ward.lab.run()
    ward.sick, ward.verdict = True, False
    draws.append(0.05)
    ward.lab.run()
    ward.approve()

    wait = ward.lab.client.hgetall(f"boyd:{{test}}:{ward.wait}")
    took = ward.record.trial.took
    assert 90_000 <= took < 150_000
    plan = ward.lab.agent.verification(ACTION)
    assert plan is not None
    assert float(wait["until"]) - float(wait["startedAt"]) == 1000 * plan.within + took


def test_a_case_of_what_runs_alone_waits_before_the_agent_decides_again(
    draws: list[float],
) -> None:
    ward = alone(draws, 0.05)
    result = ward.lab.run()

    assert result.gate is not None
    assert result.gate.outcome == "refused"
    assert result.gate.holdout is not None
    assert (result.gate.holdout.draw, result.gate.holdout.share) == (0.05, 0.1)
    [hold] = ward.lab.store.holds.all()
    assert (hold.kind, hold.reason) == ("held out", result.gate.reason)
    assert len(ward.recorder.calls) == 1

    ward.look(final=True)
    # The next iteration, which the end of the wait has started, acts.
    assert len(ward.recorder.calls) == 2
    ward.verdict = True
    ward.look()
    assert ward.trial == (1, 1, 0, 1)


def test_a_case_is_drawn_once_while_its_symptoms_last(draws: list[float]) -> None:
    ward = alone(draws, 0.5)
    ward.lab.run()
    assert ward.trial == (2, 0, 0, 0)
    draws.append(0.05)
    ward.severity = "medium"
    ward.lab.run()
    assert ward.trial == (2, 0, 0, 0)

    ward.look(final=True)
    ward.sick = False
    ward.lab.run()
    ward.sick = True
    ward.lab.run()
    assert ward.trial == (2, 1, 0, 0)


def test_the_next_execution_of_a_case_is_not_drawn_again(draws: list[float]) -> None:
    ward = Ward()
    ward.lab.run()
    ward.approve()
    ward.look(final=True)
    ward.lab.store.holds.lift(ACTION, "web-1", person("ann"))
    draws.append(0.05)
    ward.lab.run()
    ward.approve()

    assert len(ward.recorder.calls) == 2
    assert ward.trial == (1, 0, 0, 0)


def test_an_effective_execution_counts_for_its_case(draws: list[float]) -> None:
    ward = Ward()
    ward.lab.run()
    ward.approve()
    ward.verdict = True
    ward.look()

    assert (ward.record.trial.cases, ward.record.trial.well_after) == (1, 1)


def test_a_wait_that_a_person_ends_shows_nothing(waiting: Ward) -> None:
    assert waiting.lab.store.holds.lift(ACTION, "web-1", person("ann")) == "lifted"
    waiting.lab.sweeper.sweep()
    waiting.lab.deliver()
    assert len(waiting.recorder.calls) == 1
    waiting.verdict = True
    waiting.look()

    assert waiting.trial == (0, 1, 0, 0)
    assert "1 could not be told" in waiting.record.trial.words(0.05)


def test_a_check_that_cannot_tell_leaves_the_wait_unclear(waiting: Ward) -> None:
    waiting.verdict = EffectVerdict(verdict="cannot tell")
    waiting.look(final=True)
    assert len(waiting.recorder.calls) == 1
    waiting.verdict = True
    waiting.look()

    assert waiting.trial == (0, 1, 0, 0)


@pytest.mark.parametrize(
    ("rule", "settings", "severity"),
    [
        ({**EARNED, "holdout": 0, "require_uplift": False}, {}, "high"),
        ({**EARNED, "require_uplift": False}, {"risk": "critical"}, "high"),
        (EARNED, {}, "critical"),
    ],
)
def test_nothing_critical_waits_nor_what_is_switched_off(
    rule: JsonObject, settings: dict[str, Any], severity: str, draws: list[float]
) -> None:
    ward = Ward(rule, **settings)
    draws.append(0.0)
    ward.severity = severity
    ward.lab.run()
    ward.approve()

    assert len(ward.recorder.calls) == 1


def test_a_case_with_a_run_does_not_wait(draws: list[float]) -> None:
    ward = Ward()
    draws.append(0.05)
    ward.lab.submit("look at web-1")
    ward.lab.deliver()
    ward.approve()

    assert len(ward.recorder.calls) == 1


@pytest.mark.parametrize("drawn", [0.05, 0.5])
def test_a_decide_phase_that_runs_again_keeps_the_draw(
    drawn: float, draws: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    ward = alone(draws, drawn)
    leave = ward.lab.store.iterations.leave

    def lose_worker(*_: Any) -> bool:
        raise StoreUnavailable("the worker is gone")

    monkeypatch.setattr(ward.lab.store.iterations, "leave", lose_worker)
    ward.lab.launcher.trigger("test")
    with pytest.raises(StoreUnavailable):
        ward.lab.deliver()
    monkeypatch.setattr(ward.lab.store.iterations, "leave", leave)
    draws.append(0.5 if drawn < 0.1 else 0.05)
    overdue(ward.lab, "phase")

    assert ward.trial[:2] == ((1, 1) if drawn < 0.1 else (2, 0))
    assert len(ward.recorder.calls) == (1 if drawn < 0.1 else 2)


def test_a_look_whose_worker_is_lost_is_repeated(waiting: Ward) -> None:
    name = waiting.wait
    waiting.lab.client.hset(f"boyd:{{test}}:{name}", "executionNotBefore", 1)
    assert waiting.lab.store.jobs.enter(name, 1, "dead/1")
    waiting.verdict = True
    overdue(waiting.lab, name)

    assert waiting.record.trial.well_without == 1
    assert waiting.wait_hold is None
    assert waiting.lab.client.exists(f"boyd:{{test}}:{name}") == 0


def test_the_end_of_a_wait_counts_once_however_often_it_is_recorded(waiting: Ward) -> None:
    ward, name = waiting, waiting.wait
    ward.lab.client.hset(f"boyd:{{test}}:{name}", "executionNotBefore", 1)
    fields = ward.lab.store.jobs.enter(name, 1, "w/1")
    assert fields is not None
    wait, fence = Wait.of(naming.parts(name)[1], fields), Fence(name, 1, "w/1")
    for _ in range(3):
        assert ward.lab.store.holdouts.end(wait, fence, "well", "")

    assert ward.record.trial.well_without == 1
    assert not ward.lab.store.holdouts.end(wait, Fence(name, 2, "w/2"), "well", "")


def test_a_case_acted_on_by_hand_meanwhile_has_not_ended_by_itself(
    draws: list[float],
) -> None:
    ward = alone(draws, 0.05)
    ward.lab.run()
    params: JsonObject = {"host": "web-1", "by": 1}
    call = CallRequest(kind="execute", action=ACTION, params=params, actor=person("bob"))
    ward.lab.launcher.call(call, None)
    ward.lab.deliver()
    ward.approve()
    ward.verdict = True
    ward.look()

    assert len(ward.recorder.calls) == 2
    assert ward.record.trial.well_without == 0


def test_a_replay_takes_the_draw_as_it_was(draws: list[float]) -> None:
    ward = alone(draws, 0.05)
    held_out = ward.lab.run()
    assert held_out.gate is not None
    assert held_out.gate.outcome == "refused"
    still = ward.lab.run()
    shadow = Shadow(ward.lab.agent)

    assert judge(shadow, held_out).differences == []
    assert judge(shadow, still).differences == []


def test_draws_are_uniform_and_depend_on_names_only() -> None:
    values = [case_draws.uniform("a", f"loop:{number}", ACTION) for number in range(2000)]

    assert values[7] == case_draws.uniform("a", "loop:7", ACTION)
    assert abs(sum(value < 0.1 for value in values) / 2000 - 0.1) < 0.02


@pytest.mark.parametrize(
    ("rule", "settings", "reason"),
    [
        ({**EARNED, "holdout": 0}, {}, "require_uplift = false"),
        (EARNED, {"risk": "critical"}, "no case ever waits for it"),
        (EARNED, {"verify": lambda result: True}, "its `verify` takes the result"),
    ],
)
def test_an_uplift_that_can_never_be_shown_is_refused(
    rule: JsonObject, settings: dict[str, Any], reason: str
) -> None:
    own = plugin(Recorder().action(**{"verify": lambda: True, **settings}))
    with pytest.raises(ConfigError, match=reason):
        Agent("test", plugins=[own], autonomy={ACTION: rule})
