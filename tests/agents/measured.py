"""An agent that gives every panel of the dashboards something to show.

Its model is at `MODEL_URL`; `NOTIFIED` is the address of a webhook.
"""

from __future__ import annotations

import os
from typing import Any

from pydantic import BaseModel

from boyd import (
    Agent,
    Context,
    Decision,
    EffectVerdict,
    Observation,
    Plugin,
    action,
    observer,
    strategy,
    tool,
)
from boyd.models import ActionResult, JsonObject
from boyd.plugins.notifier import Notifier

#: Its first iterations ask a person, all later ones act alone.
ASKING = 3


class Number(BaseModel):
    """The number of the iteration that wants it."""

    n: int


class Meter(Plugin):
    """Sees, asks and acts, and has an observer that fails."""

    id = "meter"

    @observer()
    def steady(self) -> list[Observation]:
        """See something."""
        return [Observation(source="meter", type="state", data={})]

    @observer()
    def broken(self) -> list[Observation]:
        """See nothing, ever."""
        raise RuntimeError("it is broken")

    @strategy()
    def decide(self, ctx: Context) -> Decision:
        """Ask first, then act."""
        name = "ask" if (ctx.iteration or 0) <= ASKING else "act"
        params: JsonObject = {"n": ctx.iteration}
        return Decision(action=f"meter:{name}", params=params, rationale="it is time", confidence=1)

    @action(autonomy="approval-required")
    def ask(self, params: Number) -> str:
        """Do what a person has allowed."""
        return f"asked {params.n}"

    @action()
    def act(self, params: Number) -> str:
        """Do something alone."""
        return f"acted {params.n}"

    @act.verify(within=60, every=0.1)
    def _works(self, params: Number, result: ActionResult) -> EffectVerdict:
        return EffectVerdict(verdict="effective", evidence="it works")

    @tool()
    def look(self) -> str:
        """Look at something."""
        return "seen"


def _llm() -> dict[str, Any]:
    url = os.environ.get("MODEL_URL", "http://127.0.0.1:9/v1")
    return {"base_url": url, "model": "scripted", "prices": {"input": 300, "output": 1500}}


_groups = [{"name": "ops", "recipients": [os.environ.get("NOTIFIED", "json://127.0.0.1:9")]}]
agent = Agent(
    "measured",
    mode="continuous",
    loop_interval=0.5,
    plugins=[Meter(), Notifier(groups=_groups)],
    llm=_llm(),
)
