"""Agents that are each held in one phase, so that a test can take away their only act worker.

A line in the effects file is `<what>:<agent>:<iteration>:<pid>`. The agent `lone-<phase>` waits in
that phase while the file `<effects>.hold` exists.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

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
#: Where agents are held; the agent `lone-asks` is held in decide, and its action needs an approval.
PHASES = ("start", "observe", "orient", "decide", "act", "complete")


def mark(phase: str, ctx: Context) -> None:
    """Leave a line, then wait if this agent is held here."""
    with EFFECTS.open("a") as file:
        file.write(f"{phase}:{ctx.agent.id}:{ctx.iteration}:{os.getpid()}\n")
    here = ctx.agent.id in (f"lone-{phase}", "lone-asks" if phase == "decide" else "")
    while here and Path(f"{EFFECTS}.hold").exists():
        time.sleep(0.01)


class Lone(Plugin):
    """One of everything."""

    id = "lone"

    def on_loop_start(self, ctx: Context) -> None:
        """Leave a line."""
        mark("start", ctx)

    @observer(timeout=120)
    def see(self, ctx: Context) -> list[Observation]:
        """See one thing."""
        mark("observe", ctx)
        return [Observation(source="lone", type="metric", data={})]

    @orienter()
    def read(self, observations: list[Observation], ctx: Context) -> SituationAssessment:
        """Count."""
        mark("orient", ctx)
        finding = f"{len(observations)} seen"
        return SituationAssessment(source="lone:read", findings=[finding], confidence=1.0)

    @strategy()
    def choose(self, ctx: Context) -> Decision:
        """Act always."""
        mark("decide", ctx)
        return Decision(action="lone:act", rationale="always", confidence=1.0)

    @action()
    def act(self, ctx: Context) -> str:
        """Leave the line that counts."""
        mark("act", ctx)
        return "acted"

    def on_loop_complete(self, ctx: Context) -> None:
        """Leave a line."""
        mark("complete", ctx)


class Asking(Lone):
    """The same, but a person has to approve."""

    id = "lone"

    @action(autonomy="approval-required")
    def act(self, ctx: Context) -> str:
        """Leave the line that counts."""
        mark("act", ctx)
        return "acted"


start, observe, orient, decide, act, complete = (
    Agent(f"lone-{phase}", plugins=[Lone()]) for phase in PHASES
)
asks = Agent("lone-asks", plugins=[Asking()])
ALL = ("asks", *PHASES)
