"""Slowdown with size: an investigation by its steps, a goal's cycle by known facts."""

from __future__ import annotations

import time
from itertools import count, pairwise
from pathlib import Path
from statistics import median
from typing import Any

import requests

from benchmarks.iterations import Boyd, in_turn, workers
from benchmarks.report import Report
from boyd.models import Actor, Triple
from boyd.models.investigation import InvestigationRequest
from boyd.store import Retention
from boyd.testing.model_server import Received, Reply, ScriptedModel, call, say
from harness import Deployment, wait_until

AGENTS = "benchmarks.growth_agents"
#: Turns of the model, each of which asks for one tool: two steps.
TURNS = 100
#: Turns at the beginning and at the end that are compared.
SAMPLE = 10
#: Agents, and the facts that each knows.
FACTS = {"knows_little": 1000, "knows_much": 100_000}
#: Cycles of each, and how much more the last step or the larger graph may take.
CYCLES, MOST = 40, 2.0

_SOMEBODY = Actor(principal="bench", person=True)


def investigation(report: Report, url: str, folder: Path) -> None:
    """A long investigation with a scripted model."""
    numbers, times = count(), []

    def reply(_: Received) -> Reply:
        times.append(time.perf_counter())
        number = next(numbers)
        return say("Enough.") if number == TURNS else call("look", {"word": f"w{number}"})

    with ScriptedModel([reply], forever=True) as model, Deployment(url, folder) as deployment:
        deployment.environment["MODEL_URL"] = f"{model.url}/v1"
        workers(deployment, "w", agents=["investigating"], module=AGENTS)
        store = deployment.agent("investigating").investigations
        request = InvestigationRequest(question="Why?")
        id = deployment.launcher("investigating").ask(request, _SOMEBODY, Retention())

        def has_ended() -> bool:
            record = store.get(id)
            return record is not None and record.status == "ended"

        wait_until(has_ended, 120)
    took = [(after - before) * 1000 / 2 for before, after in pairwise(times)]
    assert len(took) == TURNS, f"the model was asked {len(times)} times"
    # The very first turn also loads what an investigation needs.
    first, last = median(took[1 : 1 + SAMPLE]), median(took[-SAMPLE:])
    report.tell("first steps of an investigation", first, "ms")
    report.tell(f"its steps about the {2 * TURNS}th", last, "ms")
    report.most("the last steps to the first", last / first, "x", MOST)


def cycles(report: Report, url: str, folder: Path) -> None:
    """Cycles of a goal that cannot be reached, with few and with many facts, in turn."""
    with Deployment(url, folder) as deployment:
        workers(deployment, "w", agents=list(FACTS), module=AGENTS)
        api, key = deployment.api("api"), deployment.key("bench", "admin")
        goal = {"description": "Find what host 5 runs", "criteria": "zorb"}
        for agent, size in FACTS.items():
            deployment.agent(agent).graph("facts").add(fact(number) for number in range(size))
            goals = f"{api}/api/v0/agents/{agent}/plugins/goals/goals"
            requests.post(goals, headers=key, json=goal, timeout=60).raise_for_status()
        calls = [Boyd(deployment, agent).once for agent in FACTS]
        little, much = map(median, in_turn(calls, CYCLES))
        for agent in FACTS:
            session: Any = requests.get(
                f"{api}/api/v0/agents/{agent}/plugins/goals/session", headers=key, timeout=60
            ).json()
            assert session["cycle"] >= CYCLES, f"{agent} has done nothing: {session}"
    few, many = FACTS.values()
    report.tell(f"a goal's cycle with {few} facts", little, "ms")
    report.tell(f"a goal's cycle with {many} facts", much, "ms")
    report.most("a cycle with many facts to one with few", much / little, "x", MOST)


def fact(number: int) -> Triple:
    """One of any number of facts: hosts that run services, ten of them in each zone."""
    subject = f"host {number // 2}"
    if number % 2:
        return Triple(subject=subject, predicate="in", object=f"zone {number // 20}")
    return Triple(subject=subject, predicate="runs", object=f"service {number // 2}")
