"""Whatever the deployment of an earlier release has stored is shown."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import fakeredis
import pytest
from flask import Flask

from api_kit import application
from boyd.settings.process_settings import load_settings
from boyd.store import Store
from boyd_api.app import ALL
from boyd_api.http.routing import Route
from boyd_api.http.services import Services
from console_kit import Browser
from lab_redis import client_of
from releases.release_data import FOLDER, Release, store_key

#: The kinds of records whose ids are in paths, by the beginnings of those.
KINDS = {
    "/loop/history/": "iteration",
    "/executions/": "execution",
    "/procedures/": "procedure",
    "/approvals/": "approval",
    "/runs/": "run",
    "/investigations/": "investigation",
}
#: What the address of a page or route needs besides.
QUERIES = {"incidents.list": "target=v0", "rights.explain": "verb=approve&action=plant:turn"}
#: What says that it was not made for what was stored.
BROKEN = re.compile(r"/problems/(internal|unreadable)|an unexpected error|Traceback")
_LINK = re.compile(r'\s(?:href|src)="([^"]+)"')


class Recorded:
    """An API over the recorded deployment of a release, without workers."""

    def __init__(self, release: Release) -> None:
        self.people = release.recording["people"]
        self._redis = fakeredis.FakeServer()
        self.client = self._connect()
        for key, described in release.recording["keys"].items():
            # What was to be kept for a while may have expired since.
            store_key(self.client, key, {**described, "expires": 0})
        settings = load_settings({})
        services = Services(settings, open_store=lambda _: Store(self._connect()))
        self.app: Flask = application(settings, services)

    def addresses(self) -> Iterator[str]:
        """The addresses of all routes that read, for each agent and each record."""
        agents = self.client.hkeys("boyd:{*}:agents")
        for route in ALL:
            rule = route.rules[max(route.rules)]
            if route.method == "GET" and "<agentId>" in rule:
                for agent in agents:
                    yield from self._addresses(route, rule.replace("<agentId>", agent), agent)

    def _addresses(self, route: Route, path: str, agent: str) -> Iterator[str]:
        kind = next((kind for start, kind in KINDS.items() if route.path.startswith(start)), "")
        keys = self.client.keys(f"boyd:{{{agent}}}:{kind}:*") if kind else [""]
        query = QUERIES.get(route.name, "")
        for key in keys:
            id = key.partition(f":{kind}:")[2]
            address = re.sub(r"<[^>]+>", id, path, count=1) if id else path
            if "<" not in address:
                yield f"{address}?{query}"

    def _connect(self) -> Any:
        return client_of(self._redis)


@pytest.fixture(params=sorted(path.name for path in FOLDER.glob("*.*.*")))
def release_api(request: pytest.FixtureRequest) -> Recorded:
    return Recorded(Release(request.param))


def read(client: Any, address: str, **headers: str) -> tuple[int, str]:
    """The status and the body of a response; of a stream only the beginning."""
    with client.get(address, headers=headers, buffered=False) as response:
        if response.content_type.startswith("text/event-stream"):
            return response.status_code, ""
        return response.status_code, response.get_data(as_text=True)


def test_every_route_reads_every_record(release_api: Recorded) -> None:
    client = release_api.app.test_client()
    answers = {
        path: read(client, path, **release_api.people["ann"]) for path in release_api.addresses()
    }

    assert len(answers) > 100
    assert [answer for answer in answers.items() if is_broken(*answer[1])] == []


@pytest.mark.long
def test_every_page_that_links_lead_to_is_shown(release_api: Recorded) -> None:
    browser = Browser(SimpleNamespace(app=release_api.app), release_api.people["ann"])  # type: ignore[arg-type]
    queue, places, broken = ["/console/"], set[tuple[str, ...]](), []
    for address in queue:
        status, text = read(browser.client, address)
        if is_broken(status, text):
            broken.append((address, status, text))
        for link in _LINK.findall(text):
            url = urlsplit(urljoin(address, html.unescape(link)))
            place = (url.path, *parse_qs(url.query, keep_blank_values=True))
            if not url.netloc and url.path.startswith("/console/") and place not in places:
                places.add(place)
                queue.append(f"{url.path}?{url.query}")

    assert len(queue) > 100
    assert broken == []


def is_broken(status: int, text: str) -> bool:
    return status >= 500 or BROKEN.search(text) is not None
