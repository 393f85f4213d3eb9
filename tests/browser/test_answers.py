"""Answers in a real browser: by keys, on a phone, without scripts, late, and while the API dies."""

from __future__ import annotations

import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any

import pytest
import requests

from boyd.models import ActionResult
from browser_kit import PHONE, Console, open_again
from harness import wait_until

pytestmark = [pytest.mark.real, pytest.mark.long]


def test_two_keys_approve_what_waits(console: Console) -> None:
    id = console.waiting("by keys")
    with console.person() as context:
        [page] = context.pages
        page.locator("[data-item]", has_text="by keys").wait_for()
        page.keyboard.press("j")
        page.keyboard.press("a")
        page.get_by_role("heading", name="Approve?").wait_for()
        assert "by keys" not in console.deployment.effects_file.read_text()
        page.keyboard.press("Enter")
        page.get_by_text("Execution: succeeded").wait_for()

    assert "by keys" in console.deployment.effects_file.read_text()
    assert console.item(id).acted_by == "alice"


def test_the_only_one_that_waits_needs_no_key_to_be_chosen(console: Console) -> None:
    id = console.waiting("alone", risk="low")
    with console.person() as context:
        [page] = context.pages
        page.goto(f"{console.url}/console/?risk=low")
        page.locator("[data-item]", has_text="alone").wait_for()
        page.keyboard.press("a")
        page.wait_for_url(f"{console.page_of(id)}?answer=approve")


def test_a_single_key_never_acts(console: Console) -> None:
    id = console.waiting("untouched")
    with console.person() as context:
        [page] = context.pages
        page.goto(console.page_of(id))
        for key, answer in (("d", "deny"), ("w", "withdraw"), ("a", "approve")):
            page.keyboard.press(key)
            page.wait_for_url(f"**?answer={answer}")
            page.keyboard.press("Escape")
            page.wait_for_url(console.page_of(id))
        page.keyboard.press("?")
        page.get_by_role("dialog").wait_for()
        page.keyboard.press("Escape")
        page.get_by_role("dialog").wait_for(state="hidden")
        for key in ("j", "k", "/"):
            page.keyboard.press(key)
        page.locator("input[type=search]:focus").wait_for()
    assert console.item(id).status == "pending"


def test_a_phone_without_scripts_answers_too(console: Console) -> None:
    id = console.waiting("no scripts")
    with console.person(size=PHONE, java_script_enabled=False) as context:
        [page] = context.pages
        page.get_by_role("link", name="desk:write").last.click()
        page.goto(console.page_of(id))
        page.get_by_role("link", name=re.compile("Approve")).click()
        page.get_by_label(re.compile("Note")).fill("from the train")
        page.get_by_role("button", name="Approve").click()
        page.get_by_text("from the train").first.wait_for()
    wait_until(lambda: "no scripts" in console.deployment.effects_file.read_text())


def test_a_late_answer_shows_the_first_one_and_keeps_the_note(console: Console) -> None:
    id = console.waiting("late")
    with console.person() as context:
        [page] = context.pages
        page.goto(f"{console.page_of(id)}?answer=approve")
        page.get_by_label(re.compile("Note")).fill("I have looked at it")
        inbox = context.new_page()
        inbox.goto(f"{console.url}/console/")
        answered = requests.post(
            f"{console.url}/api/v0/approvals/{id}/deny",
            headers=console.deployment.key("bob", "approvals"),
            timeout=60,
        )
        assert answered.ok
        inbox.get_by_text("late").wait_for(state="detached")
        page.get_by_text("on hold: something has changed").wait_for()
        page.get_by_role("button", name="Approve").click()
        page.get_by_text("Your answer does not count: the approval is denied by bob").wait_for()
        # What happens next does not take that away: a page that refuses an answer is not live.
        page.get_by_text("not live: as of").wait_for()
        other = console.waiting("what happens next")
        inbox.get_by_text("what happens next").wait_for()
        page.wait_for_timeout(2000)
        assert page.get_by_text("Your answer does not count").is_visible()
        assert page.get_by_text("I have looked at it").is_visible()
    console.deployment.resolver("desk").answer(other, "withdrawn", _actor())
    assert "late" not in console.deployment.effects()


def test_a_note_being_typed_survives_updates_of_the_page(console: Console) -> None:
    id, other = console.waiting("typing"), console.waiting("other")
    with console.person() as context:
        [page] = context.pages
        page.goto(f"{console.page_of(id)}?answer=approve")
        note = page.get_by_label(re.compile("Note"))
        note.press_sequentially("half a sen")
        before = page.locator("#stream").get_attribute("data-at")
        console.waiting("a third")
        page.get_by_text("on hold: something has changed").wait_for()
        page.wait_for_timeout(2000)
        assert note.input_value() == "half a sen"
        assert page.evaluate("document.activeElement.name") == "note"
        note.fill("")
        console.waiting("a fourth")
        page.wait_for_function(
            "(before) => document.getElementById('stream').dataset.at !== before", arg=before
        )
        assert page.evaluate("document.activeElement.name") == "note"
    for item_id in (id, other):
        console.deployment.resolver("desk").answer(item_id, "withdrawn", _actor())


