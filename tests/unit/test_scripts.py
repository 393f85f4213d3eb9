"""Every Lua script tells the truth in its header, and only names what it declares."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from boyd.models import Phase
from boyd.store.scripts import sources

FOLDER = Path(str(files("boyd.store") / "lua"))
SCRIPTS = sorted(FOLDER.glob("*.lua"))
INCLUDES = sorted((FOLDER / "lib").glob("*.lua"))


def header(path: Path) -> str:
    """The comment at the top of a script."""
    lines = path.read_text().splitlines()
    body = next(i for i, line in enumerate(lines) if not line.startswith("--"))
    return "\n".join(lines[:body])


def body(path: Path) -> str:
    """A script without its header, as it is written."""
    return path.read_text()[len(header(path)) :]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_declares_its_keys_and_uses_them_all(path: Path) -> None:
    count = sources()[path.stem][0]
    declared = {int(n) for n in re.findall(r"^-- KEYS\[(\d+)\]", header(path), re.MULTILINE)}
    used = {int(n) for n in re.findall(r"KEYS\[(\d+)\]", body(path))}

    assert set(range(1, count + 1)) == declared == used


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_declares_the_arguments_that_it_uses(path: Path) -> None:
    declared = {
        int(n) for n in re.findall(r"^-- ARGV\[(\d+)(?:\.\.\.)?\]", header(path), re.MULTILINE)
    }
    used = {int(n) for n in re.findall(r"ARGV\[(\d+)\]", body(path))}

    assert used <= declared


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_says_what_it_does_and_returns(path: Path) -> None:
    assert re.match(r"-- [A-Z].+[.:?]", header(path)), "the first line says what it does"
    assert "\n-- Returns " in header(path)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_names_the_events_that_it_emits(path: Path) -> None:
    text = sources()[path.stem][1]
    emitted = set(re.findall(r"emit\([\w\[\]]+, '([\w.]+)'", text))
    named = re.search(r"^-- Events  (.+)$", header(path), re.MULTILINE)
    listed = set(named[1].split(", ")) if named else set()
    families = {name for name in emitted if name.endswith(".")}

    assert emitted - families <= listed
    for family in families:
        assert any(name.startswith(family) for name in listed), family


@pytest.mark.parametrize("path", [*SCRIPTS, *INCLUDES], ids=lambda path: path.stem)
def test_a_script_uses_only_what_every_server_has(path: Path) -> None:
    for missing in ("cmsgpack", "struct.", "bit.", "redis.sha1hex", "cjson"):
        assert missing not in path.read_text()


@pytest.mark.parametrize("path", [*SCRIPTS, *INCLUDES], ids=lambda path: path.stem)
def test_a_script_builds_no_key_of_its_own(path: Path) -> None:
    assert "boyd:" not in path.read_text()


def test_every_include_is_used() -> None:
    used = {n for p in SCRIPTS for n in re.findall(r"@include (\w+)", p.read_text())}

    assert {path.stem for path in INCLUDES} == used


def test_the_phases_of_scripts_are_those_of_the_models() -> None:
    from typing import get_args

    named = set()
    for path in [*SCRIPTS, *INCLUDES]:
        text = path.read_text()
        named |= set(re.findall(r"phase == '(\w+)'", text))
        named |= set(re.findall(r"move_on\([^)]*?'(\w+)'", text))

    assert named <= set(get_args(Phase))
