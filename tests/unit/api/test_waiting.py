"""Waiting requests are woken, look by themselves, and never take all threads."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from api_kit import Site
from boyd.errors import StoreUnavailable
from boyd.runtime import BatchHint
from boyd_api.http import change_watcher
from boyd_api.http.change_watcher import ChangeWatcher
from boyd_api.http.services import MAX_WAITING, BackgroundDispatcher
from harness import wait_until


def make_changes(places: int = 1) -> tuple[ChangeWatcher, threading.Event]:
    """A changes whose Redis is always away, so that only the test wakes it."""

    def away() -> Any:
        raise StoreUnavailable

    stopping = threading.Event()
    return ChangeWatcher(away, list, places, stopping), stopping


@pytest.fixture
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks by himself: who waits is woken, or waits to the end."""
    monkeypatch.setattr(change_watcher, "LOOK", 100.0)


def test_a_value_already_present_is_returned_at_once() -> None:
    changes, stopping = make_changes()

    assert changes.until(lambda: "found", 100) == "found"
    stopping.set()


@pytest.mark.usefixtures("no_polling")
def test_an_event_wakes_a_waiting_request() -> None:
    changes, stopping = make_changes()
    times: list[float] = []

    def check() -> str | None:
        times.append(time.monotonic())
        if len(times) == 1:
            threading.Timer(0.01, changes.wake).start()
        return "found" if len(times) > 1 else None

    assert changes.until(check, 100) == "found"
    assert times[1] - times[0] < 50
    stopping.set()


@pytest.mark.usefixtures("no_polling")
def test_an_event_between_looking_and_waiting_is_not_lost() -> None:
    changes, stopping = make_changes()
    times: list[float] = []

    def check() -> str | None:
        times.append(time.monotonic())
        changes.wake()
        return "found" if len(times) > 3 else None

    assert changes.until(check, 100) == "found"
    assert times[-1] - times[0] < 50
    stopping.set()


def test_without_events_it_looks_by_itself() -> None:
    changes, stopping = make_changes()
    answers = iter([None, None, "found"])

    assert changes.until(lambda: next(answers), 100) == "found"
    stopping.set()


@pytest.mark.usefixtures("no_polling")
def test_nobody_waits_longer_than_they_may() -> None:
    changes, stopping = make_changes()
    began = time.monotonic()

    assert changes.until(lambda: None, 0.05) is None
    assert time.monotonic() - began < 50
    stopping.set()


@pytest.mark.usefixtures("no_polling")
def test_beyond_the_places_nobody_waits() -> None:
    changes, stopping = make_changes(places=1)
    inside: list[Any] = []

    def check() -> str:
        inside.append(changes.until(lambda: None, 100))
        return "found"

    began = time.monotonic()
    assert changes.until(check, 100) == "found"
    assert inside == [None]
    assert time.monotonic() - began < 50
    stopping.set()


@pytest.mark.usefixtures("no_polling")
@pytest.mark.parametrize("reason", ["stopping", "gone"])
def test_nobody_waits_for_a_client_that_left_or_a_process_that_stops(reason: str) -> None:
    changes, stopping = make_changes()
    began = time.monotonic()
    if reason == "stopping":
        stopping.set()
    changes.until(lambda: None, 100, lambda: reason == "gone")

    assert time.monotonic() - began < 50
    stopping.set()


def test_a_place_is_given_back_whatever_happens() -> None:
    changes, stopping = make_changes(places=1)

    def fail() -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        changes.until(fail, 1)
    answers = iter([None, "found"])
    assert changes.until(lambda: next(answers), 100) == "found"
    stopping.set()


def test_a_follower_of_one_log_is_woken_by_that_log_only(site: Site) -> None:
    changes, client = site.services.changes, site.lab.client
    with changes.following(("test", "1")) as first, changes.following(("test", "2")) as second:
        wait_until(lambda: first.count and second.count)
        before = second.count
        count, events = first.count, changes.count
        client.xadd("boyd:{test}:log:1", {"entry": "x"})
        first.wait(count, 120)

        assert (first.count, second.count, changes.count) == (count + 1, before, events)


def test_those_who_listen_to_the_same_share_it_until_the_last_one_leaves(site: Site) -> None:
    changes = site.services.changes
    with changes.following(("test", "1")) as log:
        with changes.following(("test", "1")) as other:
            assert other is log
        wait_until(lambda: log.count)
        count = log.count
        site.lab.client.xadd("boyd:{test}:log:1", {"entry": "x"})
        log.wait(count, 120)
        assert log.count > count
    with changes.following(("test", "1")) as later:
        assert later is not log


def test_a_process_that_stops_wakes_those_who_listen(site: Site) -> None:
    began = time.monotonic()
    with site.services.changes.following(("test", "1")) as signal:
        threading.Timer(0.05, site.services.stop).start()
        signal.wait(100, 100)

    assert time.monotonic() - began < 50


class Recording:
    """A dispatcher that keeps what it was given, and blocks until it may go on."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self.go_on = threading.Event()
        self.done = threading.Semaphore(0)

    def _keep(self, *message: Any) -> None:
        assert self.go_on.wait(60)
        self.sent.append(message)
        self.done.release()
        if message[0] == "bad":
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
    assert [message[0] for message in slow.sent] == ["bad", "a", "a"]


def test_messages_that_a_dead_broker_cannot_take_are_dropped() -> None:
    slow = Recording()
    dispatcher = BackgroundDispatcher(lambda: slow)
    for number in range(MAX_WAITING + 10):
        dispatcher.job("a", f"call:{number}", 1, None)
    slow.go_on.set()

    assert slow.done.acquire(timeout=60)
