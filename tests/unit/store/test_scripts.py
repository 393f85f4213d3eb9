"""The Lua scripts: each says what it takes, and only `Keys` and one function build keys."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import fakeredis
import pytest

from boyd.models import Phase
from boyd.store.keys import DEPLOYMENT, GraphKeys, Keys
from boyd.store.server.scripts import FORMAT, Scripts, source_of
from lua_scripts import FOLDER, LIBRARY, SCRIPTS

EVERY = pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
EVERYTHING = pytest.mark.parametrize("path", [*SCRIPTS, *LIBRARY], ids=lambda path: path.stem)

#: Keys that callers give, as their names need more than the agent.
GIVEN = {
    *("answer", "approval", "asked", "bucket", "budget", "call", "callback"),
    *("execution", "first", "index", "investigation", "job", "log", "origin", "past", "run"),
    *("run_hash", "session", "state", "throttle", "traces", "tracks"),
}
INCLUDE = r"^-- @include (.+)$"
KEYS = {
    *vars(GraphKeys("a", "g")),
    *(name for name, value in vars(Keys).items() if isinstance(value, str)),
}


def words(pattern: str, text: str) -> list[str]:
    """The words of all that the group of *pattern* finds."""
    return re.findall(r"\w+", " ".join(re.findall(pattern, text, re.MULTILINE)))


def header(path: Path) -> str:
    """The comment at the top of a script."""
    lines = path.read_text().splitlines()
    body = next(i for i, line in enumerate(lines) if not line.startswith("--"))
    return "\n".join(lines[:body])


def body(path: Path) -> str:
    """A script without its header, as it is written."""
    return path.read_text()[len(header(path)) :]


def code(path: Path) -> str:
    """The code without comments and without the lines that name keys and arguments."""
    lines = [line for line in body(path).splitlines() if not line.strip().startswith("--")]
    return re.sub(r"local [\w,\s]+? =\s+unpack\((KEYS|ARGV).*\)", "", "\n".join(lines))


def uses(text: str, name: str) -> bool:
    """Check that a name occurs in code."""
    return re.search(rf"(?<![\w.'])(?:{name})\b(?!')", text) is not None


@EVERY
def test_a_script_begins_with_what_it_does_and_returns(path: Path) -> None:
    assert re.match(r"-- [A-Z].+[.:?]?", header(path)), "the first line says what it does"
    assert "\n-- Returns " in header(path)


@EVERY
def test_a_script_names_its_keys_and_arguments_and_uses_them_all(path: Path) -> None:
    source = source_of(path.stem)
    names = [*source.keys, *source.arguments, *([source.rest] if source.rest else [])]
    included = source.text.partition("unpack(KEYS)")[2].replace(
        f"{', '.join(source.arguments)} =", ""
    )

    assert len(set(names)) == len(names)
    assert [name for name in names if not uses(included, name)] == []
    assert "KEYS[" not in body(path)
    assert "ARGV" not in code(path)
    if source.rest:
        assert f"unpack(ARGV, 1, {len(source.arguments)})" in body(path)
        assert f"rest({len(source.arguments) + 1})" in body(path)


@EVERY
def test_headers_describe_only_arguments_and_options(path: Path) -> None:
    source = source_of(path.stem)
    explained = re.findall(r"^-- (\w+) {2,}\S", header(path), re.MULTILINE)

    assert set(explained) - {"Returns", "Events"} <= {*source.arguments, source.rest}


@EVERY
def test_a_key_of_a_script_is_one_of_keys_or_given_by_its_caller(path: Path) -> None:
    assert set(source_of(path.stem).keys) <= KEYS | GIVEN


@EVERYTHING
def test_only_one_function_builds_keys(path: Path) -> None:
    """Each key of a command is one that was passed, or what the function `key` made."""
    text = path.read_text()
    assert "boyd:" not in text
    for argument in re.findall(r"redis\.p?call\((?:'\w+'|[^,']+), ((?:key\()?[^,)]+)", text):
        assert re.fullmatch(r"\w+|key\(.+|'server'", argument), argument
    assert path.stem == "keys" or "PREFIX" not in text


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: path.stem)
def test_a_function_says_which_names_of_the_script_it_uses(path: Path) -> None:
    declared = set(words(r"^-- Uses (.+)$", path.read_text()))
    text = re.sub(r"--.*", "", path.read_text())
    local = {*words(r"function \w*\(([^)]*)\)", text), *words(r"local ([\w, ]+) =", text)}
    local |= {"audit"}  # a function wherever it is used; the key has that name, too

    assert {name for name in (KEYS | {"retention"}) - local if uses(text, name)} <= declared
    assert {name for name in declared if not uses(text, name)} == set()


@EVERY
def test_a_script_has_every_name_that_its_functions_use(path: Path) -> None:
    source = source_of(path.stem)
    used = words(r"^-- Uses (.+)$", source.text)

    assert set(used) <= {*source.keys, *source.arguments}


@EVERY
def test_a_script_names_the_events_that_it_emits(path: Path) -> None:
    emitted = set(re.findall(r"emit\('([\w.]+)'", source_of(path.stem).text))
    emitted |= set(re.findall(r"emit\(\w+(?:\.\w+)? and '([\w.]+)' or ", source_of(path.stem).text))
    match = re.search(r"^-- Events  (.+)$", header(path), re.MULTILINE)
    listed = set(match[1].split(", ")) if match else set()
    families = {name for name in emitted if name.endswith(".")}

    assert {name for name in emitted - families if name.split(".")[0] != "run"} <= listed
    for family in families - {"run."}:
        assert any(name.startswith(family) for name in listed), family


@EVERYTHING
def test_a_script_uses_only_what_every_server_has(path: Path) -> None:
    for missing in ("cmsgpack", "struct.", "bit.", "redis.sha1hex"):
        assert missing not in path.read_text()


@EVERY
def test_a_script_gives_each_function_that_it_includes_a_use(path: Path) -> None:
    for name in words(INCLUDE, path.read_text()):
        text = (FOLDER / "lib" / f"{name}.lua").read_text()
        functions = re.findall(r"^local (?:function )?(\w+)", text, re.MULTILINE)
        assert any(uses(code(path), function) for function in functions), name


def test_every_function_of_the_library_is_included() -> None:
    included = {name for path in [*SCRIPTS, *LIBRARY] for name in words(INCLUDE, path.read_text())}

    assert {path.stem for path in LIBRARY} == included


def test_the_version_of_the_format_is_the_same_in_both_languages() -> None:
    assert f"local FORMAT = {FORMAT}\n" in (FOLDER / "lib" / "format.lua").read_text()


def test_a_call_that_names_what_a_script_does_not_take_is_refused() -> None:
    scripts = Scripts(fakeredis.FakeRedis()).of(Keys(DEPLOYMENT))

    with pytest.raises(AssertionError, match="acquire_throttle does not take colour"):
        scripts.call("acquire_throttle", throttle="x", interval=1, colour="red")
    with pytest.raises(KeyError, match="interval"):
        scripts.call("acquire_throttle", throttle="x")


def test_the_phases_of_scripts_are_those_of_the_models() -> None:
    phases = set()
    for path in [*SCRIPTS, *LIBRARY]:
        text = path.read_text()
        phases |= set(re.findall(r"phase == '(\w+)'", text))
        phases |= set(re.findall(r"move_on\([^)]*?'(\w+)'", text))

    assert phases <= set(get_args(Phase))
