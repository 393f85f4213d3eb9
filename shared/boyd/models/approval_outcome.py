"""The outcome of an approval in words, and the stages of which people are notified on the way."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from boyd import naming
from boyd.models.action import ActionResult, JobExecution
from boyd.models.approval import ApprovalItem
from boyd.models.effect import Compensation, EffectVerification
from boyd.models.notification import NotificationStage

_BY_HAND = "Check by hand."
#: How much later than its time a check may come.
_GRACE = timedelta(minutes=1)
#: What `lose_claim` and refusals put before the reason.
_PREFIXES = ("Outcome unknown: ", "Not executed: ", "Refused: ")
_ENDED = ("succeeded", "failed", "unknown", "unneeded")


class ApprovalResult(NamedTuple):
    """The outcome of an approval so far: a few words, and one line of detail, if there is one."""

    words: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.words}: {self.detail}" if self.detail else self.words


class Occasion(NamedTuple):
    """A stage, and the number of the acknowledgement that it is about, else 1."""

    stage: NotificationStage
    number: int = 1


def describe_outcome(item: ApprovalItem) -> ApprovalResult | None:
    """Describe the outcome of *item*, with its `effect` if it has one; None while it waits."""
    by = f" by {item.acted_by}" if item.acted_by else ""
    if item.status == "pending":
        return None
    if item.status == "expired":
        return ApprovalResult("Expired without an answer")
    if item.status != "approved":
        return ApprovalResult(f"{item.status.capitalize()}{by}")
    if not has_executed(item):
        return ApprovalResult(f"Approved{by}", _progress(item.execution))
    if item.effect is not None and item.effect.verdict is not None:
        return _describe_effect(item, item.effect)
    return _describe_execution(item)


def has_executed(item: ApprovalItem) -> bool:
    """Check whether its execution has ended, also the procedure that it started."""
    if item.status != "approved":
        return False
    if item.result is not None and item.result.procedure is not None:
        return False
    return item.result is not None or (
        item.execution is not None and item.execution.state in _ENDED
    )


def current_stages(item: ApprovalItem, now: datetime) -> Iterator[Occasion]:
    """The stages of which people are to be notified now, unless they have been."""
    if item.status != "pending":
        yield Occasion(_stage_after_answer(item, now))
        return
    latest, half = item.acknowledgement, _half_time(item)
    end = latest.end(now) if latest is not None else None
    is_kept = latest is not None and end is None
    # A reminder after the half is one message, not two.
    half_counts = half is not None and half <= now and not is_kept and (end is None or end < half)
    yield Occasion("half-time" if half_counts else "waiting")
    yield Occasion("escalated")
    if latest is not None:
        yield Occasion("acknowledged" if is_kept else "reminder", latest.number)


def awaits_outcome(item: ApprovalItem, now: datetime) -> bool:
    """Check whether more is to become of *item*, which was answered."""
    if item.status != "approved":
        return False
    stage = _stage_after_answer(item, now)
    return stage == "answered" or (stage == "executed" and item.effect is not None)


def next_stage_at(item: ApprovalItem, now: datetime) -> datetime | None:
    """When *item*, which waits, reaches another stage by itself, if it does."""
    latest = item.keeper(now)
    moments = [_half_time(item), latest.until if latest else None]
    later = [moment for moment in moments if moment is not None and moment > now]
    return min([*later, *([item.expires_at] if item.expires_at else [])], default=None)


def start_of_wait(item: ApprovalItem, now: datetime) -> datetime:
    """Since when nobody takes care of *item*."""
    end = item.acknowledgement.end(now) if item.acknowledgement else None
    return end or item.created_at


def _half_time(item: ApprovalItem) -> datetime | None:
    if item.expires_at is None:
        return None
    return item.created_at + (item.expires_at - item.created_at) / 2


def _stage_after_answer(item: ApprovalItem, now: datetime) -> NotificationStage:
    if not has_executed(item):
        return "answered"
    return (
        "verified" if item.effect is not None and _is_final(item, item.effect, now) else "executed"
    )


def _is_final(item: ApprovalItem, effect: EffectVerification, now: datetime) -> bool:
    """Check whether the verdict is there, and harm is undone as far as that goes."""
    if effect.verdict != "worse":
        return effect.verdict is not None
    done, began = effect.compensation, item.execution.ended_at if item.execution else None
    if done is None or done.state != "rolled back" or done.restored:
        return done is not None
    # Whether it restored anything is found out within the same time as the verdict, or never.
    if began is None or effect.ended_at is None:
        return True
    return now >= effect.ended_at + (effect.until - began) + _GRACE


def _progress(execution: JobExecution | None) -> str:
    if execution is None:
        return "waits for a worker"
    if execution.state == "queued":
        return execution.delay
    if execution.progress:
        return execution.progress
    return f"running on {execution.worker}" if execution.worker else "running"


def _describe_execution(item: ApprovalItem) -> ApprovalResult:
    result = item.result
    if result is None:
        return ApprovalResult("Outcome unknown", _BY_HAND)
    if result.success:
        if item.effect is not None:
            return ApprovalResult("Executed", "its effect is being verified")
        unverified = "" if item.action_id == naming.GRANT else "nothing verifies its effect"
        return ApprovalResult("Succeeded", unverified)
    reason = _reason(result)
    if result.unknown:
        return ApprovalResult("Outcome unknown", f"{reason.rstrip('.')}. {_BY_HAND}".lstrip(". "))
    return ApprovalResult("Not executed" if result.prevented else "Failed", reason)


def _reason(result: ActionResult) -> str:
    error = result.error or ""
    return next((error.removeprefix(lead) for lead in _PREFIXES if error.startswith(lead)), error)


def _describe_effect(item: ApprovalItem, effect: EffectVerification) -> ApprovalResult:
    evidence = effect.evidence or ""
    if effect.verdict == "worse":
        return _describe_harm(evidence, effect.compensation)
    if item.result is not None and not item.result.success:
        evidence = "; ".join(filter(None, [evidence, f"its call: {item.result.error}"]))
    words = {"effective": "Effective", "no effect": "No effect"}
    return ApprovalResult(words.get(str(effect.verdict), "Cannot tell whether it helped"), evidence)


def _describe_harm(evidence: str, done: Compensation | None) -> ApprovalResult:
    fate = {
        "rolled back": "rolled back; not known yet whether that restored it",
        "not restored": f"rolled back, but that restored nothing. {_BY_HAND}",
        "asked": "undoing it needs an approval",
        "failed": f"the rollback failed. {_BY_HAND}",
        "none": f"not undone: {done.detail}" if done and done.detail else "not undone",
    }
    if done is not None and done.restored:
        return ApprovalResult("Undone", evidence or "it made it worse")
    state = "being undone" if done is None else fate[done.state]
    return ApprovalResult("Made it worse", "; ".join(filter(None, [evidence, state])))
