"""Responses of the HTTP API, as the command line reads them, and outcomes in words."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, get_args

from pydantic import Field

from boyd.models.action import ActionInfo, ActionResult
from boyd.models.actor import Scope
from boyd.models.approval import ApprovalItem
from boyd.models.base import LEVELS, JsonObject, Model, Timestamp
from boyd.models.decision import NO_OP
from boyd.models.effect import EffectVerification, Hold
from boyd.models.loop import DeclaredAgent, LoopResult, ObserverHealth, Phase
from boyd.models.rights import Verb
from boyd.models.run import RunStatus
from boyd.models.situation import OpenAnomaly

#: The outcome of an iteration in one word; `idle`: nothing was to be done.
OutcomeKind = Literal["idle", "acted", "waits", "prevented", "failed"]
#: Characters shown of an approval's id.
_SHORT = 8
_NO_REASON = "no reason given"


def outcome_kind(iteration: LoopResult | IterationSummary) -> OutcomeKind:
    """The outcome of an iteration; of several, the one that most needs a person."""
    results = results_of(iteration)
    if not iteration.success or any(map(_has_failed, results)):
        return "failed"
    if any(result.waits_for for result in results):
        return "waits"
    if any(result.prevented and not result.is_unneeded for result in results):
        return "prevented"
    return "idle" if all(result.is_unneeded for result in results) else "acted"


def outcome(
    iteration: LoopResult | IterationSummary, shorten: Callable[[str], str] = str.strip
) -> str:
    """The outcome of an iteration: its actions, or why it failed; *shorten* cuts reasons."""
    if not iteration.success:
        return shorten(iteration.error or _NO_REASON)
    results = results_of(iteration)
    if results:
        return "; ".join(action_outcome(result, shorten=shorten) for result in results)
    if isinstance(iteration, IterationSummary):
        return iteration.decision or NO_OP
    if iteration.decision is None:
        return ""
    trace = iteration.trace
    if trace is None or not iteration.decision.is_no_op:
        return iteration.decision.action
    if trace.vetoed:
        return f"{NO_OP}: {trace.vetoed.action or 'the action'} vetoed by {trace.vetoed.by}"
    return f"{NO_OP}: {trace.held[0].action} is not repeated" if trace.held else NO_OP


def action_outcome(
    result: ActionResult, title: str = "", shorten: Callable[[str], str] = str.strip
) -> str:
    """The outcome of an action; *title* replaces the action's name."""
    subject = title or result.action
    if result.success:
        return f"{subject} started" if result.procedure else f"{subject} ok"
    if result.waits_for:
        return f"{subject} sent for approval {result.waits_for[:_SHORT]}"
    verdict = {"unknown": "outcome unknown", "unneeded": "not executed"}.get(result.state, "failed")
    return f"{subject} {verdict}: {shorten(error_of(result) or _NO_REASON)}"


def error_of(result: ActionResult) -> str | None:
    """The error without the prefix that repeats the outcome."""
    return result.error and result.error.removeprefix("Outcome unknown: ")


def results_of(iteration: LoopResult | IterationSummary) -> list[ActionResult]:
    """The results of its actions."""
    return (
        iteration.results if isinstance(iteration, IterationSummary) else iteration.action_results
    )


def _has_failed(result: ActionResult) -> bool:
    return not (result.success or result.waits_for or result.prevented)


#: The conditions of an agent in order: the first one that applies is its condition. A retired
#: agent has no other; where nothing watches, all else is old.
ConditionName = Literal[
    "retired",
    "not watching",
    "waits for you",
    "made worse",
    "open incident",
    "at work",
    "paused",
    "quiet",
]
CONDITIONS: tuple[ConditionName, ...] = get_args(ConditionName)


class AgentCondition(Model):
    """The condition of an agent, the reason, and the command that helps, if there is one.

    `since` is the last observation of an agent that does not watch, the undoing of an action that
    made it worse, and else the beginning of the worst open anomaly, or without one the time when a
    procedure stopped. `approval` is the id of the approval that has to be answered first.
    """

    name: ConditionName
    reason: str = ""
    command: str = ""
    approval: str | None = None
    since: Timestamp | None = None


