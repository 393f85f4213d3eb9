"""Counts of what an agent and its model have done, each declared once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, get_args

from boyd.health.agent_replies import AgentQuestion, AgentReplies, FieldSource, hash_counts
from boyd.health.declaration import HealthMetric, counter_by, declare, health_fields
from boyd.models import EffectName
from boyd.models.investigation import Ending, ModelTotals, RequestOutcome
from boyd.store.audit_trail import COUNTED
from boyd.store.model_usage import LONGEST, read_totals

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
