"""An alert at three in the morning, with everything real: from Alertmanager to the effect."""

from __future__ import annotations

import json
import re
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from alertmanager_kit import alertmanager
from browser_kit import PHONE, Console, keep_screenshot
from harness import Deployment, wait_until
from mail_kit import mail_server, parts_of
from measuring import Measure

pytestmark = [pytest.mark.real, pytest.mark.long]

#: What the stream says of itself, and the height of the bar with such a text.
_STATES = (
    "connecting",
    "live",
    "stale 12 s",
    "stale: Redis does not answer",
    "off: you are signed out",
)
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


def test_an_alert_is_answered_on_a_phone_by_the_link_in_a_mail(
    deployment: Deployment, chromium: Any, tmp_path: Path, measure: Measure
) -> None:
    console = Console(deployment, chromium)
    webhook = f"{console.url}/api/v0/agents/pager/intake/alertmanager"
    sender = _text(deployment.key("alertmanager", "trigger", person=False))
    with mail_server() as box, alertmanager(tmp_path, webhook, sender) as alerts:
        deployment.environment |= {
            "NOTIFIED": json.dumps([{"name": "on-call", "recipients": [box.address]}]),
            "BOYD_API__URL": console.url,
        }
        deployment.worker("worker", "agents.pager:pager")
        fired = monotonic()
        alerts.fire("ServiceDown", service="shop", severity="critical")
        [asked] = wait_until(lambda: box.mails[:1])
        mailed = monotonic() - fired
        assert asked["Subject"] == "Approval needed: pager:restart (pager)"
        opened = monotonic()
        with console.visitor(size=PHONE) as context:
            page = context.new_page()
            _sign_in(
                page, _link(asked, console), _text(deployment.key("jane", "read", "approvals"))
            )
            page.get_by_role("link", name=re.compile("Approve")).click()
            button = page.get_by_role("button", name="Approve")
            button.wait_for()
            assert deployment.effects() == []
            clicked = monotonic()
            button.click()
            wait_until(lambda: deployment.effects() == ["shop"])
            took, total = monotonic() - clicked, monotonic() - opened
            page.get_by_text("Execution: succeeded").wait_for()
        # The mail about the answer is left out if the outcome overtakes it.
        outcome = "Succeeded: pager:restart (pager)"
        wait_until(lambda: outcome in [mail["Subject"] for mail in box.mails])
        assert not any("/console/open/" in str(parts_of(mail)) for mail in box.mails)
    measure(6, f"mail {mailed:.1f} s after the alert; effect {took:.1f} s after the click")
    measure(6, f"from the link in the mail, over the login, to the effect: {total:.1f} s")


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


def _link(mail: Any, console: Console) -> str:
    """The link in a mail, to the approval's page."""
    [link] = re.findall(r'<a href="([^"]+)">', parts_of(mail)["text/html"])
    assert link.startswith(f"{console.url}/console/agents/pager/approvals/")
    assert link in parts_of(mail)["text/plain"]
    return str(link)


def _sign_in(page: Any, link: str, key: str) -> None:
    """Follow *link* to the login, and from there to the page that it is about."""
    page.goto(link)
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(link)
