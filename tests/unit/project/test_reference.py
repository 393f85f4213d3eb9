"""The generated reference pages are complete: nothing lacks a meaning."""

from __future__ import annotations

import re

import click
import pytest

from boyd.plugin.hooks import SPECIFICATIONS
from boyd.settings.process_settings import setting_paths
from boyd_api.app import ALL
from boyd_api.http.problems import PROBLEM_TYPES
from boyd_cli.group import boyd
from reference import PAGES, generate

COMMANDS: dict[str, click.Command] = dict(generate.leaves(boyd, "boyd"))


def cells(page: str, name: str) -> list[str]:
    """The cells of the row that begins with a name."""
    row = re.search(rf"^\| `{re.escape(name)}`[^|]*\|.+\|$", PAGES[page], re.MULTILINE)
    assert row, f"{page}: no row for {name}"
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row[0])[1:-1]]


@pytest.mark.parametrize("path", setting_paths())
def test_every_setting_has_a_variable_a_default_and_a_meaning(path: str) -> None:
    _, variable, default, meaning = cells("settings", path)

    assert variable == f"`BOYD_{path.replace('.', '__').upper()}`"
    assert default
    assert meaning


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_says_what_it_does(name: str) -> None:
    section = PAGES["cli"].partition(f"\n## {name}\n")[2].partition("\n## ")[0]

    assert COMMANDS[name].help
    for row in re.findall(r"^\| `-.+\|$", section, re.MULTILINE):
        assert not row.endswith("|  |"), row


def test_every_route_and_problem_is_listed() -> None:
    for route in ALL:
        path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", f"{route.base}{route.path}")
        path_shown, scope, *_ = cells("http", f"{route.method} {path}")
        assert path_shown.endswith("●") == (route.reach == "agent"), path
        assert scope == (route.scope or "none"), path
    for name, kind in PROBLEM_TYPES.items():
        assert cells("http", name)[1] == str(kind.status)


def test_every_event_that_a_script_writes_is_listed() -> None:
    for kind in generate.emitted_events():
        assert cells("events", kind)[2]


def test_an_event_that_is_missing_from_the_reference_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(generate.EVENTS, "run.failed")

    with pytest.raises(ValueError, match=re.escape("run.failed")):
        list(generate.events())


@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_every_hook_has_its_arguments_and_its_failure(name: str) -> None:
    heading = f"\n## `{name}({', '.join(SPECIFICATIONS[name])})`\n"
    section = PAGES["hooks"].partition(heading)[2].partition("\n## ")[0]

    assert "When it fails" in section
