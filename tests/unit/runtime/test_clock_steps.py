"""The clock of Redis steps back: what was planned before does not wait until it catches up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from boyd import Action, Procedure, ProcedureStep, naming
from boyd.models.effect import EffectChecks
from boyd.store import Timing, timing
from boyd.testing import Lab
from kit import agent, call_action, choice, chooses, overdue
from virtual_time import VirtualTime

HOUR = 3_600_000
#: Steps of the clock, in ms: one that no deadline is ahead, and one within which some are.
STEPS = pytest.mark.parametrize("step", [HOUR, 300_000])


class Past:
    """An agent that acts always, on a clock that can be set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, verify: bool = False) -> None:
        self.clock = VirtualTime(monkeypatch)
        self.during: Callable[[], object] = lambda: None
        self.looks = 0
        checks = {"verify": self._verify, "checks": EffectChecks(every=60)} if verify else {}
        do = Action(name="do", execute=self._execute, **checks)
        step = ProcedureStep(id="only", action="p:do")
        procedure = Procedure(name="service", risk="low", steps=[step])
        self.lab = Lab(agent(chooses(choice()), do, procedure))

    def _execute(self) -> str:
        self.during()
        return "done"

    def _verify(self, result: Any) -> str:
        self.looks += 1
        return "effective"

    def pass_time(self, seconds: float) -> None:
        """Let so many seconds pass, of which a sweeper uses each."""
        for _ in range(int(seconds)):
            self.clock.now += 1000
            self.lab.sweeper.sweep()


@STEPS
def test_a_message_lost_before_the_step_is_sent_again_as_always(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = Past(monkeypatch)
    past.lab.launcher.trigger("test")
    past.lab.dispatcher.hints.clear()
    past.pass_time(1)
    past.clock.now -= step
    past.pass_time(2 * Timing.lease)

    assert list(past.lab.dispatcher.hints) == [("start", 1, 1)]


@STEPS
def test_a_verification_waits_no_longer_than_its_wait(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = Past(monkeypatch, verify=True)
    past.lab.run()
    past.pass_time(1)
    past.clock.now -= step
    past.pass_time(90)
    past.lab.deliver()

    assert past.looks == 1


@STEPS
def test_a_worker_lost_before_the_step_holds_its_iteration_for_a_lease(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = Past(monkeypatch)
    phases: list[str] = []

    def lose_worker() -> None:
        past.pass_time(1)
        past.clock.now -= step
        past.pass_time(5 * Timing.lease)
        phases.append(past.lab.store.loop_control.status().phase)

    past.during = lose_worker
    past.lab.launcher.trigger("test")
    past.lab.deliver()

    assert phases == ["complete"]


@STEPS
def test_a_procedure_in_flight_ends_after_the_step(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "RESYNC", -1.0)
    past = Past(monkeypatch)

    def step_back() -> None:
        past.clock.now -= step

    past.during = step_back
    call = call_action(past.lab, action="p:service")
    procedure = naming.procedure(naming.call(call.id))
    record = None
    for _ in range(5):
        overdue(past.lab, procedure)
        record = past.lab.store.procedures.get(naming.call(call.id))

    assert record is not None
    assert record.state == "succeeded"
    result = past.lab.store.executions.result(naming.call(call.id))
    assert result is not None
    assert (result.success, result.duration) == (True, 0.0)
