"""`…/acknowledge` and `…/release`: who takes care of an approval or an open anomaly."""

from __future__ import annotations

from pydantic import Field

from boyd.models import ApprovalItem, Model, OpenAnomaly
from boyd.models.responses import AnomalyList
from boyd.store import Acknowledged
from boyd_api.http.problems import HttpProblem, not_found
from boyd_api.http.request_context import RequestContext
from boyd_api.http.routing import Routes

approval_routes = Routes("approvals")
anomaly_routes = Routes("anomalies")

#: The longest time in seconds until an acknowledgement lapses.
LONGEST = 7 * 86400.0


class AcknowledgeRequest(Model):
    """The acknowledgement: it lapses after so many `seconds`, or lasts as long as its subject."""

    seconds: float | None = Field(default=None, gt=0, le=LONGEST)
    note: str = Field(default="", max_length=500)


@approval_routes.post(
    "/approvals/<id>/acknowledge", scope="approvals", problems=["not-pending"], label="acknowledge"
)
def acknowledge_approval(
    ctx: RequestContext, id: str, body: AcknowledgeRequest | None
) -> ApprovalItem:
    """Take care of a pending approval: it is not escalated meanwhile.

    It replaces an acknowledgement by another principal. With `seconds` those who were asked are
    reminded afterwards.
    """
    request = body or AcknowledgeRequest()
    outcome = ctx.agent.store.acknowledgements.acknowledge_approval(
        id, ctx.actor, request.seconds, request.note
    )
    return _approval(ctx, id, outcome)


@approval_routes.post(
    "/approvals/<id>/release", scope="approvals", problems=["not-pending"], label="release"
)
def release_approval(ctx: RequestContext, id: str) -> ApprovalItem:
    """End the acknowledgement of a pending approval, and remind those who were asked."""
    outcome = ctx.agent.store.acknowledgements.release_approval(id, ctx.actor)
    return _approval(ctx, id, outcome)


@anomaly_routes.get("/anomalies", scope="read", label="list")
def list_anomalies(ctx: RequestContext) -> AnomalyList:
    """List the open anomalies, worst first."""
    return AnomalyList(anomalies=list(ctx.agent.store.acknowledgements.anomalies()))


@anomaly_routes.post("/anomalies/<id>/acknowledge", scope="approvals", label="acknowledge")
def acknowledge_anomaly(
    ctx: RequestContext, id: str, body: AcknowledgeRequest | None
) -> OpenAnomaly:
    """Take care of an open anomaly, until it ends."""
    request, anomaly = body or AcknowledgeRequest(), _anomaly(ctx, id)
    ctx.agent.store.acknowledgements.acknowledge_anomaly(
        anomaly, ctx.actor, request.seconds, request.note
    )
    return _anomaly(ctx, id)


@anomaly_routes.post("/anomalies/<id>/release", scope="approvals", label="release")
def release_anomaly(ctx: RequestContext, id: str) -> OpenAnomaly:
    """End the acknowledgement of an open anomaly."""
    ctx.agent.store.acknowledgements.release_anomaly(_anomaly(ctx, id), ctx.actor)
    return _anomaly(ctx, id)


def _approval(ctx: RequestContext, id: str, outcome: Acknowledged) -> ApprovalItem:
    item = ctx.agent.approval(id)
    if item is None:
        raise not_found(f"no approval {id!r}")
    if outcome == "not-pending":
        by = f" by {item.acted_by}" if item.acted_by else ""
        problem = f"the approval is {item.status}{by}"
        raise HttpProblem("not-pending", problem, approvalId=id, approval=item.to_wire())
    return item


def _anomaly(ctx: RequestContext, id: str) -> OpenAnomaly:
    anomalies = ctx.agent.store.acknowledgements.anomalies()
    anomaly = next((candidate for candidate in anomalies if candidate.id == id), None)
    if anomaly is None:
        raise not_found(f"no open anomaly {id!r}")
    return anomaly
