"""A random part of the cases waits before the action, to learn how many end without it."""

from __future__ import annotations

from typing import Any

import pytest

from autonomy_kit import ACTION, EARNED, Ward
from boyd import Agent, naming
from boyd.errors import ConfigError, StoreUnavailable
from boyd.models import CallRequest, EffectVerdict, Fence, JsonObject, WaitingTrial
from boyd.replay.differences import judge
from boyd.replay.shadow import Shadow
from boyd.runtime.autonomy import case_waits
from boyd.store.holdouts import Wait
from kit import Recorder, overdue, person, plugin


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A list whose last number is the draw of the next case; without any, cases do not wait."""
    values: list[float] = []
    monkeypatch.setattr(case_waits, "uniform", lambda *_: values[-1] if values else 0.9)
    return values


def test_a_case_that_ends_by_itself_is_well_without_the_action(draws: list[float]) -> None:
    ward = Ward()
    draws.append(0.05)
    result = ward.lab.run()

    assert result.gate is not None
    assert result.gate.outcome == "refused"
    assert result.gate.holdout is not None
    assert (result.gate.holdout.draw, result.gate.holdout.share) == (0.05, 0.1)
    assert "waits: held out to learn whether it heals by itself until" in result.gate.reason
    assert ward.pending is None
    [hold] = ward.lab.store.holds.all()
    assert (hold.kind, hold.reason) == ("held out", result.gate.reason)

    ward.verdict = True
    ward.look()
    assert ward.lab.store.holds.all() == []
    trial = ward.record.trial
    assert (trial.cases, trial.waited, trial.well_without, trial.needed) == (0, 1, 1, 0)
    assert ward.recorder.calls == []


def test_a_case_that_does_not_end_by_itself_goes_on(draws: list[float]) -> None:
    ward = Ward()
    draws.append(0.05)
    ward.lab.run()
    ward.look()
    assert ward.pending is None
    ward.look(final=True)
    ward.lab.deliver()

    # The next iteration, which the end of the wait has started, asks a person.
    assert ward.pending is not None
    assert ward.record.trial.needed == 0
    ward.approve()
    ward.verdict = True
    ward.look()
    assert ward.record.trial.needed == 1
    assert (ward.record.trial.cases, ward.record.trial.well_after) == (0, 0)
    assert len(ward.recorder.calls) == 1


def test_the_time_that_people_take_counts_from_the_draw_or_the_end_of_the_wait(
    draws: list[float],
) -> None:
    ward, case = Ward(), f"boyd:{{test}}:case:{ACTION}:web-1"
    for draw, seconds in ((0.5, 30), (0.05, 60)):
        ward.sick, ward.verdict = True, False
        draws.append(draw)
        ward.lab.run()
        ward.look(final=True)
        ward.lab.deliver()
        ward.lab.client.hincrby(case, "asked", -1000 * seconds)
        ward.approve()
        ward.verdict = True
        ward.look()
        ward.sick = False
        ward.lab.run()

    trial = ward.record.trial
    assert [round(delay, -4) for delay in trial.delays] == [30_000]
    assert [round(delay, -4) for delay in trial.delays_after_wait] == [60_000]


def test_a_record_says_that_people_answer_sooner_after_a_wait() -> None:
    counts = {"cases": 40, "well_after": 40, "waited": 6, "needed": 6}
    alike = WaitingTrial(**counts, delays=[5000.0] * 40, delays_after_wait=[5000.0] * 6)
    sooner = WaitingTrial(**counts, delays=[5000.0] * 40, delays_after_wait=[100.0] * 6)

    assert alike.uplift(0.005) > 0
    assert alike.words().endswith("percentage points")
    assert sooner.uplift(0.005) == 0
    assert sooner.words() == (
        "40 of 40 well after it; 0 of 6 well without it; people answer sooner after a wait, so that"
        " the two cannot be compared; nothing shows that it is better than waiting"
    )


def test_a_case_is_drawn_once_while_its_symptoms_last(draws: list[float]) -> None:
    ward = Ward()
    ward.lab.run()
    draws.append(0.05)
    ward.lab.run()
    assert ward.pending is not None
    assert ward.record.trial.cases == 1

    ward.sick = False
    ward.lab.run()
    ward.sick = True
    ward.lab.run()
    assert (ward.record.trial.cases, ward.record.trial.waited) == (1, 1)


def test_a_changed_severity_is_no_new_case(draws: list[float]) -> None:
    ward = Ward()
    ward.lab.run()
    ward.severity = "medium"
    draws.append(0.05)
    ward.lab.run()

    assert (ward.record.trial.cases, ward.record.trial.waited) == (1, 0)


def test_an_effective_execution_counts_for_its_case(draws: list[float]) -> None:
    ward = Ward()
    result = ward.lab.run()
    assert result.gate is not None
    assert result.gate.holdout is not None
    assert result.gate.holdout.until is None
    ward.approve()
    ward.verdict = True
    ward.look()

    assert (ward.record.trial.cases, ward.record.trial.well_after) == (1, 1)


def test_a_wait_that_a_person_ends_shows_nothing(draws: list[float]) -> None:
    ward = Ward()
    draws.append(0.05)
    ward.lab.run()
    assert ward.lab.store.holds.lift(ACTION, "web-1", person("ann")) == "lifted"
    ward.lab.run()
    ward.approve()
    ward.verdict = True
    ward.look()

    trial = ward.record.trial
    assert (trial.waited, trial.well_without, trial.needed) == (1, 0, 0)
    assert "1 could not be told" in trial.words(0.05)


def test_a_check_that_cannot_tell_leaves_the_wait_unclear(draws: list[float]) -> None:
    ward = Ward()
    draws.append(0.05)
    ward.verdict = EffectVerdict(verdict="cannot tell")
    ward.lab.run()
    ward.look()
    ward.lab.deliver()
    ward.approve()
    ward.verdict = True
    ward.look()

    assert (ward.record.trial.needed, ward.record.trial.well_without) == (0, 0)


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

    assert ward.pending is not None


def test_a_case_with_a_run_does_not_wait(draws: list[float]) -> None:
    ward = Ward()
    draws.append(0.05)
    ward.lab.submit("look at web-1")
    ward.lab.deliver()

    assert ward.pending is not None


@pytest.mark.parametrize("drawn", [0.05, 0.5])
def test_a_decide_phase_that_runs_again_keeps_the_draw(
    drawn: float, draws: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    ward = Ward()
    draws.append(drawn)
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

    trial = ward.record.trial
    assert (trial.cases, trial.waited) == ((0, 1) if drawn < 0.1 else (1, 0))
    assert (ward.pending is None) == (drawn < 0.1)


def test_a_look_whose_worker_is_lost_is_repeated(draws: list[float]) -> None:
    ward = Ward()
    draws.append(0.05)
    ward.lab.run()
    name = ward.wait
    ward.lab.client.hset(f"boyd:{{test}}:{name}", "executionNotBefore", 1)
    assert ward.lab.store.jobs.enter(name, 1, "dead/1")
    ward.verdict = True
    overdue(ward.lab, name)

    assert ward.record.trial.well_without == 1
    assert ward.lab.store.holds.all() == []
    assert ward.lab.client.exists(f"boyd:{{test}}:{name}") == 0


def test_the_end_of_a_wait_counts_once_however_often_it_is_recorded(draws: list[float]) -> None:
    ward = Ward()
    draws.append(0.05)
    ward.lab.run()
    name = ward.wait
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
    ward = Ward()
    draws.append(0.05)
    ward.lab.run()
    params: JsonObject = {"host": "web-1", "by": 1}
    call = CallRequest(kind="execute", action=ACTION, params=params, actor=person("bob"))
    ward.lab.launcher.call(call, None)
    ward.lab.deliver()
    ward.approve()
    ward.verdict = True
    ward.look()

    assert len(ward.recorder.calls) == 1
    assert ward.record.trial.well_without == 0


def test_a_replay_takes_the_draw_as_it_was(draws: list[float]) -> None:
    ward = Ward()
    draws.append(0.05)
    held_out = ward.lab.run()
    still = ward.lab.run()
    shadow = Shadow(ward.lab.agent)

    assert judge(shadow, held_out).differences == []
    assert judge(shadow, still).differences == []


def test_draws_are_uniform_and_depend_on_names_only() -> None:
    values = [case_waits.uniform("a", f"loop:{number}", ACTION) for number in range(2000)]

    assert values[7] == case_waits.uniform("a", "loop:7", ACTION)
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
