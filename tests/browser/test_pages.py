"""Every page at each size and in each theme: axe, layout, keyboard, policy and outside requests.

The pages are found by following the links of the console, so that a new one is tried by itself.
"""

from __future__ import annotations

import re
import signal
from collections import deque
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urlsplit

import pytest

from boyd.models.loop import ArchiveStatus
from boyd.store.ended_work import announce_archive
from browser_kit import DESK, PHONE, Console, keep_screenshot

pytestmark = [pytest.mark.real, pytest.mark.long]

#: Text that must stay text, and stay in its place.
HOSTILE = (
    "<img src=x onerror=alert(1)><script>alert(2)</script>\u202egnp.exe\u2066\x1b[31m"
    "{{7*7}}" + "W" * 300
)
#: The parts of addresses that differ between pages of one kind.
_ID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f-]{27}|(?<=/iterations/)[\w.]+|[0-9a-f]{32,}"
    r"|(?<=[?&]id=)[^&]+|(?<=&since=)[^&]+|(?<=&until=)[^&]+"
)
#: So many pages of one kind are tried.
_OF_A_KIND = 1


@pytest.fixture(scope="module")
def busy(console: Console) -> Console:
    """A console with something on every page, some of it hostile."""
    deployment = console.deployment
    deployment.beat("beat", "agents.desk:agent")
    for text in (HOSTILE, "news"):
        console.waiting(text)
    answered = console.waiting("done")
    deployment.resolver("desk").answer(answered, "approved", _actor())
    launcher = deployment.launcher("desk")
    for _ in range(3):
        trigger = launcher.trigger(HOSTILE[:90].replace(" ", "_"), _actor())
        deployment.ended("desk", trigger.iteration)
    return console


@pytest.fixture(scope="module")
def paths(busy: Console) -> list[str]:
    """The paths of all pages."""
    with busy.person() as context:
        paths_found = pages_of(context.pages[0], busy.url)
    assert len(paths_found) > 12
    return [*paths_found, "/console/kiosk"]  # nothing leads there


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("name", "size"), [("desk", DESK), ("phone", PHONE)])
def test_every_page_can_be_read_by_everybody(
    busy: Console, paths: list[str], pictures: Path, name: str, size: Any, scheme: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    wrong: list[str] = []
    with busy.person(size=size, color_scheme=scheme) as context:
        [page] = context.pages
        for path in paths:
            page.goto(f"{busy.url}{path}")
            page.locator("#stream:not([data-state=connecting]), body.plain").first.wait_for()
            for violation in Axe().run(page, options=_AXE).response["violations"]:
                nodes = [node["html"][:200] for node in violation["nodes"][:3]]
                wrong.append(f"{path}: {violation['id']}: {violation['help']}: {nodes}")
            width = page.evaluate("document.documentElement.scrollWidth")
            if width > size["width"]:
                wrong.append(f"{path}: {width} px wide")
            if "alert(" in page.content() and page.evaluate(_FOREIGN):
                wrong.append(f"{path}: hostile text became an element")
            label = re.sub(r"\W+", "-", _ID.sub("ID", path)).strip("-")
            keep_screenshot(page, pictures, f"{label[:80]}-{name}-{scheme}")
    assert wrong == []


def test_every_page_can_be_used_by_keyboard_alone(busy: Console, paths: list[str]) -> None:
    with busy.person() as context:
        [page] = context.pages
        for path in paths:
            page.goto(f"{busy.url}{path}")
            context.set_offline(True)  # or the page would change under the keys
            for _ in range(page.evaluate(_FOCUSABLE) + 10):
                page.keyboard.press("Tab")
                focused, outlined = page.evaluate(_FOCUSED)
                assert outlined, f"{path}: nobody sees that {focused} has the focus"
            assert page.evaluate(_MISSED) == [], path
            context.set_offline(False)


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "suspended"])
def test_every_page_tells_its_age_while_the_api_does_not_answer(
    busy: Console, paths: list[str], fault: int
) -> None:
    with busy.person() as context:
        pages = {path: context.new_page() for path in paths}
        for path, page in pages.items():
            page.goto(f"{busy.url}{path}")
            page.locator(_UP_TO_DATE).wait_for()
        untrue = {}
        busy.deployment.kill("api", fault)
        for path, page in pages.items():
            page.bring_to_front()
            page.get_by_text(_OUT_OF_DATE).wait_for()
            page.evaluate("scrollTo(0, document.body.scrollHeight)")
            untrue[path] = page.evaluate(_UNTRUE)
        assert {path: texts for path, texts in untrue.items() if texts} == {}
        busy.revive_api(fault)
        for page in pages.values():
            page.bring_to_front()
            page.locator(_UP_TO_DATE).wait_for()


