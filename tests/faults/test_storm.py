"""A short storm, with the same faults each time; `make chaos` runs long ones."""

from __future__ import annotations

import pytest

from faults.storm import storm, table

pytestmark = [pytest.mark.real, pytest.mark.slow]


def test_P1_to_P6_nothing_is_lost_or_done_twice_in_a_storm() -> None:
    outcome = storm(seed=1, seconds=20, pause=1.5)
    print(table([outcome]))

    assert outcome.violations == []
    assert len(outcome.faults) >= 5
    assert outcome.counts["iterations"] > 10
    assert outcome.counts["approvals"] > 3
