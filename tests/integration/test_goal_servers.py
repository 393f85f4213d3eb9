"""The behaviour of an agent with goals depends on its facts, and not on its server."""

from __future__ import annotations

import random
import re
import signal
from pathlib import Path

import pytest

from boyd.models import Triple
from boyd.store import connect
from faults.world import RedisProcess
from goals_kit import Mind

pytestmark = pytest.mark.real


def _course(url: str, seed: int) -> list[tuple[str, str, str]]:
    """The tools of four cycles, what each was given, and what it has found."""
    verbs, nouns = "BCDFGHKLMNPQRSTVWX", ("Action", "ZorbAction", "Stop")
    labels = [f"{verb}{noun}" for verb in verbs for noun in nouns]
    facts = [
        Triple(subject=label, predicate="subclass-of", object=f"Kind {label}") for label in labels
    ]
    random.Random(seed).shuffle(facts)
    mind = Mind(client=connect(url), stall_threshold=4)
    mind.facts.add(facts)
    mind.goal("Explore actions, quonks and flurbs", criteria="quonk, flurb and unicorn")
    done = []
    for _ in range(4):
        result = mind.cycle()
        assert result.decision is not None
        texts = (str(result.decision.params), str(result.action_results[0].output))
        params, output = (re.sub(r"\d-[0-9a-f]{8}", "ID", text) for text in texts)
        done.append((mind.session.decisions[-1].tool, params, output))
    return done


def test_the_same_facts_and_goals_lead_to_the_same_cycles_on_every_server(
    redis_url: str, tmp_path: Path
) -> None:
    """A truncated set must not depend on the server, as the order of labels does."""
    other = RedisProcess(tmp_path, fsync="no")
    try:
        first, second = _course(redis_url, 1), _course(other.url, 2)
    finally:
        other.signal(signal.SIGKILL)

    assert "Action" in str(first)
    assert first == second
