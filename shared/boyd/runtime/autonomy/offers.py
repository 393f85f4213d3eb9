"""Offers people to let actions run alone that have earned it, and carries out their answers.

An offer is an approval of its own, whose action no plugin has: only this module carries it out. Its
preview is the evidence: the track record, and a replay of the gate over the recorded iterations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from boyd import naming
from boyd.agent.agent_rules import Circumstances
from boyd.errors import AgentRevoked
from boyd.models import (
    NO_SITUATION,
    ActionResult,
    ApprovalItem,
    ApprovalPolicy,
    AutonomyGrant,
    Coverage,
    Decision,
    EarnedAutonomy,
    ExecutionEntry,
    Fence,
    JsonObject,
    LoopResult,
    Proposal,
    TrackRecord,
    from_ms,
)
from boyd.models.effect import STRICTER
from boyd.phases import action_call
from boyd.phases.gate import judge
from boyd.plugin import Action
from boyd.runtime.engine import Engine

#: Recorded iterations that are looked through for the evidence, and read at a time.
_REPLAYED, _PAGE = 500, 50
#: Iterations that the evidence names.
_NAMED = 20


class AutonomyOffers:
    """The offers of one agent."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tracks = engine.store.track_records

    def record_after(self, entry: ExecutionEntry) -> TrackRecord | None:
        """The track record in which an execution counts, if it does."""
        return self._tracks.get(entry.action, entry.counted_in) if entry.counted_in else None

    def offer(self, entry: ExecutionEntry, record: TrackRecord) -> None:
        """Ask a person to let the action run alone, if it has earned it; repeating it is harmless.

        It is asked once in so many outcomes as the rule needs; while a grant is valid, only if the
        record covers more than that.
        """
        action = self._engine.agent.host.actions.get(entry.action)
        rule = self._engine.agent.rules.earning_rule(entry.action)
        if action is None or rule is None or not record.has_earned(rule):
            return
        grant = record.valid_grant(rule, self._engine.store.clock.now())
        if grant and grant.covers.includes(record.covers):
            return
        if record.offered is not None and record.outcomes < record.offered + rule.after:
            return
        proposal = self._proposal(action, rule, record)
        try:
            self._engine.approvals.propose(proposal, naming.offer(entry.id))
        except AgentRevoked:
            return  # a later outcome is followed by the offer, if its right is restored
        self._tracks.note_offer(record)

    def grant(self, item: ApprovalItem, fence: Fence) -> ActionResult:
        """Carry out an approved offer, unless the record no longer justifies it."""
        agent = self._engine.agent
        action = agent.host.actions.get(str(item.params.get("action")))
        rule = agent.rules.earning_rule(action.id) if action else None
        if action is None or rule is None:
            return _refusal("the agent's settings do not let it earn to run alone any more")
        signer = self._engine.settings.signer
        votes = item.approvals if signer is None else signer.valid_votes(item)
        required = self._policy(action)
        if not (required.is_met_by(votes) and agent.rules.allows(action, votes)):
            return _refusal("its approvals do not suffice, or were not signed by this deployment")
        record = self._tracks.get(action.id, str(item.params.get("situation")))
        if record is None or not record.has_earned(rule):
            return _refusal("its track record does not justify it any more")
        covers = Coverage.model_validate(item.params.get("covers"))
        if item.params != _params(rule, record, covers):
            return _refusal("the settings have changed since it was proposed")
        by = sorted(vote.by for vote in item.approvals)
        if not self._tracks.grant(record, item.id, by, rule, covers, fence):
            return _refusal("its track record has changed, or the grant has ended already")
        output = f"{action.id} may run alone: {record.label}"
        return ActionResult(action=naming.GRANT, success=True, duration=0.0, output=output)

    def _proposal(self, action: Action, rule: EarnedAutonomy, record: TrackRecord) -> Proposal:
        params = _params(rule, record, record.covers)
        compared = record.trial.words(record.error(rule) / STRICTER)
        decision = Decision(
            action=naming.GRANT,
            params=params,
            rationale=f"{action.id} has earned to run alone in such situations: {record.words}; "
            f"{compared}; limited to {record.covers.words}",
            confidence=record.bound(rule.false_grants),
            risk=action.risk,
            requires_approval=True,
        )
        return Proposal(
            decision=decision,
            action_id=naming.GRANT,
            action_name=f"let {action.id} run alone: {record.label}",
            params=params,
            risk=action.risk,
            reversibility="reversible",
            loop_iteration=0,
            situation_summary=record.label,
            reason="only a person lets an action run alone",
            required=self._policy(action),
            preview=self._evidence(action, rule, record),
        )

    def _policy(self, action: Action) -> ApprovalPolicy:
        """The strictest policy for approving the action itself, and always by a person."""
        return self._engine.agent.rules.strictest_policy(action).patched({"person": True})

    def _evidence(self, action: Action, rule: EarnedAutonomy, record: TrackRecord) -> ActionResult:
        """Return the track record, and which recorded iterations would have run alone."""
        results = list(self._matching_decisions(action, record))
        alone = [result for result in results if self._runs_alone(action, record, result)]
        endings = {result.iteration: self._ending(result) for result in results}
        counts = Counter(endings.values())
        output: JsonObject = {
            "trackRecord": record.words,
            "comparedWithWaiting": record.trial.words(record.error(rule) / STRICTER),
            "limitedTo": record.covers.words,
            "decidedInSuchSituations": len(results),
            "denied": counts["denied"],
            "notExecuted": counts["not executed"],
            "wouldHaveRunAlone": len(alone),
            "iterations": [
                f"{result.iteration}: {endings[result.iteration]}" for result in alone[:_NAMED]
            ],
        }
        return ActionResult(action=naming.GRANT, success=True, duration=0.0, output=output)

    def _matching_decisions(self, action: Action, record: TrackRecord) -> Iterator[LoopResult]:
        """Yield recorded decisions in such situations, latest first, one for each approval."""
        before, approvals = None, set()
        for _ in range(_REPLAYED // _PAGE):
            page = self._engine.store.history.results(_PAGE, before)
            for result in page:
                item = result.waits_for
                then = result.gate.record if result.gate else None
                is_same = then and (then.action, then.situation) == (action.id, record.situation)
                if is_same and item not in approvals:
                    approvals |= {item} if item else set()
                    yield result
            if len(page) < _PAGE:
                return
            before = page[-1].iteration

    def _ending(self, then: LoopResult) -> str:
        """The end of a recorded decision: the verdict on it, or its state."""
        item = then.waits_for
        name = naming.approval(item) if item else naming.iteration_execution(str(then.iteration))
        entry = self._engine.store.executions.get(name)
        if entry is None:
            approval = self._engine.store.approvals.get(item) if item else None
            return "denied" if approval and approval.status == "denied" else "not executed"
        return (entry.verification and entry.verification.verdict) or entry.state

    def _runs_alone(self, action: Action, record: TrackRecord, then: LoopResult) -> bool:
        """Report whether the gate would have let it run alone then, with a grant."""
        assert then.decision is not None
        at = (then.gate and then.gate.at) or then.ended_at
        endless = AutonomyGrant(
            id="replay", at_least=1, since=at, until=from_ms(2**42), by=[], covers=record.covers
        )
        granted = record.patched({"grant": endless})
        asked_by = then.trace.approval_required_by if then.trace else None
        situation = then.situation or NO_SITUATION
        circumstances = Circumstances(
            action, then.decision, situation, lambda: at, lambda _: granted
        )
        return judge(self._engine.agent, circumstances, asked_by).outcome == "automatic"


def _params(rule: EarnedAutonomy, record: TrackRecord, covers: Coverage) -> JsonObject:
    """The params of an offer: the same one has the same."""
    return {
        "action": record.action,
        "situation": record.situation,
        "when": record.label,
        "covers": covers.to_wire(),
        "atLeast": rule.at_least,
        "days": round(rule.lasts / 86400, 3),
    }


def _refusal(reason: str) -> ActionResult:
    return action_call.failure(naming.GRANT, f"Refused: {reason}", prevented="refused")
