"""All checks of a deployment: problems and remedies, from a health snapshot.

`boyd doctor` prints the findings, `/metrics` counts them.
"""

from __future__ import annotations

from boyd.health.agent_checks import check_agent, check_stops
from boyd.health.finding import Finding
from boyd.health.queue_checks import Needs, check_agent_files
from boyd.health.server_checks import (
    check_approval_keys,
    check_archive,
    check_intakes,
    check_processes,
    check_redis,
    check_traces,
)
from boyd.health.snapshot import HealthSnapshot


def examine(health: HealthSnapshot, needs: Needs | None = None) -> list[Finding]:
    """Run all checks; *needs* has the queues that plugins name, of agents with known files."""
    needs = needs or {}
    return [
        *check_redis(health),
        *check_processes(health.roster),
        *check_approval_keys(health.roster.live("worker")),
        *check_intakes(health.roster),
        check_archive(health),
        *check_traces(health),
        *(f for agent in health.agents for f in check_agent(health, agent, needs)),
        *check_agent_files(health.roster, needs),
        *check_stops(health),
    ]
