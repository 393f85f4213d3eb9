"""Resources for assistants: iterations, approvals and the audit trail, by address."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any
from urllib.parse import quote, unquote

from mcp_types import INVALID_PARAMS

from boyd.errors import UnknownAgent
from boyd.export.archive.past_work import audit_page
from boyd.models import AuditFilter
from boyd_api.http.problems import HttpProblem
from boyd_api.mcp.assistant_answer import marked
from boyd_api.mcp.assistant_tool import AssistantRequest
from boyd_api.mcp.protocol_message import McpRefusal
from boyd_api.mcp.reading_tools import iteration_record
from boyd_api.routes import approval_routes

_JSON = "application/json"
#: Agents on a page of the list.
_AGENTS = 50
#: Approvals, and audit entries, in a resource.
_ITEMS = 50
#: What audit entries tell here; the rest, as addresses and keys, needs the scope `admin`.
_TOLD = frozenset({"seq", "at", "kind", "who", "before", "after", "note", "what"})
_BASE = "boyd://agent/"
_URI = re.compile(
    r"boyd://agent/([^/?#]{1,200})/(approvals|audit|iteration|approval)(?:/([^/?#]{1,200}))?"
)

_LISTED = {
    "approvals": "What waits for a person's approval, and what was answered last.",
    "audit": "The newest entries of the audit trail about approvals and executions.",
}
_TEMPLATES = {
    "iteration/{n}": "One iteration in full; `latest` is the newest that has ended.",
    "approval/{id}": "One approval.",
}


class AssistantResources:
    """The resources of all agents that the key may see."""

    def list(self, request: AssistantRequest, cursor: str | None) -> dict[str, Any]:
        """A page of the resources with a fixed address."""
        names = sorted(name for name in request.http.agents if cursor is None or name > cursor)
        found = [
            {
                "uri": f"{_BASE}{quote(name)}/{kind}",
                "name": f"{name}-{kind}",
                "description": told,
                "mimeType": _JSON,
            }
            for name in islice(names, _AGENTS)
            for kind, told in _LISTED.items()
        ]
        more = {"nextCursor": names[_AGENTS - 1]} if len(names) > _AGENTS else {}
        return {"resources": found, **more}

    def templates(self) -> dict[str, Any]:
        """The addresses of further resources."""
        found = [
            {
                "uriTemplate": f"{_BASE}{{agent}}/{path}",
                "name": path.partition("/")[0],
                "description": told,
                "mimeType": _JSON,
            }
            for path, told in _TEMPLATES.items()
        ]
        return {"resourceTemplates": found}

    def read(self, request: AssistantRequest, uri: str) -> dict[str, Any]:
        """A resource; raises `McpRefusal` if there is none at that address."""
        found = _URI.fullmatch(uri)
        if found is None or (found[3] is None) != (found[2] in _LISTED):
            raise _no_resource(uri)
        agent, kind, name = unquote(found[1]), found[2], unquote(found[3] or "")
        try:
            value = self._value(request, agent, kind, name)
        except UnknownAgent:
            raise _no_resource(uri) from None
        except HttpProblem as problem:
            if problem.kind.status != 404:
                raise
            raise _no_resource(uri) from None
        return {"contents": [{"uri": uri, "mimeType": _JSON, "text": marked(value)}]}

    def _value(self, request: AssistantRequest, agent: str, kind: str, name: str) -> Any:
        if kind == "iteration":
            return iteration_record(request, agent, None if name == "latest" else name)
        ctx = request.at(agent)
        if kind == "approval":
            return approval_routes.show(ctx, name).body
        if kind == "approvals":
            return approval_routes.queue(ctx, approval_routes.QueueQuery(limit=_ITEMS))
        return {"entries": audit_entries(request, agent)}


def audit_entries(request: AssistantRequest, agent: str) -> list[Mapping[str, Any]]:
    """The newest audit entries about approvals, newest first, as the scope `read` may see them."""
    ctx = request.at(agent)
    ctx.agent.store.audit_trail.seal()
    about = AuditFilter(kind="approval")
    page = audit_page(
        ctx.agent.store.audit_trail, agent, ctx.services.archive, _ITEMS, None, None, None, about
    )
    return [
        {name: value for name, value in entry.to_wire().items() if name in _TOLD}
        for entry in page.entries
    ]


def _no_resource(uri: str) -> McpRefusal:
    return McpRefusal(INVALID_PARAMS, "no such resource", data={"uri": uri})
