"""A small agent in files, its recorded iterations, and changes of both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from boyd import Agent, LoopResult
from boyd.agent import agent_from_file
from boyd.models.tape import ReplayedIteration
from boyd.replay.differences import judge
from boyd.replay.shadow import Shadow
from boyd.testing import Lab

AGENT = """
id = "shop"
plugins_dir = "plugins"

[budgets]
"shop:tidy" = { limit = 3, window = 600 }

[[approvals.policies]]
actions = ["shop:scale"]
required = { min_approvals = 2 }

[[plugins]]
use = "shop"
options = { patience = 2 }
"""

PLUGIN = '''
"""Keeps a shop in order."""

from pydantic import Field

from boyd import (
    Context, Decision, Observation, Plugin, Situation, SituationAssessment, Veto,
    action, observer, orienter, strategy,
)
from boyd.models import Model

LIMIT = 60


class HostParams(Model):
    host: str = Field(max_length=10)


class Shop(Plugin):
    id = "shop"

    class Options(Plugin.Options):
        patience: int = 2

    options: Options

    @observer()
    def look(self, ctx: Context) -> list[Observation]:
        number = ctx.iteration or 0
        data = {"load": number * 13 % 101, "errors": number * 13 % 7, "host": f"h{number % 3}"}
        return [Observation(source="shop", type="metric", data=data)]

    @orienter()
    def judge(self, observations: list[Observation], ctx: Context) -> SituationAssessment:
        seen = next(one for one in observations if one.source == "shop")
        load = seen.data["load"]
        busy = load > LIMIT
        streak = ctx.state.get("streak", 0)
        streak = streak + 1 if busy else 0
        ctx.state.set("streak", streak)
        at = ctx.now()
        return SituationAssessment(
            source="shop:judge",
            findings=[f"load {load} at {at:%H:%M}"],
            confidence=0.9,
            data={"busy": busy, "streak": streak, **seen.data},
        )

    def on_orient(self, situation: Situation) -> dict[str, str] | None:
        if situation.evidence("shop:judge")["errors"] >= 5:
            return {"priority": "high"}
        return None

    @strategy(name="restart-failing")
    def restart(self, situation: Situation) -> Decision:
        known = situation.evidence("shop:judge")
        return Decision(
            action="shop:restart",
            params={"host": known["host"]},
            rationale=f"{known['errors']} errors",
            confidence=0.9 if known["load"] < 50 else 0.5,
        )

    @restart.applicable_when
    def _failing(self, situation: Situation) -> bool:
        return situation.evidence("shop:judge")["errors"] > 4

    @strategy(name="scale-busy")
    def scale(self, situation: Situation) -> Decision:
        streak = situation.evidence("shop:judge")["streak"]
        return Decision(
            action="shop:scale", params={"by": streak}, rationale="busy", confidence=0.9
        )

    @scale.applicable_when
    def _busy(self, situation: Situation) -> bool:
        known = situation.evidence("shop:judge")
        return known["busy"] and known["streak"] >= self.options.patience

    @strategy()
    def tidy_up(self, situation: Situation) -> Decision:
        return Decision(action="shop:tidy", rationale="tidy", confidence=0.8)

    @tidy_up.applicable_when
    def _untidy(self, situation: Situation) -> bool:
        return situation.evidence("shop:judge")["errors"] in (1, 2)

    def on_decide(self, decision: Decision, situation: Situation) -> dict[str, bool] | None:
        known = situation.evidence("shop:judge")
        if decision.action == "shop:restart" and known["load"] > 80:
            raise Veto("too busy to restart")
        if situation.priority == "high" and known["host"] == "h1":
            return {"requires_approval": True}
        return None

    def on_before_act(self, params: dict, ctx: Context) -> None:
        if params.get("host") == ctx.state.get("protected", "h0"):
            raise Veto("protected")

    @action(name="restart", min_confidence=0.6, target="host")
    def restart_host(self, params: HostParams) -> str:
        return "restarted"

    @action(name="scale", autonomy="approval-required")
    def scale_out(self, params: dict) -> str:
        return "scaled"

    @action()
    def tidy(self, params: dict) -> str:
        return "tidied"
'''

#: The strategies, in their order.
_RESTART, _SCALE = (f"    @strategy({part}" for part in PLUGIN.split("    @strategy(")[1:3])
STRATEGIES = _RESTART + _SCALE
REORDERED = _SCALE + _RESTART


def write_agent(folder: Path, agent: str = AGENT, plugin: str = PLUGIN) -> Path:
    """The path of an agent file with its plugin."""
    (folder / "plugins").mkdir(parents=True)
    (folder / "plugins" / "shop.py").write_text(plugin)
    path = folder / "agent.toml"
    path.write_text(agent)
    return path


def record(agent: Agent, count: int) -> list[LoopResult]:
    """The records of *count* iterations."""
    lab = Lab(agent)
    return [LoopResult.from_json(lab.run().to_json()) for _ in range(count)]


def replay_with(path: Path, records: Iterable[LoopResult]) -> list[ReplayedIteration]:
    """Replay *records* with an agent file."""
    shadow = Shadow(agent_from_file(path))
    return [judge(shadow, past_record) for past_record in records]


def differing(iterations: Sequence[ReplayedIteration]) -> set[str]:
    """The kinds of differences."""
    return {kind for iteration in iterations for kind in iteration.differences}


def write_records(path: Path, records: Iterable[LoopResult]) -> Path:
    """A file with one record a line."""
    path.write_text("".join(f"{past_record.to_json()}\n" for past_record in records))
    return path
