"""Runs a part of the unit tests on another release of Python that we promise, each in its turn.

`.ci/run` calls it. Which release and which part it is follows from the number of the commit.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from areas import ROOT, test_files
from long_tests import Clone

#: How many parts the unit tests have.
_PARTS = 16
_RELEASE = re.compile(r"Programming Language :: Python :: (3\.\d+)")


@dataclass(frozen=True)
class Interpreter:
    """An installed Python, with its whole version."""

    program: Path
    version: str


def promises() -> list[str]:
    """The releases of Python that the package names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [match[1] for line in project["classifiers"] if (match := _RELEASE.fullmatch(line))]


def find_interpreter(release: str, path: str, pyenv: Path) -> Interpreter | None:
    """The interpreter of a release on *path* or, the newest, in the folder of pyenv."""
    on_path = shutil.which(f"python{release}", path=path)
    others = sorted(pyenv.glob(f"versions/{release}.*/bin/python{release}"), key=_patch)
    for program in [*([Path(on_path)] if on_path else []), *reversed(others)]:
        # A shim of pyenv is on the path, and fails, for releases that are not switched on.
        answer = subprocess.run([program, "-V"], capture_output=True, text=True, check=False)
        version = answer.stdout.removeprefix("Python ").strip()
        if answer.returncode == 0 and version.startswith(f"{release}."):
            return Interpreter(program, version)
    return None


def _patch(program: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", program.parts[-3])]


@dataclass(frozen=True)
class Part:
    """Some files of unit tests, which follow each other in order of their paths."""

    files: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.files[0]} to {self.files[-1]}"


def parts() -> list[Part]:
    """All files of unit tests, in parts of about the same number."""
    files = [file for file in test_files() if file.startswith("tests/unit/")]
    bounds = [len(files) * place // _PARTS for place in range(_PARTS + 1)]
    return [Part(tuple(files[begin:end])) for begin, end in pairwise(bounds)]


def turn(number: int, pythons: Sequence[Interpreter]) -> tuple[Interpreter, Part]:
    """The interpreter and the part whose turn it is at the commit of that number."""
    rounds, place = divmod(number, len(pythons))
    choices = parts()
    return pythons[place], choices[rounds % len(choices)]


def check(python: Interpreter, part: Part) -> int:
    """Run the quick tests of a part in a new environment; the status of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder, "python")
        make = ["make", "--no-print-directory", f"VENV={environment}", f"PYTHON={python.program}"]
        result = subprocess.run([*make, str(environment / ".tests")], cwd=ROOT, check=False)
        if result.returncode != 0:
            return result.returncode
        processes = os.environ.get("PROCESSES", "5")
        options = ["-o", f"cache_dir={folder}/cache", "--numprocesses", processes, "-m", "not long"]
        command = [str(environment / "bin" / "python"), "-m", "pytest", *options, *part.files]
        return subprocess.run(command, cwd=ROOT, check=False).returncode


def main() -> None:
    """Run what has its turn, and write down what that was."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--closing", type=Path, default=os.devnull, help="a file for what ran")
    closing = parser.parse_args().closing
    own = "{}.{}".format(*sys.version_info)
    others = [release for release in promises() if release != own]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    path = os.environ.get("PATH", os.defpath)
    pythons = [python for release in others if (python := find_interpreter(release, path, pyenv))]
    if not pythons:
        closing.write_text(f"skipped: none of {', '.join(others)} is installed", encoding="utf-8")
        return
    python, part = turn(Clone().number, pythons)
    text = f"Python {python.version}, {part}"
    print(text, flush=True)
    closing.write_text(text, encoding="utf-8")
    sys.exit(check(python, part))


if __name__ == "__main__":
    main()
