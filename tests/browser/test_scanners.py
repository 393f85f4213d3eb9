"""Programs that look at the links in mails, with scripts and without: they change nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
import requests

from browser_kit import Console
from harness import Deployment, wait_until
from mail_kit import Mailbox, mail_server, parts_of
from measuring import Measure

pytestmark = [pytest.mark.real, pytest.mark.long]

SECRET = "a secret with more than thirty-two characters"
#: Browsers that look at a link at the same time.
AT_ONCE = 8


@pytest.fixture(name="box")
def _box() -> Iterator[Mailbox]:
    """Open the mailbox of the people on call."""
    with mail_server() as box:
        yield box


@pytest.fixture(name="console")
def _console(deployment: Deployment, chromium: Any, box: Mailbox) -> Console:
    """A console over the agent `notified`, which mails a link with which Jane answers."""
    deployment.environment["BOYD_APPROVAL_SECRET"] = SECRET
    console = Console(deployment, chromium)
    jane = {"url": box.address, "as": "mail:jane@example.com"}
    deployment.environment |= {
        "NOTIFIED": json.dumps([{"name": "on-call", "recipients": [jane]}]),
        "BOYD_API__URL": console.url,
    }
    deployment.worker("worker", "agents.notified:agent")
    deployment.ended("notified", deployment.launcher("notified").trigger("test").iteration)
    [item] = deployment.agent("notified").approvals.page(5).pending
    wait_until(lambda: outcomes_of(deployment, item.id) == ["succeeded"])
    return console


def test_a_thousand_looks_at_a_link_that_answers_change_nothing_and_its_button_answers(
    console: Console, box: Mailbox, measure: Measure
) -> None:
    link = first_link(box)
    assert link.startswith(f"{console.url}/console/answer/")
    before = state(console)
    assert read(link, 960) == {200}
    look(console, link, 40)
    assert state(console) == before
    measure(6, "a link that answers: 480 HEAD, 480 GET and 40 visits of browsers changed nothing")

    with console.visitor() as context:
        page = context.new_page()
        page.goto(link)
        page.get_by_role("button", name="Approve").click()
        page.get_by_text("by mail:jane@example.com").wait_for()
        wait_until(lambda: console.deployment.effects() == ["written"])
    assert state(console) != before
    wait_until(lambda: box.mails[1:])
    assert not any("/console/open/" in str(parts_of(mail)) for mail in box.mails)


def test_looks_at_a_link_to_a_page_lead_to_the_login_and_change_nothing(console: Console) -> None:
    [item] = console.deployment.agent("notified").approvals.page(5).pending
    link = f"{console.url}/console/agents/notified/approvals/{item.id}"
    before = state(console)
    assert read(link, 40) == {303}
    look(console, link, 8)
    assert state(console) == before
    assert console.deployment.store.login_sessions.all() == []


def test_a_link_of_boyd_open_survives_programs_that_run_no_scripts(console: Console) -> None:
    link = console.link("ann")
    assert read(link, 40) == {200}
    with console.visitor() as context:
        page = context.new_page()
        page.goto(link)
        page.wait_for_url("**/console/")


def outcomes_of(deployment: Deployment, id: str) -> list[str]:
    """The outcomes of the notifications of an approval."""
    item = deployment.agent("notified").approvals.get(id)
    return [notification.state for notification in item.notifications] if item else []


def first_link(box: Mailbox) -> str:
    """The link in the first mail."""
    [mail] = wait_until(lambda: box.mails[:1])
    [link] = re.findall(r'<a href="([^"]+)">', parts_of(mail)["text/html"])
    return str(link)


def state(console: Console) -> dict[str, Any]:
    """All that an answer would change."""
    deployment, agent = console.deployment, console.deployment.agent("notified")
    deployment.store.seal(["notified"])
    queue = agent.approvals.page(5)
    return {
        "approvals": [item.to_wire() for item in (*queue.pending, *queue.history)],
        "audit": [
            entry.seq
            for trail in (agent.audit_trail, deployment.store.audit_trail)
            for entry in trail.entries()
        ],
        "effects": deployment.effects(),
    }


def read(link: str, times: int) -> set[int]:
    """The statuses with which a program without scripts is answered, by HEAD and GET in turn."""

    def once(number: int) -> int:
        method = "GET" if number % 2 else "HEAD"
        return requests.request(method, link, allow_redirects=False, timeout=60).status_code

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return set(pool.map(once, range(times)))


def look(console: Console, link: str, times: int) -> None:
    """Visit the link with new browsers that run scripts and move the mouse, but press nothing."""
    for _ in range(times // AT_ONCE):
        with ExitStack() as stack:
            contexts = [stack.enter_context(console.visitor()) for _ in range(AT_ONCE)]
            pages = [context.new_page() for context in contexts]
            for page in pages:
                page.goto(link)
            for page in pages:
                page.wait_for_load_state("networkidle")
                page.mouse.move(200, 200)
                page.mouse.wheel(0, 2000)
                page.mouse.move(400, 400, steps=5)
            for page in pages:
                page.wait_for_load_state("networkidle")
