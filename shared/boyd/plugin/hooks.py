"""The hook specifications: the functions that a plugin may run between phases.

A plugin implements a hook as a method of the same name that declares any of its arguments. Hooks
run sequentially in plugin order. A hook that raises is logged, recorded on the iteration and
skipped; if it is a guard, marked `@hook(fail_closed=True)`, it also blocks the iteration's action.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from boyd.models import (
        ActionResult,
        ApprovalItem,
        Decision,
        ExecutionEntry,
        Hold,
        LoopResult,
        Observation,
        ProcedureRecord,
        Situation,
        TrackRecord,
    )
    from boyd.plugin.components import Action
    from boyd.plugin.context import Context

_F = TypeVar("_F", bound=Callable[..., Any])
_MARK = "__boyd_fail_closed__"


def on_loop_start(ctx: Context) -> None:
    """Run before the observers of an iteration: refresh a token, reset a counter.

    When it fails: recorded; the loop continues. A guard blocks the action.
    """


def on_observe(observations: list[Observation], ctx: Context) -> Iterable[Observation] | None:
    """Return observations to add to those of the observers, runs and intake.

    When it fails or returns something else: recorded; nothing is added. A guard blocks the action.
    """


def on_orient(
    situation: Situation, observations: list[Observation], ctx: Context
) -> Mapping[str, Any] | None:
    """Return the fields of the situation to change, such as `{"priority": "high"}`.

    Each hook receives the situation that earlier hooks changed.

    When it fails or its fields are invalid: recorded; the situation stays unchanged. A guard blocks
    the action.
    """


def on_decide(
    decision: Decision, situation: Situation, action: Action | None, ctx: Context
) -> Mapping[str, Any] | None:
    """Return the fields of the decision to change, or raise `Veto` to make it a no-op.

    Each hook receives the decision that earlier hooks changed. `action` is the action of the
    decision, with its `risk`, `autonomy` and `target`; it is None when no such action exists. The
    hook does not run when no strategy applied or the strategy failed. It also runs for actions that
    clients ask for; `ctx.iteration` is None then.

    When it fails: recorded; the decision stays unchanged. A guard blocks the action. When its
    fields are invalid, the action is not executed.
    """


def on_before_act(action: Action, params: Mapping[str, Any], ctx: Context) -> None:
    """Run right before any action executes, whatever requested it; raise `Veto` to stop it.

    It runs after the approval and before the budget is checked. `params` are not validated yet.

    When it fails or returns something: recorded; the action executes. A guard stops it.
    """


def on_after_act(result: ActionResult, ctx: Context) -> None:
    """Run after an action was tried, also when it failed or was stopped before it began.

    `result.success` is false then, and `result.error` gives the reason, also if it was not needed
    any more (`result.prevented` is `unneeded` then). The hook does not run while an action waits
    for approval, nor for an outcome that was lost with its worker.

    When it fails: recorded.
    """


def on_loop_complete(result: LoopResult, ctx: Context) -> None:
    """Run with the complete result of an iteration, also of a failed one.

    When it fails: recorded.
    """


def on_approval(approval: ApprovalItem, stage: str, recipient: str, ctx: Context) -> None:
    """Notify people of an approval at a `stage`: one of `boyd.models.STAGES`.

    It is `waiting` at first, then `half-time`, and `answered` in the end, also when it has expired
    or was withdrawn: see `approval.status`. `executed` and `verified` follow if it was approved:
    `boyd.models.describe_outcome(approval)` says what became of it, `approval.effect` has the
    verdict. While it waits it may be `escalated` to further recipients, be `acknowledged`, and need
    a `reminder` after that; `approval.acknowledgement.number` tells several of those apart.
    Called for each stage that the approval reaches and each `recipient` of
    `Plugin.notification_recipients`, at least once, on a worker that consumes `callback`.

    When it fails: logged, recorded on the approval, and tried again for almost eight hours, as long
    as the stage lasts.
    """


def on_verdict(execution: ExecutionEntry, ctx: Context) -> None:
    """Learn what an action has achieved, such as `effective` or `no effect`.

    `execution.verification` has the verdict and the evidence for it. Run at least once for each
    action that was verified, whatever requested it, on a worker that performs the action, after
    the rollback of one that did harm.

    When it fails: logged.
    """


def on_suspend(hold: Hold, execution: ExecutionEntry, ctx: Context) -> None:
    """Tell people that an action is suspended on a target, because it made it worse.

    Run when it could not be rolled back, at least once, on a worker that performs the action.
    `execution.verification` has the evidence, and what became of the rollback.

    When it fails: logged, and run again each minute, at most thirty times.
    """


def on_withdraw(record: TrackRecord, execution: ExecutionEntry, ctx: Context) -> None:
    """Tell people that an action may not run alone any more, because it has failed too often.

    `record.ended` says why; counting begins anew. Run at least once, on a worker that performs the
    action.

    When it fails: logged, and run again each minute, at most thirty times.
    """


def on_procedure(procedure: ProcedureRecord, ctx: Context) -> None:
    """Tell people that a procedure was stopped, until somebody resumes it, or has failed.

    `procedure.reason` says why, `procedure.compensated` which steps were undone. Run at least once,
    on a worker that consumes `act`.

    When it fails: logged, and run again each minute, at most thirty times.
    """


#: Hooks that may be generators, because all that they return is read.
YIELDING = frozenset({"on_observe"})
SPECIFICATIONS: dict[str, tuple[str, ...]] = {
    function.__name__: tuple(inspect.signature(function).parameters)
    for function in (
        on_loop_start,
        on_observe,
        on_orient,
        on_decide,
        on_before_act,
        on_after_act,
        on_loop_complete,
        on_approval,
        on_verdict,
        on_suspend,
        on_withdraw,
        on_procedure,
    )
}


def hook(*, fail_closed: bool = False) -> Callable[[_F], _F]:
    """Mark a hook method; with *fail_closed* it is a guard that blocks the action if it raises."""

    def mark(function: _F) -> _F:
        setattr(function, _MARK, fail_closed)
        return function

    return mark


def is_guard(function: Callable[..., Any]) -> bool:
    """Report whether the hook method was marked `fail_closed`."""
    return bool(getattr(function, _MARK, False))
