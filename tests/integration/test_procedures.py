"""Procedures on real workers that are killed: each step happens at most once, and people know."""

from __future__ import annotations

from pathlib import Path

import pytest

from boyd.models import Actor, CallRequest, ProcedureRecord
from boyd.store.procedures import ResumeMode
from harness import Deployment, wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

MODULE = "agents.stepped:agent"
ANN = Actor(principal="ann", person=True)


@pytest.fixture
def deployment(deployment: Deployment) -> Deployment:
    """A deployment whose processes look often for what is due."""
    deployment.environment["BOYD_TIMING__SWEEP"] = "0.2"
    return deployment


class Stepping:
    """A deployment whose procedure waits at points."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.workers = 0
        self.store = deployment.agent("stepped").procedures
        self.id = ""

    def work(self) -> None:
        """Start another worker."""
        self.workers += 1
        self.deployment.worker(f"w{self.workers}", MODULE)

    def start(self) -> None:
        """Ask for the procedure."""
        request = CallRequest(kind="execute", action="stepped:all", actor=ANN)
        launcher = self.deployment.launcher("stepped")
        self.id = f"call:{launcher.call(request, None)}"

    def wait_at(self, point: str) -> None:
        """Have it wait at a point."""
        self.file(point).touch()

    def wait_until_at(self, point: str) -> None:
        """Wait until it is at that point."""
        file = self.file("reached")
        wait_until(lambda: file.exists() and file.read_text() == point, 40)

    def kill_at(self, point: str) -> None:
        """Kill the worker when it is at that point, and let another one go on."""
        self.wait_until_at(point)
        self.deployment.kill(f"w{self.workers}")
        self.file("reached").unlink()
        self.file(point).unlink()
        self.work()

    def wait_for(self, *states: str) -> ProcedureRecord:
        """The procedure, once it is in one of those states."""

        def record_in_states() -> ProcedureRecord | None:
            record = self.store.get(self.id)
            return record if record and record.state in states else None

        record: ProcedureRecord = wait_until(record_in_states, 60)
        return record

    def file(self, name: str) -> Path:
        """A file that the agent looks at."""
        effects = self.deployment.effects_file
        return effects.with_name(f"{effects.name}.{name}")


@pytest.fixture
def stepping(deployment: Deployment) -> Stepping:
    """A deployment with a worker."""
    workers = Stepping(deployment)
    workers.work()
    return workers


def compensation_states(record: ProcedureRecord) -> list[str | None]:
    """The state of each step's compensation."""
    return [step.compensation.state if step.compensation else None for step in record.progress]


@pytest.mark.long
def test_workers_killed_before_and_after_each_step_repeat_none(stepping: Stepping) -> None:
    points = [f"{when}-{step}" for step in ("one", "two", "three") for when in ("before", "after")]
    for point in points:
        stepping.wait_at(point)
    stepping.start()
    for point in points:
        stepping.kill_at(point)

    record = stepping.wait_for("succeeded", "failed", "stopped")
    assert record.state == "succeeded", record.reason
    assert stepping.deployment.effects() == ["one", "two", "three"]


@pytest.mark.long
@pytest.mark.parametrize("answer", ["go on", "repeat", "cancel"])
def test_a_person_decides_when_the_outcome_of_a_step_was_lost(
    stepping: Stepping, answer: str
) -> None:
    stepping.wait_at("in-two")
    stepping.start()
    stepping.kill_at("in-two")
    record = stepping.wait_for("stopped")
    assert "was lost while executing it" in (record.reason or "")
    assert record.progress[1].state == "unknown"
    assert stepping.deployment.effects() == ["one", "two"]

    if answer == "cancel":
        assert stepping.store.cancel(record.id, ANN) == "ok"
        record = stepping.wait_for("cancelled")
        # Only what certainly took effect is undone.
        assert stepping.deployment.effects() == ["one", "two", "undo-one"]
        assert compensation_states(record) == ["done", None, None]
        return
    mode: ResumeMode = "repeat" if answer == "repeat" else "go on"
    assert stepping.store.resume(record.id, mode, ANN) == "ok"
    assert stepping.wait_for("succeeded", "failed").state == "succeeded"
    again = ["two"] if answer == "repeat" else []
    assert stepping.deployment.effects() == ["one", "two", *again, "three"]


@pytest.mark.long
def test_workers_killed_while_it_goes_back_undo_each_step_once(stepping: Stepping) -> None:
    stepping.file("broken").touch()
    stepping.wait_at("after-three")
    stepping.start()
    stepping.wait_until_at("after-three")
    # The same points again, now of the rollbacks.
    points = ["after-three", "before-two", "after-two", "before-one", "after-one"]
    for point in points[1:]:
        stepping.wait_at(point)
    for point in points:
        stepping.kill_at(point)
    record = stepping.wait_for("failed", "stopped")

    assert record.state == "failed"
    assert stepping.deployment.effects() == ["one", "two", "three", "undo-two", "undo-one"]
    assert compensation_states(record) == ["done", "done", None]


def test_a_compensation_whose_outcome_was_lost_waits_for_a_person(stepping: Stepping) -> None:
    stepping.file("broken").touch()
    stepping.wait_at("in-undo-two")
    stepping.start()
    stepping.kill_at("in-undo-two")
    record = stepping.wait_for("stopped")

    assert compensation_states(record) == [None, "unknown", None]
    assert stepping.store.resume(record.id, "go on", ANN) == "ok"
    record = stepping.wait_for("failed")
    assert compensation_states(record) == ["done", "left", None]
    assert stepping.deployment.effects() == ["one", "two", "three", "undo-two", "undo-one"]
