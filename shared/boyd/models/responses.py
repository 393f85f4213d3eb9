"""What the HTTP API answers, where that is no model of its own; see docs/api.md.

The API writes them and the command line reads them: there is one of each.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from boyd.models.action import ActionInfo, ActionResult
from boyd.models.actor import Scope
from boyd.models.approval import ApprovalItem
from boyd.models.base import JsonObject, Model, Timestamp
from boyd.models.loop import LoopResult, Mode, ObserverHealth, Phase
from boyd.models.run import RunStatus


class AgentState(Model):
    """An agent and how it stands; `workers` counts the live ones, `loopInterval` is in seconds."""

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
    retired_at: Timestamp | None = None


class AgentList(Model):
    """The agents that the key may see; `frozen` says why acting is frozen everywhere, if it is."""

    agents: list[AgentState]
    frozen: str | None = None


class Identity(Model):
    """Who the agent is; `model` is that of its language model, if it has one."""

    id: str
    name: str
    model: str | None = None


class Capabilities(Model):
    """The ids of the agent's parts."""

    observers: list[str]
    orienters: list[str]
    decision_strategies: list[str]
    actions: list[str]


class LoopHistory(Model):
    """How many iterations have ended, and the last one in full."""

    total_loops: int
    last_loop: LoopResult | None = None


class StateResponse(Model):
    """The agent at a glance."""

    agent: Identity
    capabilities: Capabilities
    history: LoopHistory


class ObserverState(ObserverHealth):
    """An observer and how it has been doing."""

    id: str


class ObserverList(Model):
    """All observers of the agent."""

    observers: list[ObserverState]


class WorkerInfo(Model):
    """A process as it announces itself.

    `queues` are short names, `fingerprints` those of its agents by id, `problem` what ails it.
    """

    name: str
    role: Literal["worker", "beat"]
    host: str
    pid: int
    queues: list[str]
    agents: list[str]
    version: str
    started_at: Timestamp
    fingerprints: dict[str, str] = Field(default_factory=dict)
    last_beat: Timestamp | None = None
    problem: str | None = None


class WorkerList(Model):
    """Workers and beats that have said within the last seconds that they live."""

    workers: list[WorkerInfo]


class TriggerResult(Model):
    """An iteration in numbers; `decision` is the action's id, `duration` in milliseconds."""

    observations: int
    situation: str | None = None
    decision: str | None = None
    action_results: int
    duration: float


class Triggered(Model):
    """What became of a trigger: of the iteration that it started, or joined."""

    success: bool
    status: Literal["completed", "failed", "triggered"]
    message: str | None = None
    result: TriggerResult | None = None
    error: str | None = None
    iteration: int
    context: str | None = None


class IterationSummary(Model):
    """A past iteration in a few words; `duration` is in milliseconds.

    `results` are those of its actions, without what they have put out.
    """

    iteration: int
    trigger: str
    success: bool
    error: str | None = None
    situation: str | None = None
    decision: str | None = None
    observations: int
    action_results: int
    results: list[ActionResult] = Field(default_factory=list)
    runs: list[str]
    started_at: Timestamp
    ended_at: Timestamp
    duration: float


class IterationList(Model):
    """Past iterations, newest first; `nextCursor` goes on from there, if there are more."""

    iterations: list[IterationSummary]
    next_cursor: str | None = None


class Abandoned(Model):
    """An iteration that was abandoned, and why; it has failed."""

    success: Literal[True] = True
    agent_id: str
    iteration: int
    error: str


class Standing(Model):
    """How the agent stands now; the reason is there when it is so."""

    success: Literal[True] = True
    agent_id: str
    paused: str | None = None
    frozen: str | None = None


class StandingAll(Model):
    """How the deployment stands now."""

    success: Literal[True] = True
    frozen: str | None = None


class Retired(Model):
    """An agent that was taken out of service: what was withdrawn and cancelled with it."""

    success: Literal[True] = True
    agent_id: str
    approvals: int
    runs: int


class Resolved(Model):
    """What an answer led to; `result` is what the action did, if it has ended."""

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
    """The callback is sent again soon."""

    success: Literal[True] = True
    id: str


class ActionList(Model):
    """What the agent can do."""

    actions: list[ActionInfo]


class Taken(Model):
    """What became of an action: a result, an approval that it waits for, or neither yet.

    `earlier`: it had been undone before, and nothing was done now.
    """

    success: bool
    result: ActionResult | None = None
    queued: bool | None = None
    approval_id: str | None = None
    execution_id: str
    earlier: bool | None = None


class Execution(Model):
    """An execution and how far it is; `waiting` for the approval that `approvalId` names."""

    id: str
    state: Literal["queued", "running", "waiting", "succeeded", "failed", "unknown"]
    action: str
    params: JsonObject
    by: str | None = None
    host: str | None = None
    worker: str | None = None
    started_at: Timestamp | None = None
    ended_at: Timestamp | None = None
    approval_id: str | None = None
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
    """A key that was made; `key` is its text, which is told this once."""

    key: str | None = None


class KeyList(Model):
    """All keys, oldest first."""

    keys: list[KeyInfo]


class Revoked(Model):
    """The key is of no use any more."""

    success: Literal[True] = True
    id: str
