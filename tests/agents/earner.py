"""An agent whose only action has to earn to run alone; its effect is what a file says.

It writes what it does into `EFFECTS`. While a file `<EFFECTS>.<step>` exists, that step waits;
`<EFFECTS>.bad` says that the action has no effect.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from boyd import Agent, Context, Decision, Plugin, action, strategy
from boyd.models import ActionResult, ExecutionEntry, TrackRecord

EFFECTS = Path(os.environ.get("EFFECTS", "/dev/null"))


class Earner(Plugin):
    """Does something again and again."""

    id = "earner"

    @strategy()
    def decide(self) -> Decision:
        """Always do it."""
        return Decision(action="earner:do", params={}, rationale="it is time", confidence=0.9)

    @action()
    def do(self, params: Any, ctx: Context) -> str:
        """Do it."""
        self._note("do")
        return "done"

    @do.verify(within=60, every=0.2)
    def _look(self, params: Any, result: ActionResult) -> str:
        self._note("look")
        return "no effect" if _file("bad").exists() else "effective"

    def on_before_act(self) -> None:
        """Wait, if the test says so."""
        self._note("before")

    def on_withdraw(self, record: TrackRecord, execution: ExecutionEntry, ctx: Context) -> None:
        """Tell that it may not run alone any more."""
        self._note(f"tell:{record.ended_by == execution.id}", "tell")

    def _note(self, text: str, step: str = "") -> None:
        with EFFECTS.open("a") as file:
            file.write(f"{text}\n")
        while _file(step or text).exists():
            time.sleep(0.05)


def _file(name: str) -> Path:
    return EFFECTS.with_name(f"{EFFECTS.name}.{name}")


agent = Agent(
    "earner",
    plugins=[Earner()],
    autonomy={
        "earner:do": {
            "mode": "earned",
            "at_least": 0.5,
            "after": 5,
            "holdout": 0,
            "require_uplift": False,
        }
    },
    verification={"earner:do": {"hold": False}},
)