class AgentState(DeclaredAgent):
    """An agent and its state; `workers` counts the live ones.

    It ticks `loopOffset` seconds after whole multiples of `loopInterval`, also in seconds.
    `schedule` has cron expressions in `timezone`. `nextStart` is the time of the next iteration
    that starts by the clock. `obstacle` is the reason why it does not look: it lacks a worker, or a
    beat. `anomalies` has the worst of those that are open, and among equal ones begins with those
    about which something waits or was tried; `openAnomalies` counts all. `stoppedProcedures` counts
    those that wait until a person resumes or cancels them.
    """

    condition: AgentCondition
    anomalies: list[OpenAnomaly] = Field(default_factory=list)
    open_anomalies: int = 0

    next_start: Timestamp | None = None
    phase: Phase
    iteration: int
    paused: str | None = None
    frozen: str | None = None
    revoked: str | None = None
    pending_runs: int
    pending_approvals: int
    stopped_procedures: int = 0
    workers: int
    obstacle: str | None = None
    retired_at: Timestamp | None = None

    @property
    def urgency(self) -> tuple[int, int, float, str]:
        """A key to sort by, the agent that most needs a person first."""
        condition, worst = self.condition, self.anomalies[0] if self.anomalies else None
        rank = len(CONDITIONS) if self.retired_at is not None else CONDITIONS.index(condition.name)
        level = LEVELS.index(worst.severity) if worst else -1
        since = condition.since.timestamp() if condition.since else math.inf
        return rank, -level, since, self.id


class AnomalyList(Model):
    """The open anomalies of an agent, worst first."""

    anomalies: list[OpenAnomaly]


class AgentList(Model):
    """The agents that the key may access; `frozen` is the reason of a deployment-wide freeze."""

    agents: list[AgentState]
    frozen: str | None = None


class Identity(Model):
    """The agent's identity; `model` is its language model, if any."""

    id: str
    name: str
    model: str | None = None


class Capabilities(Model):
    """The ids of the agent's components."""

    observers: list[str]
    orienters: list[str]
    decision_strategies: list[str]
    actions: list[str]


class LoopHistory(Model):
    """The number of ended iterations, and the last one in full."""

    total_loops: int
    last_loop: LoopResult | None = None


class StateResponse(Model):
    """The agent at a glance."""

    agent: Identity
    capabilities: Capabilities
    history: LoopHistory


class ObserverState(ObserverHealth):
    """An observer and its health."""

    id: str


class ObserverList(Model):
    """All observers of the agent."""

    observers: list[ObserverState]


class WorkerInfo(Model):
    """The announcement of a process.

    `queues` has short names, `fingerprints` those of its agents by id, `problem` why it is ill,
    `brokers` the number of servers over which it spreads the messages of agents, `approvalKey` the
    fingerprint of the secret or key with which it checks approvals, `machine` digests of the boot
    and the system of its host, as `boot.system`, `clockSkew` the whole seconds by which the clock
    of Redis is ahead of its host's.
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
    brokers: int = 1
    approval_key: str | None = None
    machine: str | None = None
    clock_skew: float = 0.0


class WorkerList(Model):
    """Workers and beats with a recent heartbeat."""

    workers: list[WorkerInfo]


class TriggerResult(Model):
    """An iteration in numbers; `decision` is the action's id, `duration` in milliseconds."""

    observations: int
    situation: str | None = None
    decision: str | None = None
    action_results: int
    duration: float


class Triggered(Model):
    """The outcome of the iteration that a trigger started or joined."""

    success: bool
    status: Literal["completed", "failed", "triggered"]
    message: str | None = None
    result: TriggerResult | None = None
    error: str | None = None
    iteration: int
    context: str | None = None


class IterationSummary(Model):
    """A summary of a past iteration; `duration` is in milliseconds.

    `id` stays unique when numbers begin again. `results` are those of its actions, without their
    output.
    """

    id: str | None = None
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
    """Past iterations, newest first; `nextCursor` goes on from there, if there are more.

    `missing` says why older iterations are missing, if the archive does not answer.
    """

    iterations: list[IterationSummary]
    next_cursor: str | None = None
    missing: str | None = None


