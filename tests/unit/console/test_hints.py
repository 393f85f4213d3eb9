"""The stream of hints: what open pages are told, and who is told what."""

from __future__ import annotations

import pytest

from api_kit import Site
from boyd.errors import StoreUnavailable
from boyd_api.console.stream import HintFeed
from boyd_api.http.change_watcher import Hints


@pytest.fixture
def hints(desk: Site) -> Hints:
    """The hints of the office."""
    new_hints = Hints(lambda: desk.store, desk.services.agents)
    new_hints.newest()
    return new_hints


def test_each_kind_of_event_is_hinted_once(desk: Site, hints: Hints) -> None:
    feed = HintFeed(hints, frozenset({"desk"}))
    start = feed.first()
    desk.waiting("one")
    desk.waiting("two")
    desk.post("/freeze", {"reason": "storm"})

    events = feed.after(start)
    assert [(event.kind, event.data) for event in events] == [
        ("hint", "approval desk"),
        ("hint", "agent desk"),
    ]
    assert feed.after(events[-1].id) == []


def test_agents_that_a_reader_may_not_see_are_not_hinted(desk: Site, hints: Hints) -> None:
    feed = HintFeed(hints, frozenset())
    start = feed.first()
    desk.waiting("one")

    [passed] = feed.after(start)
    assert passed.kind is None
    assert passed.data == ""
    assert feed.after(passed.id) == []


def test_the_sign_of_life_tells_whether_redis_answers(desk: Site, hints: Hints) -> None:
    feed = HintFeed(hints, frozenset({"desk"}))
    assert feed.sign_of_life == 'event: alive\ndata: {"redis": true}\n\n'

    def away() -> list[str]:
        raise StoreUnavailable

    hints._agents = away
    with pytest.raises(StoreUnavailable):
        feed.after("0-0")
    assert feed.sign_of_life == 'event: alive\ndata: {"redis": false}\n\n'


def test_the_stream_needs_a_session(desk: Site) -> None:
    answer = desk.client.get("/console/stream")

    assert answer.status_code == 303
    assert answer.headers["Location"].startswith("/console/login")
    streamed = desk.client.get("/console/stream", headers={"Accept": "text/event-stream"})
    assert streamed.status_code == 401
