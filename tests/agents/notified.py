"""An agent that proposes to write a line, and notifies the groups in its environment."""

from __future__ import annotations

import json
import os
from pathlib import Path

from pydantic import BaseModel

from boyd import Agent, Decision, Plugin, action, strategy
from boyd.plugins.notifier import Notifier

EFFECTS = Path(os.environ.get("EFFECTS", "/dev/null"))


class Line(BaseModel):
    """The line to write."""

    text: str = "written"


class Writer(Plugin):
    """Always wants to write the same line, which a person has to allow."""

    id = "writer"

    @strategy()
    def decide(self) -> Decision:
        """Propose it."""
        return Decision(
            action="writer:write", params={"text": "written"}, rationale="it is time", confidence=1
        )

    @action(autonomy="approval-required", risk="low")
    def write(self, params: Line) -> str:
        """Write a line."""
        with EFFECTS.open("a") as file:
            file.write(f"{params.text}\n")
        return "done"

    @write.dry_run
    def _preview(self, params: Line) -> str:
        return f"would write {params.text!r}"


def _plugins() -> list[Plugin]:
    groups = json.loads(os.environ.get("NOTIFIED", "[]"))
    further = json.loads(os.environ.get("ESCALATIONS", "[]"))
    return [Writer(), *([Notifier(groups=groups, escalations=further)] if groups else [])]


agent = Agent("notified", plugins=_plugins(), approvals={"required": {"links": "bearer"}})
