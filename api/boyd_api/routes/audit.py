"""`/audit`: who changed what, when and from where (A15)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

from flask import Response
from pydantic import BeforeValidator, Field

from boyd.models import AuditHead, AuditPage, Model, Timestamp, Verification
from boyd_api.routing import Media, Routes
from boyd_api.serving import Ask

routes = Routes("audit")

_LINES = "application/x-ndjson"
_DATE = re.compile(r"\d{4}-\d\d-\d\d[Tt ]", re.ASCII)


class AuditQuery(Model):
    """Which entries."""

    limit: int = Field(default=50, ge=1, le=500)
    cursor: str | None = Field(default=None, max_length=50)


def _written(value: object) -> object:
    """Refuse a number, which would be read as seconds since 1970."""
    if isinstance(value, str) and not _DATE.match(value):
        raise ValueError("should be a time such as 2026-01-05T12:00:00Z")
    return value


class ExportQuery(Model):
    """From when on."""

    since: Annotated[Timestamp | None, BeforeValidator(_written)] = None


class VerifyQuery(Model):
    """A head that was noted earlier, as `SEQ:HASH`."""

    expect: str | None = Field(default=None, pattern=r"^[1-9][0-9]{0,17}:[0-9a-f]{64}$")


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
    expected = AuditHead.parse(query.expect) if query.expect else None
    return ask.agent.store.audit.verify(expect=expected)


def _ended(lines: Iterator[str]) -> Iterator[str]:
    return (f"{line}\n" for line in lines)
