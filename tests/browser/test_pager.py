"""A night on call, with everything real but Slack: from Alertmanager to the verdicts."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from browser_kit import PHONE, Console, keep_screenshot
from harness import Deployment, wait_until
from measuring import Measure
from night_kit import night

pytestmark = [pytest.mark.real, pytest.mark.long]

#: The services that are down, by the agents that watch them.
INCIDENTS = {"shop": "web-1", "mail": "fragile-1", "ledger": "book-1"}

#: What the stream says of itself in the bar, and the height of the bar with such a text.
_STATES = ("connecting", "live", "not live: as of 12 min ago", "on hold: something has changed")
_HEIGHT_WITH = """(text) => {
  document.getElementById("stream").textContent = text;
  return document.getElementById("bar").offsetHeight;
}"""

#: Gives the agent a long name.
_LENGTHEN = """() => {
  document.querySelector("#agents summary").append("-in-a-region-far-away");
}"""
#: The rows of the bar with a text of the stream, by their rounded middles, and the page's width.
_ROWS_WITH = """(text) => {
  document.getElementById("stream").textContent = text;
  const parts = [...document.querySelectorAll("#bar .row > *, #bar nav > *")];
  const boxes = parts.map((part) => part.getBoundingClientRect()).filter((box) => box.height);
  const middles = new Set(boxes.map((box) => Math.round((box.top + box.bottom) / 60)));
  return [[...middles], document.documentElement.scrollWidth];
}"""


def test_three_incidents_of_a_night_reach_the_right_people_up_to_their_verdicts(
    deployment: Deployment, chromium: Any, tmp_path: Path, pictures: Path, measure: Measure
) -> None:
    """The shop needs a restart, that of the mail server does harm, the ledger recovers."""
    with night(deployment, chromium, tmp_path) as people:
        fired = monotonic()
        for agent, service in INCIDENTS.items():
            people.alerts.fire("ServiceDown", agent=agent, service=service)

        # Jane and the channel are asked.
        for service in INCIDENTS.values():
            people.hear("jane", service, "Approval needed")
            wait_until(partial(people.headline, service))
        mailed = monotonic() - fired

        # Mia takes the mail server. Nobody takes the others, so Lee is asked, too.
        people.mia("boyd.acknowledge", "fragile-1")
        for service in ("web-1", "book-1"):
            people.hear("lee", service, "Escalated, approval needed")

        # The ledger recovers, and what waits because of it is marked.
        people.alerts.resolve("ServiceDown", agent="ledger", service="book-1")

        # Lee opens the link on a phone, and looks: inbox, overview, agent, target, approval.
        key = deployment.key("lee", "read", "approvals")
        with people.console.visitor(size=PHONE) as context:
            page = context.new_page()
            _sign_in(page, people.link("lee", "web-1"), _text(key))
            page.goto(f"{people.console.url}/console/")
            page.get_by_text("the problem is over").wait_for()
            keep_screenshot(page, pictures, "night-inbox")
            page.goto(f"{people.console.url}/console/agents")
            page.get_by_text("web-1 is down").wait_for()
            keep_screenshot(page, pictures, "night-overview")
            page.get_by_role("link", name="shop", exact=True).click()
            page.get_by_role("heading", name="What is wrong").wait_for()
            keep_screenshot(page, pictures, "night-agent")
            page.locator("section.trouble").get_by_role("link", name="web-1").first.click()
            page.get_by_role("heading", name="web-1", exact=True).wait_for()
            keep_screenshot(page, pictures, "night-target")
            page.get_by_role("link", name="pager:restart").first.click()
            page.get_by_role("link", name=re.compile("Approve")).click()
            page.get_by_role("button", name="Approve").wait_for()
            assert deployment.effects() == []
            clicked = monotonic()
            page.get_by_role("button", name="Approve").click()
            page.get_by_text("web-1 answers").first.wait_for()
            seconds = monotonic() - clicked
            keep_screenshot(page, pictures, "night-outcome")

        # Mia approves hers in the channel; it makes things worse, and is undone.
        people.mia("boyd.approve", "fragile-1")

        # All who knew hear the verdicts, and nobody hears anything twice.
        for name in ("jane", "channel"):
            people.hear(name, "fragile-1", "Undone")
        for name in ("jane", "lee", "channel"):
            people.hear(name, "web-1", "Effective")
        assert people.headline("web-1") == "Effective"
        assert people.headline("fragile-1") == "Undone"
        assert people.news("lee", "fragile-1") == [], "Mia has it"
        for name in ("jane", "lee", "channel"):
            for service in INCIDENTS.values():
                news = people.news(name, service)
                assert len(news) == len(set(news)), (name, service)
    assert deployment.effects_file.read_text().splitlines() == [
        "restart web-1",
        "restart fragile-1",
        "stop fragile-1",
    ]
    measure(6, f"three mails and messages {mailed:.1f} s after three alerts")
    measure(6, f"from the click on a phone to the verdict on its page: {seconds:.1f} s")


def test_nothing_moves_under_a_finger_when_a_page_becomes_live(console: Console) -> None:
    with console.person(size=PHONE) as context:
        [page] = context.pages
        page.goto(console.page_of(console.waiting()))
        page.locator("#stream[data-state=live]").wait_for()
        heights = [page.evaluate(_HEIGHT_WITH, text) for text in _STATES]
    assert len(set(heights)) == 1


def test_the_bar_has_two_rows_on_a_phone_however_long_the_names_are(
    console: Console, pictures: Path
) -> None:
    with console.person("a.very.long.name@example.com", size=PHONE) as context:
        [page] = context.pages
        page.goto(f"{console.url}/console/agents/desk")
        page.evaluate(_LENGTHEN)
        rows = [page.evaluate(_ROWS_WITH, text) for text in _STATES]
        keep_screenshot(page, pictures, "bar-phone")
    assert [(len(tops), width) for tops, width in rows] == [(2, PHONE["width"])] * len(_STATES)


def _text(headers: dict[str, str]) -> str:
    """The key in these headers."""
    return headers["Authorization"].removeprefix("Bearer ")


def _sign_in(page: Any, link: str, key: str) -> None:
    """Follow *link* to the login, and from there to the page that it is about."""
    page.goto(link)
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(link)