def test_the_delay_of_the_archive_goes_on_while_the_api_does_not_answer(busy: Console) -> None:
    now = busy.deployment.store.clock.now()
    announce_archive(busy.deployment.store.client, ArchiveStatus(name="a", at=now, copied_at=now))
    with busy.person() as context:
        [page] = context.pages
        page.goto(f"{busy.url}/console/fleet")
        page.get_by_text(re.compile(r"Archive: +behind for \d+ s$")).wait_for()
        busy.deployment.kill("api", signal.SIGSTOP)
        page.get_by_text(_OUT_OF_DATE).wait_for()
        page.get_by_text(re.compile(r"Archive: +behind for (\d\d s|\d min.*)$")).wait_for()
        busy.revive_api(signal.SIGSTOP)


def test_a_page_is_understood_in_its_tab(busy: Console, paths: list[str]) -> None:
    with busy.person() as context:
        [page] = context.pages
        titles: dict[str, str] = {}
        for path in paths:
            page.goto(f"{busy.url}{path}")
            title = page.title()
            assert title.endswith("· Boyd")
            kind = _ID.sub("ID", urlsplit(path).path)
            assert titles.setdefault(title, kind) == kind, f"{path}: {title}"


def pages_of(page: Any, url: str) -> list[str]:
    """The paths of all pages that links lead to, a few of each kind."""
    waiting, paths_seen, kinds = deque(["/console/"]), ["/console/"], {"/console/": 1}
    while waiting:
        page.goto(f"{url}{waiting.popleft()}")
        for address in page.locator("a[href]:not([download])").evaluate_all(
            "all => all.map(one => one.href)"
        ):
            parts = urlsplit(urldefrag(address).url)
            path = parts.path + (f"?{parts.query}" if parts.query else "")
            kind = _ID.sub("ID", path)
            if (
                not path.startswith("/console/")
                or parts.path.endswith(".json")
                or path in paths_seen
            ):
                continue
            kinds[kind] = kinds.get(kind, 0) + 1
            if kinds[kind] <= _OF_A_KIND and len(paths_seen) < 60:
                paths_seen.append(path)
                waiting.append(path)
    return paths_seen


def _actor() -> Any:
    from boyd.models import Actor

    return Actor(principal="tests", person=True)


_UP_TO_DATE = "#stream[data-state=live], #stream[data-state=fixed]"
_OUT_OF_DATE = re.compile(
    r"^(stale \d+ (s|min)( \d+ s)?: Boyd does not answer|not live: as of .* ago)$"
)
#: What says that a page is out of date where nobody sees it, and ages that stand still.
_UNTRUE = """
(() => {
  const mark = document.getElementById("stream"), box = mark.getBoundingClientRect();
  const isSeen = box.height > 0 && box.top >= 0 && box.bottom <= innerHeight;
  const untrue = isSeen || mark.dataset.state === "fixed" ? [] : [mark.textContent];
  const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const { parentElement, textContent } = texts.currentNode;
    if (parentElement.closest("time")) continue;
    if (/\\d (s|min|h|d) ago|next in \\d/.test(textContent)) untrue.push(textContent.trim());
  }
  return untrue;
})()
"""
#: All rules but the experimental ones.
_AXE = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
#: Elements that our templates do not make.
_FOREIGN = """
document.querySelector("main img, main script, main iframe, main [onerror]") !== null
"""
_FOCUSABLE = """
(() => {
  const all = document.querySelectorAll("a[href], button, input, textarea, select, summary");
  window.missed = new Set([...all]
    .filter(one => one.checkVisibility() && one.type !== "hidden")
    .filter(one => !one.disabled && one.tabIndex >= 0)
    // Arrow keys lead to the others of a group.
    .filter(one => one.type !== "radio" || one.checked));
  return window.missed.size;
})()
"""
_FOCUSED = """
(() => {
  const one = document.activeElement;
  if (!one || one === document.body) return ["body", true];
  window.missed.delete(one);
  const style = getComputedStyle(one);
  const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
  return [one.outerHTML.slice(0, 200), outlined];
})()
"""
#: Without those that the page has removed since, being offline.
_MISSED = """
[...window.missed].filter(one => one.checkVisibility()).map(one => one.outerHTML.slice(0, 200))
"""
