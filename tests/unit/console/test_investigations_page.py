"""The pages of investigations: the list, the transcript, and what their forms do."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boyd.models import Timestamp, utc_now
from boyd.models.investigation import Asked, Delta, Result, Said, Started, ToolCall, ToolObservation
from boyd.testing import ScriptedModel
from boyd.testing.model_server import call, say
from boyd_api.console.stream import HintFeed
from boyd_api.http.change_watcher import Hints
from console_kit import Browser, Form
from harness import wait_until
from investigation_kit import Case, only_archived

LIST = "/console/agents/disks/investigations"
ANSWER = "The log of nginx has grown to 40 GB."


@pytest.fixture
def replies() -> list[Any]:
    """The replies of the model, in order."""
    return [call("look", {"path": "/var"}), say(ANSWER)]


@pytest.fixture
def case(server: Any, replies: list[Any]) -> Iterator[Case]:
    """A site whose model says *replies*, and the last one for ever."""
    with ScriptedModel(replies, forever=True) as model:
        new_case = Case(server, model)
        yield new_case
        new_case.site.services.stop()


@pytest.fixture
def ann(case: Case) -> Browser:
    """The browser of a person who may do everything."""
    return Browser(case.site, case.site.key("admin", principal="ann", person=True))


def result(number: int, output: str) -> Result:
    """The result of a call."""
    at: Timestamp = utc_now()
    id = f"call{number:05}"
    return Result(
        observation=ToolObservation(
            time=at, tool="look", call_id=id, status="succeeded", output=output, duration=3
        )
    )


def test_a_question_is_answered_and_its_calls_are_shown_with_their_results(
    case: Case, ann: Browser
) -> None:
    page = ann.send(ann.get(LIST).form("/investigations"), question="Why is the disk full?")
    assert f"Answer {ANSWER}" in page.text
    assert "answered asked by ann" in page.text
    assert "2 steps 1 call" in page.text
    assert "#1 look" in page.text
    assert "/var is full" in page.text
    assert page.title.startswith("Why is the disk full?")
    assert page.title.endswith(": final answer · Boyd")
    listed = ann.get(LIST).text
    assert f"Why is the disk full? {ANSWER} answered asked by ann" in listed


def test_one_asks_on_after_the_answer(case: Case, ann: Browser) -> None:
    id = case.asked()
    page = ann.send(ann.get(f"{LIST}/{id}").form("/messages"), text="And now?")
    assert "ann asked" in page.text
    assert "And now?" in page.text
    assert [entry.text for entry in case.entries(id) if isinstance(entry, Asked)] == [
        "Why?",
        "And now?",
    ]


def test_a_follow_up_question_sent_too_early_is_refused_and_not_recorded(
    case: Case, ann: Browser
) -> None:
    id = case.asked()
    form = ann.get(f"{LIST}/{id}").form("/messages")
    case.site.dispatcher.held = True
    ann.send(form, text="And now?")
    page = ann.send(Form(form.action, {**form.fields, "request": "another"}), text="Hello?")
    assert page.status == 409
    assert "Nothing was changed: the last question of investigation" in page.text
    assert "Hello?" not in [entry.text for entry in case.entries(id) if isinstance(entry, Asked)]


def test_the_duration_of_an_investigation_goes_on_until_it_has_ended(
    case: Case, ann: Browser
) -> None:
    investigation = case.asked()
    assert "data-lasts" not in ann.get(LIST).source + ann.get(f"{LIST}/{investigation}").source
    running = case.pending()
    assert "data-lasts>0 s</time>" in ann.get(LIST).source
    assert "data-lasts>0 s</time>" in ann.get(f"{LIST}/{running}").source


def test_equal_titles_are_extended_by_the_line_that_differs(case: Case, ann: Browser) -> None:
    for host in "ab":
        case.pending(f"The disk is full\nSince noon.\nhost: shop-{host}")
    text = ann.get(LIST).text
    assert "The disk is full host: shop-a running" in text
    assert "The disk is full host: shop-b running" in text


@pytest.mark.parametrize("replies", [[call("clean", {"path": "/var"}), say(ANSWER)]])
def test_one_that_waits_offers_its_approval(case: Case, ann: Browser) -> None:
    id = case.asked()
    page = ann.get(f"{LIST}/{id}")
    assert page.title.endswith(": waits for approval · Boyd")
    assert "#1 clean" in page.text
    [item] = case.site.lab.store.approvals.page(10).pending
    assert f"/approvals/{item.id}?answer=approve" in page.source
    assert "waits for approval asked by alice" in ann.get(LIST).text


def test_an_investigation_is_cancelled_after_a_confirmation(case: Case, ann: Browser) -> None:
    id = case.pending()
    page = ann.send(ann.get(f"{LIST}/{id}?do=cancel").form("/cancel"))
    assert "ann has cancelled it; a worker ends it soon." in page.text
    case.site.lab.deliver()
    assert "cancelled" in ann.get(f"{LIST}/{id}").title


def test_one_that_goes_on_says_that_nobody_does_its_work(case: Case, ann: Browser) -> None:
    page = f"{LIST}/{case.pending()}"
    assert "not watching" not in ann.get(page).text
    for worker in case.site.store.fleet.workers():
        case.site.store.fleet.leave(worker.name)
    assert "disks : not watching, no worker" in ann.get(page).text


def test_a_turn_is_shown_while_the_model_writes_it(case: Case, ann: Browser) -> None:
    id = case.pending()
    case.write(id, *(Delta(step=1, channel="text", text=t).to_json() for t in ("I lo", "ok")))
    text = ann.get(f"{LIST}/{id}").text
    assert "the model writes" in text
    assert "I look" in text
    case.write(id, Said(step=1, text="I look.").to_json())
    assert "the model writes" not in ann.get(f"{LIST}/{id}").text


def long_log(case: Case, id: str, steps: int, output: str = "full") -> None:
    """Have many steps in its log, each with a call."""
    for step in range(1, steps + 1):
        tool_call = ToolCall(id=f"call{step:05}", name="look", arguments=f'{{"path": "/{step}"}}')
        case.write(id, Said(step=step, text=f"Step {step}.", calls=[tool_call]).to_json())
        case.write(id, Started(call_id=tool_call.id).to_json())
        case.write(id, result(step, f"{step} {output}").to_json())


def test_of_a_long_transcript_the_last_part_is_shown_and_leads_to_the_rest(
    case: Case, ann: Browser
) -> None:
    id = case.pending()
    long_log(case, id, 50)
    page, pages = ann.get(f"{LIST}/{id}"), list[str]()
    assert "Step 50." in page.text
    assert "Step 1." not in page.text
    while True:
        pages.append(page.text)
        link = page.source.partition('href="' + f"{LIST}/{id}?before=")[2].partition('"')[0]
        if not link:
            break
        page = ann.get(f"{LIST}/{id}?before={link.partition('#')[0]}")
    assert 2 < len(pages) < 6
    for step in range(1, 51):
        assert sum(f"Step {step}." in text for text in pages) == 1
        # A call is on the same page as its result.
        assert sum(f"{step} full" in text and f"#{step} look" in text for text in pages) >= 1


def test_a_call_is_shown_in_full_wherever_it_is(case: Case, ann: Browser) -> None:
    id = case.pending()
    long_log(case, id, 30, "x" * 5000 + "<end>")
    page = ann.get(f"{LIST}/{id}")
    assert "<end>" not in page.text.partition("Step 30.")[2]
    link = page.source.partition(f'href="{LIST}/{id}/calls/30?at=')[2].partition('"')[0]
    for query in (f"?at={link}", ""):
        response = ann.get(f"{LIST}/{id}/calls/30{query}")
        assert '"path": "/30"' in response.text
        assert "xxx<end>" in response.text
        assert "<end>" not in response.source
    assert ann.get(f"{LIST}/{id}/calls/31").status == 404
    assert ann.get(f"{LIST}/{id}/calls/30?at=there").status == 400


def test_an_agent_without_a_model_says_how_to_give_it_one(alice: Browser) -> None:
    page = alice.get("/console/agents/desk/investigations")
    assert "No investigations yet." in page.text
    assert "This agent has no model" in page.text
    assert "[llm]" in page.text


def test_a_reader_is_offered_no_forms(case: Case) -> None:
    id = case.asked()
    guest = Browser(case.site, case.site.key("read", principal="guest"))
    for path in (LIST, f"{LIST}/{id}", f"{LIST}/{id}?do=cancel"):
        assert f'action="{LIST}' not in guest.get(path).source


def test_the_growth_of_the_log_of_an_open_investigation_is_hinted(case: Case) -> None:
    hints = Hints(lambda: case.site.store, case.site.services.agents)
    feed = HintFeed(hints, frozenset({"disks"}))
    hints.newest()
    id = case.pending()
    start = feed.first()

    def has_hint() -> bool:
        case.write(id, Delta(step=1, channel="text", text="I").to_json())
        return "investigation disks" in [event.data for event in feed.after(start)]

    assert wait_until(has_hint)


@pytest.fixture
def past_id(case: Case, tmp_path: Path) -> Iterator[str]:
    """The id of an answered investigation that only the archive has."""
    with only_archived(case, case.asked(), tmp_path) as id:
        yield id


def test_an_archived_investigation_is_shown_with_its_transcript(ann: Browser, past_id: str) -> None:
    page = ann.get(f"{LIST}/{past_id}")
    assert "#1 look" in page.text
    assert "/var is full" in page.text
    assert "no longer kept" not in page.text
    link = re.search(rf'href="({LIST}/{past_id}/calls/1[^"]*)"', page.source)
    assert link is not None
    assert "/var is full" in ann.get(html.unescape(link[1])).text


def test_nothing_can_be_added_to_an_archived_investigation(ann: Browser, past_id: str) -> None:
    page = ann.get(f"{LIST}/{past_id}")
    assert "Only the archive has it" in page.text
    assert "/messages" not in page.source


def test_a_run_leads_to_its_investigation_in_the_archive(
    case: Case, ann: Browser, tmp_path: Path
) -> None:
    task = {"title": "Disk full", "description": "Since noon.", "kind": "investigation"}
    id = case.post("/runs", task).json["id"]
    with only_archived(case, id, tmp_path):
        page = ann.get(f"/console/agents/disks/runs/{id}")
    assert f'href="{LIST}/{id}"' in page.source
