"""Live pages: one stream per browser, what is out of date says so, and many people at once."""

from __future__ import annotations

import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import psutil
import pytest
import requests

from browser_kit import Console
from harness import wait_until

#: How many people look at the same time; each of their tabs is a page of a real browser.
PEOPLE = int(os.environ.get("PEOPLE", "3"))

pytestmark = [pytest.mark.real, pytest.mark.long]


def streams(console: Console) -> int:
    """The number of open streams of the API."""
    pid = console.deployment.processes["api"].pid
    connections = psutil.Process(pid).net_connections("tcp")
    ours = [
        connection
        for connection in connections
        if connection.laddr and connection.laddr.port == _port(console)
    ]
    return sum(connection.status == "ESTABLISHED" for connection in ours)


def test_twelve_tabs_share_one_stream_and_all_are_live(console: Console) -> None:
    with console.person() as context:
        urls: list[str] = []
        context.on("request", lambda request: urls.append(request.url))
        pages = [context.pages[0], *(context.new_page() for _ in range(11))]
        for page in pages:
            page.goto(f"{console.url}/console/")
        for page in pages:
            page.locator("#stream[data-state=live]").wait_for()
        assert sum(url.endswith("/console/stream") for url in urls) <= 2

        console.waiting("for all tabs")
        for page in pages:
            page.bring_to_front()
            page.get_by_text("for all tabs").first.wait_for()

        pages[0].close()  # the tab that read the stream: another one takes over
        console.waiting("after the first tab was closed")
        pages[-1].get_by_text("after the first tab was closed").first.wait_for()


def test_a_page_is_live_within_a_second_of_an_event(console: Console) -> None:
    with console.person() as context:
        [page] = context.pages
        page.locator("#stream[data-state=live]").wait_for()
        console.waiting("seen at once")
        page.get_by_text("seen at once").first.wait_for(timeout=10_000)


def test_a_page_says_since_when_it_is_out_of_date(console: Console) -> None:
    with console.person() as context:
        [page] = context.pages
        page.locator("#stream[data-state=live]").wait_for()
        console.deployment.kill("api", signal.SIGSTOP)
        page.get_by_text(re.compile(r"stale \d+ s")).wait_for()
        console.waiting("while it was stopped")
        console.deployment.kill("api", signal.SIGCONT)
        page.locator("#stream[data-state=live]").wait_for()
        page.get_by_text("while it was stopped").first.wait_for()


def test_a_page_survives_the_death_of_the_api(console: Console) -> None:
    with console.person() as context:
        [page] = context.pages
        page.locator("#stream[data-state=live]").wait_for()
        console.deployment.kill("api")
        page.get_by_text(re.compile(r"stale \d+ s")).wait_for()
        console.waiting("while it was dead")
        console.revive_api(signal.SIGKILL)
        page.get_by_text("while it was dead").first.wait_for()
        page.locator("#stream[data-state=live]").wait_for()


def test_a_page_says_that_redis_does_not_answer(console: Console, redis_server: str) -> None:
    port = int(redis_server.rpartition(":")[2].partition("/")[0])
    server = next(
        psutil.Process(connection.pid)
        for connection in psutil.net_connections("tcp")
        if connection.status == "LISTEN"
        and connection.laddr
        and connection.laddr.port == port
        and connection.pid
    )
    with console.person() as context:
        [page] = context.pages
        page.locator("#stream[data-state=live]").wait_for()
        server.suspend()
        try:
            page.get_by_text(re.compile(r"stale \d+ s: Redis does not answer")).wait_for()
        finally:
            server.resume()
        page.locator("#stream[data-state=live]").wait_for()


def test_open_pages_show_the_loss_of_the_beat(console: Console) -> None:
    console.deployment.worker("looker", "agents.traced:ticking")
    console.deployment.beat("clock", "agents.traced:ticking")
    agent = "ticking"
    expected = {
        "/console/agents": "no beat starts its iterations",
        f"/console/agents/{agent}": "Not watching",
        "/console/fleet": "no beat starts its iterations",
    }
    with console.person() as context, context.new_page() as other, context.new_page() as third:
        pages = dict(zip(expected, (context.pages[0], other, third), strict=True))
        for path, page in pages.items():
            page.goto(f"{console.url}{path}")
            page.locator("#stream[data-state=live]").wait_for()
            assert page.get_by_text(expected[path]).count() == 0
        console.deployment.kill("clock")
        for path, page in pages.items():
            page.bring_to_front()
            page.get_by_text(expected[path]).first.wait_for()


