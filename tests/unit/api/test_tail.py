"""Waiting requests are woken, look by themselves, and never take all threads."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from api_kit import Site
from boyd.errors import StoreUnavailable
from boyd.runtime import BatchHint
from boyd_api import tail as tails
from boyd_api.background_dispatcher import WAITING, BackgroundDispatcher
from boyd_api.tail import Places, Tail
from harness import wait_until


def make_tail(places: int = 1) -> tuple[Tail, threading.Event]:
    """A tail whose Redis is always away, so that only the test wakes it."""

    def away() -> Any:
        raise StoreUnavailable

    stopping = threading.Event()
    return Tail(away, list, places, stopping), stopping


@pytest.fixture
def woken_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks by himself: who waits is woken, or waits to the end."""
    monkeypatch.setattr(tails, "LOOK", 60.0)


def test_what_is_there_is_found_at_once() -> None:
    tail, stopping = make_tail()

    assert tail.until(lambda: "found", 10) == "found"
    stopping.set()


@pytest.mark.usefixtures("woken_only")
def test_an_event_wakes_whoever_waits() -> None:
    tail, stopping = make_tail()
    asked: list[float] = []

    def check() -> str | None:
        asked.append(time.monotonic())
        if len(asked) == 1:
            threading.Timer(0.01, tail.wake).start()
        return "found" if len(asked) > 1 else None

    assert tail.until(check, 10) == "found"
    assert asked[1] - asked[0] < 9
    stopping.set()


@pytest.mark.usefixtures("woken_only")
def test_an_event_between_looking_and_waiting_is_not_lost() -> None:
    tail, stopping = make_tail()
    asked: list[float] = []

    def check() -> str | None:
        asked.append(time.monotonic())
        tail.wake()
        return "found" if len(asked) > 3 else None

    assert tail.until(check, 10) == "found"
    assert asked[-1] - asked[0] < 9
    stopping.set()


def test_without_events_it_looks_by_itself() -> None:
    tail, stopping = make_tail()
    asked = iter([None, None, "found"])

    assert tail.until(lambda: next(asked), 10) == "found"
    stopping.set()


@pytest.mark.usefixtures("woken_only")
def test_nobody_waits_longer_than_they_may() -> None:
    tail, stopping = make_tail()
    began = time.monotonic()

    assert tail.until(lambda: None, 0.05) is None
    assert time.monotonic() - began < 9
    stopping.set()


@pytest.mark.usefixtures("woken_only")
def test_beyond_the_places_nobody_waits() -> None:
    tail, stopping = make_tail(places=1)
    inside: list[Any] = []

    def check() -> str:
        inside.append(tail.until(lambda: None, 10))
        return "found"

    began = time.monotonic()
    assert tail.until(check, 10) == "found"
    assert inside == [None]
    assert time.monotonic() - began < 9
    stopping.set()


@pytest.mark.usefixtures("woken_only")
@pytest.mark.parametrize("reason", ["stopping", "gone"])
def test_nobody_waits_for_a_client_that_left_or_a_process_that_stops(reason: str) -> None:
    tail, stopping = make_tail()
    began = time.monotonic()
    if reason == "stopping":
        stopping.set()
    tail.until(lambda: None, 10, lambda: reason == "gone")

    assert time.monotonic() - began < 9
    stopping.set()


def test_a_place_is_given_back_whatever_happens() -> None:
    places = Places(1)
    with pytest.raises(RuntimeError), places.place():
        raise RuntimeError

    assert places.take()
    assert not places.take()


def test_who_listens_to_one_thing_hears_only_that(site: Site) -> None:
    tail, client = site.services.tail, site.lab.client
    with tail.listening(("test", "1")) as first, tail.listening(("test", "2")) as second:
        wait_until(lambda: first.count and second.count)
        before = second.count
        seen, events = first.count, tail.count
        client.xadd("boyd:{test}:log:1", {"entry": "x"})
        first.wait(seen, 10)

        assert (first.count, second.count, tail.count) == (seen + 1, before, events)


def test_those_who_listen_to_the_same_share_it_until_the_last_one_leaves(site: Site) -> None:
    tail = site.services.tail
    with tail.listening(("test", "1")) as one:
        with tail.listening(("test", "1")) as other:
            assert other is one
        wait_until(lambda: one.count)
        seen = one.count
        site.lab.client.xadd("boyd:{test}:log:1", {"entry": "x"})
        one.wait(seen, 10)
        assert one.count > seen
    with tail.listening(("test", "1")) as later:
        assert later is not one


def test_a_process_that_stops_wakes_those_who_listen(site: Site) -> None:
    began = time.monotonic()
    with site.services.tail.listening(("test", "1")) as bell:
        threading.Timer(0.05, site.services.stop).start()
        bell.wait(100, 30)

    assert time.monotonic() - began < 25


class Recording:
    """A dispatcher that keeps what it was given, and blocks until it may go on."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self.go_on = threading.Event()
        self.done = threading.Semaphore(0)

    def _keep(self, *what: Any) -> None:
        assert self.go_on.wait(60)
        self.sent.append(what)
        self.done.release()
        if what[0] == "bad":
            raise RuntimeError("boom")

    send = fan_out = job = _keep


def test_a_message_is_sent_by_another_thread_whatever_the_broker_does() -> None:
    slow = Recording()
    dispatcher = BackgroundDispatcher(lambda: slow)
    began = time.monotonic()
    dispatcher.send("bad", 1, 1, "start")
    dispatcher.job("a", "call:1", 1, None)
    dispatcher.fan_out("a", 1, [BatchHint(1, 1, "observe")])
    took = time.monotonic() - began
    slow.go_on.set()
    for _ in range(3):
        assert slow.done.acquire(timeout=60)

    assert took < 50
    assert [what[0] for what in slow.sent] == ["bad", "a", "a"]


def test_messages_that_a_dead_broker_cannot_take_are_dropped() -> None:
    slow = Recording()
    dispatcher = BackgroundDispatcher(lambda: slow)
    for number in range(WAITING + 10):
        dispatcher.job("a", f"call:{number}", 1, None)
    slow.go_on.set()

    assert slow.done.acquire(timeout=60)
