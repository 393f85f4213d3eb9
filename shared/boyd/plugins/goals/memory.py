"""Working memory, which forgets, and the episodes that are kept of it (M8, M9, M10)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from boyd.plugins.goals.goal_tree import goal_of, symbol
from boyd.plugins.goals.progress import clipped
from boyd.plugins.goals.state import Config, Episode, GoalSession, MemoryEntry, MemoryKind
from boyd.tokenizer import words

#: The most characters an entry and the summary of an episode may have, and the most symbols.
CONTENT_CHARS = 1000
SUMMARY_CHARS = 200
MAX_SYMBOLS = 50
#: So many of the newest entries are never consolidated.
NEWEST = 5
#: Shares of a score, and of an entry's own relevance next to it.
_GOAL, _NOVELTY, _UTILITY = 0.4, 0.3, 0.3
_OWN = 0.5
_NEAR = 0.8
_WITHOUT_SYMBOLS = 0.5
_PER_DEGREE = 0.2
_PER_REFERENCE = 0.25
#: The tool that asks a person, those that only remember, and those that look into what is known.
_ASKING = "user_interact"
_REMEMBERING = ("memory_recall", "consolidate")
_LOOKING = frozenset(
    {
        *("kg_query", "kg_mutate", "reason", "similarity_search", "infer_rules", "gap_analysis"),
        *("library_search", _ASKING),
    }
)
#: What a query for something by its id begins with.
_IDS = ("goal:", "wm-")


def push(
    session: GoalSession,
    *,
    content: str,
    kind: MemoryKind,
    relevance: float,
    source_cycle: int,
    now: datetime,
    config: Config,
    symbols: Iterable[str] = (),
    tool: str | None = None,
    success: bool | None = None,
) -> GoalSession:
    """Remember one thing; if memory is full, what matters least is forgotten for it (M8).

    The *content* is cut at `CONTENT_CHARS`, the *symbols* it is about at `MAX_SYMBOLS`, and the
    *relevance* brought between 0 and 1. It was learned in *source_cycle*, from *tool* if that is
    given, with or without *success*.
    """
    entry = MemoryEntry(
        id=session.memories + 1,
        content=clipped(content, CONTENT_CHARS),
        symbols=list(dict.fromkeys(symbols))[:MAX_SYMBOLS],
        kind=kind,
        timestamp=now,
        relevance=min(1.0, max(0.0, relevance)),
        source_cycle=source_cycle,
        tool=tool,
        success=success,
    )
    memory = [*_with_room(session.memory, config), entry]
    return session.model_copy(update={"memories": entry.id, "memory": memory, "updated_at": now})


def consult(session: GoalSession, ids: Collection[int]) -> GoalSession:
    """Count that those entries were looked at; who is gone is passed over (M8)."""
    wanted = frozenset(ids)
    if not any(entry.id in wanted for entry in session.memory):
        return session
    memory = [_referred(entry) if entry.id in wanted else entry for entry in session.memory]
    return session.model_copy(update={"memory": memory})


def newest(session: GoalSession, count: int = NEWEST) -> list[MemoryEntry]:
    """The last entries, the newest first."""
    return session.memory[::-1][:count]


def pressure(session: GoalSession, config: Config) -> float:
    """How full working memory is: 1 is full."""
    return len(session.memory) / config.working_memory_capacity


def is_consolidation_due(session: GoalSession, config: Config) -> bool:
    """Whether memory is so full that it consolidates by itself: strictly above the limit (M9)."""
    return config.auto_consolidate and pressure(session, config) > config.consolidate_above


def consolidate(
    session: GoalSession,
    degrees: Mapping[str, int],
    cycle: int,
    now: datetime,
    config: Config,
    *,
    near: Collection[str] = (),
    without: Collection[int] = (),
    on_demand: bool = False,
) -> tuple[GoalSession, list[Episode]]:
    """Free memory, the oldest first; what is worth it is kept as episodes (M9).

    It takes as many entries as bring the pressure down to `consolidate_down_to`. On demand it also
    keeps what is worth it of the rest, and forgets nothing for that. The newest entries and those
    of the current cycle stay.

    In *degrees* stands how many facts each symbol is in (missing: none), in *near* what is subject
    or object of a fact that leads away from a goal, in *without* which entries become no episodes
    (`teaching_nothing`); *cycle* is the current one.

    Returns:
        The session (the same, if nothing was taken) and the new episodes, the oldest first.
    """
    scores = {entry.id: score(session, entry, degrees, near) for entry in session.memory}
    worthy = {id for id, value in scores.items() if value >= config.min_relevance} - {*without}
    taken = _taken(session, cycle, config, worthy if on_demand else frozenset())
    if not taken:
        return session, []
    kept = [_episode(session, one, scores[one.id]) for one in taken if one.id in worthy]
    gone = {entry.id for entry in taken}
    changes = {
        "memory": [entry for entry in session.memory if entry.id not in gone],
        "episodes": [*session.episodes, *kept][-config.max_episodes :],
        "consolidated": session.consolidated + len(kept),
        "updated_at": now,
    }
    return session.model_copy(update=changes), kept


def score(
    session: GoalSession, entry: MemoryEntry, degrees: Mapping[str, int], near: Collection[str] = ()
) -> float:
    """How much an entry is worth to be kept: 0 to 1, half of it its own relevance."""
    parts = (
        _GOAL * _goal_relevance(session, entry, near),
        _NOVELTY * _novelty(entry, degrees),
        _UTILITY * min(1.0, _PER_REFERENCE * entry.reference_count),
    )
    # Rounded, so that what is exactly at the threshold is kept.
    return min(1.0, round(_OWN * entry.relevance + (1 - _OWN) * sum(parts), 9))


def teaching_nothing(session: GoalSession, degrees: Mapping[str, int]) -> set[int]:
    """The entries of which nothing can be learned later.

    They name no symbol that a fact is about, and are neither an answer, nor advice, nor what a tool
    has found outside of the graph or has failed at; or they repeat an episode or another entry.
    """
    told = {(one.goal, one.summary) for one in session.episodes}
    idle: set[int] = set()
    for entry in session.memory:
        episode = _episode(session, entry, entry.relevance)
        said = (episode.goal, episode.summary)
        if said in told or not _teaches(session, entry, degrees):
            idle.add(entry.id)
        else:
            told.add(said)
    return idle


def _teaches(session: GoalSession, entry: MemoryEntry, degrees: Mapping[str, int]) -> bool:
    if entry.tool in _REMEMBERING or entry.kind == "Decision":
        return False
    if any(degrees.get(one) and goal_of(session, one) is None for one in entry.symbols):
        return True
    if entry.kind == "Action":
        return not entry.success or entry.tool not in _LOOKING
    return bool(entry.symbols) and (entry.kind == "Reflection" or entry.tool == _ASKING)


def inheriting(session: GoalSession, other: GoalSession, config: Config) -> GoalSession:
    """The session with the episodes of another one too: what was learned outlives a session.

    Its next memories have numbers that neither has given yet, so that ids of episodes are unique.
    """
    every = {one.id: one for one in (*other.episodes, *session.episodes)}
    episodes = sorted(every.values(), key=lambda one: (one.timestamp, one.id))
    memories = max(session.memories, other.memories)
    return session.patched({"episodes": episodes[-config.max_episodes :], "memories": memories})


def recall(episodes: Sequence[Episode], query: Iterable[str], k: int) -> list[Episode]:
    """The *k* episodes that have most in common with *query* (M10).

    Those with nothing in common are none of them. As much in common: the newest first, then the
    more relevant. The *query* is symbols, ids and text; of text, its words are looked for.
    """
    symbols, sought = _sought(query)
    ranked = [(_overlap(episode, symbols, sought), episode) for episode in episodes]
    found = [(overlap, episode) for overlap, episode in ranked if overlap]
    found.sort(key=lambda one: (one[0], one[1].timestamp, one[1].relevance), reverse=True)
    return [episode for _, episode in found[: max(0, k)]]


def _with_room(memory: list[MemoryEntry], config: Config) -> list[MemoryEntry]:
    left = memory
    while len(left) >= config.working_memory_capacity:
        victim = _victim(left, config)
        left = [entry for entry in left if entry is not victim]
    return left


def _victim(memory: list[MemoryEntry], config: Config) -> MemoryEntry:
    low = (entry for entry in memory if entry.relevance < config.low_relevance)
    return next(low, None) or min(memory, key=lambda entry: (entry.relevance, entry.id))


def _referred(entry: MemoryEntry) -> MemoryEntry:
    return entry.model_copy(update={"reference_count": entry.reference_count + 1})


def _taken(
    session: GoalSession, cycle: int, config: Config, also: Collection[int]
) -> list[MemoryEntry]:
    free = [one for one in session.memory[:-NEWEST] if one.source_cycle != cycle]
    count, capacity = len(session.memory), config.working_memory_capacity
    taken: list[MemoryEntry] = []
    for entry in free:
        if (count - len(taken)) / capacity > config.consolidate_down_to or entry.id in also:
            taken.append(entry)
    return taken


def _goal_relevance(session: GoalSession, entry: MemoryEntry, near: Collection[str]) -> float:
    if any(goal_of(session, one) for one in entry.symbols):
        return 1.0
    return _NEAR if any(one in near for one in entry.symbols) else 0.0


def _novelty(entry: MemoryEntry, degrees: Mapping[str, int]) -> float:
    if not entry.symbols:
        return _WITHOUT_SYMBOLS
    mean = sum(degrees.get(one, 0) for one in entry.symbols) / len(entry.symbols)
    return 1 / (1 + _PER_DEGREE * mean)


def _episode(session: GoalSession, entry: MemoryEntry, relevance: float) -> Episode:
    goals = (goal_of(session, one) for one in entry.symbols)
    goal = next((one for one in goals if one), None)
    own = symbol(goal.id) if goal else None
    return Episode(
        id=f"wm-{entry.id}",
        timestamp=entry.timestamp,
        goal=goal.id if goal else None,
        summary=clipped(_summary(entry, own), SUMMARY_CHARS),
        learnings=[one for one in entry.symbols if one != own],
        tools=[entry.tool] if entry.tool else [],
        relevance=relevance,
    )


def _summary(entry: MemoryEntry, own: str | None) -> str:
    """What an entry says, without how it came into working memory."""
    envelope = f"Tool result ({entry.tool}):\n"
    if entry.kind == "Action" and entry.content.startswith(envelope):
        how = entry.tool if entry.success else f"{entry.tool} failed"
        lines = entry.content.removeprefix(envelope).splitlines()
        return f"{how}: {'; '.join(' '.join(line.split()) for line in lines)}"
    if entry.kind == "Inference" and entry.content.startswith("Orient: "):
        return f"came to mind: {', '.join(one for one in entry.symbols if one != own)}"
    if entry.tool == _ASKING and entry.kind == "Observation":
        _, mark, answer = entry.content.partition("\nAnswer of ")
        return f"Answer of {answer}" if mark else entry.content
    return entry.content


def _sought(query: Iterable[str]) -> tuple[set[str], set[str]]:
    symbols = {one.strip().lower() for one in query}
    texts = [one for one in symbols if not one.startswith(_IDS)]
    return symbols, set().union(*map(words, texts))


def _overlap(episode: Episode, symbols: set[str], sought: set[str]) -> int:
    named = [episode.id, *episode.learnings, *episode.tools]
    if episode.goal:
        named += [episode.goal, symbol(episode.goal)]
    labels = [one for one in named if not one.startswith(_IDS)]
    said = set().union(*map(words, [episode.summary, *labels]))
    return len(symbols & {one.lower() for one in named}) + len(sought & said)
