"""A cycle in its session: how it begins, what it comes to, what follows from that (M5 to M7, M13).

All of it is done once: a cycle has begun when the session names its iteration, and has ended when
`applied` names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from boyd.goals import memory
from boyd.goals.claims import claim, release
from boyd.goals.goal_book import symbol, wanted
from boyd.goals.inputs import digest
from boyd.goals.knowledge.predicates import RELATED_TO
from boyd.goals.outcome import Outcome, apply_outcome, begin_cycle
from boyd.goals.progress import is_metadata
from boyd.goals.reflection import is_due, reflect
from boyd.goals.results import named_by, said_by, state_of
from boyd.goals.shapes import Config, Goal, Psyche, Question, Session
from boyd.goals.splitting import decompose_stalled, give_up_stuck
from boyd.goals.toolbox import Toolbox
from boyd.goals.tools.answers import listened
from boyd.models import JsonObject, LoopResult
from boyd.plugin import Graph

#: Labels looked at to see whether one of them is knowledge.
_LABELS = 5


def begun(
    session: Session,
    iteration: int,
    questions: Sequence[Question],
    now: datetime,
    config: Config,
    *,
    psyche: Psyche | None,
) -> Session:
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


def is_open(session: Session, iteration: int) -> bool:
    """Whether what came of the iteration's cycle is still to be taken in."""
    return session.iteration == iteration and session.applied < session.cycle


def outcome_of(
    session: Session, result: LoopResult, strategy: str, toolbox: Toolbox, graph: Graph
) -> Outcome | None:
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
    return Outcome(
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


def known_of(session: Session, goal: Goal, graph: Graph) -> list[str]:
    """The keywords of the goal, and of those above it, that the graph knows."""
    keywords = wanted(session, goal)
    found = graph.symbols_with(keywords, _LABELS) if keywords else {}
    return sorted(word for word, labels in found.items() if not all(map(_is_own, labels)))


def taken(session: Session, outcome: Outcome, now: datetime, config: Config) -> Session:
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


def ended(session: Session, outcome: Outcome | None, now: datetime, config: Config) -> Session:
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


def _digest(session: Session, tool: str, params: JsonObject) -> str:
    """That of the params as they were chosen: by it a goal knows again what it has asked for."""
    chosen, _, before_hooks = session.proposed.partition(" ")
    return before_hooks if chosen == tool else digest(params)


def _idle(session: Session, now: datetime) -> Session:
    """A cycle in which nothing of ours was decided: the goal is free for the next one."""
    goal = session.goals.get(session.at_work or "")
    if goal is None:
        return session
    return release(session, goal.id, goal.fence, now).patched({"applied": session.cycle})


def _let_go(session: Session, now: datetime) -> Session:
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