def test_a_page_that_cannot_be_read_again_is_not_live(console: Console) -> None:
    with console.person() as context:
        [page] = context.pages
        page.locator("#stream[data-state=live]").wait_for()
        page.route("**/console/", lambda route: route.abort())
        page.get_by_text(re.compile(r"stale \d+ s")).wait_for()
        page.unroute("**/console/")
        page.locator("#stream[data-state=live]").wait_for()


def test_times_are_in_the_zone_of_the_reader_with_utc_beside_them(console: Console) -> None:
    with console.person(timezone_id="Asia/Kolkata") as context:
        [page] = context.pages
        page.goto(console.page_of(console.waiting("at this time")))
        exact = page.locator("time[data-exact]").first
        text = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+ \(.*\d\d:\d\d:\d\d UTC\)$")
        page.locator("time[data-exact]", has_text=text).first.wait_for()
        at = datetime.fromisoformat(exact.get_attribute("datetime"))
        local, _, utc = exact.text_content().partition("(")
        assert local.startswith(f"{at.astimezone(ZoneInfo('Asia/Kolkata')):%Y-%m-%d %H:%M:%S}")
        assert f"{at:%H:%M:%S} UTC" in utc
        page.goto(f"{console.url}/console/agents/desk/history")
        assert page.locator("input[name=zone]").input_value() in ("Asia/Calcutta", "Asia/Kolkata")


def test_signing_out_ends_the_stream_of_all_tabs(console: Console) -> None:
    with console.person("carol", "read") as context:
        [page] = context.pages
        other = context.new_page()
        other.goto(f"{console.url}/console/answered")
        other.locator("#stream[data-state=live]").wait_for()
        page.bring_to_front()
        page.locator("#me summary").click()
        page.get_by_role("button", name="Sign out").click()
        page.get_by_text("You are signed out").wait_for()
        other.bring_to_front()
        # A tab that reads its page again before it hears of that is led to the login.
        off, login = other.get_by_text("off: you are signed out"), other.locator("input#key")
        off.or_(login).first.wait_for()


def test_five_hundred_streams_leave_the_api_as_fast_and_small(console: Console) -> None:
    cookies = [_cookie(console, f"many{n}") for n in range(4)]
    process = psutil.Process(console.deployment.processes["api"].pid)
    headers = console.deployment.key("reader", "read")
    approvals = f"{console.url}/api/v0/agents/desk/approvals"
    before = process.memory_info().rss
    opened = []
    with ThreadPoolExecutor(16) as pool:
        opened = list(pool.map(lambda n: _open(console, cookies[n % 4]), range(400)))
    try:
        assert all(stream.status_code == 200 for stream in opened)
        for _ in range(50):
            answer = requests.get(approvals, headers=headers, timeout=30)
            assert answer.ok, answer.text
        grown = process.memory_info().rss - before
        assert grown / len(opened) < 50_000, f"{grown / len(opened):.0f} bytes per stream"
        console.waiting("told to all")
        for response in (opened[0], opened[-1]):
            lines = response.iter_lines()
            wait_until(lambda lines=lines: b"hint" in next(lines))  # type: ignore[misc]
    finally:
        for response in opened:
            response.close()
    wait_until(lambda: streams(console) < 50)


def _cookie(console: Console, principal: str) -> dict[str, str]:
    """The cookie of a new session."""
    with requests.Session() as browser:
        link = console.link(principal, "read")
        token = re.search(r'name="csrf" value="(\w+)"', browser.get(link, timeout=60).text)
        assert token is not None
        same = {"Sec-Fetch-Site": "same-origin"}
        browser.post(link, data={"csrf": token[1]}, headers=same, timeout=60)
        return dict(browser.cookies)


def _open(console: Console, cookies: dict[str, str]) -> Any:
    for _ in range(20):
        answer = requests.get(
            f"{console.url}/console/stream", cookies=cookies, stream=True, timeout=120
        )
        if answer.status_code != 429:
            return answer
        time.sleep(0.2)
    return answer


def _port(console: Console) -> int:
    return int(console.url.rpartition(":")[2])


def test_people_with_twelve_tabs_each_stay_live(console: Console) -> None:
    with ExitStack() as stack:
        people = [stack.enter_context(console.person(f"p{n}")) for n in range(PEOPLE)]
        for context in people:
            for _ in range(11):
                context.new_page().goto(f"{console.url}/console/")
        wait_until(lambda: streams(console) >= len(people))
        console.waiting("seen by everybody")
        for context in people:
            assert len(context.pages) == 12
            for page in context.pages[::4]:
                page.bring_to_front()
                page.get_by_text("seen by everybody").first.wait_for()
                page.locator("#stream[data-state=live]").wait_for()
