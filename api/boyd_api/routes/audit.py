"""`/audit`: who changed what, when and from where (A15)."""

from __future__ import annotations

from collections.abc import Iterator

from flask import Response
from pydantic import Field

from boyd.models import AuditHead, AuditPage, Model, Timestamp, Verification
from boyd_api.problems import Problem
from boyd_api.routing import Media, Routes
from boyd_api.serving import Ask

routes = Routes("audit")

_LINES = "application/x-ndjson"


class AuditQuery(Model):
    """Which entries."""

    limit: int = Field(default=50, ge=1, le=500)
    cursor: str | None = Field(default=None, max_length=50)


class ExportQuery(Model):
    """From when on."""

    since: Timestamp | None = None


class VerifyQuery(Model):
    """A head that was noted earlier, as `SEQ:HASH`."""

    expect: str | None = Field(default=None, max_length=100)


@routes.get("/audit", scope="admin", answers={200: AuditPage})
def show(ask: Ask, query: AuditQuery) -> AuditPage:
    """List what was done, newest first."""
    ask.agent.store.audit.seal()
    return ask.agent.store.audit.page(query.limit, query.cursor)


@routes.get(
    "/audit/export",
    scope="admin",
    answers={200: Media(_LINES, "The entries, oldest first, one JSON object a line.")},
)
def export(ask: Ask, query: ExportQuery) -> Response:
    """Export what was done, oldest first, as JSON lines."""
    ask.agent.store.audit.seal()
    lines = ask.agent.store.audit.export(query.since)
    return Response(_ended(lines), mimetype=_LINES)


@routes.get("/audit/verify", scope="admin", answers={200: Verification})
def verify(ask: Ask, query: VerifyQuery) -> Verification:
    """Check that every entry fits the one before it."""
    ask.agent.store.audit.seal()
    try:
        expected = AuditHead.parse(query.expect) if query.expect else None
    except ValueError as error:
        raise Problem("invalid-request", f"expect: {error}") from None
    return ask.agent.store.audit.verify(expect=expected)


def _ended(lines: Iterator[str]) -> Iterator[str]:
    return (f"{line}\n" for line in lines)
