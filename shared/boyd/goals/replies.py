"""What requests about goals are answered with; whoever asks reads it with the same models (M16)."""

from __future__ import annotations

from pydantic import Field

from boyd.goals.shapes import (
    Decision,
    Episode,
    Goal,
    MemoryEntry,
    Plan,
    Psyche,
    Question,
    SessionSummary,
)
from boyd.models import Model, Triple


class MemoryState(Model):
    """How full working memory is; `pressure` is the share of it that is taken."""

    size: int
    capacity: int
    pressure: float


class GraphState(Model):
    """How much is known, and how often that was changed."""

    facts: int
    revision: int | None = None


class WaitingTool(Model):
    """A tool that a person is to allow, and the approval that answers it."""

    tool: str
    goal: str
    approval: str


class SessionState(Model):
    """A session at a glance; `goals` counts them by status, `focus` are those that come first.

    `questions` and `approvals` are what its goals wait for: nothing of earlier sessions, and no
    question of a goal that has ended.
    """

    id: str
    cycle: int
    max_cycles: int
    focus: list[str] = Field(default_factory=list)
    goals: dict[str, int] = Field(default_factory=dict)
    memory: MemoryState
    episodes: int
    questions: list[Question] = Field(default_factory=list)
    approvals: list[WaitingTool] = Field(default_factory=list)
    graph: GraphState

    @property
    def active(self) -> int:
        """How many goals are worked on."""
        return self.goals.get("Active", 0)

    @property
    def waiting(self) -> list[tuple[str, str]]:
        """The tools that wait for a person, each with the approval that it waits for."""
        return [(one.tool, one.approval) for one in self.approvals]


class NewSession(Model):
    """The session that is worked in now."""

    id: str


class SessionList(Model):
    """Sessions, the one that is worked in first, then the last one left."""

    sessions: list[SessionSummary]


class PsycheState(Model):
    """The leanings of the agent, and what its shadow forbids or would rather not do; None: none."""

    psyche: Psyche | None = None


class GoalList(Model):
    """Goals, the one that comes first at the top."""

    goals: list[Goal]


class Why(Model):
    """A goal, what was decided for it (the oldest first), and its place among others."""

    goal: Goal
    parent: Goal | None = None
    children: list[Goal] = Field(default_factory=list)
    decisions: list[Decision] = Field(default_factory=list)
    plan: Plan | None = None


class DecisionList(Model):
    """What was decided, the newest first."""

    cycles: list[Decision]


class MemoryList(Model):
    """What is on the agent's mind, the newest first."""

    entries: list[MemoryEntry]


class EpisodeList(Model):
    """What the agent remembers."""

    episodes: list[Episode]


class Consolidated(Model):
    """What became of working memory."""

    consolidated: int
    forgotten: int
    pressure: float


class QuestionList(Model):
    """Questions, those with an answer too."""

    questions: list[Question]


class Surroundings(Model):
    """What the graph says about a symbol; if nothing, which symbols its words are in."""

    symbol: str
    out: list[Triple]
    into: list[Triple]
    alike: list[str] = Field(default_factory=list)


class SymbolList(Model):
    """Symbols, those nearest to what was looked for first."""

    symbols: list[str]


class Imported(Model):
    """How many facts are new, and how many statements were left out for which reason."""

    added: int
    skipped: dict[str, int] = Field(default_factory=dict)


class Exported(Model):
    """Facts, as Turtle.

    Attributes:
        turtle: the facts of this part; parts make up one text.
        next: what to ask for as `after` to get the next part; absent: this was the last.
        revision: how often the graph had been changed when this part was read.
    """

    turtle: str
    next: str | None = None
    revision: int = 0
