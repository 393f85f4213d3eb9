"""Whatever is done to a session, and in whatever order, it fits together."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from boyd_goals.goal_tree import (
    GoalError,
    active_goals,
    add_goal,
    below,
    decompose_stalled,
    is_open,
    set_status,
    symbol,
)
from boyd_goals.memory import MemoryNote, consolidate, consult, push
from boyd_goals.outcome import DecisionOutcome, apply_outcome, begin_cycle
from boyd_goals.progress import ensure_plan
from boyd_goals.psyche import new_psyche, reflect
from boyd_goals.sessions import claim, release
from boyd_goals.state import Config, GoalStatus
from goals_kit import check, empty, later

WORDS = ["red", "green", "blue", "sand", "iron", "salt"]
descriptions = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(", ".join)
TOOLS = ["kg_query", "reason", "memory_recall", "shell_exec"]


class Sessions(RuleBasedStateMachine):
    """All that can be done to a session, with little room for everything."""

    config = Config(
        working_memory_capacity=8,
        max_goals=12,
        max_episodes=4,
        max_decisions=6,
        max_children=4,
        max_depth=2,
        stall_threshold=1,
        stagnation_threshold=2,
    )

    @initialize()
    def begin(self) -> None:
        self.session = empty().model_copy(update={"psyche": new_psyche()})
        self.seconds = 0.0
        self.seen: set[str] = set()
        self.finished: dict[str, str] = {}
        self.last: DecisionOutcome | None = None

    def now(self) -> datetime:
        self.seconds += 100
        return later(self.seconds)

    def open_goals(self) -> int:
        return sum(map(is_open, self.session.goals.values()))

    def pick(self, number: int) -> str | None:
        ids = list(self.session.goals)
        return ids[number % len(ids)] if ids else None

    @rule(description=descriptions, priority=st.integers(0, 255))
    def add(self, description: str, priority: int) -> None:
        count = self.open_goals()
        try:
            self.session, goal = add_goal(
                self.session, description, self.now(), self.config, priority=priority
            )
        except GoalError:
            assert count == self.config.max_goals
        else:
            assert goal.id not in self.seen
            assert self.open_goals() == count + 1

    @rule(
        number=st.integers(0, 20),
        status=st.sampled_from(["Active", "Suspended", "Completed", "Failed"]),
    )
    def change(self, number: int, status: GoalStatus) -> None:
        id = self.pick(number)
        if id is None or not is_open(self.session.goals[id]):
            return
        self.session = set_status(
            self.session, id, status, self.now(), self.config, reason="said so"
        )
        if status == "Failed":
            goal = self.session.goals[id]
            assert not any(is_open(candidate) for candidate in below(self.session, goal))

    @rule(owner=st.sampled_from("ab"))
    def take(self, owner: str) -> None:
        self.session, goal = claim(self.session, owner, self.now(), self.config)
        assert goal is None or goal.status == "Active"

    @rule(number=st.integers(0, 20), fence=st.integers(0, 2))
    def give_back(self, number: int, fence: int) -> None:
        if id := self.pick(number):
            self.session = release(self.session, id, fence, self.now())

    @rule(
        number=st.integers(0, 20),
        tool=st.sampled_from(TOOLS),
        state=st.sampled_from(["done", "failed", "vetoed", "pending"]),
        output=st.sampled_from(["", *WORDS]),
        behind=st.integers(0, 1),
    )
    def work(self, number: int, behind: int, **fields: Any) -> None:
        id = self.pick(number)
        if id is None:
            return
        self.session = begin_cycle(self.session, self.now())
        self.session = ensure_plan(self.session, id, ["knowledge"], has_knowledge=True)
        fence = self.session.goals[id].fence - behind
        self.last = DecisionOutcome(cycle=self.session.cycle, goal=id, fence=fence, **fields)
        after = apply_outcome(self.session, self.last, self.now(), self.config)
        assert (after is self.session) == bool(behind)
        self.session = after

    @rule()
    def redeliver(self) -> None:
        if self.last and self.last.cycle == self.session.applied:
            assert apply_outcome(self.session, self.last, self.now(), self.config) is self.session

    @rule()
    def split(self) -> None:
        self.session = decompose_stalled(self.session, self.now(), self.config)
        again = decompose_stalled(self.session, self.now(), self.config)
        assert len(again.goals) <= self.config.max_goals

    @rule(relevance=st.floats(0, 1), number=st.integers(0, 20))
    def remember(self, relevance: float, number: int) -> None:
        id = self.pick(number)
        note = MemoryNote(
            content="text",
            kind="Action",
            relevance=relevance,
            source_cycle=self.session.cycle,
            now=self.now(),
            symbols=[symbol(id)] if id else ["x"],
        )
        self.session = push(self.session, note, self.config)

    @rule(ids=st.lists(st.integers(1, 30), max_size=5))
    def look(self, ids: list[int]) -> None:
        self.session = consult(self.session, ids)

    @rule(on_demand=st.booleans())
    def keep(self, on_demand: bool) -> None:
        cycle, before = self.session.cycle, self.session.consolidated
        self.session, episodes = consolidate(
            self.session, {}, cycle, self.now(), self.config, on_demand=on_demand
        )
        assert self.session.consolidated == before + len(episodes)

    @rule()
    def look_back(self) -> None:
        cycle = self.session.cycle
        self.session = reflect(self.session, cycle, self.now(), self.config)
        assert reflect(self.session, cycle, self.now(), self.config) is self.session

    @invariant()
    def it_fits_together(self) -> None:
        check(self.session, self.config)

    @invariant()
    def what_has_ended_stays_so(self) -> None:
        for id, goal in self.session.goals.items():
            assert self.finished.get(id, goal.status) == goal.status
            if not is_open(goal):
                self.finished[id] = goal.status

    @invariant()
    def no_goal_waits_for_nothing(self) -> None:
        """A goal that waits for its sub-goals has an open one: it is settled with the last one."""
        for goal in self.session.goals.values():
            children = [self.session.goals[id] for id in goal.children]
            if goal.reason and goal.reason.startswith("split into") and goal.status == "Suspended":
                assert any(map(is_open, children))

    @invariant()
    def no_id_is_given_twice(self) -> None:
        forgotten = self.seen - set(self.session.goals)
        self.seen |= set(self.session.goals)
        assert len(self.seen) == self.session.made
        assert not forgotten & {goal.id for goal in active_goals(self.session)}


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
