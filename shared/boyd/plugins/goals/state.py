"""What an agent with goals remembers: goals, working memory, episodes, plans, psyche (M1 to M14).

All of a session is one document, `Session`, changed by plain functions and stored in one atomic
step; the graph of facts and the questions to people are stored apart.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from boyd.models import Confidence, Model, Timestamp

GoalStatus = Literal["Active", "Suspended", "Completed", "Failed"]
MemoryKind = Literal["Observation", "Inference", "Decision", "Action", "Reflection"]
Progress = Literal["Completed", "Failed", "Advanced", "NoChange", "Pending", "Refused"]
Danger = Literal["Safe", "Cautious", "Danger"]
Archetype = Literal["sage", "healer", "explorer", "guardian"]


_WEIGHTS: dict[Archetype, float] = {
    "sage": 0.7,
    "healer": 0.5,
    "explorer": 0.5,
    "guardian": 0.4,
}


class Goal(Model):
    """What the agent works towards (M1).

    Attributes:
        id: unique in its session; a symbol of the graph is `goal:<id>`.
        description: what to achieve.
        criteria: what must be known for it to be achieved; the description unless given.
        priority: 0 to 255, more is more important.
        order: in which it was made: ties go to the older one.
        stall_threshold: cycles without progress before it is decomposed.
        cycles_worked: how many cycles were spent on it.
        last_progress_cycle: the value of `cycles_worked` when it last got on.
        matched: the keywords of the criteria that were ever found (progress is when they grow).
        recent: the tools used on it, the last one last, at most three.
        used: how often each tool was used on it.
        failed_plans: how many plans have failed (M6).
        depth: how often it was split off.
        stalled: it has stalled and cannot be split.
        question: a question to a person that is not answered yet.
        owner: who works on it now, until `leased_until`, under `fence`.
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


class MemoryEntry(Model):
    """One thing on the agent's mind (M8)."""

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


class Episode(Model):
    """What was worth keeping of working memory (M9)."""

    id: str
    timestamp: Timestamp
    goal: str | None = None
    summary: str
    learnings: list[str] = Field(default_factory=list)
    tools: list[str] = Field(default_factory=list)
    relevance: Confidence
    derivation_kind: Literal["AgentConsolidation"] = "AgentConsolidation"


class PlanStep(Model):
    """One tool that a plan foresees."""

    tool: str
    rationale: str
    status: Literal["Pending", "Completed", "Failed", "Skipped"] = "Pending"


class ToolPlan(Model):
    """The steps towards a goal; `attempt` counts from 0 (M6)."""

    goal: str
    steps: list[PlanStep]
    attempt: int = 0
    status: Literal["Active", "Completed", "Failed", "Superseded"] = "Active"
    reason: str | None = None
    strategy: str = ""


class ShadowPattern(Model):
    """What the psyche will not do, or would rather not (M5)."""

    name: str
    danger: Danger | None = None
    triggers: list[str] = Field(default_factory=list)
    severity: Confidence = 1.0
    explanation: str = ""
    veto: bool = True


class Psyche(Model):
    """Leanings of the agent; they shift with what works (M13)."""

    weights: dict[Archetype, float] = Field(default_factory=lambda: dict(_WEIGHTS))
    shadow: list[ShadowPattern] = Field(default_factory=list)
    shadow_encounters: int = 0
    individuation: Confidence = 0.1
    rebalance_count: int = 0
    last_evolution_cycle: int = 0


class ToolDecision(Model):
    """What was decided in a cycle and what came of it: the provenance of the session (M5).

    `approval` is the id of what a person was asked for, if one was; `found` are the keywords of the
    goal's criteria that were found in this cycle for the first time.
    """

    cycle: int
    iteration: int | None = None
    goal: str
    tool: str
    params_digest: str
    breakdown: str
    progress: Progress | None = None
    found: list[str] = Field(default_factory=list)
    detail: str = ""
    approval: str | None = None
    at: Timestamp
    duration: float | None = None


class Question(Model):
    """A question to a person, and the answer if there is one."""

    id: str
    goal: str | None = None
    text: str = Field(min_length=1, max_length=2000)
    asked_at: Timestamp
    answer: str | None = None
    answered_by: str | None = None
    answered_at: Timestamp | None = None


class GoalSession(Model):
    """Everything that one session of an agent remembers, but the graph.

    Attributes:
        id: names it.
        version: of this shape.
        cycle: the last cycle that began.
        focus: the goals that come first whatever their priority, with all that they are split into.
        iteration: the iteration of the loop that it belongs to.
        at_work: the goal that it is for.
        applied: the last cycle whose outcome was taken in.
        made: how many goals were ever made; numbers them.
        memories: how many entries working memory ever had; numbers them.
        memory: working memory, the oldest first.
        episodes: the oldest first, at most as many as are kept.
        decisions: the last ones, the oldest first.
        proposed: the tool last chosen and the digest of its params, whatever hooks make of them.
        reflected: the cycle of the last reflection.
        consolidated: how many entries have become episodes.
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
    proposed: str = ""
    reflected: int = 0
    consolidated: int = 0
    created_at: Timestamp
    updated_at: Timestamp


class SessionSummary(Model):
    """A session in a list; `current` is the one that is worked in."""

    id: str
    current: bool = False
    cycle: int = 0
    goals: dict[str, int] = Field(default_factory=dict)
    episodes: int = 0
    created_at: Timestamp
    updated_at: Timestamp


class Roll(Model):
    """The sessions of an agent: the greatest number of one, and those that were left."""

    last: int = 1
    left: list[SessionSummary] = Field(default_factory=list)


class Config(Model):
    """How an agent with goals works; the seed's defaults (reference 1.13)."""

    working_memory_capacity: int = Field(default=100, gt=0)
    low_relevance: Confidence = 0.5
    auto_consolidate: bool = True
    consolidate_above: Confidence = 0.8
    consolidate_down_to: Confidence = 0.5
    min_relevance: Confidence = 0.5
    max_episodes: int = Field(default=500, gt=0)
    max_goals: int = Field(default=300, gt=0)
    max_decisions: int = Field(default=200, gt=0)
    max_cycles: int = Field(default=1000, gt=0)
    max_backtrack_attempts: int = Field(default=3, gt=0)
    stall_threshold: int = Field(default=5, gt=0)
    completion_ratio: Confidence = 0.5
    max_depth: int = Field(default=3, ge=0)
    max_children: int = Field(default=10, gt=1)
    reflect_every: int = Field(default=5, ge=0)
    min_tool_success_rate: Confidence = 0.3
    stagnation_threshold: int = Field(default=8, gt=0)
    lease: float = Field(default=300.0, gt=0)
