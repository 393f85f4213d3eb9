"""The hook specifications: what a plugin may do between the phases, and when.

A plugin implements a hook as a method of the same name that takes any of the listed arguments by
name. Hooks run one after the other in plugin order. One that raises is logged, recorded on the
iteration and left out (L25); one marked `@hook(fail_closed=True)` is a guard: if it raises, the
iteration's action is not executed.
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
        LoopResult,
        Observation,
        Situation,
    )
    from boyd.plugin.components import Action
    from boyd.plugin.context import Context

_F = TypeVar("_F", bound=Callable[..., Any])
_MARK = "__boyd_fail_closed__"


def on_loop_start(ctx: Context) -> None:
    """Run before an iteration's observers (L8): refresh tokens, reset counters."""


def on_observe(observations: list[Observation], ctx: Context) -> Iterable[Observation] | None:
    """Return observations to add to those that were made (L14)."""


def on_orient(
    situation: Situation, observations: list[Observation], ctx: Context
) -> Mapping[str, Any] | None:
    """Return fields to lay over the situation; it is what earlier hooks made of it (L20)."""


def on_decide(
    decision: Decision, situation: Situation, action: Action | None, ctx: Context
) -> Mapping[str, Any] | None:
    """Return fields to lay over the decision, or raise `Veto` to turn it into `no-op` (L24).

    `action` is the action decided for; None when there is no such action.
    """


def on_before_act(action: Action, params: Mapping[str, Any], ctx: Context) -> None:
    """Run before an action executes, from wherever it came (L30); raise `Veto` to stop it."""


def on_after_act(result: ActionResult, ctx: Context) -> None:
    """Run after an action was tried, also when it failed or was stopped before it began (L30)."""


def on_loop_complete(result: LoopResult, ctx: Context) -> None:
    """Run with the complete result, also of a failed iteration (L36)."""


def on_approval(approval: ApprovalItem, stage: str, ctx: Context) -> None:
    """Tell people of an approval (A13); `stage` is `created`, `half-time` or `expired`.

    Called at least once for each stage that the item reaches while it is pending.
    """


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
    )
}


def hook(*, fail_closed: bool = False) -> Callable[[_F], _F]:
    """Mark a hook method; with *fail_closed* it is a guard that blocks the action if it raises."""

    def mark(function: _F) -> _F:
        setattr(function, _MARK, fail_closed)
        return function

    return mark


def is_guard(function: Callable[..., Any]) -> bool:
    """Whether the hook method was marked `fail_closed`."""
    return bool(getattr(function, _MARK, False))
