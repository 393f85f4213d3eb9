"""Handles calls of clients: execute, dry-run or roll back an action, or answer an endpoint."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from boyd import naming
from boyd.errors import Overrun
from boyd.models import (
    ActionResult,
    Call,
    Decision,
    EndpointReply,
    Fence,
    JsonObject,
    explain,
    unexplained,
)
from boyd.phases import act, action_call, time_limit
from boyd.phases.act import Ledger
from boyd.phases.phase_context import describe
from boyd.plugin import Perform
from boyd.plugin.own_copy import unchecked
from boyd.runtime.engine import Engine
from boyd.runtime.jobs.action_jobs import give_up_execution, in_turn, run_action
from boyd.runtime.jobs.job_runner import Done, Fields
from boyd.runtime.leases import SMALL
from boyd.store import StuckJob, read_call
from boyd.store.calls import KEEP, kept

log = logging.getLogger(__name__)


class ClientCallHandler:
    """The calls to one agent."""

    patient = False

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def limit(self, fields: Fields) -> float:
        """Seconds one call may take."""
        endpoint = self._engine.agent.host.endpoints.get(fields.get("action", ""))
        if endpoint is not None:
            # It may request any action.
            actions = self._engine.agent.host.actions.values()
            longest = max((action.timeout for action in actions), default=0.0)
            return self._engine.settings.phase_limit + endpoint.timeout + longest
        return self._engine.action_limit(fields.get("action"))

    def perform(self, id: str, fields: Fields, fence: Fence, retry: bool) -> Done:
        """Execute the call."""
        call = read_call(fields)
        if call.kind == "endpoint":
            done = self._as_room(call, self._answer(call, fence, retry))
            return replace(done, keep=kept(call))
        if call.kind == "dry-run":
            ledger = self._engine.ledger()
            return _done(ledger.shorten(self._dry_run(call), call.actor.principal))
        return _done(self._act(call, fence, retry))

    def _as_room(self, call: Call, done: Done) -> Done:
        """The answer of an endpoint, or that its client's storage budget has no room for it."""
        size = len(done.fields.get("reply", ""))
        principal = call.actor.principal
        # The result of an action has room already.
        if "result" in done.fields or size <= SMALL:
            return done
        if self._engine.has_room(principal, size, kept(call)):
            return done
        reason = f"what is left of the storage budget of {principal} has no room for {size} bytes"
        return _replied(429, f"endpoint {call.action} has answered, but {reason}")

    def _dry_run(self, call: Call) -> ActionResult:
        """Run an action's dry run; with `previews` store the result with that approval."""
        approvals = self._engine.store.approvals
        item = approvals.get(call.previews) if call.previews else None
        if item is None:
            return action_call.dry_run(self._engine.act_context(), call.action, call.params)
        found = action_call.dry_run(
            self._engine.act_context(), item.action_id, item.params, for_model=bool(item.wakes)
        )
        approvals.refresh(item.id, found)
        return found

    def broken(self, id: str, fields: Fields, why: str) -> Done:
        """End with the ledger's result, or as failed."""
        known = self._engine.store.executions.settle(_execution(id, fields.get("undoes")))
        return _done(known or action_call.failed(fields["action"], why))

    def lost(self, id: str, stuck: StuckJob) -> Done | None:
        """End with the ledger's result, unless the call may be executed now."""
        call = self._engine.store.calls.get(id)
        execution = _execution(id, call.undoes if call else None)
        result = self._engine.store.executions.settle(execution, naming.call(id))
        return None if result is None else _done(result)

    def given_up(self, id: str, stuck: StuckJob) -> Done:
        """End with the ledger's result."""
        call = self._engine.store.calls.get(id)
        action = call.action if call else "unknown"
        execution = _execution(id, call.undoes if call else None)
        return _done(give_up_execution(self._engine, execution, action, stuck))

    def _act(self, call: Call, fence: Fence, retry: bool) -> ActionResult:
        ledger = self._engine.ledger()
        decision = self._decision(call, ledger)
        if isinstance(decision, ActionResult):
            return decision
        request = act.Request(
            execution_id=_execution(call.id, call.undoes),
            decision=decision,
            requester=act.Requester(
                by=call.actor.principal,
                principals=(call.actor.principal,),
                # The answer of an endpoint is given at once, and cannot be made twice.
                may_wait=call.endpoint is None,
                ordered_at=call.created_at,
            ),
            proposal=act.ProposalTerms(naming.call(call.id), by_person=call.by_person),
            asked_by=call.actor.principal if call.requires_approval else None,
            retry=retry,
            undoes=call.undoes,
            fence=fence,
        )
        return in_turn(
            self._engine,
            decision.action,
            call.created_at,
            lambda: run_action(self._engine, ledger, request),
        )

    def _decision(self, call: Call, ledger: Ledger) -> Decision | ActionResult:
        action, params = call.action, call.params
        if call.undoes:
            entry = ledger.get(call.undoes)
            if entry is None:
                return action_call.failed(action, f"Unknown execution {call.undoes!r}")
            if naming.is_rollback(call.undoes):
                return action_call.failed(action, "A rollback cannot be rolled back")
            action, params = entry.action, entry.params
        known = self._engine.agent.host.actions.get(action)
        if known is None:
            return action_call.unknown(action)
        return Decision(
            action=action,
            params=params,
            rationale=call.rationale or unexplained(call.actor.principal),
            confidence=1.0,
            risk=known.risk,
            requires_approval=call.requires_approval,
        )

    def _answer(self, call: Call, fence: Fence, retry: bool) -> Done:
        endpoint = self._engine.agent.host.endpoints.get(call.action)
        assert call.endpoint is not None, "an endpoint's call carries the request"
        if endpoint is None:
            return _replied(404, f"this worker has no endpoint {call.action!r}")
        if retry and endpoint.method != "GET":
            return _replied(503, "the worker was lost while answering; the outcome is unknown")
        ctx = self._engine.act_context().context(endpoint.plugin_id)
        try:
            answer = time_limit.call(
                lambda: endpoint.call("handle", request=call.endpoint, ctx=ctx), endpoint.timeout
            )
        except (Exception, Overrun) as error:
            log.error("endpoint %s failed in call %s", endpoint.id, call.id, exc_info=error)
            return _replied(502, _failure(endpoint.id, error))
        if isinstance(answer, Perform):
            if endpoint.method == "GET":
                return _replied(502, f"endpoint {endpoint.id} may not act: its method is GET")
            return self._perform(call, answer, fence, retry)
        return _reply(answer, endpoint.id)

    def _perform(self, call: Call, wanted: Perform, fence: Fence, retry: bool) -> Done:
        changes = {"action": wanted.action, "params": wanted.params, "rationale": wanted.rationale}
        try:
            job = call.patched(changes)
        except ValidationError as error:
            why = f"endpoint {call.action} returned an invalid action: {explain(error)}"
            return _replied(502, why)
        result = self._act(job, fence, retry)
        body: JsonObject = {"success": result.success, "executionId": naming.call(call.id)}
        if approval_id := result.waits_for:
            waits: JsonObject = {"queued": True, "approvalId": approval_id}
            return _done(result, EndpointReply(status=202, body={**body, **waits}))
        return _done(result, EndpointReply(body={**body, "result": result.to_wire()}))


