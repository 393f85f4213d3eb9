"""An agent whose only action does harm, as its check finds, and can be rolled back.

It writes what it does into `EFFECTS`. While a file `<EFFECTS>.<step>` exists, that step waits.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from boyd import Agent, Context, Decision, EffectVerdict, Plugin, action, strategy
from boyd.models import ActionResult

EFFECTS = Path(os.environ.get("EFFECTS", "/dev/null"))


class Breaker(Plugin):
    """Breaks something, sees that, and mends it."""

    id = "breaker"

    @strategy()
    def decide(self) -> Decision:
        """Always break it."""
        return Decision(action="breaker:break", params={}, rationale="it is time", confidence=1)

    @action(name="break")
    def break_it(self, params: Any, ctx: Context) -> str:
        """Break it."""
        self._note("break")
        return "broken"

    @break_it.verify(within=60, every=0.2)
    def _look(self, params: Any, result: ActionResult) -> EffectVerdict:
        self._note("look")
        if "mend" in EFFECTS.read_text().split():
            return EffectVerdict(verdict="no effect", evidence="it is as it was")
        return EffectVerdict(verdict="worse", evidence="it is broken")

    @break_it.rollback
    def mend(self, params: Any, result: ActionResult) -> str:
        """Mend it."""
        self._note("mend")
        return "mended"

    def _note(self, step: str) -> None:
        with EFFECTS.open("a") as file:
            file.write(f"{step}\n")
        while EFFECTS.with_name(f"{EFFECTS.name}.{step}").exists():
            time.sleep(0.05)


agent = Agent("verified", plugins=[Breaker()])
