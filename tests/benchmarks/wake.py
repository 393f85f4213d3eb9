"""From a webhook to a proposed action, and from a freeze to the last action anywhere.

Also how much of what others send is taken.
"""

from __future__ import annotations

import json
import statistics
import time

from benchmarks.load import Caller
from harness import Deployment, wait_until

RUNS = 60


def proposals(deployment: Deployment, agent_id: str) -> float:
    """The median of milliseconds from posting an event to the approval that it leads to."""
    url = deployment.api("api")
    headers = {**deployment.key("bench", "admin"), "Content-Type": "application/json"}
    caller = Caller(url, headers)
    events = deployment.store.events([agent_id])
    events.wait(0)
    took = []
    for number in range(RUNS):
        body = json.dumps({"source": "bench", "type": "alert", "data": {"number": number}})
        began = time.perf_counter()
        status = caller.ask(("POST", f"/api/v0/agents/{agent_id}/intake/json"), body)
        assert status == 202, status
        kinds: list[str] = []
        while "approval.pending" not in kinds:
            kinds += [event.kind for _, event in events.wait(4)]
        took.append((time.perf_counter() - began) * 1000)
        wait_until(lambda: deployment.agent(agent_id).loop_control.status().phase == "idle")
    return statistics.median(took)


def hand_over_rate(deployment: Deployment, agent_id: str) -> float:
    """Observations a second that one client hands over, in groups of 100 alerts."""
    url = deployment.api("intake")
    headers = {**deployment.key("sender", "trigger"), "Content-Type": "application/json"}
    caller = Caller(url, headers)
    bodies = [
        json.dumps(
            [
                {"source": "bench", "data": {"number": number, "text": "x" * 200}}
                for number in range(group * 100, group * 100 + 100)
            ]
        )
        for group in range(50)
    ]
    began = time.perf_counter()
    for body in bodies:
        status = caller.ask(("POST", f"/api/v0/agents/{agent_id}/intake/json"), body)
        assert status == 202, status
    return len(bodies) * 100 / (time.perf_counter() - began)


def freezing(deployment: Deployment, agent_id: str) -> float:
    """Seconds from the freeze to the last action, of an agent that acts all the time."""
    launcher = deployment.launcher(agent_id)
    wait_until(lambda: len(_acts(deployment)) > 5 or launcher.trigger("bench").iteration < 0)
    froze = time.time()
    deployment.store.freezes.freeze("bench")
    for _ in range(20):
        deployment.ended(agent_id, launcher.trigger("bench").iteration)
    return max(0.0, max(_acts(deployment)) - froze)


def _acts(deployment: Deployment) -> list[float]:
    return [float(line) for line in deployment.effects()]
