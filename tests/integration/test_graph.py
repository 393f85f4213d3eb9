"""Many processes on one graph lose nothing and double nothing."""

from __future__ import annotations

import random
from multiprocessing import get_context

import pytest

from boyd.models import Triple
from boyd.store import Store, connect
from harness import patient_client

pytestmark = pytest.mark.real


def _hammer(url: str, seed: int) -> None:
    graph = Store(connect(url)).agent("atlas").graph("facts")
    chance = random.Random(seed)
    facts = [
        Triple(subject=f"s{n % 50}", predicate="p", object=f"o{n}", confidence=chance.random())
        for n in range(200)
    ]
    for _ in range(3):
        chance.shuffle(facts)
        graph.add(facts)


@pytest.mark.long
def test_eight_processes_that_add_the_same_facts_make_each_once_with_its_best_confidence(
    redis_url: str,
) -> None:
    context = get_context("spawn")
    workers = [context.Process(target=_hammer, args=(redis_url, seed)) for seed in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(300)
        assert worker.exitcode == 0
    graph = Store(patient_client(redis_url)).agent("atlas").graph("facts")
    best = {f"o{n}": 0.0 for n in range(200)}
    for seed in range(8):
        chance = random.Random(seed)
        for n in range(200):
            best[f"o{n}"] = max(best[f"o{n}"], chance.random())

    confidences = {fact.object: fact.confidence for fact in graph.all()}
    assert confidences == best
    assert graph.size() == 200
    assert sum(graph.degrees([f"s{n}" for n in range(50)]).values()) == 200
