"""The plugin of the recorded deployment: each effect leaves a line in `EFFECTS`.

While a file `<EFFECTS>.hold.<line>` exists, the call that has left that line waits.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from pydantic import BaseModel

from boyd import (
    Anomaly,
    Context,
    Decision,
    EffectVerdict,
    LoopResult,
    Observation,
    Plugin,
    SituationAssessment,
    action,
    observer,
    orienter,
    strategy,
    tool,
)
from boyd.models import ActionResult

EFFECTS = Path(os.environ.get("EFFECTS", "/dev/null"))


def leave(line: str) -> str:
    """Leave a line, and wait while a file holds it."""
    with EFFECTS.open("a") as file:
        file.write(f"{line}\n")
    while EFFECTS.with_name(f"{EFFECTS.name}.hold.{line}").exists():
        time.sleep(0.02)
    return line


class Valve(BaseModel):
    """Which valve."""

    valve: str


class Lock(Valve):
    """Which valve, and the code of its lock."""

    code: str


#: What agents do, who do not vent.
CHOICES = {"tuner": "tune", "holder": "singe"}


class Plant(Plugin):
    """Looks at pressure, turns valves and remembers how often."""

    id = "plant"

    @observer()
    def look(self, ctx: Context) -> list[Observation]:
        """See the pressure."""
        leave(f"look:{ctx.agent.id}:{ctx.iteration}")
        return [Observation(source="plant:look", type="metric", data={"bar": 9})]

    @orienter()
    def read(self, observations: list[Observation], ctx: Context) -> SituationAssessment:
        """Find the pressure too high."""
        high = Anomaly(
            type="pressure",
            description="The pressure is high.",
            severity="high",
            affected_resources=["boiler"],
        )
        return SituationAssessment(
            source="plant:read", findings=["9 bar"], confidence=1.0, anomalies=[high]
        )

    @strategy()
    def choose(self, ctx: Context) -> Decision:
        """Vent, or do what the agent is there for."""
        leave(f"choose:{ctx.agent.id}:{ctx.iteration}")
        name = CHOICES.get(ctx.agent.id, "vent")
        return Decision(
            action=f"plant:{name}", params={"valve": "v0"}, rationale="pressure", confidence=1.0
        )

    @action(target="valve")
    def vent(self, params: Valve, ctx: Context) -> str:
        """Vent once for each iteration."""
        return leave(f"vent:{ctx.agent.id}:{ctx.iteration}")

    @vent.verify(within=3600, every=0.5)
    def _has_vented(self, params: Valve, result: ActionResult) -> EffectVerdict | None:
        if not EFFECTS.with_name(f"{EFFECTS.name}.calm").exists():
            return None
        return EffectVerdict(verdict="effective", evidence="1 bar")

    @action(autonomy="approval-required", target="valve")
    def turn(self, params: Valve) -> str:
        """Turn a valve, if a person allows it."""
        return leave(f"turn:{params.valve}")

    @turn.dry_run
    def would_turn(self, params: Valve) -> str:
        """Say which."""
        return f"would turn {params.valve}"

    @turn.rollback
    def turn_back(self, params: Valve, result: ActionResult) -> str:
        """Turn it back."""
        return leave(f"back:{params.valve}")

    @action(autonomy="approval-required", idempotent=True, target="valve")
    def grease(self, params: Valve) -> str:
        """Grease a valve, a second time if need be."""
        return leave(f"grease:{params.valve}")

    @action(target="valve")
    def rinse(self, params: Valve) -> str:
        """Rinse a pipe when somebody asks for it."""
        return leave(f"rinse:{params.valve}")

    @action(target="valve")
    def flush(self, params: Valve) -> str:
        """Flush a pipe when it is rinsed."""
        return leave(f"flush:{params.valve}")

    @action(target="valve")
    def tune(self, params: Valve, ctx: Context) -> str:
        """Tune a valve, which it has to earn to do alone."""
        return leave(f"tune:{ctx.execution_id}")

    @tune.verify(within=60, every=0.2)
    def _is_tuned(self, params: Valve, result: ActionResult) -> str:
        return "effective"

    @action(target="valve")
    def singe(self, params: Valve, ctx: Context) -> str:
        """Make it worse, and be held from then on."""
        return leave(f"singe:{ctx.agent.id}:{ctx.iteration}")

    @singe.verify(within=60, every=0.2)
    def _is_worse(self, params: Valve, result: ActionResult) -> str:
        return "worse"

    @action(target="valve")
    def renew(self, params: Valve) -> str:
        """Renew one valve of many."""
        return leave(f"renew:{params.valve}")

    @action(autonomy="approval-required", target="valve")
    def unlock(self, params: Lock) -> str:
        """Unlock a valve with a code that is a secret."""
        return leave(f"unlock:{params.valve}:{params.code}")

    @tool()
    def gauge(self, params: Valve) -> str:
        """Read a gauge."""
        return leave(f"gauge:{params.valve}")

    @action(tool=True, autonomy="approval-required", target="valve")
    def shut(self, params: Valve) -> str:
        """Shut a valve for a model, if a person allows it."""
        return leave(f"shut:{params.valve}")

    def on_loop_complete(self, result: LoopResult, ctx: Context) -> None:
        """Remember how many iterations there were."""
        ctx.state.set("iterations", (ctx.state.get("iterations") or 0) + 1)
