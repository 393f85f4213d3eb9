"""Has an agent work on its goals, cycle by cycle, over an API that may go away for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from boyd.cli import output
from boyd.cli.goals_client import GoalsClient
from boyd.cli.spinner import Spinner
from boyd.errors import ApiProblem, ApiUnavailable
from boyd.models import LoopResult, LoopStatus
from boyd.models.responses import Triggered
from boyd.plugins.goals.api_models import SessionState
from boyd.plugins.goals.outcome import FROZEN
from boyd.plugins.goals.state import Goal, ToolDecision

_T = TypeVar("_T")

#: Refusals that are over soon: nobody can answer now, or not in time.
_PASSING = (503, 504)
#: So many iterations in a row without a cycle: the agent has nothing that it can do.
_IDLE = 2


@dataclass(frozen=True)
class Cycle:
    """An iteration, what was decided in it and how its goal stands; neither when it was no cycle.

    Attributes:
        result: the iteration.
        decision: what was decided, and what came of it.
        goal: what it was decided for, as it is after the cycle.
        session: how everything stands after it.
    """

    result: LoopResult
    decision: ToolDecision | None
    goal: Goal | None
    session: SessionState

    @property
    def approvals(self) -> list[tuple[str, str]]:
        """What waits for a person now, each with the approval that it waits for."""
        known = {approval for _, approval in self.session.waiting}
        done = self.result.action_results
        own = [(one.action, one.waits_for) for one in done if one.waits_for]
        return [*self.session.waiting, *(one for one in own if one[1] not in known)]

    @property
    def hindrance(self) -> str | None:
        """Why it was no cycle, if that is known: an action was not done, or none was chosen."""
        chosen = self.result.decision
        if self.decision is None and chosen is not None and chosen.is_no_op:
            return output.one_line(chosen.rationale)
        return self.refusal

    @property
    def refusal(self) -> str | None:
        """Why it was no cycle, if the reason is that an action was not done."""
        if self.decision is not None:
            return None
        errors = (one.error for one in self.result.action_results if not one.waits_for)
        return next((output.one_line(error) for error in errors if error), None)

    @property
    def is_frozen(self) -> bool:
        """Whether it was no cycle because acting is frozen."""
        return (self.refusal or "").startswith(FROZEN)

    def to_wire(self) -> dict[str, Any]:
        """As it is printed."""
        found = {
            "iteration": self.result.iteration,
            "success": self.result.success,
            "error": self.result.error,
            "decision": self.decision,
            "goal": self.goal,
            "approvals": [approval for _, approval in self.approvals],
            "questions": self.session.questions,
        }
        return {name: value for name, value in found.items() if value is not None}


@dataclass
class CycleRunner:
    """Cycles until there is nothing left to work on, or enough have been done.

    Attributes:
        most: how many cycles may be done.
        done: how many were.
        session: how everything stands.
        ending: why there are no more: `done` (no goal is active), `enough`, `spent` (the session
            has had all its cycles), `idle` (the agent can do nothing now), `frozen` (it may not
            act), `failed` (an iteration).
        why: what kept the last iteration from being a cycle, if that is known.
    """

    mind: GoalsClient
    most: int
    session: SessionState
    done: int = 0
    ending: str = "enough"
    why: str | None = None
    _idle: int = field(default=0, repr=False)

    def cycles(self) -> Iterator[Cycle]:
        """Do them, one by one."""
        while self._may_go_on():
            cycle = next_cycle(self.mind)
            self.session, self.why = cycle.session, cycle.hindrance
            self._idle = 0 if cycle.decision else self._idle + 1
            self.done += cycle.decision is not None
            if cycle.decision or not cycle.result.success:
                yield cycle
            if cycle.is_frozen or not cycle.result.success:
                self.ending = "frozen" if cycle.is_frozen else "failed"
                return

    def _may_go_on(self) -> bool:
        if not self.session.active:
            self.ending = "done"
        elif self.session.cycle >= self.session.max_cycles:
            self.ending = "spent"
        elif self._idle >= _IDLE:
            self.ending = "idle"
        elif self.done >= self.most:
            self.ending = "enough"
        else:
            return True
        return False


def next_cycle(mind: GoalsClient) -> Cycle:
    """Start an iteration, or join the one in flight, and wait for its end.

    Raises:
        ApiProblem: the agent is paused, or the key may not do this.
        KeyboardInterrupt: Ctrl-C; the iteration goes on.
    """
    with Spinner(None, ends_command=False) as waiting:
        number = _insisted(waiting, lambda: _begun(mind))
        while (result := _insisted(waiting, lambda: _past(mind, number))) is None:
            waiting.pause(lambda: _doing(mind, number))
        decision = _insisted(waiting, lambda: mind.decision(number))
        goal = _insisted(waiting, lambda: mind.goal(decision.goal) if decision else None)
        return Cycle(result, decision, goal, _insisted(waiting, mind.session))


def _insisted(waiting: Spinner, question: Callable[[], _T]) -> _T:
    """The answer to *question*, however long it takes until somebody answers."""
    away = False
    while True:
        try:
            return question()
        except ApiUnavailable as error:
            away = _told(error, away)
        except ApiProblem as problem:
            if problem.status not in _PASSING:
                raise
            away = _told(problem, away)
        waiting.pause("waiting for an answer")


def _told(error: Exception, already: bool) -> bool:
    if not already:
        output.note(f"{output.one_line(str(error))}; waiting for it to come back")
    return True


def _begun(mind: GoalsClient) -> int:
    return mind.api.agent.post("/loop/trigger", Triggered, {"async": True}).iteration


def _past(mind: GoalsClient, iteration: int) -> LoopResult | None:
    try:
        return mind.api.agent.get(f"/loop/history/{iteration}", LoopResult)
    except ApiProblem as problem:
        if problem.status != 404:
            raise
        return None


def _doing(mind: GoalsClient, iteration: int) -> str:
    status = mind.api.agent.get("/loop/status", LoopStatus)
    where = f" on {status.worker}" if status.worker else ", waits for a worker"
    return f"iteration {iteration}: {status.phase}{where}"
