"""`/approvals`: what waits for people, and their answers (A3 to A11)."""

from __future__ import annotations

from typing import Any

from flask import request
from pydantic import Field

from boyd.errors import StoreUnavailable
from boyd.models import ApprovalItem, ApprovalQueue, CallRequest, Model
from boyd.models.responses import Resolved
from boyd.runtime import Resolution, Resolver
from boyd.store import Verdict
from boyd_api.calling import finished, ordered
from boyd_api.problems import Problem, ProblemDocument
from boyd_api.routing import Answer, Routes
from boyd_api.serving import Ask, not_found

routes = Routes("approvals")

#: What a refused answer is to HTTP.
_PROBLEMS = {
    "not-pending": "not-pending",
    "unknown": "not-pending",
    "already-approved": "already-approved",
    "requester": "requester",
    "not-an-approver": "not-an-approver",
    "note-required": "note-required",
    "changed": "changed",
}
_REFUSALS = tuple(dict.fromkeys(_PROBLEMS.values()))
_IF_MATCH = {"If-Match": "The `ETag` that the approval must still have."}


class QueueQuery(Model):
    """How much of the queue; `limit` counts for what is pending and for history alike."""

    include_history: bool = True
    limit: int = Field(default=100, ge=1, le=500)
    cursor: str | None = Field(default=None, max_length=500)


class WaitQuery(Model):
    """How many seconds to wait for the result; 0: not at all."""

    wait: float = Field(default=30.0, ge=0, le=3600)


class ApprovalAnswer(Model):
    """An answer; `actedBy` is whom the caller says to act for, kept beside the principal (A8)."""

    note: str | None = Field(default=None, max_length=5000)
    acted_by: str | None = Field(default=None, max_length=200)


class BulkAnswer(ApprovalAnswer):
    """The same answer to several approvals."""

    ids: list[str] = Field(min_length=1, max_length=100)


class BulkItem(Model):
    """What became of one of several approvals."""

    id: str
    success: bool
    approval: ApprovalItem | None = None
    problem: ProblemDocument | None = None


class BulkResult(Model):
    """What became of each."""

    results: list[BulkItem]


@routes.get("/approvals", scope="read", answers={200: ApprovalQueue})
def queue(ask: Ask, query: QueueQuery) -> ApprovalQueue:
    """List what waits, first deadline first, and what was resolved, last first."""
    approvals = ask.agent.store.approvals
    approvals.purge(ask.agent.entry.retention)
    return approvals.page(query.limit, query.cursor, query.include_history)


@routes.get("/approvals/<id>", scope="read", answers={200: ApprovalItem})
def show(ask: Ask, id: str) -> Answer:
    """Show one approval; its `ETag` changes with each change."""
    ask.agent.store.approvals.purge(ask.agent.entry.retention)
    item = ask.agent.store.approvals.get(id)
    if item is None:
        raise not_found(f"no approval {id!r}")
    return _tagged(item, item)


@routes.post(
    "/approvals/<id>/approve",
    scope="approvals",
    answers={200: Resolved, 202: Resolved},
    problems=_REFUSALS,
    idempotent=True,
    headers=_IF_MATCH,
)
def approve(ask: Ask, id: str, body: ApprovalAnswer | None, query: WaitQuery) -> Answer:
    """Approve; a worker executes the action, even if this request is cut off.

    200: it was executed, and how. 202: it needs more approvals, or has not ended in time; then
    `execution` of the approval tells how far it is.
    """
    found = _answered(ask, id, "approved", body)
    item = None
    if found.outcome == "approved":
        item = ask.until(lambda: _executed(ask, id), query.wait)
    if item is None or item.result is None:
        current = _now(ask, id) or _item(found)
        return _tagged(Resolved(success=True, approval=current), current, 202)
    resolved = Resolved(success=item.result.success, approval=item, result=item.result)
    return _tagged(resolved, item)


@routes.post(
    "/approvals/<id>/deny",
    scope="approvals",
    answers={200: Resolved},
    problems=_REFUSALS,
    idempotent=True,
    headers=_IF_MATCH,
)
def deny(ask: Ask, id: str, body: ApprovalAnswer | None) -> Answer:
    """Deny; nothing is executed."""
    item = _item(_answered(ask, id, "denied", body))
    return _tagged(Resolved(success=True, approval=item), item)


@routes.post(
    "/approvals/<id>/withdraw",
    scope="approvals",
    answers={200: Resolved},
    problems=_REFUSALS,
    idempotent=True,
    headers=_IF_MATCH,
)
def withdraw(ask: Ask, id: str, body: ApprovalAnswer | None) -> Answer:
    """Withdraw; the action is not wanted any more, and nothing is executed."""
    item = _item(_answered(ask, id, "withdrawn", body))
    return _tagged(Resolved(success=True, approval=item), item)


