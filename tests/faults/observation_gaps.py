"""The longest times without a new iteration, and so without observations."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from harness import Deployment

ALL = 10**6


def longest(deployment: Deployment, agents: Iterable[str]) -> float:
    """The most seconds between the beginnings of two iterations that follow each other."""
    longest_gap = 0.0
    for agent in agents:
        results = deployment.agent(agent).history.results(ALL)
        began = sorted(result.started_at.timestamp() for result in results if result.observations)
        longest_gap = max([longest_gap, *(later - earlier for earlier, later in pairwise(began))])
    return longest_gap
