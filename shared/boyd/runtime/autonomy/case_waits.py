"""Looks with `verify` whether a case that waits before its action ends by itself.

Meanwhile the action is held; then the agent decides again, or executes what a person has approved.
"""

from __future__ import annotations

from dataclasses import replace

from boyd import naming
from boyd.models import Fence
from boyd.phases.verify import EffectCheck, check_before
from boyd.runtime.engine import Engine
from boyd.runtime.jobs.job_runner import Done, Fields, JobFailure, JobHandler, Later
from boyd.runtime.jobs.verification_job import weigh_check
from boyd.runtime.triggers import Launcher
from boyd.store import StuckJob
from boyd.store.holdouts import Wait, WaitVerdict

_ENDED = Done("succeeded", 0.0)
#: Seconds between attempts after an error, and their number.
_RETRY, _TRIES = 60.0, 5


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
        is_ended, engine = self._holdouts.end(wait, fence, verdict, evidence), self._engine
        # What was approved goes on by itself.
        if is_ended and verdict != "well" and naming.parts(wait.id)[0] != "approval":
            Launcher(engine.store, engine.dispatcher, engine.agent.settings.mode).look_again("wait")
        return _ENDED


_VERDICTS: dict[str, WaitVerdict] = {
    "effective": "well",
    "no effect": "not well",
    "worse": "not well",
    "cannot tell": "unclear",
}
