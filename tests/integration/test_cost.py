"""The cost of an iteration in numbers that do not depend on the machine."""

from __future__ import annotations

import pytest

from benchmarks.iterations import Boyd
from benchmarks.servers import monitored
from harness import Deployment

pytestmark = pytest.mark.real

ROUNDS = 5


def test_an_iteration_costs_no_more_commands_and_messages_than_promised(
    deployment: Deployment,
) -> None:
    deployment.environment["BOYD_TIMING__SWEEP"] = "3600"
    deployment.worker("w", "benchmarks.agents:trivial10")
    boyd = Boyd(deployment, "trivial10")
    boyd.once()
    with monitored(deployment.redis_url) as seen:
        for _ in range(ROUNDS):
            boyd.once()
    messages = [command for command in seen if command.startswith("LPUSH boyd.")]

    assert len(seen) / ROUNDS <= 80 + 12
    assert len(messages) / ROUNDS <= 5 + 1
