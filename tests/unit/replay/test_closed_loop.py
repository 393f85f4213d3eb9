"""A replay that carries state decides as the changed agent really does on the same world."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from boyd import LoopResult
from boyd.agent import agent_from_file
from boyd.models.tape import Course, ReplayedIteration
from boyd.replay.carried_past import CarriedPast
from boyd.replay.differences import course_of, judge
from boyd.replay.recordings import FileOfRecords
from boyd.replay.replay_run import ShadowPool
from boyd.replay.shadow import Shadow
from boyd.replay.shadow_process import ShadowTask
from replay_kit import record, write_agent, write_records

ITERATIONS = 40

AGENT = """
id = "shop"
plugins_dir = "plugins"

[budgets]
"shop:restart" = { limit = 6, window = 86400 }

[[plugins]]
use = "shop"
options = { weight = 0.5, patience = 3, fall = "at once" }
"""

#: Averages a load, counts a streak, and restarts or scales; the load depends on the iteration only.
PLUGIN = '''
"""Keeps a shop in order."""

import random

from boyd import (
    Context, Decision, EffectVerdict, Observation, Plugin, Situation, SituationAssessment,
    action, observer, orienter, strategy,
)

LEAST = 0.6


class Shop(Plugin):
    id = "shop"

    class Options(Plugin.Options):
        weight: float = 0.5
        patience: int = 3
        fall: str = "at once"

    options: Options

    @observer()
    def look(self, ctx: Context) -> list[Observation]:
        world = random.Random(f"shop {ctx.iteration}")
        load = 50 + 35 * world.random() + (15 if ctx.iteration % 40 > 20 else -15)
        return [Observation(source="shop", type="metric", data={"load": load})]

    @orienter()
    def judge(self, observations: list[Observation], ctx: Context) -> SituationAssessment:
        load = observations[0].data["load"]
        weight = self.options.weight
        mean = weight * load + (1 - weight) * ctx.state.get("mean", 50.0)
        ctx.state.set("mean", mean)
        streak = ctx.state.update("streak", lambda past: self.count(past or 0, load))
        return SituationAssessment(
            source="shop:judge", findings=["x"], confidence=0.9,
            data={"mean": mean, "streak": streak, "load": load},
        )

    def count(self, past: int, load: float) -> int:
        if load > 60:
            return past + 1
        return max(0, past - 1) if self.options.fall == "slowly" else 0

    @strategy(name="restart-worn")
    def restart(self, situation: Situation) -> Decision:
        data = situation.evidence("shop:judge")
        confidence = 0.9 if data["load"] > 80 else 0.65
        return Decision(action="shop:restart", rationale="worn", confidence=confidence)

    @restart.applicable_when
    def _worn(self, situation: Situation) -> bool:
        return situation.evidence("shop:judge")["streak"] >= self.options.patience

    @strategy(name="scale-busy", state=["scaled"])
    def scale(self, situation: Situation, ctx: Context) -> Decision:
        scaled = ctx.state.get("scaled", 0)
        ctx.state.set("scaled", scaled + 1)
        return Decision(
            action="shop:scale", params={"by": scaled % 3}, rationale="busy", confidence=0.9
        )

    @scale.applicable_when
    def _busy(self, situation: Situation) -> bool:
        return situation.evidence("shop:judge")["mean"] > 65

    @action(name="restart", min_confidence=0.6)
    def restart_shop(self, params: dict) -> str:
        return "restarted"

    @action(name="scale")
    def scale_out(self, params: dict) -> str:
        return "scaled"
'''

#: Changes of the agent file or the plugin.
CHANGES: dict[str, tuple[str, str]] = {
    "none": ("fall", "fall"),
    "the least confidence": ("min_confidence=0.6", "min_confidence=0.8"),
    "a budget": ("limit = 6", "limit = 2"),
    "a budget of more": ("limit = 6", "limit = 60"),
    "a faster average": ("weight = 0.5", "weight = 0.9"),
    "a slower average": ("weight = 0.5", "weight = 0.2"),
    "a streak that falls slowly": ('"at once" }', '"slowly" }'),
    "less patience": ("patience = 3", "patience = 2"),
    "a condition": ('["mean"] > 65', '["mean"] > 55'),
    "a count": ("scaled + 1", "scaled + 2"),
}


@dataclass(frozen=True)
class Comparison:
    """The courses of the changed agent itself and of its replay."""

    really: Sequence[Course]
    replayed: Sequence[ReplayedIteration]

    def share(self, *, diverged: bool) -> float:
        """The share of equal courses in iterations that are *diverged* or not."""
        pairs = [
            item.after is not None and essence(course) == essence(item.after)
            for course, item in zip(self.really, self.replayed, strict=True)
            if (item.diverged is not None) == diverged
        ]
        return sum(pairs) / len(pairs) if pairs else 1.0


def essence(course: Course) -> tuple[object, ...]:
    """The action of a course, without its reasons."""
    return course.action, course.params, course.fate


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[LoopResult]:
    """The recorded iterations of the agent."""
    return record(
        agent_from_file(write_agent(tmp_path_factory.mktemp("s"), AGENT, PLUGIN)), ITERATIONS
    )


def compare(
    folder: Path, change: tuple[str, str], records: Sequence[LoopResult], plugin: str = PLUGIN
) -> Comparison:
    """Run the changed agent itself, and replay it on the records of the other."""
    agent, plugin = (text.replace(*change) for text in (AGENT, plugin))
    path = write_agent(folder, agent, plugin)
    changed = agent_from_file(path)
    really = [course_of(changed, item) for item in record(changed, len(records))]
    shadow = Shadow(agent_from_file(path))
    past = CarriedPast()
    return Comparison(really, [judge(shadow, item, past=past) for item in records])


@pytest.mark.long
@pytest.mark.parametrize("name", CHANGES)
def test_the_closed_loop_decides_as_the_changed_agent(
    name: str, tmp_path: Path, records: list[LoopResult]
) -> None:
    comparison = compare(tmp_path, CHANGES[name], records)

    assert comparison.share(diverged=False) >= 0.98
    assert comparison.share(diverged=True) >= 0.98


def test_a_process_replays_a_closed_loop_in_order(
    tmp_path: Path, records: list[LoopResult]
) -> None:
    path = write_agent(tmp_path, AGENT.replace("weight = 0.5", "weight = 0.2"), PLUGIN)
    file = FileOfRecords(write_records(tmp_path / "records", records), lambda _number: True)
    task = ShadowTask(agent=str(path), paths=sys.path, closed_loop=True)
    shadow = Shadow(agent_from_file(path))
    past = CarriedPast()

    with ShadowPool(task, 1) as pool:
        judgements = [it for portion in pool.judge(file.portions()) for it in portion]

    assert judgements == [judge(shadow, item, past=past) for item in records]


#: The verdict on a restart stays open, so that the next one is held.
VERIFIED = f"""{PLUGIN}
    @restart_shop.verify(within=3600)
    def _check(self, params: dict) -> None:
        return None
"""
#: Changes, and whether every iteration is decided as the changed agent decides it.
HELD: dict[str, tuple[str, str, bool]] = {
    "none": ("fall", "fall", True),
    "too low a confidence": ("min_confidence=0.6", "min_confidence=0.95", True),
    "a later restart": ("patience = 3", "patience = 6", True),
    "an earlier restart": ("patience = 3", "patience = 1", False),
}


@pytest.mark.long
@pytest.mark.parametrize("name", HELD)
def test_executions_that_do_not_happen_now_hold_nothing(name: str, tmp_path: Path) -> None:
    path = write_agent(tmp_path / "then", AGENT, VERIFIED)
    records = record(agent_from_file(path), ITERATIONS)
    old, new, is_exact = HELD[name]

    comparison = compare(tmp_path / "now", (old, new), records, VERIFIED)

    assert comparison.share(diverged=False) == 1.0
    assert (comparison.share(diverged=True) == 1.0) == is_exact
    assert any(reasons_to_hold(item) for item in records)


def reasons_to_hold(record: LoopResult) -> list[str]:
    """The executions that hold an action in an iteration."""
    return [item.reason for item in (record.trace.held if record.trace else [])]
