"""Records of iterations that lost their workers, exported over the API and judged by others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import requests
from click.testing import CliRunner

from agents.lone import ALL
from boyd.models import Actor
from boyd_cli import boyd
from harness import Deployment, wait_until

pytestmark = pytest.mark.real

AGENTS = tuple(part for name in ALL for part in ("--agent", f"agents.lone:{name}"))
REST = "loop,observe,host,callback,think"
VALIDATE = Path(sys.executable).with_name("testimony-validate")


class Deposition:
    """A deployment with an API, and the command line of an auditor."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        deployment.start("rest", "worker", *AGENTS, "-Q", REST)
        deployment.start("act", "worker", *AGENTS, "-Q", "act")
        self.url = deployment.api("api")
        key = deployment.key("ann", "admin")["Authorization"].removeprefix("Bearer ")
        self.known = {
            "BOYD_URL": self.url,
            "BOYD_API_KEY": key,
            "BOYD_STATE_DIR": str(deployment.folder),
        }

    def restart_act(self) -> None:
        """Kill the workers for actions, and start others."""
        self.deployment.kill("act")
        self.deployment.start("act", "worker", *AGENTS, "-Q", "act")

    def file(self, agent: str, iteration: int) -> Path:
        """The exported record of an iteration."""
        path = self.deployment.folder / f"{agent}-{iteration}.jsonl"
        asked = ["history", str(iteration), "--agent", agent, "--testimony", str(path)]
        said = CliRunner().invoke(boyd, asked, env=self.known)
        assert said.exit_code == 0, said.output
        return path


def judged(file: Path) -> int:
    """The exit status of the validator."""
    command = [str(VALIDATE), str(file), "--require", "TR-4"]
    return subprocess.run(command, check=False, capture_output=True).returncode


def decision(file: Path) -> dict[str, Any]:
    lines = map(json.loads, file.read_text("utf-8").splitlines())
    [found] = [entry for entry in lines if entry["type"] == "decision"]
    return dict(found)


@pytest.mark.long
def test_an_action_whose_worker_was_killed_is_recorded_as_tried_and_not_as_done(
    deployment: Deployment,
) -> None:
    made = Deposition(deployment)
    hold = Path(f"{deployment.effects_file}.hold")
    hold.touch()
    begun = deployment.launcher("lone-act").trigger("test").iteration
    wait_until(lambda: any(line.startswith("act:") for line in deployment.effects()))
    made.restart_act()
    hold.unlink()
    deployment.ended("lone-act", begun)
    again = deployment.launcher("lone-act").trigger("test").iteration
    deployment.ended("lone-act", again)
    lost, done = made.file("lone-act", begun), made.file("lone-act", again)

    assert judged(lost) == judged(done) == 0
    assert (decision(lost)["executed"], decision(lost)["outcome"]) == (False, "unconfirmed")
    assert (decision(done)["executed"], decision(done)["outcome"]) == (True, "unconfirmed")
    lost.write_text(lost.read_text("utf-8").replace('"executed": false', '"executed": true'))
    assert judged(lost) == 1


@pytest.mark.long
def test_an_approved_action_names_its_approver_also_when_its_first_worker_was_killed(
    deployment: Deployment,
) -> None:
    made = Deposition(deployment)
    begun = deployment.launcher("lone-asks").trigger("test").iteration
    [result] = deployment.ended("lone-asks", begun).action_results
    deployment.kill("act")
    approval = result.waits_for
    answer = requests.post(
        f"{made.url}/api/v0/agents/lone-asks/approvals/{approval}/approve",
        headers=deployment.key("bob", "approvals"),
        json={},
        timeout=60,
    )
    assert answer.ok, answer.text
    deployment.start("act", "worker", *AGENTS, "-Q", "act")
    store = deployment.agent("lone-asks").approvals
    assert approval is not None

    def ended() -> bool:
        item = store.get(approval)
        return item is not None and item.result is not None

    wait_until(ended, 60)
    item = store.get(approval)
    assert item is not None
    # The worker has executed it, so the API has signed it with the worker's secret.
    assert item.result is not None
    assert item.result.success, item.result.error
    file = made.file("lone-asks", begun)

    assert judged(file) == 0
    assert decision(file)["executed"] is True
    lines = map(json.loads, file.read_text("utf-8").splitlines())
    [named] = [entry for entry in lines if entry["type"] == "approval"]
    assert named["approver"] == {"id": "bob", "kind": "human"}


def test_an_approval_that_somebody_enters_into_redis_is_not_executed(
    deployment: Deployment,
) -> None:
    Deposition(deployment)
    begun = deployment.launcher("lone-asks").trigger("test").iteration
    [result] = deployment.ended("lone-asks", begun).action_results
    assert result.waits_for is not None
    # What an attacker can do who has the password of Redis, but not the secret.
    deployment.environment["BOYD_APPROVAL_SECRET"] = "guessed, and long enough as well"
    boss = Actor(principal="boss", person=True)
    assert deployment.resolver("lone-asks").answer(result.waits_for, "approved", boss).done
    store = deployment.agent("lone-asks").approvals

    def refusal() -> str | None:
        item = store.get(str(result.waits_for))
        return item.result.error if item and item.result else None

    assert "approval_secret" in wait_until(refusal, 60)
    assert not [line for line in deployment.effects() if line.startswith("act:")]