class Abandoned(Model):
    """An iteration that was abandoned, and why; it has failed."""

    success: Literal[True] = True
    agent_id: str
    iteration: int
    error: str


class Standing(Model):
    """The reasons why the agent is paused, frozen or revoked, if it is.

    `unreached` names it if its Redis server did not answer; it is told of the change afterwards.
    """

    success: Literal[True] = True
    agent_id: str
    paused: str | None = None
    frozen: str | None = None
    revoked: str | None = None
    unreached: list[str] | None = None


class StandingAll(Model):
    """The freeze of the deployment: its reason, or absent.

    `unreached` names agents whose Redis server did not answer; they are notified later.
    """

    success: Literal[True] = True
    frozen: str | None = None
    unreached: list[str] | None = None


class RevokedAgent(Model):
    """A revoked agent, with the numbers of withdrawn approvals and cancelled investigations."""

    success: Literal[True] = True
    agent_id: str
    revoked: str | None = None
    approvals: int
    investigations: int


class Retired(Model):
    """A retired agent, with the numbers of withdrawn approvals and cancelled runs."""

    success: Literal[True] = True
    agent_id: str
    approvals: int
    runs: int


class Resolved(Model):
    """The result of answering an approval; `result` is the action's, if it has ended."""

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
    """The callback is about to be sent again."""

    success: Literal[True] = True
    id: str


class ActionList(Model):
    """The agent's actions."""

    actions: list[ActionInfo]


class Taken(Model):
    """The outcome of an action: a result, an approval that it waits for, or neither yet."""

    success: bool
    result: ActionResult | None = None
    queued: bool | None = None
    approval_id: str | None = None
    execution_id: str


class Execution(Model):
    """An execution and its state; `waiting`: for the approval `approvalId`.

    `succeeded` means that its call returned; `verification` tells whether it had its effect, and
    `progress` where a procedure stands. `countedIn` is the class of situation in whose track record
    it counts. While it is queued, `inFlight` are the executions that have to end first.
    """

    id: str
    state: Literal["queued", "running", "waiting", "succeeded", "failed", "unknown", "unneeded"]
    action: str
    params: JsonObject
    by: str | None = None
    host: str | None = None
    worker: str | None = None
    started_at: Timestamp | None = None
    ended_at: Timestamp | None = None
    approval_id: str | None = None
    result: ActionResult | None = None
    verification: EffectVerification | None = None
    counted_in: str | None = None
    progress: str | None = None
    in_flight: list[Hold] = Field(default_factory=list)


class LiftedHold(Model):
    """A hold that was lifted."""

    action: str
    target: str


class RevokedAutonomy(Model):
    """The grants of an action that were revoked."""

    action: str
    revoked: int


class KeyInfo(Model):
    """An API key without its secret."""

    id: str
    name: str
    principal: str
    person: bool
    scopes: list[Scope]
    groups: list[str]
    agents: list[str]
    may: list[str] = Field(default_factory=list)
    created_at: Timestamp
    created_by: str
    expires_at: Timestamp | None = None


class NewKey(KeyInfo):
    """A new API key; `key` is its text, which is shown only once."""

    key: str | None = None


class KeyList(Model):
    """All keys, oldest first."""

    keys: list[KeyInfo]


class AccessStep(Model):
    """A check of one identity, whether it passes, and the reason."""

    passed: bool
    reason: str


class IdentityAccess(Model):
    """The checks of a key or of a signed-in person, in order; all have to pass."""

    identity: str
    allowed: bool
    steps: list[AccessStep]


class AccessAnswer(Model):
    """The answer to who may do something: allowed with at least one of the identities."""

    principal: str
    verb: Verb
    action: str
    target: str | None = None
    allowed: bool
    identities: list[IdentityAccess]


class Revoked(Model):
    """A revoked API key."""

    success: Literal[True] = True
    id: str


class LoginLink(Model):
    """A one-time link to the console; `path` follows the address of the API.

    A repeated request shows no `path`.
    """

    path: str | None = None
    expires_at: Timestamp
