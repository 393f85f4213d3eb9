"""What the agent sees of its own state when a cycle begins: goals, memory, episodes."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from boyd.goals import memory
from boyd.goals.goal_book import active_goals, symbol
from boyd.goals.knowledge.mentions import mentioned
from boyd.goals.shapes import Config, Goal, Session
from boyd.models import Observation
from boyd.plugin import Graph
from boyd.words import keywords

#: The sources of what is seen.
GOALS, MEMORY, EPISODES = "goals", "working-memory", "episodes"
#: How much of it is told.
_GOALS, _SYMBOLS = 20, 30
_QUERIED, _RECALLED = 5, 3
#: How many symbols there are to begin with.
_STARTS = 40


def seen_goals(session: Session, graph: Graph) -> Observation:
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


def seen_memory(session: Session, config: Config) -> Observation:
    """How full working memory is, and what is newest in it."""
    data: dict[str, JsonValue] = {
        "size": len(session.memory),
        "pressure": memory.pressure(session, config),
        "recent": [entry.id for entry in memory.newest(session)],
    }
    return Observation(source=MEMORY, type="state", data=data)


def seen_episodes(session: Session) -> Observation:
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


def _at_work(session: Session) -> Goal:
    return session.goals[session.at_work or ""]


def _symbols(goal: Goal, graph: Graph) -> list[str]:
    """The goal itself, and the symbols that it speaks of, the nearest first."""
    return [symbol(goal.id), *mentioned(graph, f"{goal.description} {goal.criteria}", _SYMBOLS)]


def _items(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _texts(value: JsonValue) -> list[str]:
    return [one for one in _items(value) if isinstance(one, str)]
