"""A cycle in its session: how it begins, what it comes to, what follows from that (M5 to M7, M13).

All of it is done once: a cycle has begun when the session names its iteration, and has ended when
`applied` names it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import datetime

from pydantic import JsonValue

from boyd.errors import StoreError, StoreUnavailable
from boyd.models import ApprovalItem, JsonObject, LoopResult, Observation
from boyd.plugin import ApprovalReader, Graph
from boyd.plugins.goals import memory
from boyd.plugins.goals.api_models import WaitingTool
from boyd.plugins.goals.decomposition import decompose_stalled, give_up_stuck
from boyd.plugins.goals.goal_tree import active_goals, symbol, wanted
from boyd.plugins.goals.knowledge.similarity import mentioned
from boyd.plugins.goals.knowledge.vocabulary import RELATED_TO
from boyd.plugins.goals.outcome import (
    DecisionOutcome,
    State,
    apply_outcome,
    begin_cycle,
    named_by,
    said_by,
    state_of,
)
from boyd.plugins.goals.progress import is_metadata
from boyd.plugins.goals.psyche import is_due, reflect
from boyd.plugins.goals.sessions import claim, release
from boyd.plugins.goals.state import Config, Goal, GoalSession, Psyche, Question, ToolDecision
from boyd.plugins.goals.tools.params import digest
from boyd.plugins.goals.tools.questions import listened
from boyd.plugins.goals.tools.registry import GoalToolbox
from boyd.tokenizer import keywords

#: Labels looked at to see whether one of them is knowledge.
_LABELS = 5


def begun(
    session: GoalSession,
    iteration: int,
    questions: Sequence[Question],
    now: datetime,
    config: Config,
    *,
    psyche: Psyche | None,
) -> GoalSession:
    """The session in which the iteration works on a goal, if there is one that it may take."""
    if session.iteration == iteration:
        return session
    session = listened(_let_go(session, now), questions, now, config)
    if session.psyche is None and psyche is not None:
        session = session.patched({"psyche": psyche})
    goal = None
    if session.cycle < config.max_cycles:
        session, goal = claim(session, _owner(iteration), now, config)
    if goal is not None:
        session = begin_cycle(session, now)
    return session.patched({"iteration": iteration, "at_work": goal.id if goal else None})


def is_open(session: GoalSession, iteration: int) -> bool:
    """Whether what came of the iteration's cycle is still to be taken in."""
    return session.iteration == iteration and session.applied < session.cycle


def outcome_of(
    session: GoalSession, result: LoopResult, strategy: str, toolbox: GoalToolbox, graph: Graph
) -> DecisionOutcome | None:
    """What came of the cycle; None: *strategy* has not decided, or nothing that says anything."""
    decision, trace = result.decision, result.trace
    goal = session.goals.get(session.at_work or "")
    if decision is None or trace is None or goal is None:
        return None
    refusal = trace.vetoed or trace.invalid
    tool = toolbox.tool_of(refusal.action if refusal else decision.action)
    if tool is None or trace.chosen != strategy:
        return None
    done = result.action_results[0] if result.action_results else None
    state = "vetoed" if trace.vetoed else state_of(done) if done else None
    if state is None:
        return None
    return DecisionOutcome(
        cycle=session.cycle,
        goal=goal.id,
        fence=goal.fence,
        tool=tool,
        state=state,
        output=said_by(tool, done) if done else refusal.reason if refusal else "",
        known=known_of(session, goal, graph),
        symbols=named_by(done) if done else [],
        params_digest=_digest(session, tool, decision.params),
        breakdown=_breakdown(decision.rationale),
        iteration=result.iteration,
        approval=done.waits_for if done else None,
        duration=done.duration / 1000 if done else None,
    )


def known_of(session: GoalSession, goal: Goal, graph: Graph) -> list[str]:
    """The keywords of the goal, and of those above it, that the graph knows."""
    keywords = wanted(session, goal)
    found = graph.symbols_with(keywords, _LABELS) if keywords else {}
    return sorted(word for word, labels in found.items() if not all(map(_is_own, labels)))


