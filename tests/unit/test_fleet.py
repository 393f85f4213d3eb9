"""What a process knows of the others, and what it reads for that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fakeredis
import pytest

from boyd.models import utc_now
from boyd.store import Fleet, Store, WorkerInfo
from boyd.store.fleet import ALIVE
from boyd.store.keys import WORKERS


class Counting:
    """A deployment whose announcements are counted as they are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.client: Any = fakeredis.FakeRedis(decode_responses=True)
        self.fleet = Store(self.client, "test").fleet
        self.read: list[str] = []
        hmget: Any = self.client.hmget

        def counted(key: str, names: Sequence[str]) -> list[str | None]:
            self.read += names
            found: list[str | None] = hmget(key, names)
            return found

        monkeypatch.setattr(self.client, "hmget", counted)

    def names(self) -> set[str]:
        """Who lives, as read now."""
        return {worker.name for worker in self.fleet.recent(fresh=True)}


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Counting:
    return Counting(monkeypatch)


def announce(fleet: Fleet, name: str, problem: str | None = None) -> None:
    """A process says that it lives."""
    fleet.beat(
        WorkerInfo(
            name=name,
            role="worker",
            host="here",
            pid=1,
            queues=["observe"],
            agents=["a"],
            version="test",
            started_at=utc_now(),
            problem=problem,
        )
    )


def test_what_a_process_announces_is_read_once(deployment: Counting) -> None:
    announce(deployment.fleet, "one")
    assert deployment.names() == {"one"}
    announce(deployment.fleet, "one")
    announce(deployment.fleet, "two")

    assert deployment.names() == {"one", "two"}
    assert deployment.names() == {"one", "two"}
    assert deployment.read == ["one", "two"]
    assert deployment.fleet.of("a").serving("observe") == 2


def test_who_is_silent_or_says_goodbye_is_gone_and_who_comes_back_is_read_again(
    deployment: Counting,
) -> None:
    for name in ("one", "two", "three"):
        announce(deployment.fleet, name)
    assert deployment.names() == {"one", "two", "three"}
    deployment.client.zincrby(WORKERS, -(ALIVE + 1) * 1000, "one")
    deployment.fleet.leave("two")

    assert deployment.names() == {"three"}
    announce(deployment.fleet, "one")
    assert deployment.names() == {"one", "three"}
    assert deployment.read.count("one") == 2


def test_what_ails_a_process_is_told_to_whoever_lists_them(deployment: Counting) -> None:
    announce(deployment.fleet, "one")
    assert deployment.names() == {"one"}
    announce(deployment.fleet, "one", problem="17 hung threads; restarting")
    (found,) = deployment.fleet.workers()

    assert found.problem == "17 hung threads; restarting"
    assert found.last_beat is not None
