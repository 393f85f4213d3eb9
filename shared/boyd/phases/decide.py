"""The decide phase: the first applicable strategy decides; hooks may change or veto it."""

from __future__ import annotations

from typing import Any

from boyd.errors import Overrun, Veto
from boyd.models import (
    NO_OP,
    Change,
    Decision,
    DecisionTrace,
    HeldDecision,
    Hold,
    Refusal,
    Situation,
    no_op,
)
from boyd.phases import time_limit
from boyd.phases.orient import fields, reason_of
from boyd.phases.phase_context import PhaseContext, describe
from boyd.plugin import Hook, Strategy
from boyd.plugin.plugin_boundary import contain, unchecked
from boyd.text.redaction import clean

#: Holds while which no other strategy takes the place of the one whose action is held.
_IRREPLACEABLE = ("queued", "running", "held out")


def decide(ctx: PhaseContext, situation: Situation) -> tuple[Decision, DecisionTrace]:
    """Decide what to do in *situation*, with the trace of the decision."""
    ctx.prefetch_state()
    decided = _Deciding(ctx, situation).run()
    ctx.learn_state_keys()
    return decided


def review(
    ctx: PhaseContext, decision: Decision, situation: Situation
) -> tuple[Decision, DecisionTrace]:
    """Run the hooks on a decision of a client or model."""
    return _Deciding(ctx, situation).review(decision)


class _Deciding:
    def __init__(self, ctx: PhaseContext, situation: Situation) -> None:
        self.ctx = ctx
        self.situation = situation
        self.changes: list[Change] = []
        self.vetoed: Refusal | None = None
        self.invalid: Refusal | None = None
        self.proposed: Decision | None = None
        self.applicable: list[Strategy] = []
        self.held: list[HeldDecision] = []
        self.decision = no_op("No applicable strategy")

    def run(self) -> tuple[Decision, DecisionTrace]:
        strategies = list(self.ctx.host.strategies.values())
        self.applicable = [s for s in strategies if self._applies(s)]
        chosen = self._first_not_held()
        self._block()
        trace = DecisionTrace(
            strategies=[s.id for s in strategies],
            applicable=[s.id for s in self.applicable],
            chosen=chosen.id if chosen else None,
            changes=self.changes,
            vetoed=self.vetoed,
            invalid=self.invalid,
            proposed=self.proposed,
            held=self.held,
        )
        return self.decision, trace

    def _first_not_held(self) -> Strategy | None:
        """Let the strategies decide in turn, until one decides on an action that is not held.

        While the action of one is queued, runs or waits, nothing takes its place.
        """
        for strategy in self.applicable:
            if not self._choose(strategy):
                return strategy
            hold = self._binding_hold()
            if hold is None:
                self._ask_hooks()
                return strategy
            self._pass_over(strategy, hold)
            if hold.kind in _IRREPLACEABLE:
                return None
        return None

    def _binding_hold(self) -> Hold | None:
        """The hold that refuses the action decided on; claiming the action checks that again."""
        action = self.ctx.host.actions.get(self.decision.action)
        return self.ctx.hold(action, action.final_target(self.decision.params)) if action else None

    def _pass_over(self, strategy: Strategy, hold: Hold) -> None:
        action = self.ctx.host.actions[self.decision.action]
        target, reason = action.final_target(self.decision.params), hold.reason
        held = HeldDecision(strategy=strategy.id, action=action.id, target=target, reason=reason)
        self.held.append(held)
        self.decision = no_op(hold.reason)

    def review(self, decision: Decision) -> tuple[Decision, DecisionTrace]:
        self.decision = decision
        self._ask_hooks()
        self._block()
        trace = DecisionTrace(changes=self.changes, vetoed=self.vetoed, invalid=self.invalid)
        return self.decision, trace

    def _applies(self, strategy: Strategy) -> bool:
        if not strategy.has("applicable_when"):
            return True
        try:
            return contain(lambda: bool(self._call(strategy, "applicable_when")))
        except (Exception, Overrun) as error:  # noqa: BLE001 - only this strategy is out
            self.ctx.report(strategy.id, error)
            return False

    def _choose(self, strategy: Strategy) -> bool:
        """Let *strategy* decide; return False if there is no decision for the hooks."""
        try:
            answer = self._call(strategy, "decide")
        except (Exception, Overrun) as error:  # noqa: BLE001 - no-op, the iteration succeeds
            self.ctx.report(strategy.id, error)
            self.decision = no_op(f"Strategy {strategy.id} failed: {describe(error)}")
            return False
        return self._accept(answer, strategy.id)

    def _accept(self, answer: Any, by: str) -> bool:
        try:
            # Validate again: a Decision may have been built without validation.
            self.decision = Decision.model_validate(unchecked(answer))
            return True
        except ValueError as error:
            self._refuse(Refusal(by=by, reason=reason_of(error), action=_action(answer)))
            return False

    def _ask_hooks(self) -> None:
        for hook in self.ctx.host.hooks("on_decide"):
            self._ask(hook)

    def _ask(self, hook: Hook) -> None:
        answer = self.ctx.hook(
            hook,
            decision=self.decision,
            situation=self.situation,
            action=self.ctx.host.actions.get(self.decision.action),
        )
        if self.vetoed or self.invalid or answer is None:
            return
        if isinstance(answer, Veto):
            reason = clean(str(answer)) or "vetoed"
            self._veto(Refusal(by=hook.plugin_id, reason=reason, action=self.decision.action))
            return
        try:
            self._apply_changes(hook.plugin_id, answer)
        except (ValueError, TypeError) as error:
            reason = reason_of(error)
            self.ctx.report_hook(hook, reason)
            action = self.decision.action
            self._refuse(Refusal(by=hook.plugin_id, reason=reason, action=action))

    def _apply_changes(self, plugin_id: str, answer: Any) -> None:
        changes = fields(answer)
        before, self.decision = self.decision, self.decision.patched(changes)
        self.changes.append(Change.of(plugin_id, changes, before, self.decision))

    def _veto(self, refusal: Refusal) -> None:
        self.vetoed = refusal
        self.proposed = self.decision
        self.decision = no_op(f"Vetoed by {refusal.by}: {refusal.reason}")

    def _refuse(self, refusal: Refusal) -> None:
        self.invalid = refusal
        self.proposed = None if self.decision.is_no_op else self.decision
        self.decision = no_op(f"Invalid decision from {refusal.by}: {refusal.reason}")

    def _block(self) -> None:
        """Block the action if a guard failed in this or an earlier phase."""
        if self.ctx.blocks and not self.decision.is_no_op:
            block = self.ctx.blocks[0]
            self._veto(Refusal(by=block.by, reason=block.reason, action=self.decision.action))

    def _call(self, strategy: Strategy, function: str) -> Any:
        takes_ctx = strategy.takes(function, "ctx")
        ctx = self.ctx.context(strategy.plugin_id, strategy.id) if takes_ctx else None
        return time_limit.call(
            lambda: strategy.call(function, situation=self.situation, ctx=ctx), strategy.timeout
        )


def _action(answer: Any) -> str:
    action = answer.get("action") if isinstance(answer, dict) else getattr(answer, "action", None)
    return action if isinstance(action, str) and action else NO_OP
