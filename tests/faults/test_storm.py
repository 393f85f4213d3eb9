"""A short storm, with the same faults each time; `make chaos` runs long ones."""

from __future__ import annotations

import pytest

from faults.storm import storm, table
from measuring import Measure

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.mark.long
def test_nothing_is_lost_or_done_twice_in_a_storm(measure: Measure) -> None:
    outcome = storm(seed=1, seconds=20, pause=1.5)
    print(table([outcome]))
    faults, counts = len(outcome.faults), outcome.counts
    measure(1, f"{faults} faults in 20 s: {counts['effects']} actions counted, none twice")
    measure(2, f"{faults} faults in 20 s: {counts['iterations']} iterations, all in history")

    assert outcome.violations == []
    assert len(outcome.faults) >= 5
    assert outcome.counts["iterations"] > 10
    assert outcome.counts["approvals"] > 3


@pytest.mark.long
def test_nothing_is_lost_or_done_twice_in_a_storm_over_the_set_up_of_the_guide() -> None:
    outcome = storm(seed=2, seconds=20, pause=1.5, where="production")
    print(table([outcome]))

    assert outcome.violations == []
    assert len(outcome.faults) >= 5
