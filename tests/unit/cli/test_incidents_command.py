"""`boyd incidents`: the incidents of a target, one of them, and its timeline in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from boyd.plugin import Orienter
from boyd.store import Store
from boyd.testing import Lab
from cli_kit import Cli, lab_of, new_key, serving
from kit import assessed
from past_kit import problem

pytestmark = pytest.mark.real


@pytest.fixture
def lab(store: Store) -> Lab:
    """An agent that sees web-3 down."""
    assessment = assessed("looked", source="p:sense", anomalies=[problem(description="down\x1b")])
    return lab_of(store, Orienter(name="sense", orient=lambda: assessment))


@pytest.fixture
def cli(redis_url: str, lab: Lab, tmp_path: Path) -> Iterator[Cli]:
    """The commands of somebody who may read."""
    key = new_key(redis_url, "ann", "read", person=True)
    with serving(redis_url) as api:
        yield Cli(tmp_path, BOYD_API_KEY=key, BOYD_URL=api.url)


def test_incidents_are_listed_shown_and_exported(cli: Cli, lab: Lab) -> None:
    assert cli("incidents", "web-3") == "No incident of web-3 in this time.\n"
    lab.run()
    (incident,) = cli.json("incidents", "web-3")
    id = incident["id"]

    listing = cli("incidents", "web-3", "--since", "1h", "--agent", "test")
    assert f"{id}  web-3   open   high" in listing
    assert incident["target"] == "web-3"
    assert listing.rstrip().endswith("no action ran")
    timeline = cli("incidents", "web-3", id)
    assert "anomaly  down" in timeline
    assert "\x1b" not in timeline
    markdown = cli("incidents", "web-3", id, "-o", "markdown")
    assert markdown.startswith("# web\\-3: down")
    assert cli("incidents", "web-3", "-o", "markdown") == markdown


def test_a_time_without_an_incident_is_not_found(cli: Cli) -> None:
    assert "no incident of web-3" in cli("incidents", "web-3", "2026-01-05T12:00:00Z", status=4)


@pytest.mark.parametrize("command", ["history", "incidents web-3", "actions executions"])
def test_a_period_that_ends_before_it_begins_is_refused(cli: Cli, command: str) -> None:
    message = cli(*command.split(), "--since", "1h", "--until", "2h", status=2)
    assert "--since: it is not before --until" in message


def test_an_iteration_without_a_confidence_shows_none(cli: Cli, store: Store) -> None:
    assessment = assessed("looked", source="p:sense", confidence=None)
    lab_of(store, Orienter(name="sense", orient=lambda: assessment)).run()
    _, situation, _ = re.split("^(?:Situation|Decision)$", cli("history", "1"), flags=re.MULTILINE)
    assert "looked" in situation
    assert "confidence" not in situation


def test_an_incident_takes_no_period(cli: Cli) -> None:
    assert "omit --since" in cli("incidents", "web-3", "x", "--since", "1h", status=2)