@routes.post(
    "/approvals/<id>/preview",
    scope="approvals",
    answers={200: ApprovalItem, 202: ApprovalItem},
    problems=["not-pending", "no-worker"],
    idempotent=True,
)
def preview(ask: Ask, id: str, query: WaitQuery) -> Answer:
    """Let a worker make the dry run of a pending approval again, and keep what it says.

    200: `preview` is what it says now. An action without a dry run, and a rollback, have none.
    202: it has not ended in time; `previewAt` tells of when the preview is.
    """
    item = _pending(ask, id)
    if item.undoes or not _has_dry_run(ask, item):
        return _tagged(item, item)
    job = CallRequest(
        kind="dry-run", action=item.action_id, params=item.params, previews=id, actor=ask.actor
    )
    call_id = ordered(ask, job, item.queue)
    done = ask.until(lambda: finished(ask, call_id), query.wait)
    now = _pending(ask, id)
    return _tagged(now, now, None if done else 202)


@routes.post("/approvals/approve", scope="approvals", answers={200: BulkResult}, idempotent=True)
def approve_all(ask: Ask, body: BulkAnswer) -> BulkResult:
    """Approve several, each for itself; the actions go on after the answer."""
    return _bulk(ask, "approved", body)


@routes.post("/approvals/deny", scope="approvals", answers={200: BulkResult}, idempotent=True)
def deny_all(ask: Ask, body: BulkAnswer) -> BulkResult:
    """Deny several, each for itself."""
    return _bulk(ask, "denied", body)


@routes.post("/approvals/withdraw", scope="approvals", answers={200: BulkResult}, idempotent=True)
def withdraw_all(ask: Ask, body: BulkAnswer) -> BulkResult:
    """Withdraw several, each for itself."""
    return _bulk(ask, "withdrawn", body)


def _pending(ask: Ask, id: str) -> ApprovalItem:
    """The item.

    Raises:
        Problem: it is not pending.
    """
    store = ask.agent.store
    store.approvals.purge(ask.agent.entry.retention)
    item = store.approvals.get(id)
    if item is None or item.status != "pending":
        raise _refused(id, Resolution("not-pending" if item else "unknown", item))
    return item


def _has_dry_run(ask: Ask, item: ApprovalItem) -> bool:
    actions = ask.agent.entry.catalog.actions
    return any(action.id == item.action_id and action.dry_run for action in actions)


def _resolver(ask: Ask) -> Resolver:
    return Resolver(ask.agent.store, ask.services.dispatcher, ask.agent.entry.retention)


def _answered(ask: Ask, id: str, verdict: Verdict, body: ApprovalAnswer | None) -> Resolution:
    given = body or ApprovalAnswer()
    actor = ask.actor.patched({"claims": given.acted_by or None})
    resolver = _resolver(ask)
    found = resolver.answer(id, verdict, actor, given.note, _version(), ask.repeatable_id)
    if not found.done:
        raise _refused(id, found)
    return found


def _version() -> int | None:
    """The version that `If-Match` names; one that cannot exist when it is none of ours."""
    given = request.headers.get("If-Match", "*").strip()
    if given == "*":
        return None
    number = given.removeprefix("W/").strip('"')
    return int(number) if number.isascii() and number.isdigit() and len(number) < 16 else -1


def _refused(id: str, found: Resolution) -> Problem:
    item = found.item
    if item is None:
        return Problem("not-pending", f"no approval {id!r} is known", approvalId=id)
    details = {
        "not-pending": f"the approval is {item.status}"
        + (f" by {item.acted_by}" if item.acted_by else ""),
        "already-approved": "you have approved it; it waits for somebody else",
        "requester": f"{' and '.join(item.requested_by)} asked for this action; somebody else has "
        "to approve it, or its policy to have allow_requester",
        "not-an-approver": _who_may(item),
        "note-required": "the policy wants a note that says why",
        "changed": f"the approval has changed; it is at version {item.version} now",
    }
    more: dict[str, Any] = {"approvalId": id, "approval": item.to_wire()}
    return Problem(_PROBLEMS[found.outcome], details[found.outcome], **more)


def _who_may(item: ApprovalItem) -> str:
    required = item.required
    parts = [f"members of {', '.join(required.groups)}"] if required.groups else []
    parts += [", ".join(required.principals)] if required.principals else []
    if required.person:
        return f"it takes a person{' among ' + ' or '.join(parts) if parts else ''}"
    return f"these may approve it: {' or '.join(parts)}"


def _item(found: Resolution) -> ApprovalItem:
    assert found.item is not None, "an answer that counts was given to an item"
    return found.item


def _now(ask: Ask, id: str) -> ApprovalItem | None:
    try:
        return ask.agent.store.approvals.get(id)
    except StoreUnavailable:
        return None  # what was answered counts; how it goes on is told later


def _executed(ask: Ask, id: str) -> ApprovalItem | None:
    item = ask.agent.store.approvals.get(id)
    return item if item is not None and item.result is not None else None


def _bulk(ask: Ask, verdict: Verdict, body: BulkAnswer) -> BulkResult:
    resolver = _resolver(ask)
    actor = ask.actor.patched({"claims": body.acted_by or None})
    results = []
    for id in dict.fromkeys(body.ids):
        found = resolver.answer(id, verdict, actor, body.note, None, ask.repeatable_id)
        problem = None if found.done else _refused(id, found).document
        results.append(BulkItem(id=id, success=found.done, approval=found.item, problem=problem))
    return BulkResult(results=results)


def _tagged(body: Model, item: ApprovalItem, status: int | None = None) -> Answer:
    return Answer(body, status, {"ETag": f'"{item.version}"'})
