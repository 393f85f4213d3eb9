"""Pages of other packages: found by entry points, and left out when their package is broken."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from boyd_api.console import declared_pages
from boyd_api.console.declared_pages import Pages


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    declared_pages.load_guest_pages.cache_clear()
    yield
    declared_pages.load_guest_pages.cache_clear()


def install(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    points = [EntryPoint(name, value, declared_pages.GROUP) for name, value in values.items()]
    monkeypatch.setattr(declared_pages, "entry_points", lambda *, group: points)


def test_the_pages_of_goals_come_from_their_own_package() -> None:
    goals = declared_pages.load_guest_pages()["goals"]
    assert goals.link is not None
    assert goals.link.title == "Goals"
    assert {page.view.__module__ for page in goals.all} == {"boyd_goals.console.goals_page"}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no_such_package.pages:pages", "failed"),
        ("boyd_goals.console.goals_page:no_such_name", "failed"),
        ("boyd_goals.console.goals_page:VERBS", "is no Pages"),
    ],
)
def test_a_broken_package_is_logged_and_the_others_are_served(
    value: str, reason: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install(monkeypatch, broken=value, goals="boyd_goals.console.goals_page:pages")
    with caplog.at_level(logging.WARNING):
        pages = declared_pages.load_guest_pages()
    assert list(pages) == ["goals"]
    assert isinstance(pages["goals"], Pages)
    assert value in caplog.text
    assert reason in caplog.text
