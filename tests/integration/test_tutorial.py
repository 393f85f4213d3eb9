"""Pages whose commands are run as a reader runs them, and print what the pages show."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
#: Where the pages say that the API is.
SITE = "http://127.0.0.1:8700"
_BLOCK = re.compile(r"(?:^<!-- ([^\n]+) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Seconds until a command has to print what the tutorial shows.
_LIMIT = 120.0


class Reader:
    """Someone who follows a page: one folder, one shell after the other, one `boyd up`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._variables = folder / "variables.sh"
        self._variables.write_text("", "utf-8")
        programs = folder / "bin"
        programs.mkdir()
        boyd = programs / "boyd"
        boyd.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m boyd_cli "$@"\n')
        boyd.chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "BOYD_STATE_DIR": str(folder / "state"),
            "BOYD_API__PORT": "0",
            "HOME": str(folder),
        }
        self._started: list[subprocess.Popen[bytes]] = []

    def run(self, commands: str) -> str:
        """Run commands in the shell of the reader, which remembers its folder and variables."""
        file = self._variables
        remember = f'declare -p ID > "{file}" 2>&-\necho "cd \'$PWD\'" >> "{file}"\n'
        done = subprocess.run(
            ["bash", "-c", f'. "{file}"\n{commands}\n{remember}'],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout + done.stderr

    def start(self, command: str) -> None:
        """Run a command in the background, as in another terminal."""
        with (self.folder / "up.log").open("wb") as log:
            self._started.append(
                subprocess.Popen(
                    ["bash", "-c", f'. "{self._variables}"\nexec {command}'],
                    cwd=self.folder,
                    env=self._environment,
                    stdout=log,
                    stderr=log,
                )
            )

    def log(self) -> str:
        """The output of `boyd up` so far."""
        log = self.folder / "up.log"
        return log.read_text("utf-8") if log.exists() else ""

    def stop(self) -> None:
        """Press Ctrl-C."""
        for process in self._started:
            process.send_signal(signal.SIGINT)
            process.wait(180)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    new_reader = Reader(tmp_path)
    yield new_reader
    new_reader.stop()


def shows(printed: str, expected: str) -> bool:
    """Match printed lines against the guide's; … stands for anything, blanks count once."""
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    patterns = [
        ".*".join(re.escape(" ".join(part.split())) for part in line.split("…"))
        for line in expected.splitlines()
    ]
    return all(any(re.search(pattern, line) for line in lines) for pattern in patterns)


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
def test_every_command_of_the_tutorial_prints_what_it_shows(reader: Reader) -> None:
    follow(reader, TUTORIAL)


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("source", ["celery", "stackstorm", "rundeck"])
def test_every_command_of_a_migration_page_prints_what_it_shows(
    source: str, reader: Reader
) -> None:
    shutil.copytree(ROOT / "examples" / f"from-{source}", reader.folder / "my-agent")
    reader.run("cd my-agent")
    page = (ROOT / "docs" / f"migrate-from-{source}.md").read_text("utf-8")

    follow(reader, page.partition("## Try it")[2])


def follow(reader: Reader, page: str) -> None:
    """Write the files of a page, and run its commands until they print what it shows."""
    blocks = [match.groups() for match in _BLOCK.finditer(page)]
    for number, (mark, language, text) in enumerate(blocks):
        if mark and mark.startswith("file: "):
            path = reader.folder / "my-agent" / mark.removeprefix("file: ")
            path.write_text(text, "utf-8")
        elif mark == "background":
            reader.start(text.strip())
        elif language == "sh":
            expected = blocks[number + 1][2] if blocks[number + 1][1] == "text" else ""
            run_until_shown(reader, text, expected)


def run_until_shown(reader: Reader, commands: str, expected: str) -> None:
    """Run commands again and again until they print what is wanted, as a reader does."""
    end = time.monotonic() + _LIMIT
    while not shows(printed := reader.run(at_its_api(reader, commands)), expected):
        report = f"{commands}\n{printed}\nwanted:\n{expected}\nboyd up:\n{reader.log()}"
        assert time.monotonic() < end, report
        time.sleep(0.5)


def at_its_api(reader: Reader, commands: str) -> str:
    """The commands with the address of the reader's API, which has a port of its own."""
    address = re.search(r"API +(http\S+)", reader.log())
    return commands.replace(SITE, address[1]) if address else commands
