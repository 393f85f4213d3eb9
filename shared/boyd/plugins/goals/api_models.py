"""What requests about goals are answered with; whoever asks reads it with the same models (M16)."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, field_validator

from boyd.models import Model, Triple
from boyd.plugins.goals.state import (
    Episode,
    Goal,
    MemoryEntry,
    Psyche,
    Question,
    SessionSummary,
    ToolDecision,
    ToolPlan,
)


def _storable(text: str) -> str:
    if "\x1f" in text or "\0" in text:
        raise ValueError("it holds a control character that no label may have")
    text.encode()
    return text


#: What may become a label of the graph.
Text = Annotated[str, AfterValidator(_storable)]


class NewGoal(Model):
    """A goal to work towards."""

    description: Text
    criteria: Text | None = None
    priority: int = Field(default=128, ge=0, le=255)
    stall_threshold: int | None = Field(default=None, gt=0)


class GoalReason(Model):
    """Why a goal is put off, taken up or given up."""

    reason: str | None = Field(default=None, max_length=500)


class SessionWanted(Model):
    """Whether to begin anew, or the id of an older session to go on with."""

    fresh: bool = True
    id: str | None = Field(default=None, pattern=r"^[0-9]{1,9}$")


class Priority(Model):
    """How important a goal is."""

    priority: int = Field(ge=0, le=255)


class Focus(Model):
    """The goals that come first whatever their priority; none: all go by their priority."""

    goals: list[str] = Field(max_length=300)


class QuestionAnswer(Model):
    """An answer to a question."""

    text: Annotated[Text, Field(min_length=1, max_length=10_000)]


class Import(Model):
    """Facts in Turtle."""

    turtle: str = Field(min_length=1)
    source: str | None = Field(default=None, max_length=500)


class Facts(Model):
    """Facts to add."""

    facts: list[Triple] = Field(max_length=10_000)

    @field_validator("facts")
    @classmethod
    def _is_knowledge(cls, facts: list[Triple]) -> list[Triple]:
        for fact in facts:
            if fact.is_metadata:
                raise ValueError("predicates that begin with agent: are the agent's own")
        return facts


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
    decisions: list[ToolDecision] = Field(default_factory=list)
    plan: ToolPlan | None = None


class DecisionList(Model):
    """What was decided, the newest first."""

    cycles: list[ToolDecision]


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
