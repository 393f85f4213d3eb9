"""One event stream that fails ends alone; all others of the process go on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from boyd.errors import StoreUnavailable
from boyd.store import Topic
from boyd_api.http.change_watcher import ChangeWatcher
from boyd_api.http.event_streams import EventFeed, EventStream, EventStreams, ServerSentEvent
from harness import wait_until


class Feed(EventFeed):
    """One event, and then none; or an error instead."""

    def __init__(self, agent_id: str, error: Exception | None = None) -> None:
        self.topic: Topic = (agent_id, None)
        self._error = error

    def newest(self) -> str:
        return "0-0"

    def first(self) -> str:
        return "0-0"

    def reaches(self, id: str) -> bool:
        return True

    def after(self, id: str) -> Sequence[ServerSentEvent]:
        if self._error is not None:
            raise self._error
        return [ServerSentEvent("1-0", "told")] if id == "0-0" else []

    def over(self) -> bool:
        return False


class Connection:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.is_gone = False
        self.lags = False
        self.sent: list[str] = []

    def send_piece(self, text: str) -> None:
        self.sent.append(text)

    def end_answer(self) -> None:
        self.is_gone = True


class Site:
    """Streams that look often."""

    def __init__(self) -> None:
        self.stopping = threading.Event()

        def away() -> object:
            raise StoreUnavailable

        changes = ChangeWatcher(away, list, 1, self.stopping)  # type: ignore[arg-type]
        self.streams = EventStreams(changes, 8, self.stopping)

    def open(self, feed: Feed, good: Callable[[str], bool] = lambda _: True) -> Connection:
        """Open a stream."""
        connection = Connection()
        assert self.streams.slots.take()
        self.streams.begin(EventStream(feed, "0-0", "key", good), connection)
        return connection


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    for name in ("HEARTBEAT", "LOOK", "SOON", "_VALID"):
        monkeypatch.setattr(f"boyd_api.http.event_streams.{name}", 0.01)
    new_site = Site()
    yield new_site
    new_site.stopping.set()
    new_site.streams.wake()


def test_a_feed_that_fails_ends_its_streams_and_no_others(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "boyd.api"):
        bad = site.open(Feed("bad", KeyError("kind")))
        good = site.open(Feed("good"))

        wait_until(lambda: bad.is_gone and ":\n\n" in good.sent)
    assert good.sent[0].startswith("id: 1-0\n")
    assert not good.is_gone
    assert "closing the event streams of agent bad" in caplog.text


def test_a_key_that_cannot_be_checked_ends_its_stream_and_no_others(site: Site) -> None:
    def unreadable(_: str) -> bool:
        raise ValueError

    bad = site.open(Feed("bad"), unreadable)
    good = site.open(Feed("good"))

    wait_until(lambda: bad.is_gone and ":\n\n" in good.sent)
    assert not good.is_gone


def test_streams_stay_while_redis_is_away(site: Site) -> None:
    connection = site.open(Feed("a", StoreUnavailable("away")))

    wait_until(lambda: ":\n\n" in connection.sent)
    assert not connection.is_gone
