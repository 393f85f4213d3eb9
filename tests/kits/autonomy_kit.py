"""An agent that has to earn to run alone, and a replica of how the scripts count."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from boyd import Agent
from boyd.models import (
    Anomaly,
    ApprovalItem,
    Decision,
    EarnedAutonomy,
    EffectName,
    Hold,
    JsonObject,
    TrackRecord,
)
from boyd.plugin import Strategy
from boyd.settings.permissions import AutonomyRule
from boyd.testing import Lab
from boyd.text.sequential_bounds import DropTest
from kit import Recorder, choice, overdue, person, plugin

ACTION = "p:do"
#: A rule that is met soon.
EARNED: JsonObject = {"mode": "earned", "at_least": 0.5, "after": 5}


class Params(BaseModel):
    """The host that the action acts on, and how strongly."""

    host: str
    by: int = 1


class Ward:
    """An agent whose action has to earn to run alone, and whose cases come and go."""

    def __init__(self, rule: JsonObject | None = None, **settings: Any) -> None:
        self.verdict: Any = False
        self.host, self.by = "web-1", 1
        self.sick, self.reports = True, True
        self.severity: Any = "high"
        self.recorder = Recorder()
        options = {"verify": lambda: self.verdict, "params": Params, "target": "host", **settings}
        own = plugin(
            Strategy(name="s", decide=self._decide),
            self.recorder.action(**options),
            on_orient=lambda: {"anomalies": self._anomalies()},
        )
        rules: dict[str, Any] = {"autonomy": {ACTION: rule or EARNED}}
        self.lab = Lab(Agent("test", plugins=[own], **rules))

    def _anomalies(self) -> list[JsonObject]:
        anomaly = Anomaly(
            type="down", description="", severity=self.severity, affected_resources=[self.host]
        )
        return [anomaly.to_wire()] if self.sick and self.reports else []

    def _decide(self) -> Decision | None:
        if not self.sick:
            return None
        return choice(params={"host": self.host, "by": self.by})

    def look(self, final: bool = False) -> None:
        """Let the time pass until the next check; with *final* until the last one."""
        for name in self.lab.client.zrange("boyd:{test}:due", 0, -1):
            if name.startswith("wait:") and final:
                self.lab.client.hset(f"boyd:{{test}}:{name}", "until", 1)
            if name.startswith("verify:") and final:
                entry = "boyd:{test}:execution:" + name.removeprefix("verify:")
                self.lab.client.hset(entry, "verifyUntil", 1)
            if name.startswith(("wait:", "verify:")):
                overdue(self.lab, name)
        # What was approved goes on after its wait.
        self.lab.sweeper.sweep()
        self.lab.deliver()

    @property
    def wait(self) -> str:
        """The job of the only case that waits."""
        names = self.lab.client.zrange("boyd:{test}:due", 0, -1)
        [name] = [name for name in names if name.startswith("wait:")]
        return str(name)

    @property
    def wait_hold(self) -> Hold | None:
        """The hold of the only case that waits."""
        holds = self.lab.store.holds.all()
        return next((hold for hold in holds if hold.kind == "held out"), None)

    @property
    def pending(self) -> ApprovalItem | None:
        """The pending approval of the action."""
        pending = self.lab.store.approvals.page(20, history=False).pending
        return next((item for item in pending if item.action_id == ACTION), None)

    @property
    def item(self) -> ApprovalItem:
        """The approval of the action that was answered last."""
        items = self.lab.store.approvals.page(20).history
        return next(item for item in items if item.action_id == ACTION)

    @property
    def trial(self) -> tuple[int, int, int, int]:
        """Cases to act on and to wait, and of these those well without it and that needed it."""
        trial = self.record.trial
        return trial.cases, trial.waited, trial.well_without, trial.needed

    def approve(self) -> None:
        """Approve the pending action, and let it be executed."""
        item = self.pending
        assert item is not None
        self.lab.resolver.answer(item.id, "approved", person("ann"))
        self.lab.deliver()

    def let_run_alone(self) -> None:
        """Let the action run alone, within the only track record."""
        tracks = f"boyd:{{test}}:track:{ACTION}"
        [(classed, text)] = self.lab.client.hgetall(tracks).items()
        track = json.loads(text)
        grant = {"id": "g", "atLeast": 1, "since": 0, "until": 2**42, "by": ["ann"]}
        track["grant"] = {**grant, "covers": track["covers"]}
        self.lab.client.hset(tracks, classed, json.dumps(track))

    @property
    def record(self) -> TrackRecord:
        """The only track record."""
        [record] = self.lab.store.track_records.all([ACTION])
        return record


def rule_of(**settings: Any) -> EarnedAutonomy:
    """A rule by which actions earn to run alone."""
    rule = AutonomyRule(mode="earned", **settings).earning_rule
    assert rule is not None
    return rule


class Tally:
    """Counts cases and outcomes in one class as the scripts do, without Redis."""

    def __init__(self, rule: EarnedAutonomy) -> None:
        self.rule = rule
        self.test = DropTest(rule.at_least)
        self.record = TrackRecord(action=ACTION, situation="s", label="")
        self._burst: list[bool] = []
        self._burst_began = 0.0

    def draw(self, waits: bool) -> None:
        """Count a new case."""
        self._try(**({"waited": 1} if waits else {"cases": 1}))

    def heal(self) -> None:
        """Count a case that was well at the end of its wait."""
        self._try(well_without=1)

    def count(
        self,
        verdict: EffectName,
        after_wait: bool | None,
        at: float = 0.0,
    ) -> None:
        """Count the first execution of a case, or with None one that belongs to no case.

        Its outcome is there after so many seconds.
        """
        is_good = verdict == "effective"
        if self.rule.burst:
            self._count_burst(is_good, at)
        names = {"effective": "effective", "cannot tell": "unclear"}
        name = names.get(verdict, "failed")
        step = self.test.success if is_good else self.test.failure
        drop = min(self.test.limit, max(0.0, self.record.drop + step))
        changes = {name: getattr(self.record, name) + 1, "drop": drop}
        self.record = self.record.model_copy(update=changes)
        if after_wait:
            self._try(needed=1)
        elif after_wait is False and is_good:
            self._try(well_after=1)

    def _count_burst(self, is_good: bool, at: float) -> None:
        if self._burst and at - self._burst_began >= self.rule.burst:
            percent = str(100 * sum(self._burst) // len(self._burst))
            bursts = self.record.bursts or {}
            changes = {"bursts": {**bursts, percent: bursts.get(percent, 0) + 1}}
            self.record = self.record.model_copy(update=changes)
            self._burst = []
        self._burst_began = self._burst_began if self._burst else at
        self._burst.append(is_good)

    @property
    def is_offered(self) -> bool:
        """True while the record justifies an offer."""
        return self.record.has_earned(self.rule)

    def _try(self, **added: int) -> None:
        trial = self.record.trial
        values = {name: getattr(trial, name) + number for name, number in added.items()}
        changes = {"trial": trial.model_copy(update=values)}
        self.record = self.record.model_copy(update=changes)


@dataclass(frozen=True)
class World:
    """A world of cases; times are in the time that an action has to show its effect.

    Attributes:
        heals: when a case ends by itself.
        cures: the chance that the action ends it.
        answers: when people have approved it, by when it would end by itself.
        approves: whether they do, likewise.
        told: whether a verdict can be told, by whether it was effective.
    """

    heals: Callable[[random.Random], float]
    cures: float = 0.0
    answers: Callable[[random.Random, float], float] = lambda dice, ends_at: 0.0
    approves: Callable[[float], bool] = lambda ends_at: True
    told: Callable[[random.Random, bool], bool] = lambda dice, effective: True

    def play(self, tally: Tally, dice: random.Random) -> None:
        """Let one case happen."""
        ends_at = self.heals(dice)
        acts_at = self.answers(dice, ends_at)
        # What has ended meanwhile is not needed any more.
        if ends_at <= acts_at or not self.approves(ends_at):
            return
        waits = dice.random() < tally.rule.holdout
        tally.draw(waits)
        if waits and ends_at <= acts_at + 1:
            tally.heal()
            return
        effective = dice.random() < self.cures or ends_at <= acts_at + waits + 1
        verdict: EffectName = "effective" if effective else "no effect"
        tally.count(verdict if self.told(dice, effective) else "cannot tell", waits)


def cases_until_offer(world: World, rule: EarnedAutonomy, seed: int, cases: int) -> int | None:
    """The number of cases until the action is offered, if it ever is."""
    tally, dice = Tally(rule), random.Random(seed)
    for number in range(1, cases + 1):
        world.play(tally, dice)
        if tally.is_offered:
            return number
    return None
