"""The cost of an iteration in numbers that do not depend on the machine."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.iterations import Boyd
from benchmarks.servers import record_commands
from harness import Deployment

pytestmark = pytest.mark.real

ROUNDS = 5
#: Commands of those who watch only.
WATCHING = {"cmdstat_xread", "cmdstat_ping"}


def test_an_iteration_costs_no_more_commands_and_messages_than_promised(
    deployment: Deployment,
) -> None:
    deployment.environment["BOYD_TIMING__SWEEP"] = "3600"
    deployment.worker("w", "benchmarks.agents:trivial10")
    boyd = Boyd(deployment, "trivial10")
    boyd.once()
    with record_commands(deployment.redis_url) as commands:
        for _ in range(ROUNDS):
            boyd.once()
    messages = [command for command in commands if command.startswith("LPUSH boyd.")]

    assert len(commands) / ROUNDS <= 12
    assert len(messages) / ROUNDS <= 1


def test_an_iteration_that_acts_costs_no_more_commands_inside_redis_than_measured(
    deployment: Deployment, tmp_path: Path
) -> None:
    deployment.environment |= {
        "BOYD_TIMING__SWEEP": "3600",
        "EFFECTS": str(tmp_path / "effects"),
    }
    deployment.worker("w", "benchmarks.agents:acts10", "-Q", "loop,observe,act")
    boyd = Boyd(deployment, "acts10")
    boyd.once()
    counts = [_commands(deployment)]
    for _ in range(2 * ROUNDS):
        boyd.once()
        counts.append(_commands(deployment))

    # The fewest, as in some rounds there is a heartbeat, without the INFO that counts.
    assert min(after - before for before, after in pairwise(counts)) - 1 <= 110


def _commands(deployment: Deployment) -> int:
    """The commands that Redis has executed, with those of scripts."""
    stats = deployment.store.client.info("commandstats")
    return sum(entry["calls"] for name, entry in stats.items() if name not in WATCHING)
