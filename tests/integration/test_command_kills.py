"""Programs of the plugin `command` whose worker is killed in the middle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Deployment, wait_until
from signals import is_alive

pytestmark = pytest.mark.real

OBSERVER = """
echo '{"observation": {"type": "state", "severity": "error", "data": {"up": false}}}'
echo '{"result": null}'
"""
#: It notes itself and a child in a session of its own, and waits while it is held.
ACTION = """
trap '' TERM HUP
setsid sh -c 'trap "" TERM; while [ -e "$0.hold" ]; do sleep 0.1; done' "$EFFECTS" &
echo "act:$$" >> "$EFFECTS"; echo "child:$!" >> "$EFFECTS"
while [ -e "$EFFECTS.hold" ]; do sleep 0.1; done
echo '{"result": "restarted"}'
"""
AGENT = """
id = "programs"

[[plugins]]
use = "command"
[plugins.options]
environment = ["EFFECTS"]
[plugins.options.observers.shop]
argv = ["./observer"]
[plugins.options.actions.restart]
argv = ["./action"]
idempotent = IDEMPOTENT

[[plugins]]
use = "rules"
[[plugins.options.rules]]
name = "down"
source = "command/shop"
action = "command:restart"
"""


@pytest.fixture
def agent(tmp_path: Path) -> Callable[[bool], str]:
    """Writes the agent file, with an action that may be repeated or not."""

    def write(idempotent: bool) -> str:
        for name, text in (("observer", OBSERVER), ("action", ACTION)):
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}")
            (tmp_path / name).chmod(0o755)
        file = tmp_path / "agent.toml"
        file.write_text(AGENT.replace("IDEMPOTENT", str(idempotent).lower()))
        return str(file)

    return write


def pids(deployment: Deployment) -> list[int]:
    """The processes that the action has noted."""
    return [int(line.rpartition(":")[2]) for line in deployment.effects()]


@pytest.mark.long
@pytest.mark.parametrize("idempotent", [False, True])
def test_a_program_dies_with_its_worker_and_only_an_idempotent_one_runs_again(
    deployment: Deployment, agent: Callable[[bool], str], idempotent: bool
) -> None:
    file = agent(idempotent)
    hold = Path(f"{deployment.effects_file}.hold")
    hold.touch()
    deployment.worker("thinks", file, "-Q", "loop,observe")
    deployment.worker("acts", file, "-Q", "act", "--pool", "prefork")
    iteration = deployment.launcher("programs").trigger("test").iteration
    wait_until(lambda: len(deployment.effects()) == 2)
    first = pids(deployment)
    assert all(map(is_alive, first))

    deployment.kill("acts")
    wait_until(lambda: not any(map(is_alive, first)))
    hold.unlink()
    deployment.worker("again", file, "-Q", "act", "--pool", "prefork")
    [result] = deployment.ended("programs", iteration).action_results

    runs = [line for line in deployment.effects() if line.startswith("act:")]
    if idempotent:
        assert (result.success, result.output, len(runs)) == (True, "restarted", 2), result.error
    else:
        assert (result.success, result.unknown, len(runs)) == (False, True, 1), result.error
