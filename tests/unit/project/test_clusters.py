"""The kit of failovers kills a master only when no replica lacks anything."""

from __future__ import annotations

from typing import Any

import pytest

from clusters import is_copied


def state(*replicas: tuple[str, int]) -> dict[str, Any]:
    """The replication of a master that has written 100 bytes, as redis-py reads it."""
    replica_fields = {
        f"slave{number}": {"state": kind, "offset": offset}
        for number, (kind, offset) in enumerate(replicas)
    }
    common = {"role": "master", "connected_slaves": len(replicas), "slave_repl_offset": 100}
    return {**common, "master_repl_offset": 100, **replica_fields}


@pytest.mark.parametrize(
    "replicas",
    [
        [],
        [("online", 100)],
        [("online", 100), ("online", 99)],
        [("online", 100), ("wait_bgsave", 100)],
        [("online", 100), ("send_bulk", 0)],
    ],
)
def test_a_replica_that_is_away_or_not_complete_is_waited_for(
    replicas: list[tuple[str, int]],
) -> None:
    assert not is_copied(state(*replicas), 2)


def test_complete_replicas_are_enough() -> None:
    assert is_copied(state(("online", 100), ("online", 100)), 2)


def test_a_master_without_replicas_is_not_killed() -> None:
    assert not is_copied(state(), 0)
