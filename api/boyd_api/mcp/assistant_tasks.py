"""Tasks of assistants: proposals that wait for a person, and investigations.

A task has no state of its own: it is read from the call, the approval or the investigation that it
stands for, so it outlives any process. Nothing that a client sends to a task answers an approval.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from urllib.parse import quote

from flask import request as http_request
from mcp_types import INVALID_PARAMS

from boyd.errors import UnknownAgent
from boyd.models import ApprovalItem, Call, JsonObject
from boyd.models.investigation import Investigation
from boyd.store.calls import KEEP
from boyd_api.http.problems import HttpProblem
from boyd_api.http.request_context import RequestContext
from boyd_api.mcp.assistant_tool import AssistantRequest, TaskState, tool_error, tool_result
from boyd_api.mcp.protocol_message import McpRefusal
from boyd_api.routes import investigation_routes

_PROPOSAL, _INVESTIGATION = "proposal", "investigation"
_NAME = re.compile(rf"({_PROPOSAL}|{_INVESTIGATION}):([^\s:]{{1,200}}):([0-9a-f-]{{36}})")
#: Milliseconds for which a proposal can be asked for, at least.
_KEPT = int(KEEP * 1000)
#: States of an execution that has not ended.
_OPEN = ("queued", "running")


class AssistantTasks:
    """The tasks of an assistant, as the protocol asks for them."""

    def get(self, request: AssistantRequest, name: str) -> TaskState:
        """The state of a task; raises `McpRefusal` if the caller has none of that name."""
        return find_task(request, name)

    def update(self, request: AssistantRequest, name: str, answers: object) -> None:
        """Take note that the client has answered what the task asks for.

        It asks for a person's decision on a page, which ends only there: *answers* change nothing.
        """
        find_task(request, name)

    def cancel(self, request: AssistantRequest, name: str) -> None:
        """Cancel an investigation.

        A proposal is left to people: requesters may not withdraw approvals.
        """
        if find_task(request, name).status in ("completed", "failed", "cancelled"):
            return
        kind, agent, id = _parts(name)
        if kind == _INVESTIGATION:
            if not request.allows("runs"):
                raise McpRefusal(403, "the key lacks the scope 'runs'", status=403)
            investigation_routes.cancel(request.at(agent, "runs"), id)


def proposal_name(agent_id: str, call_id: str) -> str:
    """The name of the task of a proposal."""
    return f"{_PROPOSAL}:{agent_id}:{call_id}"


def find_task(request: AssistantRequest, name: str) -> TaskState:
    """The state of a task; raises `McpRefusal` if the caller has none of that name."""
    kind, agent, id = _parts(name)
    try:
        ctx = request.at(agent)
    except UnknownAgent:
        raise _no_task(name) from None
    if kind == _PROPOSAL:
        call = ctx.agent.store.calls.get(id)
        if call is None or not call.by_person or call.actor.principal != ctx.actor.principal:
            raise _no_task(name)
        return proposal_task(request, ctx, name, call)
    try:
        investigation = investigation_routes.show(ctx, id)
    except HttpProblem:
        raise _no_task(name) from None
    if investigation.asked_by != ctx.actor.principal:
        raise _no_task(name)
    return investigation_task(request, ctx, investigation)


def proposal_task(
    request: AssistantRequest, ctx: RequestContext, name: str, call: Call
) -> TaskState:
    """The task of a proposal."""
    item = ctx.agent.past_work.approval(call.approval_id) if call.approval_id else None
    if item is not None:
        return _approval_task(request, ctx, name, call, item)
    at = call.execution.ended_at if call.execution else None
    state = TaskState(name, "working", "a worker prepares the proposal", *_times(call, at), _KEPT)
    if call.execution is None or call.execution.state in _OPEN:
        return state
    if call.approval_id:
        return _complete(state, tool_error("the approval is no longer kept"))
    reason = (call.result.error if call.result else None) or "the proposal was lost"
    return _complete(state, tool_result({"said": f"nobody was asked: {reason}"}, failed=True))


def _approval_task(
    request: AssistantRequest, ctx: RequestContext, name: str, call: Call, item: ApprovalItem
) -> TaskState:
    page = _page(ctx, item.agent_id, f"approvals/{quote(item.id)}")
    times = _times(call, item.updated_at)
    if item.status == "pending":
        return _waiting(request, name, item.id, page, times)
    by = f" by {item.acted_by}" if item.acted_by else ""
    text = f"{item.status}{by}" + (f": {item.note}" if item.note else "")
    if item.status == "withdrawn":
        return TaskState(name, "cancelled", text, *times, _KEPT)
    state = TaskState(name, "working", f"{text}; it is being executed", *times, _KEPT)
    answer: JsonObject = {"approval": item.id, "said": text, "page": page}
    if item.status != "approved":
        return _complete(state, tool_result({**answer, "executed": False}, failed=True))
    if item.result is None:
        return state
    result = {**answer, "result": item.result.to_wire()}
    return _complete(state, tool_result(result, failed=not item.result.is_fine))


def investigation_task(
    request: AssistantRequest, ctx: RequestContext, investigation: Investigation
) -> TaskState:
    """The task of an investigation."""
    name = f"{_INVESTIGATION}:{ctx.agent.entry.id}:{investigation.id}"
    times = (investigation.created_at, investigation.updated_at)
    page = _page(ctx, ctx.agent.entry.id, f"investigations/{quote(investigation.id)}")
    if investigation.status == "waiting" and investigation.approval_id:
        where = _page(ctx, ctx.agent.entry.id, f"approvals/{quote(investigation.approval_id)}")
        return _waiting(request, name, investigation.approval_id, where, times)
    state = TaskState(name, "working", f"the model investigates: {page}", *times)
    if investigation.status != "ended":
        return state
    if investigation.ending == "cancelled":
        return TaskState(name, "cancelled", f"cancelled by {investigation.cancelled_by}", *times)
    answer = {
        "ending": investigation.ending,
        "detail": investigation.detail,
        "text": investigation.text,
        "page": page,
    }
    return _complete(state, tool_result(answer, failed=not investigation.text))


def _waiting(
    request: AssistantRequest, name: str, key: str, page: str, times: tuple[datetime, datetime]
) -> TaskState:
    """The task while a person has to decide; only some clients can be asked to open a page."""
    text = f"it waits for a person's decision: {page}"
    message = "A person has to decide on this action, in the console of Boyd."
    elicitation = {
        "method": "elicitation/create",
        "params": {"mode": "url", "message": message, "url": page},
    }
    asks = {key: elicitation} if request.message.opens_pages else {}
    return TaskState(name, "input_required", text, *times, _KEPT, asks=asks)


def _complete(state: TaskState, result: dict[str, object]) -> TaskState:
    text = "it has failed" if result["isError"] else "done"
    return replace(state, status="completed", said=text, result=result)


def _times(call: Call, at: datetime | None) -> tuple[datetime, datetime]:
    return call.created_at, at or call.created_at


def _page(ctx: RequestContext, agent_id: str, path: str) -> str:
    """The address of a page of the console, which has a login of its own."""
    base = ctx.services.settings.api.url or http_request.host_url.rstrip("/")
    return f"{base}/console/agents/{quote(agent_id)}/{path}"


def _parts(name: str) -> tuple[str, str, str]:
    match = _NAME.fullmatch(name)
    if match is None:
        raise _no_task(name)
    return match[1], match[2], match[3]


def _no_task(name: str) -> McpRefusal:
    return McpRefusal(INVALID_PARAMS, f"no task {name[:300]!r} of yours, or it is no longer kept")
