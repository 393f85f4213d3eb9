"""An agent that tells what time it is: of its deployment, and of the machine it runs on."""

from __future__ import annotations

import time
from typing import Any

from agents.storm import Numbered
from boyd import Agent, Context, Observation, Plugin, action, observer


class Clocked(Plugin):
    """Sees the time, and acts once somebody allows it."""

    id = "clocked"

    @observer()
    def watch(self, ctx: Context) -> list[Observation]:
        """See both clocks."""
        return [Observation(source="watch", type="metric", data=_clocks(ctx))]

    @action(autonomy="approval-required")
    def write(self, params: Numbered, ctx: Context) -> dict[str, Any]:
        """Tell both clocks."""
        return _clocks(ctx)


def _clocks(ctx: Context) -> dict[str, Any]:
    return {"deployment": ctx.now().timestamp(), "machine": time.time()}


clocked = Agent("clocked", mode="event-driven", plugins=[Clocked()], approvals={"ttl": 8})
