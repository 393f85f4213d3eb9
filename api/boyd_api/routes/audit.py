"""`/audit`: who changed what, when and from where (A15)."""

from __future__ import annotations

from flask import Response
from pydantic import Field

from boyd.models import AuditFilter, AuditHead, AuditPage, Model, Verification
from boyd.store import Audit
from boyd_api.period import Period
from boyd_api.routing import Media, Routes
from boyd_api.serving import Ask

routes = Routes("audit")

_LINES = "application/x-ndjson"
_EXPORT = {200: Media(_LINES, "The entries, oldest first, one JSON object a line.")}


class ExportQuery(AuditFilter, Period):
    """Which entries; `by` is who did it, `kind` may be the beginning of one, as in `action`."""

    @property
    def wanted(self) -> AuditFilter:
        """The filter alone."""
        return AuditFilter(**{name: getattr(self, name) for name in AuditFilter.model_fields})


class AuditQuery(ExportQuery):
    """Which entries; with a filter a page may hold fewer than `limit` and have a `nextCursor`."""

    limit: int = Field(default=50, ge=1, le=500)
    cursor: str | None = Field(default=None, max_length=50)


class VerifyQuery(Model):
    """A head that was noted earlier, as `SEQ:HASH`."""

    expect: str | None = Field(default=None, pattern=r"^[1-9][0-9]{0,17}:[0-9a-f]{64}$")


@routes.get("/audit", scope="admin", answers={200: AuditPage})
def show(ask: Ask, query: AuditQuery) -> AuditPage:
    """List what was done, newest first."""
    return _page(ask.agent.store.audit, query)


@routes.get("/audit/export", scope="admin", answers=_EXPORT)
def export(ask: Ask, query: ExportQuery) -> Response:
    """Export what was done, oldest first, as JSON lines."""
    return _exported(ask.agent.store.audit, query)


@routes.get("/audit/verify", scope="admin", answers={200: Verification})
def verify(ask: Ask, query: VerifyQuery) -> Verification:
    """Check that every entry fits the one before it."""
    return _verified(ask.agent.store.audit, query)


@routes.get("/deployment/audit", scope="admin", reach="deployment", answers={200: AuditPage})
def show_deployment(ask: Ask, query: AuditQuery) -> AuditPage:
    """List what was done to all agents together: keys, and freezing everything."""
    return _page(ask.services.store.audit, query)


@routes.get("/deployment/audit/export", scope="admin", reach="deployment", answers=_EXPORT)
def export_deployment(ask: Ask, query: ExportQuery) -> Response:
    """Export what was done to all agents together, as JSON lines."""
    return _exported(ask.services.store.audit, query)


@routes.get(
    "/deployment/audit/verify", scope="admin", reach="deployment", answers={200: Verification}
)
def verify_deployment(ask: Ask, query: VerifyQuery) -> Verification:
    """Check the trail of what was done to all agents together."""
    return _verified(ask.services.store.audit, query)


def _page(audit: Audit, query: AuditQuery) -> AuditPage:
    audit.seal()
    return audit.page(query.limit, query.cursor, query.since, query.until, query.wanted)


def _exported(audit: Audit, query: ExportQuery) -> Response:
    audit.seal()
    lines = (f"{line}\n" for line in audit.export(query.since, query.until, query.wanted))
    return Response(lines, mimetype=_LINES)


def _verified(audit: Audit, query: VerifyQuery) -> Verification:
    audit.seal()
    expected = AuditHead.parse(query.expect) if query.expect else None
    return audit.verify(expect=expected)
