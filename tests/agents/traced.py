"""An agent whose every part leaves a line in the effects file, and can be told to stop there.

A line is `<what>:<iteration>:<pid>`. While the file `<effects>.hold.<what>` exists, that part
waits after writing its line: a test can then kill the process in the middle of it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from boyd import (
    Agent,
    Context,
    Decision,
    Observation,
    Plugin,
    SituationAssessment,
    action,
    observer,
    orienter,
    strategy,
)

EFFECTS = Path(os.environ.get("EFFECTS", "/dev/null"))


def mark(phase: str, ctx: Context) -> None:
    """Leave a line, in one write, then wait while this part is held."""
    with EFFECTS.open("a") as file:
        file.write(f"{phase}:{ctx.iteration}:{os.getpid()}\n")
    hold = Path(f"{EFFECTS}.hold.{phase}")
    while hold.exists():
        time.sleep(0.01)


class Traced(Plugin):
    """One of everything."""

    id = "traced"

    class Options(Plugin.Options):
        """The number of observers."""

        observers: int = 3

    def on_loop_start(self, ctx: Context) -> None:
        """Leave a line."""
        mark("start", ctx)

    @observer(timeout=120)
    def one(self, ctx: Context) -> list[Observation]:
        """See one thing."""
        mark("one", ctx)
        return [Observation(source="one", type="metric", data={"pid": os.getpid()})]

    @observer(timeout=120)
    def two(self, ctx: Context) -> list[Observation]:
        """See another."""
        mark("two", ctx)
        return [Observation(source="two", type="metric", data={"pid": os.getpid()})]

    @observer(timeout=120)
    def three(self, ctx: Context) -> list[Observation]:
        """See a third."""
        mark("three", ctx)
        return [Observation(source="three", type="metric", data={"pid": os.getpid()})]

    @orienter()
    def read(self, observations: list[Observation], ctx: Context) -> SituationAssessment:
        """Count."""
        mark("orient", ctx)
        text = ", ".join(o.source for o in observations)
        return SituationAssessment(source="traced:read", findings=[text], confidence=1.0)

    @strategy()
    def choose(self, ctx: Context) -> Decision:
        """Act always."""
        mark("decide", ctx)
        return Decision(
            action="traced:act", params={"n": ctx.iteration}, rationale="always", confidence=1.0
        )

    @action()
    def act(self, params: Any, ctx: Context) -> str:
        """Leave the line that counts."""
        mark("act", ctx)
        return "acted"

    def on_loop_complete(self, ctx: Context) -> None:
        """Leave a line."""
        mark("complete", ctx)


class Careful(Traced):
    """The same, but a person has to approve."""

    id = "traced"

    def on_before_act(self, ctx: Context) -> None:
        """Leave a line before the action is claimed."""
        mark("before", ctx)

    @action(autonomy="approval-required")
    def act(self, params: Any, ctx: Context) -> str:
        """Leave the line that counts."""
        mark("act", ctx)
        return "acted"


careful = Agent("careful", plugins=[Careful()])
traced = Agent("traced", plugins=[Traced()])
ticking = Agent("ticking", mode="continuous", loop_interval=0.2, plugins=[Traced()])
