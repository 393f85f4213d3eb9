"""What has grown is told, not read: events of agents, logs of investigations."""

from __future__ import annotations

from typing import Any

import fakeredis
import pytest

from boyd.store import Store, StreamWatcher, Topic

EVENTS: Topic = ("a", None)
LOG: Topic = ("a", "1")
STREAMS = {EVENTS: "boyd:{a}:events", LOG: "boyd:{a}:log:1"}


@pytest.fixture
def client() -> Any:
    """An empty imaginary Redis."""
    return fakeredis.FakeRedis(decode_responses=True)


@pytest.fixture
def growth(client: Any) -> StreamWatcher:
    """What follows nothing yet."""
    return Store(client).growth()


def grow(client: Any, topic: Topic, times: int = 1) -> None:
    for _ in range(times):
        client.xadd(STREAMS[topic], {"entry": "x"})


def test_what_is_followed_from_now_on_is_told_once(client: Any, growth: StreamWatcher) -> None:
    grow(client, EVENTS)

    assert growth.follow([EVENTS, LOG]) == {EVENTS, LOG}
    assert growth.follow([EVENTS, LOG]) == set()
    assert growth.wait(0) == set()


def test_what_has_grown_is_told_once_however_much_was_added(
    client: Any, growth: StreamWatcher
) -> None:
    growth.follow([EVENTS, LOG])
    grow(client, LOG, 50)

    assert growth.wait(0) == {LOG}
    assert growth.wait(0) == set()
    grow(client, EVENTS)
    grow(client, LOG)
    assert growth.wait(0) == {EVENTS, LOG}


def test_what_is_not_followed_any_more_is_not_told(client: Any, growth: StreamWatcher) -> None:
    growth.follow([EVENTS, LOG])
    growth.follow([EVENTS])
    grow(client, LOG)

    assert growth.wait(0) == set()
    assert growth.follow([EVENTS, LOG]) == {LOG}
    assert growth.wait(0) == set()


def test_who_follows_nothing_waits_for_nothing(growth: StreamWatcher) -> None:
    assert growth.wait(0) == set()
