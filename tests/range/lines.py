"""The lines in which actions say what they do, outside of everything that Boyd keeps."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

#: An action begins and has had its effect, is being verified, is being undone and was undone;
#: people were told that it is suspended.
Step = Literal["act", "acted", "look", "undo", "undone", "told"]


@dataclass(frozen=True)
class Line:
    """A step of an execution: in which process, and when (seconds since the epoch)."""

    step: Step
    execution: str
    action: str
    pid: int
    at: float


def write_line(path: Path, step: Step, execution: str, action: str = "") -> None:
    """Add a line, in one write."""
    line = Line(step, execution, action, os.getpid(), time.time())
    with path.open("a") as file:
        file.write(f"{json.dumps(asdict(line))}\n")


def read_lines(path: Path) -> list[Line]:
    """All lines so far, in order."""
    text = path.read_text() if path.exists() else ""
    return [Line(**json.loads(line)) for line in text.splitlines()]
