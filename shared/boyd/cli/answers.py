"""What the HTTP API answers, where that is no model of its own; see docs/api.md."""

from __future__ import annotations

from typing import Literal

from boyd.models import (
    ActionInfo,
    ActionResult,
    ApprovalItem,
    LoopResult,
    Mode,
    Model,
    ObserverHealth,
    Phase,
    RunStatus,
    Scope,
    Timestamp,
)


class AgentState(Model):
    """An agent and how it stands; `workers` counts the live ones."""

    id: str
    name: str
    mode: Mode
    loop_interval: float
    plugins: list[str]
    phase: Phase
    iteration: int
    paused: str | None = None
    frozen: str | None = None
    pending_runs: int
    pending_approvals: int
    workers: int


class AgentList(Model):
    """The agents that the key may see; `frozen`: why acting is frozen everywhere."""

    agents: list[AgentState]
    frozen: str | None = None


class Past(Model):
    """The last iteration."""

    total_loops: int
    last_loop: LoopResult | None = None


class State(Model):
    """The agent at a glance."""

    history: Past


class ObserverState(ObserverHealth):
    """An observer and how it does."""

    id: str


class ObserverList(Model):
    """All observers of an agent."""

    observers: list[ObserverState]


class Worker(Model):
    """A process that lives."""

    name: str
    role: Literal["worker", "beat"]
    host: str
    pid: int
    queues: list[str]
    agents: list[str]
    version: str
    started_at: Timestamp
    last_beat: Timestamp | None = None
    problem: str | None = None


class WorkerList(Model):
    """The processes that live."""

    workers: list[Worker]


class Triggered(Model):
    """What became of a trigger."""

    success: bool
    status: Literal["completed", "failed", "triggered"]
    message: str | None = None
    error: str | None = None
    iteration: int
    context: str | None = None


class IterationSummary(Model):
    """A past iteration in a few words; `duration` is in milliseconds."""

    iteration: int
    trigger: str
    success: bool
    error: str | None = None
    situation: str | None = None
    decision: str | None = None
    observations: int
    action_results: int
    runs: list[str]
    started_at: Timestamp
    ended_at: Timestamp
    duration: float


class IterationList(Model):
    """Past iterations, newest first."""

    iterations: list[IterationSummary]
    next_cursor: str | None = None


class Steered(Model):
    """How an agent stands now."""

    agent_id: str
    paused: str | None = None
    frozen: str | None = None


class SteeredAll(Model):
    """How the deployment stands now."""

    frozen: str | None = None


class Resolved(Model):
    """What an answer to an approval led to."""

    success: bool
    approval: ApprovalItem
    result: ActionResult | None = None


class RunCreated(Model):
    """A run that was accepted."""

    id: str
    status: RunStatus
    created_at: Timestamp


class RunCancelled(Model):
    """A run that was cancelled."""

    id: str
    status: RunStatus
    updated_at: Timestamp


class Redelivering(Model):
    """The callback of a run is sent again soon."""

    id: str


class ActionList(Model):
    """What an agent can do."""

    actions: list[ActionInfo]


class Taken(Model):
    """What became of an action: a result, an approval that it waits for, or neither yet."""

    success: bool
    result: ActionResult | None = None
    queued: bool | None = None
    approval_id: str | None = None
    execution_id: str


class Execution(Model):
    """An execution and how far it is."""

    id: str
    state: Literal["queued", "running", "succeeded", "failed", "unknown"]
    action: str
    worker: str | None = None
    result: ActionResult | None = None


class KeyInfo(Model):
    """A key without what would let anybody use it."""

    id: str
    name: str
    principal: str
    person: bool
    scopes: list[Scope]
    groups: list[str]
    agents: list[str]
    created_at: Timestamp
    created_by: str
    expires_at: Timestamp | None = None


class NewKey(KeyInfo):
    """A key that was made, with its text, which is told once."""

    key: str | None = None


class KeyList(Model):
    """All keys."""

    keys: list[KeyInfo]


class Revoked(Model):
    """A key that is of no use any more."""

    id: str
