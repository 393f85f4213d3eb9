"""`/autonomy`: the track records of actions, and the grants to run alone that they have earned."""

from __future__ import annotations

from pydantic import Field

from boyd.models import Model, TrackRecordList
from boyd.models.responses import RevokedAutonomy
from boyd_api.http.problems import not_found
from boyd_api.http.request_context import RequestContext
from boyd_api.http.routing import Routes

routes = Routes("autonomy")


class RevokeRequest(Model):
    """The grants to revoke: those of an action, or only the one in a class of situation."""

    action: str = Field(min_length=1, max_length=200)
    situation: str = Field(default="", max_length=64)
    note: str = Field(default="", max_length=5000)


@routes.get("/autonomy", scope="read")
def autonomy(ctx: RequestContext) -> TrackRecordList:
    """List the track records of the actions, by class of situation, latest outcome first."""
    verified = [manifest.id for manifest in ctx.agent.entry.catalog.actions if manifest.verify]
    return TrackRecordList(records=ctx.agent.store.track_records.all(verified))


@routes.post("/autonomy/revoke", scope="admin")
def revoke_autonomy(ctx: RequestContext, body: RevokeRequest) -> RevokedAutonomy:
    """Have a person approve an action again that was let run alone."""
    revoked = ctx.agent.store.track_records.revoke(
        body.action, body.situation, ctx.actor, body.note
    )
    if not revoked:
        raise not_found(f"{body.action!r} has no such grant")
    return RevokedAutonomy(action=body.action, revoked=revoked)
