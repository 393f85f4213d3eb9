"""Outcomes of iterations and actions in words, for the command line and the console."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from boyd.models import NO_OP, ActionResult, LoopResult
from boyd.models.responses import IterationSummary

#: The outcome of an iteration in one word; `idle`: nothing was to be done.
OutcomeKind = Literal["idle", "acted", "waits", "prevented", "failed"]
#: Characters shown of an approval's id.
_SHORT = 8
_NO_REASON = "no reason given"


def outcome_kind(ended: LoopResult | IterationSummary) -> OutcomeKind:
    """The outcome of an iteration; of several, the one that most needs a person."""
    results = results_of(ended)
    if not ended.success or any(_failed(one) for one in results):
        return "failed"
    if any(one.waits_for for one in results):
        return "waits"
    if any(one.prevented for one in results):
        return "prevented"
    return "acted" if results else "idle"


def outcome(ended: LoopResult | IterationSummary, shorten: Callable[[str], str] = str.strip) -> str:
    """The outcome of an iteration: its actions, or why it failed; *shorten* cuts reasons."""
    if not ended.success:
        return shorten(ended.error or _NO_REASON)
    results = results_of(ended)
    if results:
        return "; ".join(action_outcome(one, shorten=shorten) for one in results)
    if isinstance(ended, IterationSummary):
        return ended.decision or NO_OP
    if ended.decision is None:
        return ""
    vetoed = ended.trace.vetoed if ended.trace else None
    if vetoed is None or not ended.decision.is_no_op:
        return ended.decision.action
    return f"{NO_OP}: {vetoed.action or 'the action'} vetoed by {vetoed.by}"


def action_outcome(
    result: ActionResult, title: str = "", shorten: Callable[[str], str] = str.strip
) -> str:
    """The outcome of an action; *title* replaces the action's name."""
    what = title or result.action
    if result.success:
        return f"{what} started" if result.procedure else f"{what} ok"
    if result.waits_for:
        return f"{what} waits for approval {result.waits_for[:_SHORT]}"
    how = "outcome unknown" if result.unknown else "failed"
    return f"{what} {how}: {shorten(error_of(result) or _NO_REASON)}"


def error_of(result: ActionResult) -> str | None:
    """The error without the prefix that repeats the outcome."""
    return result.error and result.error.removeprefix("Outcome unknown: ")


def results_of(ended: LoopResult | IterationSummary) -> list[ActionResult]:
    """The results of its actions."""
    return ended.results if isinstance(ended, IterationSummary) else ended.action_results


def _failed(result: ActionResult) -> bool:
    return not (result.success or result.waits_for or result.prevented)
