"""`/audit`, `/keys`, `/login-links`: the audit trail, API keys, and logins to the console."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from flask import Response
from pydantic import Field

from boyd.export.archive.merged_work import MergedAudit
from boyd.models import ApiKey, AuditFilter, AuditHead, AuditPage, Model, Scope, Verification
from boyd.models.actor import NewName, NewPrincipal
from boyd.models.responses import KeyInfo, KeyList, LoginLink, NewKey, Revoked
from boyd.models.rights import RightList
from boyd.store import Audit
from boyd.store.login_sessions import LINK, login_path
from boyd_api.http.problems import HttpProblem, not_found
from boyd_api.http.request_context import PageQuery, PeriodQuery, RequestContext
from boyd_api.http.routing import JsonResponse, Media, Routes

audit_routes = Routes("audit")
key_routes = Routes("keys")

_LINES = "application/x-ndjson"
_EXPORT: dict[str, Any] = {
    "answers": {200: Media(_LINES, "The entries, oldest first, one JSON object a line.")}
}
#: All agents together: creation of keys, and freezing everything.
_DEPLOYMENT: dict[str, Any] = {"scope": "admin", "reach": "deployment"}
#: Ten years, in seconds.
_LONGEST = 10 * 366 * 86_400.0

_Word = Annotated[str, Field(min_length=1, max_length=200)]


class ExportQuery(AuditFilter, PeriodQuery):
    """Selects entries; `by` is who acted, `kind` may be a prefix such as `action`."""

    @property
    def filter(self) -> AuditFilter:
        """The filter without the period."""
        return AuditFilter(**{name: getattr(self, name) for name in AuditFilter.model_fields})


class AuditPageQuery(PageQuery, ExportQuery):
    """Selects a page; with a filter it may hold fewer than `limit` and have a `nextCursor`."""

    cursor: str | None = Field(default=None, max_length=50)


class VerifyQuery(Model):
    """A head that was noted earlier, as `SEQ:HASH`."""

    expect: str | None = Field(default=None, pattern=r"^[1-9][0-9]{0,17}:[0-9a-f]{64}$")


class KeyRequest(Model):
    """A key to create; `expiresIn` is in seconds, empty `agents` mean all.

    `may` has rights such as `approve restart:* on web-*`: with any, it may do nothing else.
    """

    name: NewName
    principal: NewPrincipal
    person: bool = False
    scopes: list[Scope] = Field(min_length=1, max_length=6)
    groups: list[NewName] = Field(default_factory=list, max_length=100)
    agents: list[_Word] = Field(default_factory=list, max_length=100)
    may: RightList = Field(default_factory=list)
    expires_in: float | None = Field(default=None, gt=0, le=_LONGEST)


@audit_routes.get("/audit", scope="admin")
@audit_routes.get("/deployment/audit", label="show_deployment", **_DEPLOYMENT)
def show(ctx: RequestContext, query: AuditPageQuery) -> AuditPage:
    """List the audit entries of the agent, or of the deployment as a whole, newest first."""
    agent_id = None if ctx.chosen is None else ctx.agent.entry.id
    audit = MergedAudit(_trail(ctx), agent_id, ctx.services.archive)
    return audit.page(query.limit, query.cursor, query.since, query.until, query.filter)


@audit_routes.get("/audit/export", scope="admin", **_EXPORT)
@audit_routes.get("/deployment/audit/export", label="export_deployment", **_EXPORT, **_DEPLOYMENT)
def export(ctx: RequestContext, query: ExportQuery) -> Response:
    """Export the audit entries, oldest first, as JSON lines."""
    entries = _trail(ctx).export(query.since, query.until, query.filter)
    return Response((f"{line}\n" for line in entries), mimetype=_LINES)


@audit_routes.get("/audit/verify", scope="admin")
@audit_routes.get("/deployment/audit/verify", label="verify_deployment", **_DEPLOYMENT)
def verify(ctx: RequestContext, query: VerifyQuery) -> Verification:
    """Verify that every audit entry matches the one before it."""
    expected = AuditHead.parse(query.expect) if query.expect else None
    return _trail(ctx).verify(expect=expected)


def _trail(ctx: RequestContext) -> Audit:
    """The sealed trail of the agent in the path, or of the deployment as a whole."""
    store = ctx.services.store if ctx.chosen is None else ctx.agent.store
    store.audit_trail.seal()
    return store.audit_trail


@key_routes.get("/keys", label="show", **_DEPLOYMENT)
def show_keys(ctx: RequestContext) -> KeyList:
    """List the keys."""
    return KeyList(
        keys=[KeyInfo(**_public_fields(key)) for key in ctx.services.store.api_keys.all()]
    )


@key_routes.post("/keys", answers={201: NewKey}, **_DEPLOYMENT)
def create(ctx: RequestContext, body: KeyRequest) -> JsonResponse:
    """Create a key.

    Its text is only in this response: a repetition with the same `Idempotency-Key` does not show
    it again.
    """
    key, text = ctx.services.store.api_keys.create(
        **dict(body), by=ctx.actor, key_id=ctx.idempotent_id().replace("-", "")[:12]
    )
    new_key = NewKey(**_public_fields(key))
    return JsonResponse(new_key.patched({"key": text}), kept=new_key)


@key_routes.delete("/keys/<id>", **_DEPLOYMENT)
def revoke(ctx: RequestContext, id: str) -> Revoked:
    """Revoke a key at once."""
    if not ctx.services.store.api_keys.revoke(id, ctx.actor):
        raise not_found(f"no key {id!r}")
    return Revoked(id=id)


@key_routes.post("/login-links", scope="kiosk", reach="visible", answers={201: LoginLink})
def create_login_link(ctx: RequestContext) -> JsonResponse:
    """Create a link that signs a browser in to the console once, with the key of this request."""
    if ctx.key is None or ctx.now is None:
        raise HttpProblem("bad-request", "the console needs no login here: open /console/")
    if ctx.key.is_identity:
        raise HttpProblem("bad-request", "only keys create login links: sign in at /console/login")
    path = login_path(ctx.services.store.login_sessions.create_link(ctx.key.id))
    link = LoginLink(expires_at=ctx.now + timedelta(seconds=LINK))
    return JsonResponse(link.patched({"path": path}), kept=link)


def _public_fields(key: ApiKey) -> dict[str, Any]:
    return key.model_dump(exclude={"hash"})