def _execution(call_id: str, undoes: str | None) -> str:
    """The ledger's name for the execution of a call."""
    return naming.rollback(undoes) if undoes else naming.call(call_id)


def _reply(answer: Any, endpoint: str) -> Done:
    try:
        made = answer if isinstance(answer, EndpointReply) else EndpointReply(body=answer)
        reply = EndpointReply.model_validate(unchecked(made))
        return _done(None, reply)
    except ValueError:
        return _replied(502, f"endpoint {endpoint} returned a value that is not JSON")


def _failure(endpoint: str, error: BaseException) -> str:
    """The error for the client, without the exception, which may hold a secret."""
    if isinstance(error, Overrun):
        return f"endpoint {endpoint} failed: {describe(error)}"
    return f"endpoint {endpoint} failed; see the log of the worker"


def _replied(status: int, error: str) -> Done:
    return _done(None, EndpointReply(status=status, body={"error": error}, failed=error))


def _done(result: ActionResult | None, reply: EndpointReply | None = None) -> Done:
    found = {"result": result, "reply": reply}
    fields = {name: value.to_json() for name, value in found.items() if value is not None}
    approval_id = result.waits_for if result else None
    if approval_id:
        # The call has succeeded: it requested an approval, which has its own state.
        return Done("succeeded", KEEP, {**fields, "approvalId": approval_id})
    return Done(result.state if result else "succeeded", KEEP, fields)
