"""A short soak; `make soak` takes ten thousand iterations."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.clocks import missing
from faults.soak import WARM, Soak, table
from measuring import Measure

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.long]

ROUND = 25


def test_redis_does_not_grow_with_more_iterations(tmp_path: Path, measure: Measure) -> None:
    reason = missing()
    if reason:
        pytest.skip(reason)
    with Soak(tmp_path, ROUND) as soak:
        before = soak.run(WARM * ROUND)
        after = soak.run(2 * WARM * ROUND)
    print(table(before, after))
    keys = f"{before.keys.total()} keys after {before.iterations} iterations"
    measure(12, f"{keys}, {after.keys.total()} after {after.iterations}")

    assert after.differences(before) == []
