"""Verifies the effects of executions, compensates those that did harm, and reports suspensions.

The job begins with the end of its execution, in the same step. Each check, the verdict, the
rollback, the offer to run alone and the notice to people may be repeated after a worker was lost;
the ledger makes sure that the rollback happens once.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime
from typing import Literal

from boyd import naming
from boyd.agent.procedure_plans import compensation_of
from boyd.models import (
    Compensation,
    Decision,
    EffectName,
    ExecutionEntry,
    Fence,
    HoldKind,
    ProcedureStep,
    VerificationPlan,
)
from boyd.phases.act_request import ActRequest, ProposalTerms, Requester
from boyd.phases.verify import EffectCheck, verify
from boyd.plugin import Action
from boyd.runtime.autonomy.offers import AutonomyOffers
from boyd.runtime.engine import Engine
from boyd.runtime.jobs.action_jobs import run_action
from boyd.runtime.jobs.job_runner import (
    Done,
    Fields,
    JobFailure,
    JobHandler,
    Later,
    leave_to_others,
    notify_plugins,
    requeue,
)
from boyd.store import StuckJob
from boyd.store.holds import NewHold

log = logging.getLogger("boyd.runtime")

_ENDED = Done("succeeded", 0.0)
#: Seconds between attempts after an error, and their number.
_RETRY, _TRIES = 60.0, 30


class VerificationHandler(JobHandler):
    """The verifications of one agent's executions; the id of the job is that of the execution."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._holds = engine.store.holds
        self._offers = AutonomyOffers(engine)

    def limit(self, fields: Fields) -> float:
        """Seconds that one check and a rollback may take."""
        return 2 * self._engine.action_limit(fields.get("action"))

    def perform(self, id: str, fields: Fields, fence: Fence, retry: bool) -> Done | Later:
        """Check once; after a verdict of *worse*, compensate and tell people."""
        entry = self._engine.store.executions.get(id)
        if entry is None:
            return _ENDED
        leave_to_others(self._engine, entry.action, fields)
        verdict = entry.verification.verdict if entry.verification else None
        if entry.verification and verdict is None:
            check = self._look(entry, entry.verification.until, fields)
            if isinstance(check, Later):
                return check
            verdict = self._judge(entry, fence, check, int(fields.get("checks", 0)) + 1)
            if verdict is None:
                return _ENDED
        return (
            self._after(entry, verdict, fields, fence)
            or self._report_verdict(entry, fields)
            or self._follow_up_grant(entry, fields)
            or _ENDED
        )

    def handle_error(self, id: str, fields: Fields, failure: JobFailure) -> Done | Later:
        """Retry for half an hour."""
        if failure.errors <= _TRIES:
            return Later(_RETRY)
        return self._end(id, failure.fence, f"it could not be checked: {failure.reason}")

    def give_up(self, id: str, stuck: StuckJob) -> Done:
        """End an open verification: no worker could check."""
        fence = Fence(naming.verification(id), stuck.attempt, stuck.worker)
        where = f" of queue {stuck.queue!r}" if stuck.queue else ""
        return self._end(id, fence, f"no worker{where} could check it")

    def _end(self, id: str, fence: Fence, reason: str) -> Done:
        """End the job; if there is no verdict yet, it is that nobody can tell."""
        entry = self._engine.store.executions.get(id)
        if entry is not None and entry.verification and entry.verification.verdict is None:
            check = EffectCheck("cannot tell", reason)
            self._judge(entry, fence, check, entry.verification.checks)
        return _ENDED

    def _follow_up_grant(self, entry: ExecutionEntry, fields: Fields) -> Later | None:
        """Notify people that a grant was withdrawn, or ask them for one; both at least once."""
        record = self._offers.record_after(entry)
        if record is not None and record.ended_by == entry.id:
            notice = {"record": record, "execution": entry}
            return notify_plugins(self._engine, "on_withdraw", fields, "", **notice)
        if record is not None:
            self._offers.offer(entry, record)
        return None

    def _report_verdict(self, entry: ExecutionEntry, fields: Fields) -> Later | None:
        """Run the hooks that learn from verdicts; one that fails is logged, and not repeated."""
        ctx = self._engine.act_context()
        is_over = naming.is_rollback(entry.id) or "reported" in fields
        if is_over or not ctx.host.hooks("on_verdict"):
            return None
        ctx.run_hooks("on_verdict", execution=self._engine.store.executions.get(entry.id))
        # Noted if something follows that may be repeated.
        return requeue(fields.get("queue"), {"reported": "1"}) if entry.counted_in else None

    def _check(self, entry: ExecutionEntry) -> EffectCheck:
        action = self._action(entry)
        if action is None or not action.has("verify"):
            reason = "the action has no verification any more"
            return EffectCheck("cannot tell", reason, ends=True)
        if not naming.is_rollback(entry.id):
            return verify(self._engine.act_context(), action, entry)
        undone = self._engine.store.executions.get(naming.parts(entry.id)[1])
        if undone is None:
            reason = "the execution that it undid is no longer kept"
            return EffectCheck("cannot tell", reason, ends=True)
        return _restoration(verify(self._engine.act_context(), action, undone))

    def _look(self, entry: ExecutionEntry, until: datetime, fields: Fields) -> EffectCheck | Later:
        """Check once; `Later` if only a later check can give the verdict."""
        check, plan = self._check(entry), self._plan(entry)
        if plan is None:
            return check
        return weigh_check(check, plan, until, self._engine.store.clock.now(), fields)

    def _judge(
        self, entry: ExecutionEntry, fence: Fence, check: EffectCheck, checks: int
    ) -> EffectName | None:
        """Record the verdict, create or lift the hold, and return the verdict that counts."""
        hold = self._hold(entry, check.verdict)
        verdict = self._holds.judge(entry.id, fence, check.verdict, check.evidence, checks, hold)
        if verdict:
            log.info("%s: %s: %s", self._engine.agent.id, entry.id, verdict)
        return verdict

    def _hold(
        self, entry: ExecutionEntry, verdict: EffectName
    ) -> NewHold | Literal["as it is"] | None:
        if naming.is_rollback(entry.id):
            return NewHold("suspended") if verdict == "no effect" else "as it is"
        if verdict == "worse":
            # Held at once; a rollback that succeeds makes it a weaker hold.
            plan = self._plan(entry)
            return NewHold("suspended", stops_for=plan.repeat_after if plan else None)
        if verdict == "no effect":
            return self._new_hold("no effect", entry)
        if verdict == "cannot tell":
            # Of a call that failed, nobody expects an effect that cannot be told.
            return self._new_hold("cannot tell", entry, at_once=entry.state == "failed")
        return None

    def _new_hold(
        self, kind: HoldKind, entry: ExecutionEntry, at_once: bool = True
    ) -> NewHold | None:
        plan = self._plan(entry)
        if plan is None or not plan.hold:
            return None
        return NewHold(kind, plan.repeat_after, at_once)

    def _after(
        self, entry: ExecutionEntry, verdict: EffectName | None, fields: Fields, fence: Fence
    ) -> Done | Later | None:
        if verdict == "worse":
            return self._after_harm(entry.id, fields, fence)
        violated = entry.result is not None and entry.result.violation is not None
        in_vain = naming.is_rollback(entry.id) and verdict == "no effect"
        return self._notify(entry, fields) if violated or in_vain else None

    def _after_harm(self, id: str, fields: Fields, fence: Fence) -> Done | Later | None:
        entry = self._engine.store.executions.get(id)
        if entry is None or entry.verification is None:
            return _ENDED
        done = entry.verification.compensation
        if done is None:
            done = self._compensate(entry, fence)
            if not self._record(entry, fence, done):
                return _ENDED
        # Nobody should have to wait for the check of the rollback to learn of a suspension.
        notice = self._notify(entry, fields, done.state)
        if notice or done.state != "rolled back" or done.restored:
            return notice
        return self._confirm_rollback(entry, done, fields, fence)

    def _confirm_rollback(
        self, entry: ExecutionEntry, done: Compensation, fields: Fields, fence: Fence
    ) -> Later | None:
        """Check whether the harm is gone; a rollback that restored nothing suspends the action."""
        plan, now = self._plan(entry), self._engine.store.clock.now().timestamp()
        if plan is None:
            return None
        until = float(fields.get("restoredBy") or now + plan.within)
        check = _restoration(self._check(entry))
        if check.verdict == "effective":
            restored = done.patched({"restored": True, "detail": check.evidence})
            self._holds.record_compensation(entry.id, fence, restored)
        elif now < until:
            return Later(max(0.1, min(plan.every, until - now)), {"restoredBy": str(until)})
        elif check.verdict == "no effect":
            failed = done.patched({"state": "not restored", "detail": check.evidence})
            hold = NewHold("suspended")
            self._holds.record_compensation(entry.id, fence, failed, hold, check.evidence)
            return self._notify(entry, fields, failed.state)
        return None

    def _compensate(self, entry: ExecutionEntry, fence: Fence) -> Compensation:
        action, plan = self._action(entry), self._plan(entry)
        step = self._step(entry.id)
        planned = compensation_of(step, action) if step else "rollback"
        # One target that has become worse does not end a procedure, which would undo it.
        if step is not None and step.verify and (step.for_each is None or planned != "rollback"):
            return Compensation(state="none", detail="its procedure undoes it")
        if planned != "rollback":
            return Compensation(state="none", detail="its procedure has not waited for the verdict")
        if action is None or plan is None or not action.has("rollback"):
            return Compensation(state="none", detail="the action has no rollback")
        if entry.state == "failed":
            detail = "its call failed: nobody knows how much of it was done"
            return Compensation(state="none", detail=detail)
        if not plan.roll_back:
            return Compensation(state="none", detail="the agent's settings forbid a rollback")
        undo = naming.rollback(entry.id)
        request = ActRequest(
            execution_id=undo,
            decision=_rollback_decision(entry, action),
            requester=Requester(f"agent:{self._engine.agent.id}"),
            proposal=ProposalTerms(naming.verification(entry.id)),
            retry=True,
            undoes=entry.id,
            fence=fence,
        )
        ledger = self._engine.ledger()
        result = run_action(self._engine, ledger, request)
        if result.waits_for:
            return Compensation(state="asked", approval=result.waits_for)
        if result.success:
            return Compensation(state="rolled back", execution=undo)
        return Compensation(state="failed", execution=undo, detail=result.error or "it failed")

    def _record(self, entry: ExecutionEntry, fence: Fence, done: Compensation) -> bool:
        if done.state != "rolled back":
            return self._holds.record_compensation(entry.id, fence, done)
        evidence = (entry.verification.evidence if entry.verification else None) or ""
        hold = self._new_hold("rolled back", entry)
        return self._holds.record_compensation(entry.id, fence, done, hold, evidence)

    def _notify(self, entry: ExecutionEntry, fields: Fields, about: str = "") -> Later | None:
        """Notify people that the action is suspended, if it is; *about* says what has become of it.

        For each of these they are notified at least once.
        """
        hold = self._holds.get(entry.action, entry.target)
        if hold is None or hold.kind != "suspended":
            return None
        notice = {"hold": hold, "execution": entry}
        return notify_plugins(self._engine, "on_suspend", fields, about, **notice)

    def _step(self, id: str) -> ProcedureStep | None:
        """The step of a procedure that an execution belongs to, by its name or its approval."""
        kind, rest = naming.parts(id)
        store = self._engine.store
        if kind == "approval":
            item = store.approvals.get(rest)
            bound_to = (item.bound_to if item else None) or ""
            kind, rest = naming.parts(bound_to)
        procedure, _, name = rest.rpartition(":")
        record = store.procedures.get(procedure) if kind == "step" else None
        steps = record.steps if record else []
        return next((step for step in steps if step.id == naming.step_of(name)), None)

    def _action(self, entry: ExecutionEntry) -> Action | None:
        return self._engine.agent.host.actions.get(entry.action)

    def _plan(self, entry: ExecutionEntry) -> VerificationPlan | None:
        return self._engine.agent.verification(entry.action)


