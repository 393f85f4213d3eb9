"""An agent with goals that can be held anywhere in a cycle, one that cannot, and one without goals.

`HOLD` is `<where>:<iteration>`: there, the first worker to come leaves a line in `EFFECTS`, and
stays until it is killed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boyd import Action, Agent, Context, Decision, LoopResult, Observation, Plugin, hook, observer
from boyd_goals.plugin import Goals

EFFECTS = Path(os.environ.get("EFFECTS", "/dev/null"))


class Gate(Plugin):
    """Holds a worker."""

    id = "gate"

    def on_loop_start(self, ctx: Context) -> None:
        """Hold it before the goals' own work, or after it."""
        self._pass("start", ctx)

    @observer()
    def look(self, ctx: Context) -> list[Observation]:
        """Hold it while the others look."""
        self._pass("observe", ctx)
        return []

    def on_decide(self, decision: Decision, ctx: Context) -> None:
        """Hold it when the tool is chosen."""
        self._pass("decide", ctx)

    @hook(fail_closed=True)
    def on_before_act(self, action: Action, params: Mapping[str, Any], ctx: Context) -> None:
        """Hold it before the tool."""
        self._pass("act", ctx)

    def on_loop_complete(self, result: LoopResult, ctx: Context) -> None:
        """Hold it before what came of the tool is taken in, or after it."""
        self._pass("complete", ctx)

    def _pass(self, where: str, ctx: Context) -> None:
        name = f"{where}:{ctx.iteration}"
        if os.environ.get("HOLD") != name or name in EFFECTS.read_text().split():
            return
        with EFFECTS.open("a") as file:
            file.write(f"{name}\n")
        threading.Event().wait()


OPTIONS = {"completion_ratio": 1.0, "stall_threshold": 4}

before = Agent("scholar", plugins=[Gate(), Goals(**OPTIONS)], mode="manual")
after = Agent("scholar", plugins=[Goals(**OPTIONS), Gate()], mode="manual")
control = Agent("control", plugins=[Goals(**OPTIONS)], mode="manual")
plain = Agent("plain", plugins=[Gate()], mode="manual")
