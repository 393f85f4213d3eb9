"""Alarms that need several bad samples to begin, and good ones to end."""

from __future__ import annotations

from boyd_connectors.connector_parts import Sample, names_in_alarm
from plugin_kit import MemoryState, context


def alarms(state: MemoryState, iteration: int | None, **values: float) -> set[str]:
    samples = {name: Sample(value, 10, 5) for name, value in values.items()}
    return names_in_alarm(context(state=state, iteration=iteration), "key", samples, 2)


def test_an_alarm_begins_after_samples_in_a_row_and_ends_below_the_lower_limit() -> None:
    state = MemoryState()
    values = [10, 9, 10, 10, 5, 4, 9]
    alarms_seen = [alarms(state, n, a=value) for n, value in enumerate(values)]
    assert alarms_seen == [set(), set(), set(), {"a"}, {"a"}, set(), set()]


def test_an_iteration_that_is_repeated_counts_once() -> None:
    state = MemoryState()
    assert [alarms(state, 1, a=10), alarms(state, 1, a=10)] == [set(), set()]
    assert alarms(state, 2, a=10) == {"a"}


def test_alarms_of_vanished_targets_are_forgotten() -> None:
    state = MemoryState()
    alarms(state, 1, a=10, b=10)
    assert alarms(state, 2, b=10) == {"b"}
    assert alarms(state, 3, a=10, b=10) == {"b"}


def test_alarms_of_targets_that_cannot_be_seen_go_on_when_they_are_seen_again() -> None:
    state = MemoryState()
    alarms(state, 1, a=10)
    alarms(state, 2, a=10)
    unseen = names_in_alarm(context(state=state, iteration=3), "key", {}, 2, lambda name: True)

    assert (unseen, alarms(state, 4, a=9)) == (set(), {"a"})
