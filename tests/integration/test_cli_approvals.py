"""`boyd approvals` as an operator uses it, on a real Redis with a real worker."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from boyd.models import ApprovalItem
from harness import Deployment

pytestmark = pytest.mark.real


class Operator:
    """Somebody at a terminal."""

    def __init__(self, deployment: Deployment) -> None:
        self._url = deployment.redis_url

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Give a command of `boyd approvals`."""
        command = [sys.executable, "-m", "boyd.cli", "approvals", *arguments]
        return subprocess.run(
            [*command, "--redis-url", self._url], capture_output=True, text=True, check=False
        )


@pytest.fixture
def operator(deployment: Deployment) -> Operator:
    """An operator of a deployment in which one action waits for approval."""
    deployment.worker("w", "agents.traced:careful")
    propose(deployment)
    return Operator(deployment)


def propose(deployment: Deployment) -> ApprovalItem:
    """Let an iteration propose its action."""
    begun = deployment.launcher("careful").trigger("test")
    deployment.ended("careful", begun.iteration)
    return waiting(deployment)[-1]


def waiting(deployment: Deployment) -> list[ApprovalItem]:
    """What waits."""
    return deployment.agent("careful").approvals.page(50).pending


def test_the_list_says_what_waits_and_why(deployment: Deployment, operator: Operator) -> None:
    [item] = waiting(deployment)
    text = operator("list").stdout
    shown: Any = json.loads(operator("list", "-o", "json").stdout)

    assert item.id[:8] in text
    assert "traced:act" in text
    assert "always" in text
    assert [item.id] == [entry["id"] for entry in shown["pending"]]


def test_an_item_is_shown_with_its_params_in_full(operator: Operator, deployment: Any) -> None:
    [item] = waiting(deployment)
    text = operator("show", item.id[:8]).stdout

    assert '"n": 1' in text
    assert "the action is approval-required" in text


def test_approving_executes_and_shows_the_result(operator: Operator, deployment: Any) -> None:
    [item] = waiting(deployment)
    done = operator("approve", item.id[:8], "--note", "checked")
    now = deployment.agent("careful").approvals.get(item.id)

    assert (done.returncode, done.stderr) == (0, "")
    assert "traced:act is approved" in done.stdout
    assert (now.status, now.note) == ("approved", "checked")
    assert now.acted_by.startswith("cli:")
    assert [line.split(":")[0] for line in deployment.effects()][-1:] == ["act"]


@pytest.mark.parametrize(("command", "status"), [("deny", "denied"), ("withdraw", "withdrawn")])
def test_denying_and_withdrawing_execute_nothing(
    operator: Operator, deployment: Deployment, command: str, status: str
) -> None:
    [item] = waiting(deployment)
    done = operator(command, item.id, "--note", "no")
    late = operator("approve", item.id)

    assert done.returncode == 0
    assert late.returncode == 5
    assert f"it is {status} by cli:" in late.stderr
    assert not [line for line in deployment.effects() if line.startswith("act:")]


def test_an_id_that_fits_nothing_or_too_much_is_said(
    operator: Operator, deployment: Deployment
) -> None:
    propose(deployment)
    unknown, several = operator("approve", "zzz"), operator("deny", "")

    assert (unknown.returncode, several.returncode) == (4, 1)
    assert "no approval 'zzz'" in unknown.stderr
    assert "fits 2 approvals" in several.stderr
