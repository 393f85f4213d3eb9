"""Has a random part of the cases wait before the action, to learn how many end without it.

The draw is made in the decide phase, by ids, so that a phase that runs again draws the same. While
a case waits, its action is held, and a job looks with `verify`; then the agent decides again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from boyd import naming
from boyd.agent.agent_rules import Circumstances
from boyd.models import Fence, Gate, Hold
from boyd.phases.verify import EffectCheck, check_before
from boyd.runtime.engine import Engine
from boyd.runtime.jobs.job_runner import Done, Fields, JobFailure, JobHandler, Later
from boyd.runtime.jobs.verification_job import weigh_check
from boyd.runtime.triggers import Launcher
from boyd.store import PhaseEntry, StuckJob
from boyd.store.holdouts import CaseDraw, Wait, WaitVerdict
from boyd.store.server.scripts import milliseconds

_ENDED = Done("succeeded", 0.0)
#: Seconds between attempts after an error, and their number.
_RETRY, _TRIES = 60.0, 5


class CaseDraws:
    """The draws of one agent's cases."""

    def __init__(self, engine: Engine) -> None:
        self._agent = engine.agent
        self._holdouts = engine.store.holdouts

    def draw(self, entry: PhaseEntry, circumstances: Circumstances, verdict: Gate) -> Gate:
        """The gate's verdict after the draw, if there is one: a case that waits is refused."""
        rule = self._agent.rules.earning_rule(circumstances.action.id)
        plan = self._agent.verification(circumstances.action.id)
        is_open = verdict.outcome != "refused" and not circumstances.decision.requires_approval
        can_wait = rule is not None and rule.holdout > 0 and plan is not None and plan.before
        if rule is None or plan is None or not can_wait or not is_open:
            return verdict
        if is_critical(circumstances):
            return verdict
        action, id = circumstances.action, naming.iteration_execution(entry.record.id)
        case = CaseDraw(
            id=id,
            action=action.id,
            target=action.final_target(circumstances.decision.params),
            params=circumstances.decision.params,
            share=rule.holdout,
            draw=uniform(self._agent.id, id, action.id),
            plan={
                "class": circumstances.situation_class.key,
                "label": circumstances.situation_class.label,
                "within": milliseconds(plan.within),
                "every": milliseconds(min(plan.every, plan.within)),
                "queue": action.queue or "",
            },
        )
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


def is_critical(circumstances: Circumstances) -> bool:
    """Report whether nothing may wait: the action, the decision or the situation is critical."""
    situation = circumstances.situation
    levels = {circumstances.action.risk, circumstances.decision.risk, situation.priority}
    return "critical" in levels | {anomaly.severity for anomaly in situation.anomalies}


def uniform(*names: str) -> float:
    """A number between 0 and 1 that depends on *names* only, and looks random."""
    digest = hashlib.sha256(json.dumps(names).encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48


class WaitHandler(JobHandler):
    """The cases of one agent that wait; the id of the job is that of the execution that waits."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._holdouts = engine.store.holdouts

    def limit(self, fields: Fields) -> float:
        """Seconds that one check may take."""
        return self._engine.action_limit(fields.get("action"))

    def perform(self, id: str, fields: Fields, fence: Fence, retry: bool) -> Done | Later:
        """Check once whether the case has ended without the action."""
        wait = Wait.of(id, fields)
        check = self._look(wait, fields)
        if isinstance(check, Later):
            return check
        return self._end(wait, fence, _VERDICTS[check.verdict], check.evidence)

    def handle_error(self, id: str, fields: Fields, failure: JobFailure) -> Done | Later:
        """Retry for some minutes; then the hold ends by itself."""
        return _ENDED if failure.errors > _TRIES else Later(_RETRY)

    def give_up(self, id: str, stuck: StuckJob) -> Done:
        """Leave the case open: nobody could look, and the hold ends by itself."""
        return _ENDED

    def _look(self, wait: Wait, fields: Fields) -> EffectCheck | Later:
        action = self._engine.agent.host.actions.get(wait.action)
        plan = self._engine.agent.verification(wait.action)
        if action is None or plan is None:
            return EffectCheck("cannot tell", "the action has no verification any more")
        check = check_before(self._engine.act_context(), action, wait.params, wait.id)
        if check.verdict == "worse":
            # Nothing was done that can have done harm.
            check = replace(check, verdict="no effect")
        return weigh_check(check, plan, wait.until, self._engine.store.clock.now(), fields)

    def _end(self, wait: Wait, fence: Fence, verdict: WaitVerdict, evidence: str) -> Done:
        if self._holdouts.end(wait, fence, verdict, evidence) and verdict != "well":
            engine = self._engine
            Launcher(engine.store, engine.dispatcher, engine.agent.settings.mode).look_again("wait")
        return _ENDED


_VERDICTS: dict[str, WaitVerdict] = {
    "effective": "well",
    "no effect": "not well",
    "worse": "not well",
    "cannot tell": "unclear",
}
