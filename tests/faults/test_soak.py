"""P12: a short soak; `make soak` takes ten thousand iterations."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.clocks import missing
from faults.soak import WARM, Soak, table

pytestmark = [pytest.mark.real, pytest.mark.slow]

ROUND = 25


def test_P12_what_lies_in_redis_is_no_more_after_more_iterations(tmp_path: Path) -> None:
    why = missing()
    if why:
        pytest.skip(why)
    with Soak(tmp_path, ROUND) as soak:
        before = soak.run(WARM * ROUND)
        after = soak.run(2 * WARM * ROUND)
    print(table(before, after))

    assert after.grown(before) == []
