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
def watcher(client: Any) -> StreamWatcher:
    """A watcher that follows nothing yet."""
    return Store(client).stream_watcher()


def grow(client: Any, topic: Topic, times: int = 1) -> None:
    for _ in range(times):
        client.xadd(STREAMS[topic], {"entry": "x"})


def test_a_newly_followed_stream_is_returned_once(client: Any, watcher: StreamWatcher) -> None:
    grow(client, EVENTS)

    assert watcher.follow([EVENTS, LOG]) == {EVENTS, LOG}
    assert watcher.follow([EVENTS, LOG]) == set()
    assert watcher.wait(0) == set()


def test_a_stream_that_grew_is_returned_once_per_wait(client: Any, watcher: StreamWatcher) -> None:
    watcher.follow([EVENTS, LOG])
    grow(client, LOG, 50)

    assert watcher.wait(0) == {LOG}
    assert watcher.wait(0) == set()
    grow(client, EVENTS)
    grow(client, LOG)
    assert watcher.wait(0) == {EVENTS, LOG}


def test_an_unfollowed_stream_is_not_returned(client: Any, watcher: StreamWatcher) -> None:
    watcher.follow([EVENTS, LOG])
    watcher.follow([EVENTS])
    grow(client, LOG)

    assert watcher.wait(0) == set()
    assert watcher.follow([EVENTS, LOG]) == {LOG}
    assert watcher.wait(0) == set()


def test_waiting_without_streams_returns_nothing(watcher: StreamWatcher) -> None:
    assert watcher.wait(0) == set()
