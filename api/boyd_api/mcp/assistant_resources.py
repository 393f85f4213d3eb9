"""Resources for assistants, by address, and the prompts that their users can choose."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import quote, unquote

from mcp_types import INVALID_PARAMS

from boyd.errors import UnknownAgent
from boyd.export.archive.merged_work import MergedAudit
from boyd.models import AuditFilter
from boyd_api.http.problems import HttpProblem
from boyd_api.mcp.assistant_tool import AssistantRequest, mark_untrusted
from boyd_api.mcp.assistant_tools import iteration_record
from boyd_api.mcp.protocol_message import McpRefusal
from boyd_api.routes import approval_routes

_MOST = 200


@dataclass(frozen=True)
class AssistantPrompt:
    """A prompt; *text* makes it from the arguments, which are all optional."""

    name: str
    description: str
    arguments: Mapping[str, str]
    text: Callable[[Mapping[str, str]], str]

    @property
    def info(self) -> dict[str, Any]:
        """Its definition for clients."""
        arguments = [{"name": name, "description": d} for name, d in self.arguments.items()]
        return {"name": self.name, "description": self.description, "arguments": arguments}

    def messages(self, arguments: Mapping[str, str]) -> dict[str, Any]:
        """The prompt for those arguments."""
        declared = {
            name: text[:_MOST] for name, text in arguments.items() if name in self.arguments
        }
        content = {"type": "text", "text": self.text(declared)}
        return {
            "description": self.description,
            "messages": [{"role": "user", "content": content}],
        }


def _report(arguments: Mapping[str, str]) -> str:
    who = f"the agent {arguments['agent']!r}" if arguments.get("agent") else "each agent"
    return (
        f"Report what {who} of Boyd has seen, decided and done since its last noteworthy iteration."
        " Use boyd_status, boyd_history and boyd_explain_iteration. Say what failed, and what is"
        " paused or frozen and by whom."
    )


def _waiting(arguments: Mapping[str, str]) -> str:
    who = f"agent {arguments['agent']!r}" if arguments.get("agent") else "each agent of boyd_status"
    return (
        f"List what waits for people in Boyd: use boyd_approvals_list for {who}. For each approval"
        " say what would be done to what, why, how risky it is, and until when. Do not advise to"
        " approve or deny; people decide on its page."
    )


_AGENT = {"agent": "Id of the agent; absent: all agents."}
PROMPTS: Sequence[AssistantPrompt] = (
    AssistantPrompt("boyd_report", "Report what agents did last.", _AGENT, _report),
    AssistantPrompt("boyd_waiting", "List what waits for people.", _AGENT, _waiting),
)


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
    "audit": "The newest entries of the audit trail about approvals.",
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
        resources = [
            {
                "uri": f"{_BASE}{quote(name)}/{kind}",
                "name": f"{name}-{kind}",
                "description": description,
                "mimeType": _JSON,
            }
            for name in islice(names, _AGENTS)
            for kind, description in _LISTED.items()
        ]
        more = {"nextCursor": names[_AGENTS - 1]} if len(names) > _AGENTS else {}
        return {"resources": resources, **more}

    def templates(self) -> dict[str, Any]:
        """The addresses of further resources."""
        templates = [
            {
                "uriTemplate": f"{_BASE}{{agent}}/{path}",
                "name": path.partition("/")[0],
                "description": description,
                "mimeType": _JSON,
            }
            for path, description in _TEMPLATES.items()
        ]
        return {"resourceTemplates": templates}

    def read(self, request: AssistantRequest, uri: str) -> dict[str, Any]:
        """A resource; raises `McpRefusal` if there is none at that address."""
        match = _URI.fullmatch(uri)
        if match is None or (match[3] is None) != (match[2] in _LISTED):
            raise _no_resource(uri)
        agent, kind, name = unquote(match[1]), match[2], unquote(match[3] or "")
        try:
            value = self._value(request, agent, kind, name)
        except UnknownAgent:
            raise _no_resource(uri) from None
        except HttpProblem as problem:
            if problem.kind.status != 404:
                raise
            raise _no_resource(uri) from None
        return {"contents": [{"uri": uri, "mimeType": _JSON, "text": mark_untrusted(value)}]}

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
    audit = MergedAudit(ctx.agent.store.audit_trail, agent, ctx.services.archive)
    page = audit.page(_ITEMS, filters=AuditFilter(kind="approval"))
    return [
        {name: value for name, value in entry.to_wire().items() if name in _TOLD}
        for entry in page.entries
    ]


def _no_resource(uri: str) -> McpRefusal:
    return McpRefusal(INVALID_PARAMS, "no such resource", data={"uri": uri})
