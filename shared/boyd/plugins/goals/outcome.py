"""What came of a decision, taken into the session once (M5, M6, M15)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from boyd.models import ActionResult, Model
from boyd.plugins.goals.goal_tree import FREE, changed, set_status, with_goals
from boyd.plugins.goals.knowledge.vocabulary import GOAL
from boyd.plugins.goals.plans import backtrack, exhausted, tick
from boyd.plugins.goals.progress import Evaluation, clipped, evaluate
from boyd.plugins.goals.psyche import encountered
from boyd.plugins.goals.state import Config, Goal, GoalSession, Progress, ToolDecision

#: The most characters of what a tool has said that a decision keeps, and of its breakdown.
DETAIL_CHARS = 200
#: How many of the tools last used on a goal are remembered in their order (M2).
RECENT = 3

Refusal = Literal["duplicate", "stale", "unknown-goal"]
State = Literal["done", "failed", "vetoed", "pending", "refused", "undone"]


class DecisionOutcome(Model):
    """What came of the decision of a cycle.

    Attributes:
        cycle: the cycle; it has one outcome, except that one that waits for approval has another
            when it was answered.
        goal: the id of the goal it was for.
        fence: that of the claim of the goal.
        state: whether the tool has worked, has failed, was not allowed to, waits for approval, or
            was not done after it had waited.
        output: what it has told, or why it was not done.
        known: words that the graph knows now, of the criteria of the goal and of those above it.
        symbols: those that the tool has named or found.
        iteration: the iteration of the loop in which it was decided.
        approval: the id of the approval that it waits for, or has waited for.
        duration: seconds it took.
    """

    cycle: int = Field(gt=0)
    goal: str
    fence: int = 0
    tool: str
    state: State
    output: str = ""
    known: list[str] = Field(default_factory=list)
    symbols: list[str] = Field(default_factory=list)
    params_digest: str = ""
    breakdown: str = ""
    iteration: int | None = None
    approval: str | None = None
    duration: float | None = None


def begin_cycle(session: GoalSession, now: datetime) -> GoalSession:
    """The session in its next cycle; the first is 1."""
    return session.model_copy(update={"cycle": session.cycle + 1, "updated_at": now})


def refusal(session: GoalSession, outcome: DecisionOutcome, config: Config) -> Refusal | None:
    """Why an outcome will not be taken in; None: it will.

    Its cycle has had one (or is older than all decisions that are remembered), the goal has been
    claimed again since, or the goal is not there. The answer to what waited for approval is taken
    in whoever works on the goal meanwhile.
    """
    goal = session.goals.get(outcome.goal)
    if goal is None:
        return "unknown-goal"
    if _is_answer(session, outcome):
        return None
    if _is_repeated(session, outcome, config):
        return "duplicate"
    return "stale" if outcome.fence < goal.fence else None


def apply_outcome(
    session: GoalSession, outcome: DecisionOutcome, now: datetime, config: Config
) -> GoalSession:
    """Take in what came of a decision; the same session if it is refused (`refusal`).

    The goal has been worked on for one more cycle, and may have got on or be completed. A tool
    that has failed fails the plan, and after `max_backtrack_attempts` of them the goal. What was
    vetoed, refused or waits for approval only counts as used: it is neither progress nor failure
    (M6). The goal is free for the next cycle.
    """
    if refusal(session, outcome, config):
        return session
    goal = _used(session, session.goals[outcome.goal], outcome)
    evaluation = _evaluation(goal, outcome, config)
    session = _recorded(session, outcome, evaluation, now, config)
    gains = _gains(goal, outcome, evaluation)
    session = with_goals(session, [changed(goal, now, **gains, **_freed(goal, outcome))])
    session = _planned(session, outcome)
    return _concluded(session, outcome, evaluation, now, config)


def _is_answer(session: GoalSession, outcome: DecisionOutcome) -> bool:
    """Whether it is what came of a decision that waited for approval, and is the first to say."""
    wanted = (outcome.cycle, outcome.approval, "Pending")
    return outcome.state != "pending" and any(
        (one.cycle, one.approval, one.progress) == wanted for one in session.decisions
    )


def _is_repeated(session: GoalSession, outcome: DecisionOutcome, config: Config) -> bool:
    # Cycles may end in another order than they began in: the last one applied does not tell.
    cycles = [decision.cycle for decision in session.decisions]
    is_full = len(cycles) >= config.max_decisions
    return outcome.cycle in cycles or (is_full and outcome.cycle < min(cycles))


def _used(session: GoalSession, goal: Goal, outcome: DecisionOutcome) -> Goal:
    if _is_answer(session, outcome):
        return goal
    recent = [*goal.recent, outcome.tool][-RECENT:]
    used = {**goal.used, outcome.tool: goal.used.get(outcome.tool, 0) + 1}
    return goal.model_copy(update={"recent": recent, "used": used})


def _freed(goal: Goal, outcome: DecisionOutcome) -> dict[str, Any]:
    return FREE if goal.fence == outcome.fence else {}


def _evaluation(goal: Goal, outcome: DecisionOutcome, config: Config) -> Evaluation | None:
    """What it has done for the goal; None: neither progress nor failure."""
    if outcome.state not in ("done", "failed"):
        return None
    return evaluate(goal, outcome.known, outcome.output, outcome.state == "done", config)


def _gains(goal: Goal, outcome: DecisionOutcome, evaluation: Evaluation | None) -> dict[str, Any]:
    if evaluation is None:
        return {}
    worked = goal.cycles_worked + 1
    gains: dict[str, Any] = {"cycles_worked": worked, "matched": evaluation.matched}
    if evaluation.progress in ("Completed", "Advanced"):
        gains |= {"last_progress_cycle": worked, "stalled": False}
    if outcome.state == "failed":
        gains["failed_plans"] = goal.failed_plans + 1
    return gains


def _planned(session: GoalSession, outcome: DecisionOutcome) -> GoalSession:
    plan = session.plans.get(outcome.goal)
    if plan is None or outcome.state not in ("done", "failed"):
        return session
    is_done = outcome.state == "done"
    plan = tick(plan, outcome.tool) if is_done else backtrack(plan, outcome.tool, _why(outcome))
    return session.model_copy(update={"plans": {**session.plans, outcome.goal: plan}})


def _concluded(
    session: GoalSession,
    outcome: DecisionOutcome,
    evaluation: Evaluation | None,
    now: datetime,
    config: Config,
) -> GoalSession:
    goal = session.goals[outcome.goal]
    if evaluation is None or goal.status != "Active":
        return session
    if evaluation.progress == "Completed":
        reason = f"the criteria are met: found {', '.join(evaluation.matched)}"
        return set_status(
            session, goal.id, "Completed", now, config, reason=reason, known=outcome.known
        )
    if evaluation.progress == "Failed" and exhausted(goal, config):
        reason = f"backtracking exhausted: {_why(outcome)}"
        return set_status(
            session, goal.id, "Failed", now, config, reason=reason, known=outcome.known
        )
    return session


def _recorded(
    session: GoalSession,
    outcome: DecisionOutcome,
    evaluation: Evaluation | None,
    now: datetime,
    config: Config,
) -> GoalSession:
    decision = ToolDecision(
        cycle=outcome.cycle,
        iteration=outcome.iteration,
        goal=outcome.goal,
        tool=outcome.tool,
        params_digest=outcome.params_digest,
        breakdown=clipped(outcome.breakdown, DETAIL_CHARS),
        progress=_progress(outcome, evaluation),
        found=_found(session.goals[outcome.goal], evaluation),
        detail=_detail(outcome),
        approval=outcome.approval,
        at=now,
        duration=outcome.duration,
    )
    others = [one for one in session.decisions if one.cycle != outcome.cycle]
    decisions = sorted([*others, decision], key=lambda one: one.cycle)
    changes: dict[str, Any] = {
        "decisions": decisions[-config.max_decisions :],
        "cycle": max(session.cycle, outcome.cycle),
        "applied": max(session.applied, outcome.cycle),
        "updated_at": now,
    }
    if outcome.state == "vetoed" and session.psyche:
        changes["psyche"] = encountered(session.psyche)
    return session.model_copy(update=changes)


def _found(goal: Goal, evaluation: Evaluation | None) -> list[str]:
    matched = evaluation.matched if evaluation else []
    return [word for word in matched if word not in goal.matched]


def _progress(outcome: DecisionOutcome, evaluation: Evaluation | None) -> Progress | None:
    if evaluation:
        return evaluation.progress
    waits: dict[State, Progress] = {"pending": "Pending", "refused": "Refused"}
    return waits.get(outcome.state)


def _detail(outcome: DecisionOutcome) -> str:
    if outcome.state in ("done", "refused", "undone"):
        return clipped(outcome.output, DETAIL_CHARS)
    return _why(outcome)


def _why(outcome: DecisionOutcome) -> str:
    what = {"vetoed": "vetoed", "pending": "waits for approval"}.get(outcome.state, "failed")
    said = f"{outcome.tool} {what}"
    return clipped(f"{said}: {outcome.output}" if outcome.output else said, DETAIL_CHARS)


#: How results begin of what was not executed because acting is frozen (L34).
FROZEN = "Acting is frozen"
#: How results begin of what was not executed: what a hook or a guard has stopped (L25, L30), and
#: what was not to be done at all, or could not be (A12), which says nothing of the tool.
_STOPPED = re.compile(r"Vetoed by |guard \S+ failed: ")
_NOT_DONE = (FROZEN, "Cancelled: ", "Refused: ", "Not executed: ")
#: How remembered lines begin in which the agent tells of itself: they hold the words of the goal.
_OF_ITSELF = re.compile(
    r"\S+ \S+ (?:Decide: tool=|Cycle \d+: |Orient: |Reflection at cycle |Advice after cycle )"
)
#: What a remembered line has around what was found: when it was, and which tool has found it.
_ENVELOPE = re.compile(
    r"(?<!\S)\S+ \S+ "
    r"(?:(?:Tool result \([^)]{0,200}\)|Answer of [^:]{0,200}|came to mind|[\w:-]+(?: failed)?)"
    r": ?)?"
)
#: Where an action says which symbols it has named or found: metrics hold text and numbers only.
_SYMBOLS = "symbols"
#: How many of them count: of many conclusions the surest come first.
_NAMED = 12


def state_of(result: ActionResult) -> State | None:
    """What became of the decision; None: nothing that says anything of the tool."""
    error = result.error or ""
    if result.success:
        return "done"
    if result.waits_for:
        return "pending"
    if error.startswith(_NOT_DONE):
        return None
    return "vetoed" if _STOPPED.match(error) else "failed"


def said_by(tool: str, result: ActionResult) -> str:
    """What a tool has told, or why it has not worked."""
    said = result.output if isinstance(result.output, str) else json.dumps(result.output)
    if not result.success:
        return result.error or said
    return _of_the_world(tool, said)


def _of_the_world(tool: str, said: str) -> str:
    """What a tool has told of the world, without what the agent has said itself."""
    if tool == "user_interact":
        return ""
    if tool != "memory_recall":
        return said
    lines = (line for line in said.splitlines() if not _OF_ITSELF.match(line))
    return "\n".join(_ENVELOPE.sub("", line, count=1) for line in lines)


def naming(symbols: Iterable[str]) -> dict[str, float | str]:
    """The metrics of an action that has named or found those symbols."""
    known = list(dict.fromkeys(symbols))[:_NAMED]
    return {_SYMBOLS: json.dumps(known, ensure_ascii=False)} if known else {}


def named_by(result: ActionResult) -> list[str]:
    """The symbols that an action says it has named or found."""
    try:
        found = json.loads(str((result.metrics or {}).get(_SYMBOLS, "[]")))
    except ValueError:
        return []
    texts = found if isinstance(found, list) else []
    return [one for one in texts if isinstance(one, str) and not one.startswith(GOAL)]
