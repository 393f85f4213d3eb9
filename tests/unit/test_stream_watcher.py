"""The watcher reports streams that grew, without reading them."""

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
    """A watcher that follows nothing yet."""
    return Store(client).growth()


def grow(client: Any, topic: Topic, times: int = 1) -> None:
    for _ in range(times):
        client.xadd(STREAMS[topic], {"entry": "x"})


def test_a_newly_followed_stream_is_returned_once(client: Any, growth: StreamWatcher) -> None:
    grow(client, EVENTS)

    assert growth.follow([EVENTS, LOG]) == {EVENTS, LOG}
    assert growth.follow([EVENTS, LOG]) == set()
    assert growth.wait(0) == set()


def test_a_stream_that_grew_is_returned_once_per_wait(client: Any, growth: StreamWatcher) -> None:
    growth.follow([EVENTS, LOG])
    grow(client, LOG, 50)

    assert growth.wait(0) == {LOG}
    assert growth.wait(0) == set()
    grow(client, EVENTS)
    grow(client, LOG)
    assert growth.wait(0) == {EVENTS, LOG}


def test_an_unfollowed_stream_is_not_returned(client: Any, growth: StreamWatcher) -> None:
    growth.follow([EVENTS, LOG])
    growth.follow([EVENTS])
    grow(client, LOG)

    assert growth.wait(0) == set()
    assert growth.follow([EVENTS, LOG]) == {LOG}
    assert growth.wait(0) == set()


def test_waiting_without_streams_returns_nothing(growth: StreamWatcher) -> None:
    assert growth.wait(0) == set()
