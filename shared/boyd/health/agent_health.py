"""The fields of an agent's health, each declared once.

Times are seconds since the epoch on the Redis server's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from boyd.health.agent_replies import (
    APPROVAL,
    DUE,
    FLIGHT,
    HOLDS,
    LAST,
    NEXT_APPROVAL,
    OBSERVED,
    OBSERVERS,
    OLDEST_RUN,
    STOPPED,
    WAITING,
    AgentQuestion,
    AgentReplies,
    FieldSource,
    InFlightIteration,
    LastIteration,
    StoppedProcedure,
    WaitingApproval,
    WaitingWork,
    answer,
    hash_counts,
    hash_field,
    oldest_by_queue,
    seconds,
)
from boyd.health.declaration import (
    HealthMetric,
    counter,
    counter_by,
    declare,
    gauge,
    group,
    health_fields,
    is_set,
    leaves,
    seconds_since,
    seconds_until,
)
from boyd.models import (
    LEVELS,
    ActionInfo,
    EffectName,
    EndpointInfo,
    Hold,
    ObserverHealth,
    OpenAnomaly,
)
from boyd.models.investigation import Ending, ModelTotals, RequestOutcome
from boyd.store.approvals import NO_DEADLINE
from boyd.store.audit_trail import COUNTED
from boyd.store.fleet import AgentEntry
from boyd.store.freezes import first_reason, reason_in, revocation_of, scopes_of
from boyd.store.in_flight import calls_in
from boyd.store.iterations import read_anomalies
from boyd.store.model_usage import LONGEST, read_totals
from boyd.store.server.connection import read_int

#: The field with the version of the format, and the hashes that have it.
_FORMAT, _FORMATTED = "formatVersion", ("loop", "iteration")


def _first_time(members: Sequence[tuple[str, float]]) -> float | None:
    """The score of the first member, a time in milliseconds, as seconds."""
    return members[0][1] / 1000 if members else None


@health_fields
class Progress:
    """The iterations of an agent."""

    iterations: int = declare(
        "Iterations started.",
        hash_field("loop", "iteration", lambda text: read_int(text) or 0),
        counter("boyd_agent_iterations"),
    )
    ended: dict[str, int] = declare(
        "Iterations ended, by outcome.",
        hash_counts("loop", "ended", ("completed", "failed")),
        counter_by("outcome", "boyd_agent_iterations_ended"),
    )
    last: LastIteration | None = declare(
        "The last iteration that ended.",
        LAST,
        gauge(
            "boyd_agent_last_iteration_timestamp_seconds",
            "End of the last iteration.",
            lambda last, _: last and last.at,
        ),
        gauge(
            "boyd_agent_last_iteration_success",
            "1 if the last iteration succeeded.",
            lambda last, _: last and last.success,
        ),
    )
    observed: float | None = declare(
        "Start of the last iteration, when it observed.",
        OBSERVED,
        gauge("boyd_agent_last_observed_timestamp_seconds"),
    )
    flight: InFlightIteration | None = declare("The iteration in flight.", FLIGHT)
    flight_since: float | None = declare(
        "Start of the iteration in flight.",
        hash_field("iteration", "startedAt", seconds),
        gauge(
            "boyd_agent_in_flight_seconds",
            "Age of the iteration in flight; 0: none.",
            seconds_since,
        ),
    )
    phase: str = declare(
        "The phase in flight, or `idle`.",
        hash_field("iteration", "phase", lambda text: text or "idle"),
    )
    phase_since: float | None = declare(
        "Start of the phase in flight.",
        hash_field("iteration", "phaseAt", seconds),
        gauge("boyd_agent_phase_seconds", "Age of the phase in flight; 0: none.", seconds_since),
    )
    worker: str | None = declare(
        "The worker that entered the phase.",
        hash_field("iteration", "entered", lambda text: text.partition("/")[0] if text else None),
    )
    deadline: float | None = declare(
        "The earliest deadline among the due members.",
        FieldSource(lambda it: _first_time(it.reply(DUE)), questions=(DUE,)),
    )


@health_fields
class BeatHealth:
    """The last work of beat and sweepers for an agent."""

    slot: float | None = declare(
        "Start of the slot of the last tick of beat.",
        hash_field("loop", "slot", seconds),
        gauge("boyd_agent_last_tick_timestamp_seconds"),
    )
    scheduled: float | None = declare(
        "The last start by the schedule.", hash_field("loop", "scheduled", seconds)
    )
    swept_at: float | None = declare("The last sweep.", hash_field("loop", "sweptAt", seconds))


@health_fields
class Backlog:
    """The work that waits for an agent or for a person."""

    waiting: tuple[WaitingWork, ...] = declare(
        "Steps that no worker has taken.",
        WAITING,
        HealthMetric(
            "boyd_queue_oldest_seconds",
            "Age of the oldest step that waits for a worker.",
            lambda steps, now: [
                ((queue,), seconds_since(since, now))
                for queue, since in oldest_by_queue(steps).items()
            ],
            ("queue",),
        ),
    )
    intake: int = declare(
        "Observations from the intake that wait for an iteration.",
        answer("intake", lambda pipe, key, _: pipe.llen(key)),
        gauge("boyd_intake_waiting"),
    )
    runs: int = declare(
        "Pending runs.",
        answer("runs_pending", lambda pipe, key, _: pipe.zcard(key)),
        gauge("boyd_runs_pending"),
    )
    oldest_run: float | None = declare(
        "The time when the oldest pending run was submitted.",
        OLDEST_RUN,
        gauge("boyd_runs_oldest_seconds", "Age of the oldest pending run; 0: none.", seconds_since),
    )
    approvals: int = declare(
        "Pending approvals.",
        answer("approvals_pending", lambda pipe, key, _: pipe.zcard(key)),
        gauge("boyd_approvals_pending"),
    )
    expired: int = declare(
        "Pending approvals past their deadline.",
        answer("approvals_pending", lambda pipe, key, it: pipe.zcount(key, "-inf", it.now * 1000)),
    )
    next_deadline: float | None = declare(
        "The deadline of the approval that expires next.",
        FieldSource(
            lambda it: _first_time([m for m in it.reply(NEXT_APPROVAL) if m[1] < NO_DEADLINE]),
            questions=(NEXT_APPROVAL,),
        ),
        gauge(
            "boyd_approvals_next_deadline_seconds",
            "Time until the next approval expires; below 0: it is overdue.",
            seconds_until,
        ),
    )
    next_approval: WaitingApproval | None = declare("The approval that expires next.", APPROVAL)
    stopped: int = declare(
        "Procedures that are stopped until a person resumes or cancels them.",
        answer("procedures_stopped", lambda pipe, key, _: pipe.zcard(key)),
        gauge("boyd_procedures_stopped"),
    )
    first_stopped: StoppedProcedure | None = declare(
        "The one that has been stopped for the longest time.", STOPPED
    )


@health_fields
class Stops:
    """Measures that keep an agent, or some of its actions, from working."""

    paused: str | None = declare(
        "The reason of its pause.",
        hash_field("loop", "paused"),
        gauge("boyd_agent_paused", "1 if it is paused.", is_set),
    )
    resumed_at: float | None = declare(
        "The last time when it was resumed.", hash_field("loop", "resumedAt", seconds)
    )
    frozen: str | None = declare(
        "The reason of its freeze or the deployment's.",
        FieldSource(
            lambda it: first_reason([it.freezes.get(scope) for scope in scopes_of(it.entry.id)])
        ),
        gauge("boyd_agent_frozen", "1 if its actions are frozen.", is_set),
    )
    revoked: str | None = declare(
        "The reason why its right to act is revoked.",
        FieldSource(lambda it: reason_in(it.freezes.get(revocation_of(it.entry.id)))),
        gauge("boyd_agent_revoked", "1 if its right to act is revoked.", is_set),
    )
    suspended: int = declare(
        "Actions that are suspended on a target because they did harm.",
        answer("held_actions", lambda pipe, key, _: pipe.zcount(key, "+inf", "+inf")),
        gauge("boyd_actions_suspended"),
    )


@health_fields
class AgentTrouble:
    """The state of the world, as the agent saw it last, and what its actions did about it."""

    anomalies: tuple[OpenAnomaly, ...] = declare(
        "The open anomalies, worst first.",
        answer("symptoms", lambda pipe, key, _: pipe.get(key), read_anomalies),
        HealthMetric(
            "boyd_anomalies_open",
            "Open anomalies.",
            lambda anomalies, _: [
                ((level,), sum(it.severity == level for it in anomalies)) for level in LEVELS
            ],
            ("severity",),
        ),
    )
    holds: tuple[Hold, ...] = declare("The held actions, the longest holds first.", HOLDS)
    in_flight: tuple[tuple[str, str], ...] = declare(
        "Actions on a target that are queued, running or being verified.",
        answer("in_flight", lambda pipe, key, _: pipe.hgetall(key), calls_in),
        gauge("boyd_actions_in_flight", number=lambda calls, _: len(calls)),
    )


@health_fields
class StoredState:
    """The state of an agent as Redis keeps it."""

    events_lost: float | None = declare(
        "The last time when an event could not be written.",
        hash_field("loop", "eventsLostAt", seconds),
    )
    events_error: str = declare(
        "The error of that event.", hash_field("loop", "eventsLostWhy", lambda text: text or "")
    )
    format: int = declare(
        "The newest format version of its state and its iteration in flight.",
        FieldSource(
            lambda it: max(read_int(it.hash_field(key, _FORMAT)) or 1 for key in _FORMATTED),
            tuple((key, _FORMAT) for key in _FORMATTED),
        ),
    )


_USAGE = AgentQuestion("usage", lambda pipe, key, _: pipe.hgetall(key))


def _model_totals(replies: AgentReplies) -> ModelTotals:
    """The totals, counted from 0 on: to Prometheus, a counter that starts at 1 has not grown."""
    totals = read_totals(replies.reply(_USAGE))
    if replies.entry.model is None:
        return totals
    model = replies.entry.model[:LONGEST]
    return replace(
        totals,
        tokens={(model, "input"): 0, (model, "output"): 0} | totals.tokens,
        requests={(model, outcome): 0 for outcome in get_args(RequestOutcome)} | totals.requests,
        cost={model: 0.0} | totals.cost,
        ended=dict.fromkeys(get_args(Ending), 0) | totals.ended,
    )


def _model_counter(
    name: str,
    help: str,
    labels: tuple[str, ...],
    counts: Callable[[ModelTotals], Mapping[Any, float]],
) -> HealthMetric:
    """A counter of a model, by labels that are the keys of its *counts*."""
    return HealthMetric(
        name,
        help,
        lambda totals, _: [
            (key if isinstance(key, tuple) else (key,), count)
            for key, count in counts(totals).items()
        ],
        labels,
        counts=True,
    )


@health_fields
class Totals:
    """Counts since an agent was created."""

    audited: dict[str, int] = declare(
        "Sealed entries of the audit trail, by kind.",
        hash_counts("audit_head", "of", COUNTED),
        counter_by(
            "status", "boyd_approvals_resolved", "Approvals resolved, by status.", "approval."
        ),
        counter_by(
            "state", "boyd_actions_ended", "Executions of actions ended, by state.", "action."
        ),
    )
    notified: dict[str, int] = declare(
        "Notifications of approvals, by how they ended.",
        hash_counts("loop", "notified", ("succeeded", "failed", "skipped")),
        counter_by("state", "boyd_notifications"),
    )
    verdicts: dict[str, int] = declare(
        "Executions that were verified, by what they achieved.",
        hash_counts("loop", "verdict", get_args(EffectName)),
        counter_by("verdict", "boyd_verdicts"),
    )
    autonomy: dict[str, int] = declare(
        "Grants to run alone, by whether they were given or taken away.",
        hash_counts("loop", "autonomy", ("granted", "withdrawn", "revoked")),
        counter_by("change", "boyd_autonomy_changes"),
    )
    procedures: dict[str, int] = declare(
        "Procedures that stopped for a person, went back, or ended, by state.",
        hash_counts(
            "loop", "procedure", ("stopped", "compensating", "succeeded", "failed", "cancelled")
        ),
        counter_by("state", "boyd_procedures"),
    )
    model: ModelTotals = declare(
        "Totals of its model.",
        FieldSource(_model_totals, questions=(_USAGE,)),
        _model_counter(
            "boyd_model_tokens",
            "Tokens sent to and received from models.",
            ("model", "kind"),
            lambda totals: totals.tokens,
        ),
        _model_counter(
            "boyd_model_requests",
            "Requests to models, by outcome.",
            ("model", "outcome"),
            lambda totals: totals.requests,
        ),
        _model_counter(
            "boyd_model_cost",
            "Cost of tokens, in the currency of `llm.prices`.",
            ("model",),
            lambda totals: totals.cost,
        ),
        _model_counter(
            "boyd_investigations_ended",
            "Investigations ended, by outcome.",
            ("ending",),
            lambda totals: totals.ended,
        ),
    )


@health_fields
class AgentHealth:
    """The health of one agent."""

    entry: AgentEntry = declare(
        "The agent as its workers announce it.",
        FieldSource(lambda it: it.entry),
        gauge(
            "boyd_agent_interval_seconds",
            "Interval of the ticks of a continuous agent.",
            lambda entry, _: entry.loop_interval if entry.mode == "continuous" else None,
        ),
    )
    progress: Progress = group(Progress)
    beat: BeatHealth = group(BeatHealth)
    backlog: Backlog = group(Backlog)
    stops: Stops = group(Stops)
    trouble: AgentTrouble = group(AgentTrouble)
    state: StoredState = group(StoredState)
    totals: Totals = group(Totals)
    observers: dict[str, ObserverHealth] = declare(
        "The health of its observers.",
        OBSERVERS,
        HealthMetric(
            "boyd_observer_failures",
            "Consecutive failures.",
            lambda observers, _: [((name,), it.failures) for name, it in observers.items()],
            ("observer",),
        ),
        HealthMetric(
            "boyd_observer_last_success_timestamp_seconds",
            "Time of the last success.",
            lambda observers, _: [
                ((name,), it.last_success_at.timestamp() if it.last_success_at else None)
                for name, it in observers.items()
            ],
            ("observer",),
        ),
    )

    @property
    def parts_by_queue(self) -> dict[str, list[str]]:
        """The ids of its actions and endpoints, by the queue they name."""
        ids: dict[str, list[str]] = {}
        catalog = self.entry.catalog
        parts: list[ActionInfo | EndpointInfo] = [*catalog.actions, *catalog.endpoints]
        for part in parts:
            if part.queue:
                ids.setdefault(part.queue, []).append(part.id)
        return ids

    @property
    def oldest(self) -> dict[str, float]:
        """The time since which the oldest step has been waiting, by queue."""
        return oldest_by_queue(self.backlog.waiting)


#: The sources of all fields.
SOURCES: tuple[FieldSource, ...] = tuple(it.source for _, it in leaves(AgentHealth))
