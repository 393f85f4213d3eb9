"""Agents that want to restart one host all the time, in every way in which anything is executed.

A line of `EFFECTS` is `start:<execution>` or `end:<execution>`, in one write.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from pydantic import BaseModel

from boyd import Agent, Context, Decision, Plugin, Procedure, ProcedureStep, action, strategy
from boyd.models import ActionResult

EFFECTS = Path(os.environ.get("EFFECTS", "/dev/null"))
#: Seconds that one execution takes.
TAKES = 0.03


class Where(BaseModel):
    """The target, and which of many requests it is."""

    host: str
    number: int = 0


class Single(Plugin):
    """Restarts a host, by itself and on request."""

    id = "single"
    components = (
        Procedure(
            name="renew",
            params=Where,
            steps=[
                ProcedureStep(id="once", action="single:restart", params={"host": "${params.host}"})
            ],
            concurrency=0,
        ),
    )

    @strategy()
    def choose(self) -> Decision:
        """Restart it always."""
        return Decision(
            action="single:restart", params={"host": "web1"}, rationale="always", confidence=1.0
        )

    @action(target="host")
    def restart(self, params: Where, ctx: Context) -> str:
        """Restart the host, which takes a moment."""
        _note("start", ctx)
        time.sleep(TAKES)
        _note("end", ctx)
        return "restarted"

    @restart.rollback
    def back(self, params: Where, result: ActionResult, ctx: Context) -> str:
        """Take it back."""
        _note("start", ctx)
        time.sleep(TAKES)
        _note("end", ctx)
        return "as before"

    @restart.verify(within=0.1, every=0.1)
    def _look(self, params: Where, result: ActionResult) -> bool:
        """It always helps, so that no hold gets in the way."""
        return True


def _note(name: str, ctx: Context) -> None:
    with EFFECTS.open("a") as file:
        file.write(f"{name}:{ctx.execution_id}\n")


agent = Agent("single", plugins=[Single()])
