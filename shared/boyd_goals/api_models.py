"""Request and response models of the goal endpoints, shared with their clients."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, field_validator

from boyd.models import Model, Triple
from boyd_goals.state import (
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
        raise ValueError("it contains a control character, which labels must not have")
    text.encode()
    return text


#: A text that may become a label in the graph.
Text = Annotated[str, AfterValidator(_storable)]


class NewGoal(Model):
    """A goal to work towards.

    Attributes:
        description: what is to be achieved.
        criteria: when it is: words that findings have to say, or a condition in CEL; absent: the
            description.
        priority: 255 comes first.
        stall_threshold: cycles without progress before it is split; absent: as the session has it.
    """

    description: Text
    criteria: Text | None = None
    priority: int = Field(default=128, ge=0, le=255)
    stall_threshold: int | None = Field(default=None, gt=0)


class GoalReason(Model):
    """The reason for changing the status of a goal."""

    reason: str | None = Field(default=None, max_length=500)


class SessionRequest(Model):
    """A request for a new session, or for an older one by id."""

    fresh: bool = True
    id: str | None = Field(default=None, pattern=r"^[0-9]{1,9}$")


class Priority(Model):
    """The priority of a goal."""

    priority: int = Field(ge=0, le=255)


class Focus(Model):
    """The goals that come first regardless of priority."""

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
    """The use of working memory; `pressure` is the share in use."""

    size: int
    capacity: int
    pressure: float


class GraphState(Model):
    """The number of facts, and of changes to them."""

    facts: int
    revision: int | None = None


class WaitingTool(Model):
    """A tool that waits for an approval."""

    tool: str
    goal: str
    approval: str


class SessionState(Model):
    """A summary of a session; `goals` counts them by status.

    `questions` and `approvals` are those that open goals of this session wait for.
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
        """The number of active goals."""
        return self.goals.get("Active", 0)

    @property
    def waiting(self) -> list[tuple[str, str]]:
        """The tools that wait for a person, each with the id of its approval."""
        return [(tool.tool, tool.approval) for tool in self.approvals]


class NewSession(Model):
    """The session that is current now."""

    id: str


class SessionList(Model):
    """The current session, then the others, last used first."""

    sessions: list[SessionSummary]


class PsycheState(Model):
    """The psyche of the agent, if it has one."""

    psyche: Psyche | None = None


class GoalList(Model):
    """Goals, most important first."""

    goals: list[Goal]


class GoalExplanation(Model):
    """A goal, its decisions (oldest first), its plan and its place in the goal tree."""

    goal: Goal
    parent: Goal | None = None
    children: list[Goal] = Field(default_factory=list)
    decisions: list[ToolDecision] = Field(default_factory=list)
    plan: ToolPlan | None = None


class DecisionList(Model):
    """Decisions, newest first."""

    cycles: list[ToolDecision]


class MemoryList(Model):
    """Entries of working memory, newest first."""

    entries: list[MemoryEntry]


class EpisodeList(Model):
    """Episodes."""

    episodes: list[Episode]


class Consolidated(Model):
    """The result of a consolidation."""

    consolidated: int
    forgotten: int
    pressure: float


class QuestionList(Model):
    """Questions, answered ones included."""

    questions: list[Question]


class Surroundings(Model):
    """The facts about a symbol or, if there are none, symbols with its words."""

    symbol: str
    out: list[Triple]
    into: list[Triple]
    alike: list[str] = Field(default_factory=list)


class SymbolList(Model):
    """Symbols, nearest to the query first."""

    symbols: list[str]


class Imported(Model):
    """The number of new facts, and of skipped statements by reason."""

    added: int
    skipped: dict[str, int] = Field(default_factory=dict)


class Exported(Model):
    """A part of the graph as Turtle; all parts make up one text.

    `next` is the `after` of the next part, absent in the last one; `revision` counts the changes of
    the graph until this part was read.
    """

    turtle: str
    next: str | None = None
    revision: int = 0
