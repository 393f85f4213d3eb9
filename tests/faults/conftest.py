"""Every test of faults tells how long its agents observed nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from faults.world import World
from measuring import Measure


@pytest.fixture(autouse=True)
def _blind_times(
    measure: Measure, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Take down the longest time without an observation in the worlds that end in this test."""
    blind: list[float] = []
    monkeypatch.setattr(World, "blind_times", blind)
    yield
    for seconds in blind:
        measure.most(15, "the longest time without an observation", seconds, request.node.name)