def test_a_change_holds_the_button_and_says_so_beside_it(console: Console) -> None:
    id = console.waiting("previewed")
    _preview(console, id, "one line")
    with console.person() as context:
        [page] = context.pages
        page.goto(f"{console.page_of(id)}?answer=approve")
        button = page.locator("button.primary.approve:focus")
        button.wait_for()
        _preview(console, id, "two lines")
        page.get_by_role("status").get_by_text("The button works in a moment").wait_for()
        page.keyboard.press("Enter")
        # A reading of the page meanwhile does not give the button back.
        page.evaluate("htmx.trigger(document.getElementById('page'), 'boyd:refresh')")
        page.get_by_role("status").get_by_text("The button works again").wait_for()
        button.wait_for()
        assert console.item(id).status == "pending"
        page.keyboard.press("Enter")
        page.get_by_text("Execution: succeeded").wait_for()


def test_the_end_of_a_hold_takes_nobody_away_from_a_note(console: Console) -> None:
    id = console.waiting("noted")
    _preview(console, id, "one line")
    with console.person() as context:
        [page] = context.pages
        page.goto(f"{console.page_of(id)}?answer=approve")
        page.get_by_label(re.compile("Note")).focus()
        _preview(console, id, "two lines")
        page.get_by_role("status").get_by_text("The button works again").wait_for()
        assert page.evaluate("document.activeElement.name") == "note"
    console.deployment.resolver("desk").answer(id, "withdrawn", _actor())


def test_the_truth_is_shown_after_the_api_died_in_the_middle_of_a_click(console: Console) -> None:
    with console.person() as context:
        [page] = context.pages
        for number in range(6):
            id = console.waiting(f"crash{number}")
            page.goto(f"{console.page_of(id)}?answer=approve")
            page.evaluate("document.querySelector('.confirm form').requestSubmit()")
            time.sleep(number / 100)
            console.deployment.kill("api")
            console.revive_api(signal.SIGKILL)
            wait_until(lambda: _answers(console.url))
            open_again(page, console.page_of(id))
            texts = {"pending": "waits for an answer", "approved": "approved by alice"}
            page.get_by_text(texts[console.item(id).status]).first.wait_for()
            if console.item(id).status == "pending":
                page.goto(f"{console.page_of(id)}?answer=approve")
                page.get_by_role("button", name="Approve").click()
            page.get_by_text("Execution: succeeded").wait_for()
            assert console.deployment.effects().count(f"crash{number}") == 1


def test_a_signed_link_shows_how_old_its_page_is_and_what_others_have_answered(
    console: Console,
) -> None:
    id = console.waiting("by link", links="bearer")
    with console.visitor() as context:
        page = context.new_page()
        page.goto(console.signed_link(id))
        page.get_by_text(re.compile(r"As of \d s ago")).wait_for()
        console.deployment.kill("api", signal.SIGSTOP)
        # It is read again every ten seconds.
        page.get_by_text(re.compile(r"As of ([2-9]\d s|\d+ min.*) ago")).wait_for()
        line = page.get_by_text(re.compile(r"asked by .* ([2-9]\d s|\d+ min.*) ago"))
        assert line.count() == 1
        console.deployment.kill("api", signal.SIGCONT)
        console.deployment.resolver("desk").answer(id, "denied", _actor())
        page.get_by_text("Nothing was executed.").wait_for()
        assert not page.get_by_role("button", name="Approve").is_visible()


def test_fifty_racing_answers_have_one_outcome_that_all_see(console: Console) -> None:
    id = console.waiting("race")
    keys = [console.deployment.key(f"p{n}", "approvals", "read") for n in range(48)]

    def over_api(verb: str, headers: dict[str, str]) -> Any:
        address = f"{console.url}/api/v0/approvals/{id}/{verb}?wait=0"
        return requests.post(address, headers=headers, timeout=120)

    with (
        console.person("ann") as first,
        console.person("ben") as second,
        ThreadPoolExecutor(16) as pool,
    ):
        pages = [first.pages[0], second.pages[0]]
        for page in pages:
            page.goto(f"{console.page_of(id)}?answer=approve")
        verbs = cycle(("approve", "deny"))
        racing = [pool.submit(over_api, verb, key) for verb, key in zip(verbs, keys, strict=False)]
        for page in pages:
            page.evaluate("document.querySelector('.confirm form')?.requestSubmit()")
        answers = [future.result() for future in racing]
        item = console.item(id)
        assert item.status in ("approved", "denied")
        won = sum(answer.ok for answer in answers)
        for page in pages:
            page.get_by_text(re.compile(f"{item.status} by {item.acted_by}")).first.wait_for()
            won += item.acted_by in ("ann", "ben") and page is pages[item.acted_by == "ben"]
        assert won == 1
        for reply in answers:
            approval = reply.json().get("approval", reply.json())
            assert (approval["status"], approval["actedBy"]) == (item.status, item.acted_by)
    if item.status == "approved":
        wait_until(lambda: "race" in console.deployment.effects())
    assert console.deployment.effects().count("race") == (item.status == "approved")


def _answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/healthz", timeout=10).ok
    except requests.RequestException:
        return False


def _actor() -> Any:
    from boyd.models import Actor

    return Actor(principal="tests")


def _preview(console: Console, id: str, output: str) -> None:
    result = ActionResult(action="desk:write", success=True, output=output, duration=0)
    assert console.deployment.agent("desk").approvals.refresh(id, result)