def taken(
    session: GoalSession, outcome: DecisionOutcome, now: datetime, config: Config
) -> GoalSession:
    """The session that has taken an outcome in, with what it leaves in memory."""
    after = apply_outcome(session, outcome, now, config)
    if after is session:
        return session
    return memory.push(
        after,
        content=f"Tool result ({outcome.tool}):\n{outcome.output}",
        kind="Action",
        relevance=0.8 if outcome.state in ("vetoed", "refused", "undone") else 0.6,
        source_cycle=outcome.cycle,
        now=now,
        config=config,
        symbols=[symbol(outcome.goal), *outcome.symbols],
        tool=outcome.tool,
        success=outcome.state == "done",
    )


def ended(
    session: GoalSession, outcome: DecisionOutcome | None, now: datetime, config: Config
) -> GoalSession:
    """The session after its cycle, with what follows from the outcome."""
    if outcome is None:
        return _idle(session, now)
    session = taken(session, outcome, now, config)
    session = decompose_stalled(session, now, config)
    session = give_up_stuck(session, now, config)
    if is_due(session.cycle, config):
        session = reflect(session, session.cycle, now, config)
    return session


def _is_own(label: str) -> bool:
    """Whether a label is there because of what the agent has noted of its goals (M11)."""
    return label == RELATED_TO or is_metadata(label)


def _digest(session: GoalSession, tool: str, params: JsonObject) -> str:
    """That of the params as they were chosen: by it a goal knows again what it has asked for."""
    chosen, _, before_hooks = session.proposed.partition(" ")
    return before_hooks if chosen == tool else digest(params)


def _idle(session: GoalSession, now: datetime) -> GoalSession:
    """A cycle in which nothing of ours was decided: the goal is free for the next one."""
    goal = session.goals.get(session.at_work or "")
    if goal is None:
        return session
    return release(session, goal.id, goal.fence, now).patched({"applied": session.cycle})


def _let_go(session: GoalSession, now: datetime) -> GoalSession:
    """Free the goal of the iteration before, if that did not come to its end: there is no other."""
    goal = session.goals.get(session.at_work or "")
    if goal is None or goal.owner != _owner(session.iteration):
        return session
    return release(session, goal.id, goal.fence, now)


def _owner(iteration: int) -> str:
    return f"iteration:{iteration}"


def _breakdown(rationale: str) -> str:
    at = rationale.rfind("[score=")
    return rationale[at:] if at >= 0 else ""


#: The sources of what is seen.
GOALS, MEMORY, EPISODES = "goals", "working-memory", "episodes"
#: How much of it is told.
_GOALS, _SYMBOLS = 20, 30
_QUERIED, _RECALLED = 5, 3
#: How many symbols there are to begin with.
_STARTS = 40


def seen_goals(session: GoalSession, graph: Graph) -> Observation:
    """The goals that are worked on, the most important first, and what the first one speaks of."""
    goals: list[JsonValue] = [
        {"id": goal.id, "description": goal.description, "priority": goal.priority}
        for goal in active_goals(session)[:_GOALS]
    ]
    data: dict[str, JsonValue] = {
        "goals": goals,
        "atWork": session.at_work,
        "cycle": session.cycle,
        "symbols": [*_symbols(_at_work(session), graph)],
    }
    return Observation(source=GOALS, type="state", data=data)


def seen_memory(session: GoalSession, config: Config) -> Observation:
    """How full working memory is, and what is newest in it."""
    data: dict[str, JsonValue] = {
        "size": len(session.memory),
        "pressure": memory.pressure(session, config),
        "recent": [entry.id for entry in memory.newest(session)],
    }
    return Observation(source=MEMORY, type="state", data=data)


def seen_episodes(session: GoalSession) -> Observation:
    """The episodes that the goals bring back."""
    query = [symbol(goal.id) for goal in active_goals(session)[:_QUERIED]]
    query += keywords(_at_work(session).description)
    recalled = memory.recall(session.episodes, query, _RECALLED)
    data: dict[str, JsonValue] = {"episodes": [episode.to_wire() for episode in recalled]}
    return Observation(source=EPISODES, type="state", data=data)


def seen_as(source: str, observations: Sequence[Observation]) -> dict[str, JsonValue]:
    """What was seen of that; nothing unless there is a goal to be worked on."""
    found = (one.data for one in observations if (one.source, one.type) == (source, "state"))
    return next(found, {})


