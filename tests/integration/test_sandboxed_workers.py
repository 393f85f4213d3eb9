"""Real workers execute actions in real sandboxes."""

from __future__ import annotations

import signal
import subprocess
from typing import Any

import pytest

from boyd.models import ActionResult, CallRequest
from harness import Deployment, wait_until
from kit import person

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.long]

MODULE = "agents.sandboxed:agent"


def call(deployment: Deployment, action: str, **params: Any) -> str:
    """Ask for an action; the id of the call."""
    request = CallRequest(
        kind="execute", action=f"boxed:{action}", params=params, actor=person("ann")
    )
    return deployment.launcher("sandboxed").call(request, None)


def result(deployment: Deployment, id: str) -> ActionResult:
    """The result of a call, once it has ended."""
    calls = deployment.agent("sandboxed").calls

    def final_result() -> ActionResult | None:
        record = calls.get(id)
        return record.result if record else None

    outcome = wait_until(final_result, 60)
    assert isinstance(outcome, ActionResult)
    return outcome


def sleepers() -> bool:
    """The living programs of the action."""
    left = ["pgrep", "-r", "DRST", "-f", "^sleep 4321"]
    return subprocess.run(left, check=False, capture_output=True).returncode == 0


def test_sandboxed_processes_die_with_their_worker(deployment: Deployment) -> None:
    deployment.worker("w0", MODULE)
    call(deployment, "sleep", path=str(deployment.effects_file))
    wait_until(lambda: deployment.effects() == ["asleep"], 60)
    assert sleepers()
    deployment.kill("w0", signal.SIGKILL)

    wait_until(lambda: not sleepers(), 30)


def test_violations_are_recorded_and_suspend_the_action(deployment: Deployment) -> None:
    deployment.worker("w0", MODULE)
    for _ in range(2):
        outcome = result(deployment, call(deployment, "fetch", url="http://192.0.2.7/"))
        assert outcome.violation is not None
        assert outcome.violation.limit == "network"
        assert "192.0.2.7:80" in outcome.violation.detail

    refused = result(deployment, call(deployment, "fetch", url="http://192.0.2.7/"))
    assert refused.prevented == "held"
    [hold] = deployment.agent("sandboxed").holds.all()
    assert (hold.action, hold.because) == ("boxed:fetch", "violations")


def test_an_action_in_a_sandbox_has_no_state(deployment: Deployment) -> None:
    deployment.worker("w0", MODULE)
    outcome = result(deployment, call(deployment, "remember"))

    assert not outcome.success
    assert "an action in a sandbox has no state" in (outcome.error or "")
