"""Working memory, which forgets, and the episodes kept from it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from boyd.text.tokenizer import words
from boyd_goals.goal_tree import goal_of, symbol
from boyd_goals.progress import clip
from boyd_goals.state import Config, Episode, GoalSession, MemoryEntry, MemoryKind

#: Limits of an entry's text and symbols, and of an episode's summary.
CONTENT_CHARS, MAX_SYMBOLS, SUMMARY_CHARS = 1000, 50, 200
#: The newest entries, which are never consolidated.
NEWEST = 5
#: Weights of the parts of a score; an entry's own relevance counts as much as all of them.
_GOAL, _NOVELTY, _UTILITY = 0.4, 0.3, 0.3
_OWN = 0.5
_NEAR = 0.8
_WITHOUT_SYMBOLS = 0.5
_PER_DEGREE = 0.2
_PER_REFERENCE = 0.25
#: The tool that asks a person, tools that only remember, and tools that read existing knowledge.
_ASKING = "user_interact"
_REMEMBERING = ("memory_recall", "consolidate")
_READING = frozenset(
    [
        "kg_query",
        "kg_mutate",
        "reason",
        "similarity_search",
        "infer_rules",
        "gap_analysis",
        "library_search",
    ]
) | {_ASKING}
_ID_PREFIXES = ("goal:", "wm-")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNote:
    """Something to remember, of any length and relevance."""

    content: str
    kind: MemoryKind
    relevance: float
    source_cycle: int
    now: datetime
    symbols: Iterable[str] = ()
    tool: str | None = None
    success: bool | None = None


def push(session: GoalSession, note: MemoryNote, config: Config) -> GoalSession:
    """Add an entry; a full memory drops its least important entry first.

    Content and symbols are cut to their limits, and the relevance is clamped to 0 to 1.
    """
    entry = MemoryEntry(
        id=session.memories + 1,
        content=clip(note.content, CONTENT_CHARS),
        symbols=list(dict.fromkeys(note.symbols))[:MAX_SYMBOLS],
        kind=note.kind,
        timestamp=note.now,
        relevance=min(1.0, max(0.0, note.relevance)),
        source_cycle=note.source_cycle,
        tool=note.tool,
        success=note.success,
    )
    memory = session.memory
    while len(memory) >= config.working_memory_capacity:
        low = (other for other in memory if other.relevance < config.low_relevance)
        dropped = next(low, None) or min(memory, key=lambda other: (other.relevance, other.id))
        memory = [other for other in memory if other is not dropped]
    changes = {"memories": entry.id, "memory": [*memory, entry], "updated_at": note.now}
    return session.model_copy(update=changes)


def consult(session: GoalSession, ids: Collection[int]) -> GoalSession:
    """Count a reference to each of those entries, as far as they still exist."""
    memory = [
        entry.model_copy(update={"reference_count": entry.reference_count + (entry.id in ids)})
        for entry in session.memory
    ]
    return session if memory == session.memory else session.model_copy(update={"memory": memory})


def newest(session: GoalSession, count: int = NEWEST) -> list[MemoryEntry]:
    """The last entries, newest first."""
    return session.memory[::-1][:count]


def pressure(session: GoalSession, config: Config) -> float:
    """The share of working memory in use."""
    return len(session.memory) / config.working_memory_capacity


def is_consolidation_due(session: GoalSession, config: Config) -> bool:
    """True if memory is full enough to consolidate automatically."""
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
    """Free memory, oldest entries first, and keep the valuable ones as episodes.

    Entries are removed until the pressure is down to `consolidate_down_to`; on demand, valuable
    entries among the rest become episodes too. The newest entries and those of the current *cycle*
    stay.

    *degrees* holds the number of facts per symbol, *near* the symbols that facts about goals lead
    to, and *without* the entries that must not become episodes (`uninformative_entries`).

    Returns:
        The session, unchanged if no entry was removed, and the new episodes, oldest first.
    """
    scores = {entry.id: score(session, entry, degrees, near) for entry in session.memory}
    worthy = {id for id, value in scores.items() if value >= config.min_relevance} - {*without}
    removed = _to_remove(session, cycle, config, worthy if on_demand else frozenset())
    if not removed:
        return session, []
    episodes = [
        _episode(session, entry, scores[entry.id]) for entry in removed if entry.id in worthy
    ]
    removed_ids = {entry.id for entry in removed}
    changes = {
        "memory": [entry for entry in session.memory if entry.id not in removed_ids],
        "episodes": [*session.episodes, *episodes][-config.max_episodes :],
        "consolidated": session.consolidated + len(episodes),
        "updated_at": now,
    }
    return session.model_copy(update=changes), episodes


def score(
    session: GoalSession, entry: MemoryEntry, degrees: Mapping[str, int], near: Collection[str] = ()
) -> float:
    """The value of an entry, 0 to 1; half of it is its own relevance."""
    relevance = _NEAR if any(name in near for name in entry.symbols) else 0.0
    if any(goal_of(session, name) for name in entry.symbols):
        relevance = 1.0
    novelty = _WITHOUT_SYMBOLS
    if entry.symbols:
        mean = sum(degrees.get(name, 0) for name in entry.symbols) / len(entry.symbols)
        novelty = 1 / (1 + _PER_DEGREE * mean)
    parts = (
        _GOAL * relevance,
        _NOVELTY * novelty,
        _UTILITY * min(1.0, _PER_REFERENCE * entry.reference_count),
    )
    # Rounded, so that an entry exactly at the threshold is kept.
    return min(1.0, round(_OWN * entry.relevance + (1 - _OWN) * sum(parts), 9))


def uninformative_entries(session: GoalSession, degrees: Mapping[str, int]) -> set[int]:
    """The entries with nothing to learn from later.

    They name no symbol with facts, and are neither an answer, nor advice, nor a tool's failure or
    finding outside the graph; or they repeat an episode or another entry.
    """
    contents = {(episode.goal, episode.summary) for episode in session.episodes}
    idle: set[int] = set()
    for entry in session.memory:
        episode = _episode(session, entry, entry.relevance)
        content = (episode.goal, episode.summary)
        if content in contents or not _teaches(session, entry, degrees):
            idle.add(entry.id)
        else:
            contents.add(content)
    return idle


def _teaches(session: GoalSession, entry: MemoryEntry, degrees: Mapping[str, int]) -> bool:
    if entry.tool in _REMEMBERING or entry.kind == "Decision":
        return False
    if any(degrees.get(name) and goal_of(session, name) is None for name in entry.symbols):
        return True
    if entry.kind == "Action":
        return not entry.success or entry.tool not in _READING
    return bool(entry.symbols) and (entry.kind == "Reflection" or entry.tool == _ASKING)


def inherit_episodes(session: GoalSession, other: GoalSession, config: Config) -> GoalSession:
    """Add the episodes of another session.

    New entries get numbers that neither session has used, so that ids of episodes are unique.
    """
    every = {episode.id: episode for episode in (*other.episodes, *session.episodes)}
    episodes = sorted(every.values(), key=lambda episode: (episode.timestamp, episode.id))
    memories = max(session.memories, other.memories)
    return session.patched({"episodes": episodes[-config.max_episodes :], "memories": memories})


def recall(episodes: Sequence[Episode], query: Iterable[str], k: int) -> list[Episode]:
    """The *k* episodes with the greatest overlap with *query*, which may be symbols, ids and text.

    Ties go to the newest, then the most relevant episode; without overlap there is no match.
    """
    symbols = {term.strip().lower() for term in query}
    texts = [term for term in symbols if not term.startswith(_ID_PREFIXES)]
    sought = set().union(*map(words, texts))
    ranked = [(_overlap(episode, symbols, sought), episode) for episode in episodes]
    matches = [(overlap, episode) for overlap, episode in ranked if overlap]
    matches.sort(key=lambda match: (match[0], match[1].timestamp, match[1].relevance), reverse=True)
    return [episode for _, episode in matches[: max(0, k)]]


def _to_remove(
    session: GoalSession, cycle: int, config: Config, also: Collection[int]
) -> list[MemoryEntry]:
    count, capacity = len(session.memory), config.working_memory_capacity
    removed: list[MemoryEntry] = []
    for entry in session.memory[:-NEWEST]:
        is_full = (count - len(removed)) / capacity > config.consolidate_down_to
        if entry.source_cycle != cycle and (is_full or entry.id in also):
            removed.append(entry)
    return removed


def _episode(session: GoalSession, entry: MemoryEntry, relevance: float) -> Episode:
    goal = next((goal for name in entry.symbols if (goal := goal_of(session, name))), None)
    own = symbol(goal.id) if goal else None
    return Episode(
        id=f"wm-{entry.id}",
        timestamp=entry.timestamp,
        goal=goal.id if goal else None,
        summary=clip(_summary(entry, own), SUMMARY_CHARS),
        learnings=[name for name in entry.symbols if name != own],
        tools=[entry.tool] if entry.tool else [],
        relevance=relevance,
    )


def _summary(entry: MemoryEntry, own: str | None) -> str:
    """The content of an entry without its heading."""
    heading = f"Tool result ({entry.tool}):\n"
    if entry.kind == "Action" and entry.content.startswith(heading):
        tool = entry.tool if entry.success else f"{entry.tool} failed"
        lines = entry.content.removeprefix(heading).splitlines()
        return f"{tool}: {'; '.join(' '.join(line.split()) for line in lines)}"
    if entry.kind == "Inference" and entry.content.startswith("Orient: "):
        return f"came to mind: {', '.join(name for name in entry.symbols if name != own)}"
    if entry.tool == _ASKING and entry.kind == "Observation":
        _, mark, answer = entry.content.partition("\nAnswer of ")
        return f"Answer of {answer}" if mark else entry.content
    return entry.content


def _overlap(episode: Episode, symbols: set[str], sought: set[str]) -> int:
    names = [episode.id, *episode.learnings, *episode.tools]
    if episode.goal:
        names += [episode.goal, symbol(episode.goal)]
    labels = [name for name in names if not name.startswith(_ID_PREFIXES)]
    own_words = set().union(*map(words, [episode.summary, *labels]))
    return len(symbols & {name.lower() for name in names}) + len(sought & own_words)
