"""The orient phase: orienters assess all observations; their assessments are merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pydantic import ValidationError

from boyd.models import (
    Change,
    Observation,
    Problem,
    Situation,
    SituationAssessment,
    explain,
    mean_confidence,
)
from boyd.phases import time_limit
from boyd.phases.phase_context import PhaseContext
from boyd.plugin import Orienter
from boyd.plugin.plugin_boundary import contain, unchecked
from boyd.text.formatting import message_of


def orient(ctx: PhaseContext, observations: list[Observation]) -> Situation:
    """Assess *observations* as a situation."""
    situation = _assess(ctx, observations)
    for hook in ctx.host.hooks("on_orient"):
        changes = ctx.hook(hook, situation=situation, observations=observations)
        try:
            if changes is not None and contain(partial(bool, changes)):
                changed = situation.patched(fields(changes))
                ctx.changes.append(Change.of(hook.plugin_id, changes, situation, changed))
                situation = changed
        except Exception as error:  # noqa: BLE001 - also of a value that is neither true nor false
            ctx.report_hook(hook, reason_of(error))
    return situation


def blind_plugins(ctx: PhaseContext, observer_errors: Sequence[Problem]) -> set[str]:
    """The plugins that could not look in this iteration: what they do not see may still be there.

    An observer or orienter of theirs failed or was not due; plugins without observers depend on
    those of all others.
    """
    observers, orienters = ctx.host.observers, ctx.host.orienters
    failures = {problem.id for problem in (*ctx.problems, *observer_errors)}
    absent = failures | {late.id for late in ctx.not_due}
    blind = {id.partition(":")[0] for id in absent if id in observers or id in orienters}
    if not absent.isdisjoint(observers):
        watching = {observer.plugin_id for observer in observers.values()}
        blind |= {orienter.plugin_id for orienter in orienters.values()} - watching
    return blind


def _assess(ctx: PhaseContext, observations: list[Observation]) -> Situation:
    """The assessments of all orienters; those that read the situation run last and come first."""
    orienters = list(ctx.host.orienters.values())
    concluding = [orienter for orienter in orienters if orienter.takes("orient", "situation")]
    others = [orienter for orienter in orienters if orienter not in concluding]
    assessments = _call_all(ctx, others, observations, Situation())
    if not concluding:
        return merge(assessments)
    conclusions = _call_all(ctx, concluding, observations, merge(assessments))
    return merge([*conclusions, *assessments])


def _call_all(
    ctx: PhaseContext,
    orienters: Sequence[Orienter],
    observations: list[Observation],
    situation: Situation,
) -> list[SituationAssessment]:
    calls = [
        time_limit.TimedCall(_assessing(ctx, orienter, observations, situation), orienter.timeout)
        for orienter in orienters
    ]
    assessments = []
    for orienter, outcome in zip(orienters, ctx.call_all(calls), strict=True):
        if outcome.error is None:
            assessments.append(outcome.value)
        else:
            ctx.report(orienter.id, outcome.error, outcome.duration)
    return assessments


def _assessing(
    ctx: PhaseContext, orienter: Orienter, observations: list[Observation], situation: Situation
) -> Callable[[], SituationAssessment]:
    def assess() -> SituationAssessment:
        context = ctx.context(orienter.plugin_id, orienter.id)
        assessment = orienter.call(
            "orient", observations=observations, situation=situation, ctx=context
        )
        if assessment is None:
            raise ValueError("returned no assessment")
        try:
            return SituationAssessment.model_validate(unchecked(assessment))
        except ValidationError as error:
            raise ValueError(f"returned an invalid assessment: {explain(error)}") from None

    return assess


def merge(assessments: Sequence[SituationAssessment]) -> Situation:
    """Merge assessments to one situation."""
    if not assessments:
        return Situation()
    return Situation(
        summary=" | ".join("; ".join(a.findings) for a in assessments if a.findings),
        assessments=list(assessments),
        anomalies=[item for a in assessments for item in a.anomalies or ()],
        correlations=[item for a in assessments for item in a.correlations or ()],
        confidence=mean_confidence(assessments),
    )


def fields(changes: Any) -> Mapping[str, Any]:
    """The changes that a hook returned, to be validated.

    Raises:
        TypeError: they are not a mapping.
        ValueError: they nest too deeply.
    """
    if not isinstance(changes, Mapping):
        raise TypeError(f"must return a mapping of fields, not {type(changes).__name__}")
    return {name: unchecked(value) for name, value in changes.items()}


def reason_of(error: Exception) -> str:
    """The mistake in what a plugin returned, in one line."""
    return explain(error) if isinstance(error, ValidationError) else message_of(error)
