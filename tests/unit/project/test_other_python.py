"""CI runs each part of the unit tests on each promised release of Python, in turn."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import areas
import other_python
from other_python import Interpreter, find_interpreter, parts, promises, turn

OWN = "{}.{}".format(*sys.version_info)
PYTHONS = [Interpreter(Path(name), name) for name in ("3.12.1", "3.13.0")]


def program(path: Path, version: str, status: int = 0) -> Path:
    """A program that says which Python it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho Python {version}\nexit {status}\n")
    path.chmod(0o755)
    return path


def test_the_package_promises_this_python() -> None:
    assert OWN in promises()
    assert promises()[0] == "3.11"


def test_every_part_has_its_turn_on_every_python() -> None:
    numbers = range(100, 100 + len(PYTHONS) * len(parts()))
    turns = [turn(number, PYTHONS) for number in numbers]

    assert set(turns) == {(python, part) for python in PYTHONS for part in parts()}
    assert turns[0] == turn(100, PYTHONS)


def test_the_parts_are_all_unit_tests_and_none_twice() -> None:
    unit = [file for file in areas.test_files() if file.startswith("tests/unit/")]

    assert [file for part in parts() for file in part.files] == unit
    assert min(len(part.files) for part in parts()) > 10


def test_a_shim_that_fails_is_no_python_and_the_newest_of_pyenv_is_taken(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "python3.12", "", status=127)
    for version in ("3.12.9", "3.12.10"):
        program(tmp_path / "pyenv" / "versions" / version / "bin" / "python3.12", version)

    interpreter = find_interpreter("3.12", str(tmp_path / "bin"), tmp_path / "pyenv")
    assert interpreter is not None
    assert interpreter.version == "3.12.10"
    assert find_interpreter("3.13", str(tmp_path / "bin"), tmp_path / "pyenv") is None


def test_a_python_on_the_path_comes_first(tmp_path: Path) -> None:
    mine = program(tmp_path / "bin" / "python3.12", "3.12.0")
    program(tmp_path / "pyenv" / "versions" / "3.12.9" / "bin" / "python3.12", "3.12.9")

    interpreter = find_interpreter("3.12", str(tmp_path / "bin"), tmp_path / "pyenv")
    assert interpreter == Interpreter(mine, "3.12.0")


def test_without_another_python_it_is_skipped_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing = tmp_path / "closing"
    monkeypatch.setattr(sys, "argv", ["other_python", "--closing", str(closing)])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    other_python.main()

    assert closing.read_text().startswith("skipped: none of 3.1")
    assert f" {OWN}" not in closing.read_text()
