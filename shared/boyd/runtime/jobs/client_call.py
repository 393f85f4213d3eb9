"""Handles calls of clients: execute, dry-run or roll back an action, or answer an endpoint."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from boyd import naming
from boyd.errors import Overrun
from boyd.models import (
    ActionResult,
    Call,
    Decision,
    EndpointReply,
    Fence,
    JsonObject,
    default_rationale,
)
from boyd.phases import action_call, time_limit
from boyd.phases.act import Ledger
from boyd.phases.act_request import ActRequest, ProposalTerms, Requester
from boyd.phases.orient import reason_of
from boyd.phases.phase_context import describe
from boyd.plugin import Perform
from boyd.plugin.plugin_boundary import plain_copy, unchecked
from boyd.runtime.engine import Engine
from boyd.runtime.jobs.action_jobs import give_up_execution, in_turn, run_action
from boyd.runtime.jobs.job_runner import Done, Fields, JobFailure, JobHandler, find_action
from boyd.runtime.leases import SMALL
from boyd.store import StuckJob, read_call
from boyd.store.calls import KEEP, seconds_to_keep
from boyd.text.redaction import mask_json

log = logging.getLogger(__name__)


class ClientCallHandler(JobHandler):
    """The calls to one agent."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def limit(self, fields: Fields) -> float:
        """Seconds one call may take."""
        endpoint = self._engine.agent.host.endpoints.get(fields.get("action", ""))
        if endpoint is not None:
            # It may request any action.
            return endpoint.timeout + self._engine.longest_action_limit()
        return self._engine.action_limit(fields.get("action"))

    def perform(self, id: str, fields: Fields, fence: Fence, retry: bool) -> Done:
        """Execute the call."""
        call = read_call(fields)
        if call.kind == "endpoint":
            done = self._as_room(call, self._answer(call, fence, retry))
            return replace(done, keep=seconds_to_keep(call))
        if find_action(self._engine, call.action, fields) is None:
            return self._fail(id, fields, action_call.describe_unknown(call.action))
        if call.kind == "dry-run":
            ledger = self._engine.ledger()
            return _finish(ledger.shorten(self._dry_run(call), call.actor.principal))
        return _finish(self._act(call, fence, retry))

    def _as_room(self, call: Call, done: Done) -> Done:
        """The answer of an endpoint, or that its client's storage budget has no room for it."""
        size = len(done.fields.get("reply", ""))
        principal = call.actor.principal
        # The result of an action has room already.
        if "result" in done.fields or size <= SMALL:
            return done
        if self._engine.has_room(principal, size, seconds_to_keep(call)):
            return done
        reason = f"what is left of the storage budget of {principal} has no room for {size} bytes"
        return _error_reply(429, f"endpoint {call.action} has answered, but {reason}")

    def _dry_run(self, call: Call) -> ActionResult:
        """Run an action's dry run; with `previews` store the result with that approval."""
        approvals = self._engine.store.approvals
        item = approvals.get(call.previews) if call.previews else None
        if item is None:
            return action_call.dry_run(self._engine.act_context(), call.action, call.params)
        result = action_call.dry_run(
            self._engine.act_context(), item.action_id, item.params, for_model=bool(item.wakes)
        )
        approvals.refresh(item.id, result)
        return result

    def handle_error(self, id: str, fields: Fields, failure: JobFailure) -> Done:
        """End with the ledger's result, or as failed."""
        return self._fail(id, fields, failure.reason)

    def _fail(self, id: str, fields: Fields, reason: str) -> Done:
        result = self._engine.store.executions.settle(_execution(id, fields.get("undoes")))
        return _finish(result or action_call.failure(fields["action"], reason))

    def handle_loss(self, id: str, stuck: StuckJob) -> Done | None:
        """End with the ledger's result, unless the call may be executed now."""
        call = self._engine.store.calls.get(id)
        execution = _execution(id, call.undoes if call else None)
        result = self._engine.store.executions.settle(execution, naming.call(id))
        return None if result is None else _finish(result)

    def give_up(self, id: str, stuck: StuckJob) -> Done:
        """End with the ledger's result."""
        call = self._engine.store.calls.get(id)
        action = call.action if call else "unknown"
        execution = _execution(id, call.undoes if call else None)
        return _finish(give_up_execution(self._engine, execution, action, stuck))

    def _act(self, call: Call, fence: Fence, retry: bool) -> ActionResult:
        ledger = self._engine.ledger()
        decision = self._decision(call, ledger)
        if isinstance(decision, ActionResult):
            return decision
        request = ActRequest(
            execution_id=_execution(call.id, call.undoes),
            decision=decision,
            requester=Requester(
                by=call.actor.principal,
                principals=(call.actor.principal,),
                # The answer of an endpoint is given at once, and cannot be made twice.
                may_wait=call.endpoint is None,
                by_hand=True,
                ordered_at=call.created_at,
                limits=() if call.actor.rights is None else (call.actor.rights,),
            ),
            proposal=ProposalTerms(naming.call(call.id), by_person=call.by_person),
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
                return action_call.failure(action, f"Unknown execution {call.undoes!r}")
            if naming.is_rollback(call.undoes):
                return action_call.failure(action, "A rollback cannot be rolled back")
            action, params = entry.action, entry.params
        definition = self._engine.agent.host.actions.get(action)
        if definition is None:
            return action_call.no_such_action(action)
        return Decision(
            action=action,
            params=params,
            rationale=call.rationale or default_rationale(call.actor.principal),
            confidence=1.0,
            risk=definition.risk,
            requires_approval=call.requires_approval,
        )

    def _answer(self, call: Call, fence: Fence, retry: bool) -> Done:
        endpoint = self._engine.agent.host.endpoints.get(call.action)
        assert call.endpoint is not None, "an endpoint's call carries the request"
        if endpoint is None:
            return _error_reply(404, f"this worker has no endpoint {call.action!r}")
        if retry and endpoint.method != "GET":
            return _error_reply(503, "the worker was lost while answering; the outcome is unknown")
        ctx = self._engine.act_context().context(endpoint.plugin_id)
        try:
            answer = time_limit.call(
                lambda: endpoint.call("handle", request=call.endpoint, ctx=ctx), endpoint.timeout
            )
        except (Exception, Overrun) as error:
            log.error("endpoint %s failed in call %s", endpoint.id, call.id, exc_info=error)
            return _error_reply(502, _failure(endpoint.id, error))
        if isinstance(answer, Perform):
            if endpoint.method == "GET":
                return _error_reply(502, f"endpoint {endpoint.id} may not act: its method is GET")
            return self._perform(call, answer, fence, retry)
        return _reply(answer, endpoint.id)

    def _perform(self, call: Call, request: Perform, fence: Fence, retry: bool) -> Done:
        try:
            # By its fields: a class derived from it may read them with code of its own.
            job = call.patched(plain_copy(vars(request)))
        except ValueError as error:
            reason = f"endpoint {call.action} returned an invalid action: {reason_of(error)}"
            return _error_reply(502, reason)
        result = self._act(job, fence, retry)
        body: JsonObject = {"success": result.success, "executionId": naming.call(call.id)}
        if approval_id := result.waits_for:
            waits: JsonObject = {"queued": True, "approvalId": approval_id}
            return _finish(result, EndpointReply(status=202, body={**body, **waits}))
        return _finish(result, EndpointReply(body={**body, "result": result.to_wire()}))


def _execution(call_id: str, undoes: str | None) -> str:
    """The ledger's name for the execution of a call."""
    return naming.rollback(undoes) if undoes else naming.call(call_id)


def _reply(answer: Any, endpoint: str) -> Done:
    try:
        value = answer if isinstance(answer, EndpointReply) else EndpointReply(body=answer)
        reply = EndpointReply.model_validate(unchecked(value))
        return _finish(None, reply)
    except ValueError:
        return _error_reply(502, f"endpoint {endpoint} returned a value that is not JSON")


def _failure(endpoint: str, error: BaseException) -> str:
    """The error for the client, without the exception, which may hold a secret."""
    if isinstance(error, Overrun):
        return f"endpoint {endpoint} failed: {describe(error)}"
    return f"endpoint {endpoint} failed; see the log of the worker"


def _error_reply(status: int, error: str) -> Done:
    return _finish(None, EndpointReply(status=status, body={"error": error}, failed=error))


def _finish(result: ActionResult | None, reply: EndpointReply | None = None) -> Done:
    parts = {"result": result, "reply": reply}
    fields = {n: mask_json(value.to_json()) for n, value in parts.items() if value is not None}
    approval_id = result.waits_for if result else None
    if approval_id:
        # The call has succeeded: it requested an approval, which has its own state.
        return Done("succeeded", KEEP, {**fields, "approvalId": approval_id})
    return Done(result.state if result else "succeeded", KEEP, fields)
