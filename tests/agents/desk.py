"""An agent for people at a console: it sees one thing, and asks before it writes a line."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel

from boyd import (
    ActionResult,
    Agent,
    Decision,
    Observation,
    Plugin,
    Situation,
    SituationAssessment,
    action,
    observer,
    orienter,
    strategy,
)
from boyd.models import JsonObject

EFFECTS = Path(os.environ.get("EFFECTS", "/dev/null"))


class Line(BaseModel):
    """The line to write."""

    text: str


class Desk(Plugin):
    """A desk with a paper on it."""

    id = "desk"

    @observer()
    def look(self) -> list[Observation]:
        """Look at the paper."""
        data: JsonObject = {"lines": len(EFFECTS.read_text().splitlines())}
        return [Observation(source="desk", type="state", data=data, severity="warning")]

    @orienter()
    def read(self, observations: list[Observation]) -> SituationAssessment:
        """Read how much is on it."""
        lines = observations[0].data["lines"]
        return SituationAssessment(source="desk:read", findings=[f"{lines} lines"], confidence=1.0)

    @strategy()
    def propose(self, situation: Situation) -> Decision:
        """Ask for a first line while there is none."""
        if "0 lines" not in situation.summary:
            return Decision(action="no-op", rationale="the paper has a line", confidence=1.0)
        return Decision(
            action="desk:write", params={"text": "first"}, rationale="it is empty", confidence=0.9
        )

    @action(autonomy="approval-required", risk="medium")
    def write(self, params: Line) -> str:
        """Write a line."""
        with EFFECTS.open("a") as file:
            file.write(f"{params.text}\n")
        return f"wrote {params.text}"

    @write.dry_run
    def would_write(self, params: Line) -> str:
        """Tell what would be written."""
        return f"would write {params.text} as line {len(EFFECTS.read_text().splitlines()) + 1}"

    @write.rollback
    def wipe(self, params: Line, result: ActionResult) -> str:
        """Take the line off."""
        lines = [line for line in EFFECTS.read_text().splitlines() if line != params.text]
        EFFECTS.write_text("".join(f"{line}\n" for line in lines))
        return f"wiped {params.text}"


agent = Agent("desk", name="Desk", plugins=[Desk()])
