"""A page reads a limited number of bytes, and ends with a cursor for the next one."""

from __future__ import annotations

from typing import Any

import fakeredis
import pytest

from boyd.errors import QueueFull
from boyd.models import Decision, JsonObject, LoopResult, Proposal, RunRequest
from boyd.store import ItemAnswer, Retention, Store, hashes, runs
from boyd.store.hashes import ByteBudget
from boyd.store.keys import Keys
from boyd.store.server.scripts import Scripts
from boyd.testing import TESTER, Lab
from kit import LAX, Recorder, agent, choice, chooses, reads, seen, sees

KIB = 1024


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of 64 KiB, read in steps of 8."""
    monkeypatch.setattr(hashes, "BYTE_BUDGET", 64 * KIB)
    monkeypatch.setattr(hashes, "STEP", 8 * KIB)


def large(lab: Lab, number: int, **fields: Any) -> None:
    """Submit that many runs of 10 KiB."""
    for n in range(number):
        context = {"text": "x" * 10 * KIB}
        lab.submit(f"run {n}", context=context, **fields)


def sizes(lab: Lab, limit: int, **filters: Any) -> tuple[list[int], list[str]]:
    """The number of runs on each page, and the titles on all of them."""
    counts, titles, cursor = [], [], None
    while True:
        page = lab.store.runs.page(limit, cursor, **filters)
        counts.append(page.total)
        titles += [run.title for run in page.runs]
        cursor = page.next_cursor
        if cursor is None:
            return counts, titles


def test_a_page_of_large_runs_ends_early_and_none_is_left_out() -> None:
    lab = Lab(agent(mode="continuous"))
    large(lab, 20)
    counts, titles = sizes(lab, 100)

    assert counts == [7, 7, 6]
    assert sorted(titles) == sorted(f"run {n}" for n in range(20))


def test_entries_outside_the_filters_do_not_use_up_the_budget() -> None:
    lab = Lab(agent(mode="continuous"))
    lab.submit("wanted", source="rare")
    large(lab, 20)

    assert sizes(lab, 100, source="rare") == ([1], ["wanted"])
    assert sizes(lab, 100, source="api", priority="medium")[0] == [7, 7, 6]


def test_a_run_that_is_larger_than_a_page_is_a_page_of_its_own() -> None:
    lab = Lab(agent(mode="continuous"))
    for name in ("one", "two"):
        lab.submit(name, context={"text": "x" * 100 * KIB})

    counts, titles = sizes(lab, 5)
    assert (counts, sorted(titles)) == ([1, 1, 0], ["one", "two"])


def test_a_page_of_large_approvals_ends_early_and_none_is_left_out() -> None:
    store = Store(fakeredis.FakeRedis(decode_responses=True)).agent("a")
    retention = Retention()
    ids = []
    for number in range(20):
        decision = Decision(action="p:do", rationale="x", confidence=1.0)
        params: JsonObject = {"n": number, "text": "x" * 10 * KIB}
        proposal = Proposal(decision=decision, action_id="p:do", params=params, loop_iteration=1)
        ids.append(store.approvals.enqueue(proposal, retention))
    for name in ids[:10]:
        store.approvals.resolve(name, ItemAnswer("denied", TESTER), LAX, retention)
    waits, past, cursor = [], [], None
    while True:
        page = store.approvals.page(100, cursor)
        assert len(page.pending) + len(page.history) <= 7
        waits += [item.id for item in page.pending]
        past += [item.id for item in page.history]
        cursor = page.next_cursor
        if cursor is None:
            break

    assert sorted(waits) == sorted(ids[10:])
    assert sorted(past) == sorted(ids[:10])


def page_numbers(lab: Lab, limit: int) -> list[list[int]]:
    """The numbers of the iterations on each page."""
    pages, before = [], None
    while True:
        page = lab.store.history.summaries(limit, before)
        pages.append([iteration.iteration for iteration in page.iterations])
        before = page.before
        if before is None:
            return pages


def test_an_outline_agrees_with_the_whole_result() -> None:
    acting = Recorder().action()
    lab = Lab(agent(sees("o", seen(), seen()), reads("r", "a fault"), chooses(choice()), acting))
    run = lab.submit("look").run
    lab.deliver()
    (outline,) = lab.store.history.summaries().iterations
    (result,) = lab.store.history.results()
    assert result.situation is not None

    assert (outline.observations, outline.action_results) == (len(result.observations), 1)
    assert (outline.situation, outline.decision) == (result.situation.summary, "p:do")
    assert (outline.runs, outline.trigger, outline.success) == ([run.id], "run", True)
    assert (outline.started_at, outline.ended_at) == (result.started_at, result.ended_at)
    assert outline.duration == result.duration


def test_an_outline_has_the_outcomes_of_actions_without_their_output() -> None:
    parts = [sees("o", seen()), reads("r", "a fault"), chooses(choice())]
    lab = Lab(agent(*parts, Recorder("x" * 100 * KIB).action()))
    lab.run()
    (outline,) = lab.store.history.summaries().iterations
    [result] = outline.results
    assert (result.action, result.success, result.output) == ("p:do", True, None)


def test_outlines_do_not_read_observations() -> None:
    large_one = seen(data={"text": "x" * 100 * KIB})
    lab = Lab(agent(sees("o", large_one)))
    for _ in range(5):
        lab.run()

    assert page_numbers(lab, 5) == [[5, 4, 3, 2, 1]]
    assert page_numbers(lab, 2) == [[5, 4], [3, 2], [1]]


def test_outlines_end_early_when_they_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(agent(sees("o", seen())))
    for _ in range(5):
        lab.run()
    monkeypatch.setattr(hashes, "BYTE_BUDGET", 600)
    pages = page_numbers(lab, 5)

    assert len(pages) > 1
    assert [number for page in pages for number in page] == [5, 4, 3, 2, 1]


def test_an_iteration_that_an_earlier_release_kept_has_an_outline_too() -> None:
    lab = Lab(agent(sees("o", seen())))
    lab.run()
    written = lab.store.history.summaries()
    lab.client.hdel("boyd:{test}:iteration:1", "outline")

    assert lab.store.history.summaries() == written


def test_a_step_reads_no_more_than_its_bytes_and_one_hash() -> None:
    client = fakeredis.FakeRedis(decode_responses=True)
    for n in range(9):
        client.hset(f"boyd:{{a}}:h:{n}", mapping={"a": "x" * 5 * KIB, "b": "y"})
    replies: list[int] = []

    class Watched(Scripts):
        def run(self, *args: Any, **more: Any) -> Any:
            reply = super().run(*args, **more)
            replies.append(len(reply) - 1)
            return reply

    names = [str(n) for n in range(12)]
    keys = Keys("a")
    groups = list(ByteBudget(Watched(client).of(keys)).read("h", names))

    assert replies == [2, 2, 2, 2, 4]
    assert [len(fields) for fields in groups] == [2] * 9 + [0] * 3
    assert next(ByteBudget(Scripts(client).of(keys)).read("h", names, ["b", "c"])) == {"b": "y"}


def test_no_more_runs_wait_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "PENDING", 2)
    lab = Lab(agent(mode="continuous"))
    request = RunRequest(title="look", description="x")
    lab.launcher.submit_run(request, TESTER, "one")
    lab.submit("two")
    with pytest.raises(QueueFull):
        lab.submit("three")

    assert not lab.launcher.submit_run(request, TESTER, "one").new
    assert {run.title for run in lab.store.runs.page(5).runs} == {"two", "look"}
    result: LoopResult = lab.run()
    assert len(result.runs) == 2
    assert lab.submit("three").new
