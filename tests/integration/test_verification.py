"""Real workers verify and compensate, also when they are killed at it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from boyd.models import EffectVerification
from harness import Deployment, wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

MODULE = "agents.verified:agent"


@pytest.fixture
def deployment(deployment: Deployment) -> Deployment:
    """A deployment whose processes look often for what is due."""
    deployment.environment["BOYD_TIMING__SWEEP"] = "0.2"
    return deployment


def waiting_at(deployment: Deployment, step: str) -> Path:
    """The file that lets a step wait."""
    path = deployment.effects_file.with_name(f"{deployment.effects_file.name}.{step}")
    path.touch()
    return path


def act(deployment: Deployment) -> str:
    """Have the agent act; the execution."""
    trigger = deployment.launcher("verified").trigger("test")
    deployment.ended("verified", trigger.iteration)
    return deployment.agent("verified").executions.of_iteration(trigger.iteration)


def verification(deployment: Deployment, execution: str) -> EffectVerification:
    """The verification of an execution."""
    entry = deployment.agent("verified").executions.get(execution)
    assert entry is not None
    assert entry.verification is not None
    return entry.verification


def is_compensated(deployment: Deployment, execution: str) -> bool:
    """Check that the harm was compensated."""
    return verification(deployment, execution).compensation is not None


def test_harm_is_seen_and_undone_by_workers(deployment: Deployment) -> None:
    deployment.worker("w0", MODULE)
    execution = act(deployment)
    wait_until(lambda: is_compensated(deployment, execution))

    verdict = verification(deployment, execution)
    assert (verdict.verdict, verdict.evidence) == ("worse", "it is broken")
    assert verdict.compensation is not None
    assert verdict.compensation.state == "rolled back"
    wait_until(lambda: deployment.effects() == ["break", "look", "mend", "look"])
    held = deployment.launcher("verified").trigger("test")
    result = deployment.ended("verified", held.iteration)
    assert result.decision is not None
    assert result.decision.is_no_op
    assert deployment.effects() == ["break", "look", "mend", "look"]


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_another_worker_verifies_when_one_is_lost_at_a_check(
    deployment: Deployment, number: int
) -> None:
    gate = waiting_at(deployment, "look")
    deployment.worker("w0", MODULE)
    execution = act(deployment)
    wait_until(lambda: deployment.effects() == ["break", "look"])
    deployment.kill("w0", number)
    gate.unlink()
    deployment.worker("w1", MODULE)

    wait_until(lambda: is_compensated(deployment, execution))
    wait_until(lambda: deployment.effects() == ["break", "look", "look", "mend", "look"])


def test_a_rollback_whose_worker_was_killed_is_not_repeated_and_the_action_is_suspended(
    deployment: Deployment,
) -> None:
    gate = waiting_at(deployment, "mend")
    deployment.worker("w0", MODULE)
    execution = act(deployment)
    wait_until(lambda: deployment.effects() == ["break", "look", "mend"])
    deployment.kill("w0")
    gate.unlink()
    deployment.worker("w1", MODULE)

    wait_until(lambda: is_compensated(deployment, execution))
    compensation = verification(deployment, execution).compensation
    assert compensation is not None
    assert compensation.state == "failed"
    assert "was lost while executing it" in compensation.detail
    assert deployment.effects() == ["break", "look", "mend"]
    [hold] = deployment.agent("verified").holds.all()
    assert hold.kind == "suspended"


def test_an_action_whose_worker_was_killed_is_verified(deployment: Deployment) -> None:
    gate = waiting_at(deployment, "break")
    deployment.worker("w0", MODULE)
    trigger = deployment.launcher("verified").trigger("test")
    wait_until(lambda: deployment.effects() == ["break"])
    deployment.kill("w0")
    gate.unlink()
    deployment.worker("w1", MODULE)
    result = deployment.ended("verified", trigger.iteration)
    execution = deployment.agent("verified").executions.of_iteration(trigger.iteration)

    assert [action_result.state for action_result in result.action_results] == ["unknown"]
    wait_until(lambda: is_compensated(deployment, execution))
    verdict = verification(deployment, execution)
    assert verdict.verdict == "worse"
    assert verdict.compensation is not None
    # Nobody knows what a rollback would have to undo.
    assert verdict.compensation.state == "failed"
    assert "Only a successful execution can be rolled back" in verdict.compensation.detail
