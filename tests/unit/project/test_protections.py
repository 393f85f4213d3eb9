"""The table of `make protections` is about the code and the tests as they are."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from faults.protections import PROJECT, PROTECTIONS, Copy, Protection, misplacements

PROMISES = re.findall(r"^\| (P\d+) ", (PROJECT / "docs/reliability.md").read_text(), re.MULTILINE)


def entry_name(protection: Protection) -> str:
    """An entry, as pytest names it."""
    return f"{protection.promise}: {protection.what}"


def names(suite: Path) -> set[str]:
    """The tests of a file, as entries name them."""
    names_found = set()
    for node in ast.parse(suite.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names_found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            inner = [part for part in node.body if isinstance(part, ast.FunctionDef)]
            names_found |= {f"{node.name}::{part.name}" for part in inner}
    return names_found


def test_the_code_of_every_protection_occurs_once() -> None:
    assert misplacements() == []


def test_an_entry_whose_text_has_changed_is_named(tmp_path: Path) -> None:
    for protection in PROTECTIONS:
        path = tmp_path / protection.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((PROJECT / protection.file).read_text())
    changed = PROTECTIONS[0]
    path = tmp_path / changed.file
    path.write_text(path.read_text().replace(changed.old, "something else"))

    [message] = misplacements(tmp_path)
    assert changed.what in message
    assert "found 0 times" in message


@pytest.mark.parametrize("protection", PROTECTIONS, ids=entry_name)
def test_an_entry_changes_something_and_its_tests_exist(protection: Protection) -> None:
    there = names(PROJECT / "tests" / protection.suite)

    assert protection.old != protection.new
    assert protection.tests
    assert set(protection.tests) <= there


def test_code_without_its_protection_names_nothing_undefined(tmp_path: Path) -> None:
    """A test that fails with a `NameError` has not noticed that the protection is missing."""
    in_python = [each for each in PROTECTIONS if each.file.endswith(".py")]
    for number, protection in enumerate(in_python):
        text = (PROJECT / protection.file).read_text().replace(protection.old, protection.new)
        (tmp_path / f"{number:03}_{Path(protection.file).name}").write_text(text)
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache"]
    lint = [*ruff, "--select=F821,E9", str(tmp_path)]
    done = subprocess.run(lint, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_has_protections(promise: str) -> None:
    assert sum(protection.promise == promise for protection in PROTECTIONS) >= 2


def test_every_entry_is_of_a_promise_and_says_something_of_its_own() -> None:
    assert {protection.promise for protection in PROTECTIONS} <= set(PROMISES)
    assert len({protection.what for protection in PROTECTIONS}) == len(PROTECTIONS)
    assert len({(p.file, p.old) for p in PROTECTIONS}) == len(PROTECTIONS)


def test_a_protection_is_back_when_its_tests_have_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happened meanwhile; and it was out while they ran."""
    protection = PROTECTIONS[0]
    path = tmp_path / protection.file
    path.parent.mkdir(parents=True)
    path.write_text(f"before {protection.old} after")
    texts: list[str] = []

    def failing(*_: object) -> None:
        texts.append(path.read_text())
        raise KeyboardInterrupt

    monkeypatch.setattr(Copy, "failing", failing)
    with pytest.raises(KeyboardInterrupt):
        Copy(tmp_path).without(protection)

    assert texts == [f"before {protection.new} after"]
    assert path.read_text() == f"before {protection.old} after"
