"""`/approvals` and `/autonomy`: actions that wait for people, and those that may run without."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from flask import request
from pydantic import Field

from boyd.errors import ArchiveUnavailable, StoreUnavailable
from boyd.models import (
    ApprovalItem,
    ApprovalOutcome,
    ApprovalQueue,
    CallRequest,
    Model,
    TrackRecordList,
)
from boyd.models.responses import Resolved, RevokedAutonomy
from boyd.store import Resolution, Verdict
from boyd_api.http.problems import HttpProblem, ProblemDocument, not_found
from boyd_api.http.request_context import PageQuery, RequestContext, WaitQuery
from boyd_api.http.routing import JsonResponse, Routes

approval_routes = Routes("approvals")
autonomy_routes = Routes("autonomy")

#: The API takes no signed links.
_REFUSALS = tuple(
    outcome.value
    for outcome in ApprovalOutcome
    if not outcome.counts and outcome != ApprovalOutcome.LINK_REFUSED
)
_IF_MATCH = {"If-Match": "The `ETag` that the approval must still have."}
_ANSWER: dict[str, Any] = {"scope": "approvals", "problems": _REFUSALS, "headers": _IF_MATCH}


class QueueQuery(PageQuery):
    """Selects a page of the queue; `limit` applies to pending items and to history alike."""

    include_history: bool = True
    limit: int = Field(default=100, ge=1, le=500)


class ApprovalAnswer(Model):
    """An answer; `actedBy` is whom the caller claims to act for, kept beside the principal."""

    note: str | None = Field(default=None, max_length=5000)
    acted_by: str | None = Field(default=None, max_length=200)


class BulkAnswer(ApprovalAnswer):
    """The same answer to several approvals."""

    ids: list[str] = Field(min_length=1, max_length=100)


class BulkItem(Model):
    """The outcome of one of several approvals."""

    id: str
    success: bool
    approval: ApprovalItem | None = None
    problem: ProblemDocument | None = None


class BulkResult(Model):
    """The outcome of each approval."""

    results: list[BulkItem]


class RevokeRequest(Model):
    """The grants to revoke: those of an action, or only the one in a class of situation."""

    action: str = Field(min_length=1, max_length=200)
    situation: str = Field(default="", max_length=64)
    note: str = Field(default="", max_length=5000)


@approval_routes.get("/approvals", scope="read")
def queue(ctx: RequestContext, query: QueueQuery) -> ApprovalQueue:
    """List pending approvals, first deadline first, and resolved ones, last first.

    An approval past its deadline is listed as expired.
    """
    page = ctx.agent.past_work.approvals(query.limit, query.cursor, query.include_history)
    pending = [for_reader(ctx, item) for item in ctx.agent.of_now(page.pending)]
    return page.patched({"pending": pending})


@approval_routes.get("/approvals/<id>", scope="read", answers={200: ApprovalItem})
def show(ctx: RequestContext, id: str) -> JsonResponse:
    """Show one approval; its `ETag` changes with each change."""
    item = ctx.agent.past_approval(id)
    if item is None:
        raise not_found(f"no approval {id!r}")
    return _with_etag(for_reader(ctx, item), item)


@approval_routes.post("/approvals/<id>/approve", answers={200: Resolved, 202: Resolved}, **_ANSWER)
def approve(
    ctx: RequestContext, id: str, body: ApprovalAnswer | None, query: WaitQuery
) -> JsonResponse:
    """Approve; a worker executes the action, even if the client disconnects.

    200: it was executed, with its result. 202: it needs more approvals, or has not ended in time;
    `execution` of the approval then shows its progress.
    """
    resolution = _submit_answer(ctx, id, "approved", body)
    item = _item(resolution)
    if resolution.outcome == ApprovalOutcome.APPROVED and query.wait != 0:
        item = ctx.until(lambda: _item_with_result(ctx, id), query.wait) or _latest(ctx, item)
    if item.result is None:
        return _with_etag(Resolved(success=True, approval=item), item, 202)
    resolved = Resolved(success=item.result.success, approval=item, result=item.result)
    return _with_etag(resolved, item)


@approval_routes.post("/approvals/<id>/deny", answers={200: Resolved}, **_ANSWER)
def deny(ctx: RequestContext, id: str, body: ApprovalAnswer | None) -> JsonResponse:
    """Deny; nothing is executed."""
    return _resolve(ctx, id, "denied", body)


@approval_routes.post("/approvals/<id>/withdraw", answers={200: Resolved}, **_ANSWER)
def withdraw(ctx: RequestContext, id: str, body: ApprovalAnswer | None) -> JsonResponse:
    """Withdraw; the action is not wanted any more, and nothing is executed."""
    return _resolve(ctx, id, "withdrawn", body)


@approval_routes.post(
    "/approvals/<id>/preview",
    scope="approvals",
    answers={200: ApprovalItem, 202: ApprovalItem},
    problems=["not-pending", "no-worker"],
)
def preview(ctx: RequestContext, id: str, query: WaitQuery) -> JsonResponse:
    """Repeat the dry run of a pending approval on a worker, and keep its result.

    200: `preview` is the new result. Rollbacks, and actions without a dry run, have none.
    202: it has not ended in time; `previewAt` is the time of the preview shown.
    """
    item = _pending(ctx, id)
    actions = ctx.agent.entry.catalog.actions
    if item.undoes or not any(
        manifest.id == item.action_id and manifest.dry_run for manifest in actions
    ):
        return _with_etag(item, item)
    work = CallRequest(
        kind="dry-run", action=item.action_id, params=item.params, previews=id, actor=ctx.actor
    )
    done = ctx.await_call(ctx.call_worker(work, item.queue, item.target), query.wait)
    current = _pending(ctx, id)
    return _with_etag(current, current, None if done else 202)


@approval_routes.post("/approvals/approve", scope="approvals")
def approve_all(ctx: RequestContext, body: BulkAnswer) -> BulkResult:
    """Approve several, each by itself; the actions continue after the response."""
    return _bulk(ctx, "approved", body)


@approval_routes.post("/approvals/deny", scope="approvals")
def deny_all(ctx: RequestContext, body: BulkAnswer) -> BulkResult:
    """Deny several, each by itself."""
    return _bulk(ctx, "denied", body)


@approval_routes.post("/approvals/withdraw", scope="approvals")
def withdraw_all(ctx: RequestContext, body: BulkAnswer) -> BulkResult:
    """Withdraw several, each by itself."""
    return _bulk(ctx, "withdrawn", body)


@autonomy_routes.get("/autonomy", scope="read")
def autonomy(ctx: RequestContext) -> TrackRecordList:
    """List the track records of the actions, by class of situation, latest outcome first."""
    verified = [manifest.id for manifest in ctx.agent.entry.catalog.actions if manifest.verify]
    return TrackRecordList(records=ctx.agent.store.track_records.all(verified))


@autonomy_routes.post("/autonomy/revoke", scope="admin")
def revoke_autonomy(ctx: RequestContext, body: RevokeRequest) -> RevokedAutonomy:
    """Have a person approve an action again that was let run alone."""
    revoked = ctx.agent.store.track_records.revoke(
        body.action, body.situation, ctx.actor, body.note
    )
    if not revoked:
        raise not_found(f"{body.action!r} has no such grant")
    return RevokedAutonomy(action=body.action, revoked=revoked)


def _pending(ctx: RequestContext, id: str) -> ApprovalItem:
    item = ctx.agent.approval(id)
    if item is None or item.status != "pending":
        raise _refusal(ctx, id, Resolution(ApprovalOutcome.NOT_PENDING, item))
    return item


def for_reader(ctx: RequestContext, item: ApprovalItem) -> ApprovalItem:
    """The item, with `no_right` set if the rights of the caller do not let it answer."""
    permission = ctx.may("approve", item.action_id, item.target)
    if permission.allowed or item.status != "pending":
        return item
    return item.patched({"no_right": permission.reason})


def _submit_answer(
    ctx: RequestContext, id: str, verdict: Verdict, body: ApprovalAnswer | None
) -> Resolution:
    options = body or ApprovalAnswer()
    resolution = answer(ctx, id, verdict, options.note, _version(), options.acted_by)
    if not resolution.counts:
        raise _refusal(ctx, id, resolution)
    return resolution


def answer(
    ctx: RequestContext,
    id: str,
    verdict: Verdict,
    note: str | None = None,
    version: int | None = None,
    claims: str | None = None,
) -> Resolution:
    """Answer an approval of the chosen agent, which must still have that *version*, if any."""
    actor = ctx.actor.patched({"claims": claims or None})
    return ctx.agent.resolver.answer(id, verdict, actor, note, version, ctx.repeatable_id)


def _resolve(
    ctx: RequestContext, id: str, verdict: Verdict, body: ApprovalAnswer | None
) -> JsonResponse:
    item = _item(_submit_answer(ctx, id, verdict, body))
    return _with_etag(Resolved(success=True, approval=item), item)


def _version() -> int | None:
    """The version in `If-Match`; an impossible one if it is not an ETag of ours."""
    tag = request.headers.get("If-Match", "*").strip()
    if tag == "*":
        return None
    number = tag.removeprefix("W/").strip('"')
    return int(number) if number.isascii() and number.isdigit() and len(number) < 16 else -1


def _refusal(ctx: RequestContext, id: str, resolution: Resolution) -> HttpProblem:
    item = resolution.item
    with suppress(ArchiveUnavailable):
        item = item or ctx.agent.past_approval(id)
    if item is None:
        return HttpProblem(ApprovalOutcome.NOT_PENDING, f"no approval {id!r}", approvalId=id)
    resolution = replace(resolution, item=item)
    more: dict[str, Any] = {"approvalId": id, "approval": item.to_wire()}
    return HttpProblem(resolution.outcome, refusal_of(resolution), **more)


def refusal_of(resolution: Resolution) -> str:
    """The reason for refusing an answer."""
    if resolution.item is None:
        return "no longer known"
    if resolution.outcome == ApprovalOutcome.FROZEN:
        return f"{resolution.reason}. It stays pending: approve it once that is lifted, or deny it"
    return resolution.reason or refusal_text(resolution.outcome, resolution.item)


def refusal_text(outcome: ApprovalOutcome, item: ApprovalItem) -> str:
    """The reason for refusing an answer to *item* with that outcome."""
    by = f" by {item.acted_by}" if item.acted_by else ""
    details = {
        ApprovalOutcome.NOT_PENDING: f"the approval is {item.status}{by}",
        ApprovalOutcome.ALREADY_APPROVED: "you have already approved it; it needs another approver",
        ApprovalOutcome.REQUESTER: f"{' and '.join(item.requested_by)} requested this action; "
        "someone else must approve it, unless its policy sets allow_requester",
        ApprovalOutcome.NOT_AN_APPROVER: _who_may(item),
        ApprovalOutcome.NOTE_REQUIRED: "the policy requires a note with the reason",
        ApprovalOutcome.LINK_REFUSED: "the link has expired, or answering it needs a login by now",
        ApprovalOutcome.CHANGED: f"the approval has changed; its version is now {item.version}",
    }
    return details[outcome]


def _who_may(item: ApprovalItem) -> str:
    required = item.required
    parts = [f"members of {', '.join(required.groups)}"] if required.groups else []
    parts += [", ".join(required.principals)] if required.principals else []
    if required.person:
        return f"it requires a person{' among ' + ' or '.join(parts) if parts else ''}"
    return f"it may be approved by {' or '.join(parts)}"


def _item(resolution: Resolution) -> ApprovalItem:
    assert resolution.item is not None, "an answer that counts was given to an item"
    return resolution.item


def _item_with_result(ctx: RequestContext, id: str) -> ApprovalItem | None:
    item = ctx.agent.store.approvals.get(id)
    return item if item is not None and item.result is not None else None


def _latest(ctx: RequestContext, item: ApprovalItem) -> ApprovalItem:
    """The item as it is now; while Redis is away as it is *item*, for the answer counts."""
    with suppress(StoreUnavailable):
        return ctx.agent.store.approvals.get(item.id) or item
    return item


def _bulk(ctx: RequestContext, verdict: Verdict, body: BulkAnswer) -> BulkResult:
    actor = ctx.actor.patched({"claims": body.acted_by or None})
    results = []
    for id in dict.fromkeys(body.ids):
        resolution = ctx.agent.resolver.answer(
            id, verdict, actor, body.note, None, ctx.repeatable_id
        )
        problem = None if resolution.counts else _refusal(ctx, id, resolution).document
        results.append(
            BulkItem(id=id, success=resolution.counts, approval=resolution.item, problem=problem)
        )
    return BulkResult(results=results)


def _with_etag(body: Model, item: ApprovalItem, status: int | None = None) -> JsonResponse:
    return JsonResponse(body, status, {"ETag": f'"{item.version}"'})
