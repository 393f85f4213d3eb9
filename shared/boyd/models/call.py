"""What a client asks a worker to do now, and what came of it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from boyd.models.actor import Actor
from boyd.models.approval import JobExecution
from boyd.models.base import Json, JsonObject, Model, Timestamp
from boyd.models.decision import ActionResult

CallKind = Literal["execute", "dry-run", "rollback", "endpoint"]


class EndpointRequest(Model):
    """A request to a plugin's endpoint; `path` holds the values of the path's `{name}` parts."""

    method: str
    path: dict[str, str] = Field(default_factory=dict)
    query: dict[str, str] = Field(default_factory=dict)
    body: Json = None
    actor: Actor


class EndpointReply(Model):
    """What an endpoint answers: a status and a JSON body.

    `failed` says why it gave no answer; Boyd sets it.
    """

    status: int = Field(default=200, ge=200, le=599)
    body: Json = None
    failed: str | None = None


def unexplained(principal: str) -> str:
    """The rationale of a call for which *principal* gave none."""
    return f"asked for by {principal}"


class CallRequest(Model):
    """A job to a worker.

    Attributes:
        kind: what is to be done.
        action: the action's id; of an endpoint its plugin and name, `plugin:name`.
        params: for an action.
        rationale: why, for the audit and for whoever has to approve.
        requires_approval: ask a person in any case.
        undoes: the execution to roll back.
        previews: the approval for which a dry run is made, which keeps what it says.
        endpoint: the request to an endpoint.
        actor: who asks.
    """

    kind: CallKind
    action: str
    params: JsonObject = Field(default_factory=dict)
    rationale: str = ""
    requires_approval: bool = False
    undoes: str | None = None
    previews: str | None = None
    endpoint: EndpointRequest | None = None
    actor: Actor


class Call(CallRequest):
    """A job and how far it is; `approval_id` is what its action waits for."""

    id: str
    created_at: Timestamp
    execution: JobExecution | None = None
    result: ActionResult | None = None
    approval_id: str | None = None
    reply: EndpointReply | None = None


class ExecutionEntry(Model):
    """An execution as the ledger has it; `id` is `loop:<n>`, `approval:<id>` or `call:<id>`."""

    id: str
    state: Literal["running", "succeeded", "failed", "unknown"]
    action: str
    params: JsonObject
    target: str
    by: str | None = None
    host: str | None = None
    worker: str | None = None
    started_at: Timestamp | None = None
    ended_at: Timestamp | None = None
    result: ActionResult | None = None


class ExecutionPage(Model):
    """Executions without their results, newest first; `nextCursor` goes on from there."""

    executions: list[ExecutionEntry]
    next_cursor: str | None = None