def starts(observations: Sequence[Observation], *, with_learned: bool = True) -> list[str]:
    """The symbols to begin with: what the goal speaks of and, *with_learned*, what episodes do."""
    found = _texts(seen_as(GOALS, observations).get("symbols"))
    if found and with_learned:
        for episode in _items(seen_as(EPISODES, observations).get("episodes")):
            found += _texts(episode.get("learnings")) if isinstance(episode, dict) else []
    return list(dict.fromkeys(found))[:_STARTS]


def _at_work(session: GoalSession) -> Goal:
    return session.goals[session.at_work or ""]


def _symbols(goal: Goal, graph: Graph) -> list[str]:
    """The goal itself, and the symbols that it speaks of, the nearest first."""
    return [symbol(goal.id), *mentioned(graph, f"{goal.description} {goal.criteria}", _SYMBOLS)]


def _items(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _texts(value: JsonValue) -> list[str]:
    return [one for one in _items(value) if isinstance(one, str)]


log = logging.getLogger("boyd.plugins.goals")

_GONE = "the approval is not kept any more"


def outcomes(
    session: GoalSession, approvals: ApprovalReader, graph: Graph
) -> list[DecisionOutcome]:
    """What has come of decisions that wait for a person; what still waits has none.

    Nothing is looked up when nothing waits, and otherwise each approval once that was answered.
    """
    pending = _pending(session)
    if not pending:
        return []
    asked = {one.approval for one in pending if one.approval}
    answered = asked - approvals.waiting(asked)
    items = dict(_readable(approvals, sorted(answered)))
    found = [
        _outcome(session, one, items[one.approval], graph)
        for one in pending
        if one.approval in items
    ]
    return [one for one in found if one is not None]


def waiting(session: GoalSession, approvals: ApprovalReader) -> list[WaitingTool]:
    """What goals of the session wait for and nobody has answered yet, the oldest first."""
    pending = _pending(session)
    unanswered = approvals.waiting({one.approval for one in pending if one.approval})
    return [
        WaitingTool(tool=one.tool, goal=one.goal, approval=one.approval)
        for one in pending
        if one.approval in unanswered
    ]


def _pending(session: GoalSession) -> list[ToolDecision]:
    every = session.decisions
    return [one for one in every if one.progress == "Pending" and one.goal in session.goals]


def _readable(
    approvals: ApprovalReader, ids: Sequence[str]
) -> Iterator[tuple[str, ApprovalItem | None]]:
    """The approvals as they are; what only a later release can read waits for one (P13)."""
    for id in ids:
        try:
            yield id, approvals.get(id)
        except StoreUnavailable:
            raise
        except StoreError as error:
            log.warning("%s", error)


def _outcome(
    session: GoalSession, decision: ToolDecision, item: ApprovalItem | None, graph: Graph
) -> DecisionOutcome | None:
    """What has come of one; None: it is not done yet."""
    if item is None:
        return _settled(decision, "refused", _GONE)
    if item.status not in ("pending", "approved"):
        return _settled(decision, "refused", _answer(item))
    if item.result is None:
        return None
    state, said = state_of(item.result), said_by(decision.tool, item.result)
    if state is None:
        return _settled(decision, "undone", f"approved, and not done: {said}")
    known = known_of(session, session.goals[decision.goal], graph)
    outcome = _settled(decision, state, said, known, item.result.duration / 1000)
    return outcome.patched({"symbols": named_by(item.result)})


def _settled(
    decision: ToolDecision,
    state: State,
    output: str,
    known: Sequence[str] = (),
    duration: float | None = None,
) -> DecisionOutcome:
    """The outcome of a decision; without a claim, so that who works on the goal now goes on."""
    return DecisionOutcome(
        cycle=decision.cycle,
        goal=decision.goal,
        tool=decision.tool,
        state=state,
        output=output,
        known=list(known),
        params_digest=decision.params_digest,
        breakdown=decision.breakdown,
        iteration=decision.iteration,
        approval=decision.approval,
        duration=duration,
    )


def _answer(item: ApprovalItem) -> str:
    """How an item was resolved, as in `denied by ann: not today`."""
    by = f" by {item.acted_by}" if item.acted_by else ""
    why = f": {item.note}" if item.note else ""
    return f"{item.status}{by}{why}"
