"""The state of an agent with goals: goals, working memory, episodes, plans and psyche.

A session is one document, `GoalSession`. Plain functions derive the next version of it, which is
stored in one atomic step. The graph of facts and the questions to people are stored separately.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

from pydantic import BaseModel, Field

from boyd.models import Confidence, KeptModel, Model, Timestamp

GoalStatus = Literal["Active", "Suspended", "Completed", "Failed"]
MemoryKind = Literal["Observation", "Inference", "Decision", "Action", "Reflection"]
Progress = Literal["Completed", "Failed", "Advanced", "NoChange", "Pending", "Refused"]
StepStatus = Literal["Pending", "Completed", "Failed", "Skipped"]
Danger = Literal["Safe", "Cautious", "Danger"]
Archetype = Literal["sage", "healer", "explorer", "guardian"]


class GoalEvidence(KeptModel):
    """The step that fulfilled a criterion of a goal; `text` is the fact, passage or output."""

    criterion: str
    cycle: int
    tool: str
    text: str


class Goal(KeptModel):
    """A goal the agent works towards.

    Attributes:
        id: unique in its session; its symbol in the graph is `goal:<id>`.
        criteria: what must be found out or done to complete it; the description unless given.
        priority: 0 to 255, higher is more important.
        order: number in order of creation; breaks ties in favour of the older goal.
        stall_threshold: cycles without progress before it is split.
        last_progress_cycle: the value of `cycles_worked` at its last progress.
        matched: the keywords of the criteria found so far.
        evidence: what fulfilled its criteria so far.
        result: the answer to it, once it is completed.
        recent: the last three tools used on it, newest last.
        used: number of uses by tool.
        depth: distance from the root of its goal tree.
        stalled: it stalled and cannot be split.
        question: the id of its open question to a person.
        owner: the current worker, until `leased_until`, fenced by `fence`.
    """

    id: str
    description: str
    criteria: str
    priority: int = Field(default=128, ge=0, le=255)
    order: int = 0
    status: GoalStatus = "Active"
    reason: str | None = None
    stall_threshold: int = Field(default=5, gt=0)
    parent: str | None = None
    children: list[str] = Field(default_factory=list)
    cycles_worked: int = 0
    last_progress_cycle: int = 0
    matched: list[str] = Field(default_factory=list)
    evidence: list[GoalEvidence] = Field(default_factory=list)
    result: str | None = None
    recent: list[str] = Field(default_factory=list)
    used: dict[str, int] = Field(default_factory=dict)
    failed_plans: int = 0
    depth: int = 0
    stalled: bool = False
    question: str | None = None
    owner: str | None = None
    leased_until: float = 0.0
    fence: int = 0
    created_at: Timestamp
    updated_at: Timestamp

    @property
    def idle_cycles(self) -> int:
        """The number of cycles since its last progress."""
        return self.cycles_worked - self.last_progress_cycle


class MemoryEntry(KeptModel):
    """One entry of working memory."""

    id: int
    content: str
    symbols: list[str] = Field(default_factory=list)
    kind: MemoryKind
    timestamp: Timestamp
    relevance: Confidence
    source_cycle: int
    reference_count: int = 0
    tool: str | None = None
    success: bool | None = None


class Episode(KeptModel):
    """A memory kept when working memory was consolidated."""

    id: str
    timestamp: Timestamp
    goal: str | None = None
    summary: str
    learnings: list[str] = Field(default_factory=list)
    tools: list[str] = Field(default_factory=list)
    relevance: Confidence
    derivation_kind: Literal["AgentConsolidation"] = "AgentConsolidation"


class PlanStep(KeptModel):
    """One tool of a plan."""

    tool: str
    rationale: str
    status: StepStatus = "Pending"


class ToolPlan(KeptModel):
    """The steps towards a goal; `attempt` counts from 0."""

    goal: str
    steps: list[PlanStep]
    attempt: int = 0
    status: Literal["Active", "Completed", "Failed", "Superseded"] = "Active"
    reason: str | None = None
    strategy: str = ""


class ShadowPattern(KeptModel):
    """Actions that the psyche vetoes or, without `veto`, advises against.

    Attributes:
        name: its name in vetoes and logs.
        danger: it matches tools that may do this or worse.
        triggers: it matches actions with one of these texts in name or parameters.
        severity: how strongly it advises against them, 0 to 1.
        explanation: the reason for people.
        veto: whether such an action is vetoed.
    """

    name: str
    danger: Danger | None = None
    triggers: list[str] = Field(default_factory=list)
    severity: Confidence = 1.0
    explanation: str = ""
    veto: bool = True


_WEIGHTS: dict[Archetype, float] = {"sage": 0.7, "healer": 0.5, "explorer": 0.5, "guardian": 0.4}


class Psyche(KeptModel):
    """Preferences of the agent, which shift with what works."""

    weights: dict[Archetype, float] = Field(default_factory=_WEIGHTS.copy)
    shadow: list[ShadowPattern] = Field(default_factory=list)
    shadow_encounters: int = 0
    individuation: Confidence = 0.1
    rebalance_count: int = 0
    last_evolution_cycle: int = 0


class Score(KeptModel):
    """The utility of a tool, term by term."""

    base: float
    recency: float = 0.0
    novelty: float = 0.0
    episodic: float = 0.0
    pressure: float = 0.0
    archetype: float = 0.0

    @property
    def total(self) -> float:
        """The sum, at least 0, rounded to nine digits so that equal scores compare equal."""
        bonuses = self.novelty + self.episodic + self.pressure + self.archetype
        return max(0.0, round(self.base - self.recency + bonuses, 9))

    @property
    def breakdown(self) -> str:
        """The terms in one line."""
        archetype = round(self.archetype, 3) + 0.0  # turns -0.0 into 0.0
        return (
            f"[score={self.total:.2f}: base={self.base:.2f} recency=-{self.recency:.2f} "
            f"novelty=+{self.novelty:.2f} episodic=+{self.episodic:.2f} "
            f"pressure=+{self.pressure:.2f} archetype={archetype:+.3f}]"
        )


class ToolChoice(KeptModel):
    """The tool a cycle chose, before hooks could change it."""

    tool: str
    params_digest: str
    score: Score


class ToolDecision(KeptModel):
    """The decision of a cycle and its outcome.

    `found` lists the keywords of the goal's criteria first found in this cycle; `problem` is the
    reason why its condition could not be evaluated; `approval` is the id of the approval it needed.
    """

    cycle: int
    iteration: int | None = None
    goal: str
    tool: str
    params_digest: str
    breakdown: str
    score: Score | None = None
    progress: Progress | None = None
    found: list[str] = Field(default_factory=list)
    problem: str | None = None
    detail: str = ""
    approval: str | None = None
    at: Timestamp
    duration: float | None = None


class Question(KeptModel):
    """A question to a person, and its answer."""

    id: str
    goal: str | None = None
    text: str = Field(min_length=1, max_length=2000)
    asked_at: Timestamp
    answer: str | None = None
    answered_by: str | None = None
    answered_at: Timestamp | None = None


class GoalSession(KeptModel):
    """Everything a session of the agent remembers, except the graph.

    Attributes:
        cycle: the last cycle that began.
        focus: goals that come first regardless of priority, with their sub-goals.
        iteration: the iteration of the loop the cycle belongs to.
        at_work: the goal of the current cycle.
        applied: the last cycle whose outcome was applied.
        made: number of goals ever created; numbers them.
        memories: number of memory entries ever created; numbers them.
        memory, episodes, decisions: oldest first.
        reflected: the cycle of the last reflection.
        consolidated: number of entries that became episodes.
        standing: hashes of the goals of the agent file that it was given.
    """

    id: str
    version: Literal[1] = 1
    cycle: int = 0
    focus: list[str] = Field(default_factory=list)
    iteration: int = 0
    at_work: str | None = None
    applied: int = 0
    made: int = 0
    memories: int = 0
    goals: dict[str, Goal] = Field(default_factory=dict)
    memory: list[MemoryEntry] = Field(default_factory=list)
    episodes: list[Episode] = Field(default_factory=list)
    plans: dict[str, ToolPlan] = Field(default_factory=dict)
    psyche: Psyche | None = None
    decisions: list[ToolDecision] = Field(default_factory=list)
    choice: ToolChoice | None = None
    reflected: int = 0
    consolidated: int = 0
    standing: list[str] = Field(default_factory=list)
    created_at: Timestamp
    updated_at: Timestamp

    @property
    def goal_counts(self) -> dict[str, int]:
        """The number of goals by status."""
        return dict(Counter(goal.status for goal in self.goals.values()))


class SessionSummary(KeptModel):
    """A session in a list."""

    id: str
    current: bool = False
    cycle: int = 0
    goals: dict[str, int] = Field(default_factory=dict)
    episodes: int = 0
    created_at: Timestamp
    updated_at: Timestamp


class SessionRegister(KeptModel):
    """The highest session number of an agent, and the sessions that are not current."""

    last: int = 1
    left: list[SessionSummary] = Field(default_factory=list)


class GoalThresholds(BaseModel):
    """The limits and thresholds that are options of the plugin.

    Attributes:
        working_memory_capacity: number of entries working memory holds.
        auto_consolidate: consolidate automatically when memory is nearly full.
        consolidate_above: share of memory above which it consolidates.
        consolidate_down_to: share of memory in use afterwards.
        min_relevance: least value of an entry to become an episode.
        low_relevance: a full memory first drops its oldest entry below this relevance.
        max_cycles: number of cycles per session.
        max_backtrack_attempts: number of plans that may fail before the goal does.
        stall_threshold: cycles without progress before a goal is split.
        completion_ratio: share of the keywords of a criterion that must meet in one finding.
        reflect_every: cycles between reflections; 0 turns them off.
        min_tool_success_rate: a tool below this rate is ineffective.
        stagnation_threshold: cycles without progress before a goal loses priority.
    """

    working_memory_capacity: int = Field(default=100, gt=0, le=1000)
    auto_consolidate: bool = True
    consolidate_above: Confidence = 0.8
    consolidate_down_to: Confidence = 0.5
    min_relevance: Confidence = 0.5
    low_relevance: Confidence = 0.5
    max_cycles: int = Field(default=1000, gt=0)
    max_backtrack_attempts: int = Field(default=3, gt=0)
    stall_threshold: int = Field(default=5, gt=0)
    completion_ratio: float = Field(default=0.5, gt=0, le=1)
    reflect_every: int = Field(default=5, ge=0)
    min_tool_success_rate: Confidence = 0.3
    stagnation_threshold: int = Field(default=8, gt=0)


class Config(Model, GoalThresholds):
    """The limits and thresholds of an agent with goals."""

    completion_ratio: Confidence = 0.5
    max_episodes: int = Field(default=500, gt=0)
    max_goals: int = Field(default=300, gt=0)
    max_decisions: int = Field(default=200, gt=0)
    max_depth: int = Field(default=3, ge=0)
    max_children: int = Field(default=10, gt=1)
    lease: float = Field(default=300.0, gt=0)
