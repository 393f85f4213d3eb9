"""The examples of docs/api.md, one after the other, against real processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boyd.testing import ScriptedModel
from boyd.testing.model_server import say
from harness import Deployment, wait_until

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
AGENT = ROOT / "examples" / "approvals" / "agent.toml"
#: Where the guide says that the API is.
SITE = "http://127.0.0.1:8700"

_TYPED = re.compile(r"^```sh\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_ANSWER = re.compile(r"\n```(json|http|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples() -> list[tuple[str, str | None, str]]:
    """The commands of the guide, with language and text of the answer that it shows, if any."""
    return [
        (typed[1], answer[1] if answer else None, answer[2] if answer else "")
        for typed in _TYPED.finditer(TEXT)
        for answer in [_ANSWER.match(TEXT, typed.end())]
    ]


class Shell:
    """One bash in which the examples follow each other, as they do for a reader."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._errors = (folder / "shell.errors").open("w+")
        self._process = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            text=True,
        )

    def run(self, typed: str) -> str:
        """Run commands and return their output; fails when the last one does."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{typed}\nprintf '\\n<end %d>\\n' $?\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            if line.startswith("<end "):
                assert line == "<end 0>\n", f"{typed}\n{''.join(lines)}\n{self._output()}"
                return "".join(lines)
            lines.append(line)
        raise AssertionError(f"bash has ended: {self._output()}")

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _output(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-2000:]


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    """A model that takes a moment to say what the guide shows."""
    answer = say("Since version 2.0 the checkout times out.").patched({"wait": 0.2})
    with ScriptedModel([answer], forever=True) as server:
        yield server


@pytest.fixture
def agent(model: ScriptedModel, tmp_path: Path) -> Path:
    """The agent of the guide: that of the example, with a model."""
    folder = shutil.copytree(AGENT.parent, tmp_path / "approvals")
    file = folder / AGENT.name
    llm = f'[llm]\nbase_url = "{model.url}/v1"\nmodel = "qwen3:8b"\n'
    file.write_text(f"{AGENT.read_text(encoding='utf-8')}\n{llm}", encoding="utf-8")
    return file


@pytest.fixture
def shell(deployment: Deployment, agent: Path, tmp_path: Path) -> Iterator[tuple[Shell, str]]:
    """A shell as a reader has it, and where the API is."""
    deployment.worker("worker", str(agent))
    deployment.start("api", "api", "--port", "0", ready=False)
    address = wait_until(lambda: re.search(r"API on (\S+)", deployment.log("api")))
    programs = tmp_path / "bin"
    programs.mkdir()
    boyd = programs / "boyd"
    boyd.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m boyd_cli "$@"\n')
    boyd.chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "BOYD_REDIS_URL": deployment.redis_url}
    new_shell = Shell(tmp_path, environment)
    yield new_shell, address[1]
    new_shell.close()


def parse_example(text: str) -> Any:
    """JSON as the guide writes it: … for any value, {…} for any object, [1, …] for more."""
    return json.loads(re.sub(r'"[^"]*"|\{…\}|…', _plain, text))


def _plain(match: re.Match[str]) -> str:
    return {"{…}": "{}", "…": '"…"'}.get(match[0], match[0])


def fits(expected: Any, real: Any, where: str = "answer") -> None:
    """Check that what is shown is there; there may be more."""
    if expected == "…":
        return
    if isinstance(expected, dict):
        assert isinstance(real, dict), where
        for name, value in expected.items():
            assert name in real, f"{where}: no {name!r} in {json.dumps(real)[:2000]}"
            fits(value, real[name], f"{where}.{name}")
    elif isinstance(expected, list):
        assert isinstance(real, list), where
        items = [item for item in expected if item != "…"]
        open_ended = len(items) < len(expected)
        assert len(real) >= len(items) if open_ended else len(real) == len(items), (where, real)
        for number, item in enumerate(items):
            fits(item, real[number], f"{where}[{number}]")
    elif isinstance(expected, str):
        assert isinstance(real, str), (where, real)
        assert _like(expected, real), f"{where}: {real!r} is not {expected!r}"
    else:
        assert expected == real, f"{where}: {real!r} is not {expected!r}"


def _like(expected: str, real: str) -> bool:
    pattern = ".*".join(map(re.escape, expected.split("…")))
    return re.fullmatch(pattern, real, re.DOTALL) is not None


def fits_http(expected: str, real: str) -> None:
    """Check the status, those headers that are shown, and the body."""
    (status, *headers), body = _parts(expected)
    (real_status, *real_headers), real_body = _parts(real)
    assert real_status.strip() == status, real
    there = dict(_header(line) for line in real_headers)
    for name, value in map(_header, headers):
        assert _like(value, there.get(name, "")), f"{name}: {there.get(name)!r} is not {value!r}"
    fits(parse_example(body), json.loads(real_body))


def _parts(text: str) -> tuple[list[str], str]:
    head, _, body = text.replace("\r\n", "\n").partition("\n\n")
    return head.splitlines(), body


def _header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.lower(), value.strip()


@pytest.mark.real
@pytest.mark.long
def test_every_example_of_the_guide_is_answered_as_it_says(shell: tuple[Shell, str]) -> None:
    typing, site = shell
    for typed, language, expected in examples():
        answer = typing.run(typed.replace(SITE, site)).strip()
        try:
            if language == "json":
                fits(parse_example(expected), json.loads(answer))
            elif language == "http":
                fits_http(expected, answer)
            elif language == "text":
                assert _like(expected.strip(), answer)
        except (AssertionError, ValueError) as error:
            raise AssertionError(f"{typed}\nshows\n{answer[:3000]}\n{error}") from None


def test_the_guide_has_an_example_of_every_kind() -> None:
    typed = "\n".join(example[0] for example in examples())

    nouns = ("runs", "approvals", "actions", "executions", "investigations", "events", "intake")
    for noun in (*nouns, "plugins"):
        assert f"$BOYD_URL/api/v0/{noun}" in typed, noun
