"""Agents that do a little of everything all the time; each action leaves a line of its own.

A line is `<kind>:<agent>:<which>`, in one write: the same line twice is an action done twice.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from pydantic import BaseModel

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
#: More than any test keeps.
ALL = 10**6


class Numbered(BaseModel):
    """Which one."""

    number: int


class Where(Numbered):
    """Which one, and on which host."""

    host: str


class Storm(Plugin):
    """Three quick observers, one decision each time, and some actions for clients."""

    id = "storm"

    @observer()
    def one(self) -> list[Observation]:
        """See one thing."""
        return [Observation(source="one", type="metric", data={})]

    @observer()
    def two(self) -> list[Observation]:
        """See another, slowly."""
        time.sleep(random.uniform(0, 0.05))
        return [Observation(source="two", type="metric", data={})]

    @observer()
    def three(self) -> list[Observation]:
        """See nothing."""
        return []

    @orienter()
    def read(self, observations: list[Observation]) -> SituationAssessment:
        """Count."""
        finding = f"{len(observations)} seen"
        return SituationAssessment(source="storm:read", findings=[finding], confidence=1.0)

    @strategy()
    def choose(self, ctx: Context) -> Decision:
        """Act always."""
        number = ctx.iteration or 0
        return Decision(
            action="storm:act", params={"number": number}, rationale="always", confidence=1.0
        )

    @action()
    def act(self, params: Numbered, ctx: Context) -> str:
        """Leave a line for this iteration."""
        return _leave("loop", ctx, (ctx.execution_id or "").removeprefix("loop:"))

    @action(autonomy="approval-required")
    def write(self, params: Numbered, ctx: Context) -> str:
        """Leave a line for an approval."""
        return _leave("item", ctx, params.number)

    @action(target="host", autonomy="approval-required")
    def restart(self, params: Where, ctx: Context) -> str:
        """Leave a line at the beginning and one at the end."""
        execution = ctx.execution_id or ""
        _leave("begin", ctx, execution)
        time.sleep(random.uniform(0, 0.3))
        return _leave("end", ctx, execution)

    @action()
    def call(self, params: Numbered, ctx: Context) -> str:
        """Leave a line for a client's call."""
        return _leave("call", ctx, params.number)

    @action()
    def slow(self, params: Numbered, ctx: Context) -> str:
        """Leave a line, and take a while."""
        _leave("slow", ctx, params.number)
        time.sleep(3)
        return "done slowly"


def _leave(kind: str, ctx: Context, which: int | str) -> str:
    with EFFECTS.open("a") as file:
        file.write(f"{kind}:{ctx.agent.id}:{which}\n")
    time.sleep(random.uniform(0, 0.03))
    return "done"


def _agent(name: str) -> Agent:
    return Agent(
        name,
        mode="continuous",
        loop_interval=0.5,
        plugins=[Storm()],
        approvals={"max_history": ALL},
        history={"max_count": ALL},
        runs={"max_finished": ALL},
    )


storm0 = _agent("storm0")
storm1 = _agent("storm1")
storm2 = _agent("storm2")
storm3 = _agent("storm3")
