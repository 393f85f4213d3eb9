"""The changes that one of many processes makes to a shared session."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from boyd.store import Store, connect
from boyd_goals.goal_tree import decompose
from boyd_goals.memory import MemoryNote, consolidate, is_consolidation_due, push
from boyd_goals.outcome import DecisionOutcome, apply_outcome
from boyd_goals.sessions import claim, release
from boyd_goals.state import Config, GoalSession

AGENT, PLUGIN, KEY = "racer", "goals", "session:shared"
CONFIG = Config(working_memory_capacity=30, max_episodes=20, max_decisions=200)
PUSHES = 100
CYCLES = 40
CLAIMS = 10


@dataclass
class Account:
    """The changes that a process reports."""

    pushed: list[int] = field(default_factory=list)
    claimed: list[tuple[str, int]] = field(default_factory=list)
    applied: list[int] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    split: int = 0
    largest: int = 0


class Hammer:
    """A process with a connection of its own."""

    def __init__(self, url: str, number: int, worked: str, stalled: str) -> None:
        """Work on the goal *worked*, and split the goal *stalled*."""
        client = connect(url)
        self._state = Store(client, f"w{number}").agent(AGENT).state(PLUGIN)
        self._number = number
        self._worked = worked
        self._stalled = stalled
        self._dice = random.Random(number)
        self.account = Account()

    def run(self) -> Account:
        """Do everything, in an order of its own."""
        cycles = [*range(1, CYCLES + 1)]
        self._dice.shuffle(cycles)
        work: list[Callable[[], None]] = [self._push] * PUSHES
        work += [self._claim] * CLAIMS + [self._split] * 5
        work += [lambda cycle=cycle: self._apply(cycle) for cycle in cycles]  # type: ignore[misc]
        self._dice.shuffle(work)
        for step in work:
            step()
        return self.account

    def _change(
        self, change: Callable[[GoalSession], GoalSession]
    ) -> tuple[GoalSession, GoalSession]:
        """The session before and after a change that was stored."""
        sessions: list[GoalSession] = []

        def on_json(value: Any) -> Any:
            before = GoalSession.model_validate(value)
            sessions[:] = [before, change(before)]
            return sessions[1].to_wire()

        self._state.update(KEY, on_json)
        self.account.largest = max(self.account.largest, len(sessions[1].memory))
        return sessions[0], sessions[1]

    def _push(self) -> None:
        now, relevance = datetime.now(UTC), self._dice.random()

        def push_note(session: GoalSession) -> GoalSession:
            note = MemoryNote(
                content=f"from {self._number}",
                kind="Action",
                relevance=relevance,
                source_cycle=0,
                now=now,
                symbols=["x"],
            )
            return push(session, note, CONFIG)

        _, after = self._change(push_note)
        self.account.pushed.append(after.memory[-1].id)
        if is_consolidation_due(after, CONFIG) and self._dice.random() < 0.2:
            self._consolidate()

    def _consolidate(self) -> None:
        now = datetime.now(UTC)
        ids: list[str] = []

        def consolidate_now(session: GoalSession) -> GoalSession:
            after, episodes = consolidate(session, {}, 1, now, CONFIG)
            ids[:] = [episode.id for episode in episodes]
            return after

        self._change(consolidate_now)
        self.account.kept += ids

    def _claim(self) -> None:
        now, owner = datetime.now(UTC), f"{self._number}-{self._dice.random()}"
        _, after = self._change(lambda session: claim(session, owner, now, CONFIG)[0])
        mine = [goal for goal in after.goals.values() if goal.owner == owner]
        self.account.claimed += [(goal.id, goal.fence) for goal in mine]
        for goal in mine:
            id, fence = goal.id, goal.fence
            self._change(lambda session, id=id, fence=fence: release(session, id, fence, now))  # type: ignore[misc]

    def _apply(self, cycle: int) -> None:
        outcome = DecisionOutcome(cycle=cycle, goal=self._worked, tool=f"tool{cycle}", state="done")
        now = datetime.now(UTC)
        before, after = self._change(lambda session: apply_outcome(session, outcome, now, CONFIG))
        if after is not before:
            self.account.applied.append(cycle)

    def _split(self) -> None:
        now = datetime.now(UTC)
        before, after = self._change(lambda session: decompose(session, self._stalled, now, CONFIG))
        self.account.split += after is not before


def hammer(url: str, number: int, worked: str, stalled: str) -> Account:
    """Run one."""
    return Hammer(url, number, worked, stalled).run()
