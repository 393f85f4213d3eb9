"""Draws at random which cases wait before the action, to learn how many end without it.

The draw comes when nothing else delays the action: in the decide phase for what runs alone, and in
the claim for what people have approved, so that their answer cannot depend on it. It goes by ids: a
phase or job that runs again draws the same.
"""

from __future__ import annotations

import hashlib
import json

from boyd import naming
from boyd.agent.agent_rules import Circumstances
from boyd.models import Gate, Hold, JsonObject
from boyd.runtime.engine import Engine
from boyd.store import PhaseEntry
from boyd.store.holdouts import CaseDraw
from boyd.store.server.scripts import milliseconds


class CaseDraws:
    """The draws of one agent's cases."""

    def __init__(self, engine: Engine) -> None:
        self._agent = engine.agent
        self._holdouts = engine.store.holdouts

    def draw(self, entry: PhaseEntry, circumstances: Circumstances, verdict: Gate) -> Gate:
        """The verdict on what would run alone after the draw: a case that waits is refused."""
        id, situation = naming.iteration_execution(entry.record.id), circumstances.situation_class
        plan = self.plan(circumstances, id, situation.key, situation.label)
        if plan is None or verdict.outcome != "automatic" or circumstances.is_critical:
            return verdict
        target = circumstances.action.final_target(circumstances.decision.params)
        case = CaseDraw(id, circumstances.action.id, target, plan)
        holdout = self._holdouts.draw(case, entry.fence)
        if holdout is None:
            return verdict
        verdict = verdict.patched({"holdout": holdout})
        if holdout.until is None:
            return verdict
        hold = Hold(
            action=case.action,
            target=case.target,
            kind="held out",
            execution=id,
            since=entry.now,
            until=holdout.until,
        )
        return verdict.patched({"outcome": "refused", "reason": hold.reason})

    def plan(
        self, circumstances: Circumstances, execution: str, situation: str, label: str
    ) -> JsonObject | None:
        """The draw for the case of an execution, as the scripts read it; None if it never waits.

        It counts in the class *situation*; times are in milliseconds.
        """
        action, params = circumstances.action, circumstances.decision.params
        rule = self._agent.rules.earning_rule(action.id)
        verification = self._agent.verification(action.id)
        if rule is None or rule.holdout == 0 or verification is None or not verification.before:
            return None
        return {
            "share": rule.holdout,
            "draw": uniform(self._agent.id, execution, action.id),
            "class": situation,
            "label": label,
            "params": json.dumps(params),
            "within": milliseconds(verification.within),
            "every": milliseconds(min(verification.every, verification.within)),
            "queue": action.queue or "",
        }


def uniform(*names: str) -> float:
    """A number between 0 and 1 that depends on *names* only, and looks random."""
    digest = hashlib.sha256(json.dumps(names).encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48
