"""Agents to measure: observers that do next to nothing, or only wait."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pydantic import JsonValue

from boyd import (
    Agent,
    Context,
    Decision,
    Observation,
    Plugin,
    Situation,
    SituationAssessment,
    action,
    orienter,
    strategy,
)
from boyd.plugin import Observer


class Trivial(Observer):
    """Returns one observation at once."""

    def observe(self) -> list[Observation]:
        """See something."""
        return [Observation(source=self.id, type="metric", data={"value": 1})]


class Waiting(Observer):
    """Waits 50 ms, as for a network."""

    def observe(self) -> list[Observation]:
        """Wait."""
        time.sleep(0.05)
        return []


class Many(Plugin):
    """As many observers as asked for, and one orienter."""

    id = "many"

    def __init__(self, kind: type[Observer], count: int) -> None:
        super().__init__()
        self.components = [kind(name=f"o{i}") for i in range(count)]

    @orienter()
    def count(self, observations: list[Observation]) -> SituationAssessment:
        """Say how many there are."""
        finding = f"{len(observations)} observations"
        return SituationAssessment(source="many:count", findings=[finding], confidence=1.0)


def _agent(name: str, kind: type[Observer], count: int) -> Agent:
    return Agent(name, plugins=[Many(kind, count)])


trivial10 = _agent("trivial10", Trivial, 10)
trivial100 = _agent("trivial100", Trivial, 100)
waiting100 = _agent("waiting100", Waiting, 100)
waiting1000 = _agent("waiting1000", Waiting, 1000)
crowd = [_agent(f"crowd{i}", Trivial, 10) for i in range(20)]
globals().update({f"crowd{i}": agent for i, agent in enumerate(crowd)})


class Kept(Plugin):
    """An action that nobody takes."""

    id = "kept"

    @action(autonomy="approval-required")
    def do(self) -> None:
        """Do nothing."""


def _keeper(name: str) -> Agent:
    """An agent that keeps a million of everything."""
    return Agent(
        name,
        plugins=[Kept(), Many(Trivial, 1)],
        approvals={"max_history": 10**6},
        history={"max_count": 10**6},
        runs={"max_finished": 10**6},
    )


kept_few = _keeper("kept_few")
kept_many = _keeper("kept_many")


class Woken(Plugin):
    """Proposes an action for every event from outside."""

    id = "woken"

    @strategy()
    def choose(self, situation: Situation, ctx: Context) -> Decision:
        """Ask for something that was not asked for before."""
        params: dict[str, JsonValue] = {"number": ctx.iteration}
        return Decision(action="woken:do", params=params, rationale="woken", confidence=1.0)

    @action(autonomy="approval-required")
    def do(self) -> None:
        """Do nothing."""


class Acting(Plugin):
    """Acts in every iteration, and leaves the time."""

    id = "acting"

    @strategy()
    def choose(self) -> Decision:
        """Act always."""
        return Decision(action="acting:do", rationale="always", confidence=1.0)

    @action()
    def do(self) -> None:
        """Leave a line."""
        with Path(os.environ["EFFECTS"]).open("a") as file:
            file.write(f"{time.time()}\n")


def _acting(name: str, kind: type[Observer], count: int) -> Agent:
    """An agent that does the whole job: observes, orients, decides, acts."""
    return Agent(name, plugins=[Many(kind, count), Acting()])


acts1 = _acting("acts1", Trivial, 1)
acts10 = _acting("acts10", Trivial, 10)
acts100 = _acting("acts100", Trivial, 100)
waits10 = _acting("waits10", Waiting, 10)
waits100 = _acting("waits100", Waiting, 100)
for n in (1, 10, 100):
    names = [f"crowd{n}acts{i}" for i in range(20)]
    globals().update({name: _acting(name, Trivial, n) for name in names})

woken = Agent("woken", mode="event-driven", plugins=[Woken()])
acting = Agent("acting", plugins=[Acting()])
waiting320 = Agent("waiting320", plugins=[Many(Waiting, 320)])
