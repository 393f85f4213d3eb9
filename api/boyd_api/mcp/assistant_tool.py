"""Tools that are offered to assistants, and the request that calls one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from boyd.models import Model, Scope
from boyd.text.redaction import redactor
from boyd_api.http import auth
from boyd_api.http.request_context import RequestContext
from boyd_api.mcp.protocol_message import McpMessage

#: What keys allow here; approvals and administration are for people and their own programs.
SCOPES: tuple[Scope, ...] = ("read", "runs", "actions")

TASKS = "io.modelcontextprotocol/tasks"

#: Characters of the state of a task in words, which may hold the note of a person.
_MOST = 1000

TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]


@dataclass(frozen=True)
class AssistantRequest:
    """A message of an assistant, with the admitted request that brought it."""

    message: McpMessage
    http: RequestContext

    def allows(self, scope: Scope) -> bool:
        """Tell whether the key allows that scope."""
        return scope in SCOPES and (self.http.key is None or self.http.key.allows(scope))

    @property
    def takes_tasks(self) -> bool:
        """True if the client can follow a task."""
        return self.message.extends(TASKS)

    def at(self, agent_id: str | None, scope: Scope = "read") -> RequestContext:
        """The request as one to that agent; without a name to the default agent.

        Raises `UnknownAgent`, `HttpProblem`, or `NotDelegated` if it refuses other agents.
        """
        services, key = self.http.services, self.http.key
        chosen = services.agent(agent_id, key)
        auth.check_delegation(services, key, scope, chosen.entry.id)
        return replace(self.http, chosen=chosen)


@dataclass(frozen=True)
class TaskState:
    """The state of a task.

    Attributes:
        said: the state in words, for people and models.
        kept: milliseconds from its creation for which it can be asked for, at least.
        result: that of the tool call, once it has completed.
        error: the JSON-RPC error with which it failed.
        asks: what the client is asked for meanwhile, by key.
    """

    id: str
    status: TaskStatus
    said: str
    created_at: datetime
    updated_at: datetime
    kept: int | None = None
    poll: int = 5000
    result: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    asks: Mapping[str, Any] | None = None

    @property
    def handle(self) -> dict[str, Any]:
        """The task without what it has led to."""
        return {
            "taskId": self.id,
            "status": self.status,
            "statusMessage": redactor().redact(self.said)[:_MOST],
            "createdAt": self.created_at.isoformat(),
            "lastUpdatedAt": self.updated_at.isoformat(),
            "ttlMs": self.kept,
            "pollIntervalMs": self.poll,
        }

    def to_wire(self) -> dict[str, Any]:
        """The task with its result, its error, or what it asks for."""
        more = {"result": self.result, "error": self.error, "inputRequests": self.asks}
        return self.handle | {name: value for name, value in more.items() if value is not None}


@dataclass(frozen=True)
class AssistantTool:
    """A tool.

    Attributes:
        run: gets the request and the checked arguments; its docstring describes the tool.
        scope: what the key must allow; the tool is not listed otherwise.
    """

    name: str
    run: Callable[[AssistantRequest, Any], dict[str, Any] | TaskState]
    arguments: type[Model]
    scope: Scope = "read"

    @property
    def info(self) -> dict[str, Any]:
        """Its definition for clients."""
        schema = self.arguments.model_json_schema()
        schema.pop("description", None)
        reads = self.scope == "read"
        # A proposal does nothing by itself, but work that an agent is given may.
        hints = {
            "readOnlyHint": reads,
            "destructiveHint": self.scope == "runs",
            "openWorldHint": not reads,
        }
        return {
            "name": self.name,
            "description": " ".join((self.run.__doc__ or "").split()),
            "inputSchema": {"type": "object", **schema},
            "annotations": hints,
        }

    def call(
        self, request: AssistantRequest, given: Mapping[str, Any]
    ) -> dict[str, Any] | TaskState:
        """Check the arguments and run it; raises `ValidationError` if they are invalid."""
        # Models write numbers as text now and then.
        return self.run(request, self.arguments.model_validate(dict(given), strict=False))
