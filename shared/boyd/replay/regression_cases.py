"""Regression cases of an agent: recorded iterations with the right decision, in files.

They are in the folder `cases` beside the agent file, one YAML file each, for people to read and
edit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from boyd.errors import ConfigError
from boyd.models import LoopResult, explain
from boyd.models.base import JsonObject, Model
from boyd.models.replayed import Course, Fate, ReplayedIteration
from boyd.settings.text_files import read_text

FOLDER = "cases"
_HEAD = "# A case of the agent {agent!r}, which `boyd test` replays; edit what it expects.\n"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: What a replay does not need of a record.
_LEFT_OUT = ("situation", "trace", "actionResults", "observerRuns", "phases", "runs", "retries")


class Expectation(Model):
    """The right decision; absent fields match anything."""

    action: str
    params: JsonObject | None = None
    fate: Fate | None = None

    @classmethod
    def of(cls, course: Course) -> Expectation:
        """The expectation that it stays like *course*."""
        doing = course.fate != "none"
        return cls(
            action=course.action if doing else "no-op",
            params=course.params if doing else None,
            fate=course.fate,
        )

    def mistakes(self, course: Course) -> Iterator[str]:
        """The differences to *course*, each a line."""
        action = "no-op" if course.fate == "none" else course.action
        found = {"action": action, "params": course.params, "fate": course.fate}
        for name, value in found.items():
            wanted = getattr(self, name)
            if wanted is not None and wanted != value:
                yield f"{name}: expected {_shown(wanted)}, got {_shown(value)}"


class ReplayCase(Model):
    """A recorded iteration and the right decision."""

    expect: Expectation
    record: LoopResult


class CaseResult(Model):
    """The result of a case; without mistakes it passed."""

    case: str
    mistakes: list[str] = Field(default_factory=list)

    @classmethod
    def of(cls, name: str, case: ReplayCase, found: ReplayedIteration) -> CaseResult:
        """Compare what the case expects with what was found."""
        if found.after is None:
            return cls(case=name, mistakes=[f"cannot tell: {found.why}"])
        mistakes = list(case.expect.mistakes(found.after))
        if mistakes and found.after.reason:
            mistakes.append(f"because: {found.after.reason}")
        return cls(case=name, mistakes=mistakes)


def folder_of(agent_file: str) -> Path:
    """The folder of the cases of an agent file, or of an agent in a module: here."""
    beside = Path(agent_file).parent if agent_file.endswith(".toml") else Path()
    return beside / FOLDER


def write_case(folder: Path, name: str, case: ReplayCase) -> Path:
    """Write a case to a new file; return its path.

    Raises:
        ConfigError: the name is invalid or taken, or the file cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is no name of a case: use letters, digits, `.`, `_` and `-`")
    path = folder / f"{name}.yaml"
    wire = case.to_wire()
    wire["record"] = {key: wire["record"][key] for key in wire["record"] if key not in _LEFT_OUT}
    text = yaml.safe_dump(wire, sort_keys=False, allow_unicode=True, width=100)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(_HEAD.format(agent=case.record.agent_id) + text)
    except FileExistsError:
        raise ConfigError(f"{path} exists already: give another --name, or edit it") from None
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
    return path


def read_cases(folder: Path) -> dict[str, ReplayCase]:
    """All cases of a folder by name, in the order of their names.

    Raises:
        ConfigError: a file cannot be read, or holds no case.
    """
    return {path.stem: _read(path) for path in sorted(folder.glob("*.yaml"))}


def _read(path: Path) -> ReplayCase:
    try:
        found = yaml.safe_load(read_text(path))
        return ReplayCase.model_validate_json(json.dumps(found, default=_plain))
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(error)}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}") from None


def _plain(value: Any) -> str:
    """A time, which YAML understands by itself, as text again."""
    return str(value)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
