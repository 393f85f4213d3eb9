"""Many processes on one graph lose nothing and double nothing (M15)."""

from __future__ import annotations

import random
import re
import signal
from multiprocessing import get_context
from pathlib import Path

import pytest

from boyd.models import Triple
from boyd.store import Store, connect
from faults.world import RedisProcess
from goals_kit import Mind

pytestmark = pytest.mark.real


def _hammer(url: str, seed: int) -> None:
    graph = Store(connect(url)).agent("atlas").graph("facts")
    chance = random.Random(seed)
    facts = [
        Triple(subject=f"s{n % 50}", predicate="p", object=f"o{n}", confidence=chance.random())
        for n in range(200)
    ]
    for _ in range(5):
        chance.shuffle(facts)
        graph.add(facts)


def test_eight_processes_that_add_the_same_facts_make_each_once_with_its_best_confidence(
    redis_url: str,
) -> None:
    context = get_context("spawn")
    workers = [context.Process(target=_hammer, args=(redis_url, seed)) for seed in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    graph = Store(connect(redis_url)).agent("atlas").graph("facts")
    best = {f"o{n}": 0.0 for n in range(200)}
    for seed in range(8):
        chance = random.Random(seed)
        for n in range(200):
            best[f"o{n}"] = max(best[f"o{n}"], chance.random())

    found = {one.object: one.confidence for one in graph.all()}
    assert found == best
    assert graph.size() == 200
    assert sum(graph.degrees([f"s{n}" for n in range(50)]).values()) == 200


def _course(url: str, seed: int) -> list[tuple[str, str, str]]:
    """The tools of four cycles, what each was given, and what it has found."""
    verbs, nouns = "BCDFGHKLMNPQRSTVWX", ("Action", "ZorbAction", "Stop")
    labels = [f"{verb}{noun}" for verb in verbs for noun in nouns]
    facts = [Triple(subject=one, predicate="subclass-of", object=f"Kind {one}") for one in labels]
    random.Random(seed).shuffle(facts)
    mind = Mind(client=connect(url), stall_threshold=4)
    mind.facts.add(facts)
    mind.goal("Explore actions, quonks and flurbs", criteria="quonk, flurb and unicorn")
    done = []
    for _ in range(4):
        result = mind.cycle()
        assert result.decision is not None
        said = (str(result.decision.params), str(result.action_results[0].output))
        params, output = (re.sub(r"\d-[0-9a-f]{8}", "ID", one) for one in said)
        done.append((mind.session.decisions[-1].tool, params, output))
    return done


def test_the_same_facts_and_goals_lead_to_the_same_cycles_on_every_server(
    redis_url: str, tmp_path: Path
) -> None:
    """What a set is cut to depends on its server: of many labels each had others."""
    other = RedisProcess(tmp_path, fsync="no")
    try:
        first, second = _course(redis_url, 1), _course(other.url, 2)
    finally:
        other.signal(signal.SIGKILL)

    assert "Action" in str(first)
    assert first == second
