"""The history: rows that lead to iterations, a search that is told when it fails, and pages."""

from __future__ import annotations

from unittest import mock

import pytest

from api_kit import Site
from boyd.errors import ArchiveUnavailable, TooManyMatches
from boyd.models import responses
from boyd_api.console import history_page
from boyd_api.routes import loop_routes
from console_kit import Browser

HERE = "/console/agents/desk/history"
HOSTILE = "<img src=x onerror=alert(1)>\u202egnp.exe"


def test_the_iterations_are_listed_newest_first(alice: Browser, desk: Site) -> None:
    desk.lab.run("first")
    desk.lab.run("second")
    response = alice.get(HERE)

    assert response.text.index("second") < response.text.index("first")
    assert "nothing to do" in response.text
    assert f'href="{HERE.replace("history", "iterations/2")}' in response.source
    assert "Older" not in response.text


def test_an_empty_history_says_why_nothing_happens(alice: Browser, desk: Site) -> None:
    for worker in desk.store.fleet.workers():
        desk.store.fleet.leave(worker.name)
    response = alice.get(HERE)

    assert "No iteration has ended yet." in response.text
    assert "no worker consumes the queue loop: boyd worker -Q loop" in response.text


def test_the_search_shows_what_matches_and_keeps_what_was_written(
    alice: Browser, desk: Site
) -> None:
    desk.lab.run("morning")
    desk.lab.run("second")
    response = alice.get(f"{HERE}?trigger=second&status=ok&q=&since=1h")

    assert "second" in response.text
    assert "morning" not in response.text
    assert 'name="trigger" value="second"' in response.source
    assert '<option value="ok" selected>' in response.source
    assert "No iteration matches." in alice.get(f"{HERE}?status=failed").text
    assert alice.get(f"{HERE}?q=leak").title.startswith("leak in the history of desk")


@pytest.mark.parametrize("query", ["since=whenever", "status=maybe", "cursor=x", "q=" + "x" * 501])
def test_a_wrong_search_shows_why_and_no_iterations(alice: Browser, desk: Site, query: str) -> None:
    desk.lab.run("first")
    response = alice.get(f"{HERE}?{query}")

    assert response.status == 200
    assert 'class="notice" role="alert"' in response.source
    assert "iterations/1" not in response.source


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ArchiveUnavailable("secret-host is down"), "the archive does not answer"),
        (TooManyMatches("write more"), "write more"),
    ],
)
def test_an_archive_error_is_shown_in_place_of_the_results(
    alice: Browser, error: Exception, message: str
) -> None:
    with mock.patch.object(loop_routes, "history", side_effect=error):
        response = alice.get(f"{HERE}?q=x")

    assert message in response.text
    assert "secret-host" not in response.text
    assert "No iteration matches" not in response.text
    assert 'name="q" value="x"' in response.source


def test_missing_older_iterations_are_announced(alice: Browser) -> None:
    part = responses.IterationList(iterations=[], missing="the archive does not answer")
    with mock.patch.object(loop_routes, "history", return_value=part):
        assert "Older iterations are missing: the archive does" in alice.get(HERE).text


def test_older_iterations_are_a_page_away(alice: Browser, desk: Site) -> None:
    for _ in range(3):
        desk.lab.run()
    with mock.patch.object(history_page, "_SHOWN", "2"):
        first = alice.get(f"{HERE}?trigger=test")
        address = first.source.split('" rel="next">')[0].rpartition('href="')[2]
        second = alice.get(address.replace("&amp;", "&"))

    assert "trigger=test" in address
    assert "iterations/3" in first.source
    assert "iterations/1" not in first.source
    assert "iterations/1" in second.source
    assert "iterations/2" not in second.source


def test_hostile_text_is_shown_as_text(alice: Browser, desk: Site) -> None:
    desk.lab.run(HOSTILE)
    response = alice.get(f"{HERE}?q=%3Cscript%3E")

    assert "<script>" not in response.source.split("</head>")[1]
    assert HOSTILE in alice.get(HERE).text
    assert "<img src=x" not in alice.get(HERE).source


@pytest.mark.parametrize("path", ["/console/", "/console/fleet", "/console/agents/desk/history"])
def test_each_page_has_one_field_to_search_the_history(alice: Browser, path: str) -> None:
    response = alice.get(path)

    assert response.source.count('data-key="/"') == 1
    assert response.source.count(f'action="{HERE}"') == 1