def _restoration(check: EffectCheck) -> EffectCheck:
    """The check of a rollback: it has its effect when what it undid is not worse any more."""
    if check.verdict == "cannot tell":
        return EffectCheck("cannot tell", check.evidence)
    if check.verdict == "worse":
        return EffectCheck("no effect", check.evidence)
    return EffectCheck("effective", check.evidence, ends=True)


def _rollback_decision(entry: ExecutionEntry, action: Action) -> Decision:
    evidence = entry.verification.evidence if entry.verification else None
    reason = f"{entry.id} made it worse: {evidence}" if evidence else f"{entry.id} made it worse"
    return Decision(
        action=action.id, params=entry.params, rationale=reason, confidence=1.0, risk=action.risk
    )


def weigh_check(
    check: EffectCheck, plan: VerificationPlan, until: datetime, now: datetime, fields: Fields
) -> EffectCheck | Later:
    """The verdict after a check; `Later` if only a later one can give it, *until* at the latest.

    Harm stands if no later check can tell.
    """
    is_well = check.verdict == "effective"
    harm = fields.get("harm", "") if check.verdict == "cannot tell" else ""
    if check.verdict == "worse":
        harm = check.evidence or "worse"
    well_since = float(fields.get("wellSince") or now.timestamp()) if is_well else None
    answered = bool(fields.get("answered")) or not check.raised
    left = (until - now).total_seconds()
    if well_since is not None:
        lacking = well_since + plan.sustained - now.timestamp()
        left = lacking if check.ends else max(left, lacking)
    elif check.ends:
        return check
    if left > 0:
        progress = {
            "checks": str(int(fields.get("checks", 0)) + 1),
            "wellSince": "" if well_since is None else str(well_since),
            "answered": "1" if answered else "",
            "harm": harm,
        }
        return Later(max(0.1, min(plan.every, left)), progress)
    if harm:
        return EffectCheck("worse", harm)
    return check if answered else replace(check, verdict=plan.raises)
