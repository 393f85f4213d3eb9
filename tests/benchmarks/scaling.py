"""Speed-up by more workers while observers wait."""

from __future__ import annotations

import statistics

from harness import Deployment

STEPS = (1, 2, 4)
#: Observers of the agent, and for how many seconds each waits.
OBSERVERS, WAIT = 320, 0.05


def measure(deployment: Deployment, agent: str, agent_id: str) -> dict[int, float]:
    """Observers per second, by number of workers; each looks at eight at a time."""
    limits = {"BOYD_WORKER__BUNDLE_SIZE": "4", "BOYD_WORKER__WIDTH": "4"}
    deployment.environment.update(limits)
    rates: dict[int, float] = {}
    started = 0
    launcher = deployment.launcher(agent_id)
    for workers in STEPS:
        while started < workers:
            deployment.worker(f"w{started}", agent, "--concurrency", "2")
            started += 1
        took = []
        for _ in range(5):
            result = deployment.ended(agent_id, launcher.trigger("bench").iteration, 60)
            took.append(result.phases["observe"] / 1000)
        rates[workers] = OBSERVERS / statistics.median(took)
    return rates
