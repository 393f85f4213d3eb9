"""Errors as HTTP responses, `application/problem+json` of RFC 9457: all their types are here."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from flask import Response, current_app, g, request
from pydantic import ConfigDict, ValidationError
from werkzeug.exceptions import HTTPException

from boyd.errors import (
    AgentPaused,
    AgentRuns,
    ArchiveRefused,
    ArchiveUnavailable,
    BadCursor,
    ForeignKey,
    NotDelegated,
    PayloadTooLarge,
    QueueFull,
    RollbackRefused,
    StoreReadOnly,
    StoreUnavailable,
    TooManyMatches,
    UnknownAgent,
    UnreadableRecord,
)
from boyd.models import Model, explain
from boyd.models.base import MAX_MISTAKES, strip_prefix

log = logging.getLogger("boyd.api")

MEDIA_TYPE = "application/problem+json"

#: Seconds after which to retry when Redis does not answer.
_RETRY = 2
#: Seconds after which to retry when a queue is full.
FULL = 10


class ProblemType(Model):
    """A type of problem, explained; its name and status are stable."""

    type: str
    name: str
    status: int
    title: str
    explanation: str


#: Status, name, title and explanation of each type.
_TYPES = """
400 malformed-json: The body is not JSON
The body is empty where one is needed, not valid UTF-8 or not valid JSON, or an object in it names
a field twice. NaN and Infinity are not JSON. Nothing was done.

400 bad-request: Bad request
A header or another part of the request is not well-formed. Nothing was done.

401 unauthenticated: A valid key is needed
Send `Authorization: Bearer boyd_<id>_<secret>`. The key is missing, unknown, revoked or expired.
On the host of Redis, `boyd keys create` creates one.

403 forbidden: The key does not allow this
The key is valid, but lacks the required scope, or a right to the action and its target, or is
limited to some agents while the request concerns the whole deployment.

403 requester: The requester may not approve
The policy of the approval requires somebody other than the requester.

403 not-an-approver: You may not resolve this approval
The policy of the approval lists who may; you are not among them, or it requires a person.

404 not-found: Not found
The path, or an id in it, is not known.

404 unknown-agent: Unknown agent
No agent of that id was started against this Redis, or the key may not see it.

404 no-default-agent: No default agent
A path without `/agents/{agentId}` means the agent of the setting `agent`, or the only agent there
is. Name one of the agents.

404 not-pending: The approval is not pending
It was resolved, has expired or never existed; the response holds what is known.

405 method-not-allowed: Method not allowed
The header `Allow` lists the methods of the path.

409 already-approved: You have already approved this
The approval needs several people, and you count once.

409 finished: Already finished
It has ended and cannot be changed any more.

409 started: The execution has started
Only what waits for a worker or its turn can be cancelled. A procedure has a cancellation of its
own, `POST /procedures/{id}/cancel`.

409 not-stopped: The procedure is not stopped
Only a procedure that waits for a person can be resumed.

409 frozen: No action starts now
The agent is frozen, or its right to act is revoked. What waits for approval still waits: it can be
denied, and approved once that is lifted.

409 paused: The agent is paused
It accepts no triggers until it is resumed: `POST /resume`.

409 agent-runs: The agent is still running
Only an agent without processes can be retired: stop its workers and beats first.

409 rollback-refused: The execution cannot be rolled back
It did not succeed, is a rollback itself, has no rollback, or was, is being or waits to be rolled
back already; or only the archive still has it. Nobody was asked, and nothing was done.

409 in-flight: The action is in flight
An execution of it on that target is queued or running. It may run again once that has ended.

409 no-model: The agent has no model
Only an agent with a table `[llm]` investigates; workers announce it when they start.

409 busy: The last question is not answered yet
A message can be added once the investigation has ended: follow its events, or cancel it.

409 idempotency-in-flight: The same request is still being executed
A request with this `Idempotency-Key` has not been answered yet. Retry after the seconds in
`Retry-After`.

412 changed: The object has changed
The `If-Match` header names a version that is not the current one. Read it again.

413 too-large: The request is too large
The body exceeds the size limit.

415 unsupported-media-type: Unsupported media type
Send JSON, with the header `Content-Type: application/json`.

422 invalid-request: Invalid request
`errors` names each invalid field of the body by a JSON pointer, or each parameter of the query,
and says what is wrong with it. Nothing was done.

422 note-required: A note is needed
The policy of the approval requires a reason.

422 idempotency-mismatch: The Idempotency-Key belongs to another request
A request with this key, and another body or query, was made within the last day.

429 too-many-requests: Too many requests
The rate limit of the key is exceeded, or a queue is full. Retry after the seconds in
`Retry-After`.

429 storage-budget: The storage budget is used up
Redis keeps requests and their results for a day or longer, and has kept as much as it may for this
principal (the setting `principal_bytes`). It was not done; retry after the seconds in
`Retry-After`, or have the administrator raise the setting.

500 unreadable: A record cannot be read
Another program or a command of a person has written something into Redis that is not a record of
Boyd; `detail` names it. Everything else is served. Delete or restore what it names.

500 internal: Internal error
The log of the API has details, under the correlation id in `instance`.

502 endpoint-failed: The plugin's endpoint failed
It raised an error, took too long or did not answer with JSON. The log of the worker has details,
under the call in `callId`.

503 endpoint-lost: The worker was lost while it answered
It is unknown whether the endpoint did its work; `callId` is the call.

503 unavailable: Temporarily unavailable
Redis, the archive or the identity provider does not answer, Redis accepts no writes, the API is
overloaded, or it lacks what an intake or `/mcp` needs, such as an extra of the package or a secret;
or another program has overwritten a key that the whole deployment needs, which `detail` names.
Retry after the seconds in `Retry-After`.

503 overloaded: Too many messages
The intake limit of the key is exceeded, or too many observations wait for the agent. Nothing was
accepted: send it again after the seconds in `Retry-After`.

503 no-worker: No worker available
No live worker of this agent accepts such work. Start one with `boyd worker`.

504 timeout: Timeout
No worker has answered within the time limit.
"""


def _read_type(text: str) -> ProblemType:
    head, explanation = text.strip().split("\n", 1)
    place, title = head.split(": ", 1)
    status, name = place.split(" ")
    return ProblemType(
        type=f"/problems/{name}",
        name=name,
        status=int(status),
        title=title,
        explanation=explanation.replace("\n", " "),
    )


PROBLEM_TYPES = {kind.name: kind for kind in map(_read_type, _TYPES.split("\n\n"))}

#: Types of the errors of werkzeug, by status; the rest is a `bad-request`.
_OF_HTTP = {
    404: "not-found",
    405: "method-not-allowed",
    413: "too-large",
    415: "unsupported-media-type",
}
#: Types of our own errors.
_OF_ERROR: Mapping[type[Exception], str] = {
    UnknownAgent: "unknown-agent",
    AgentPaused: "paused",
    AgentRuns: "agent-runs",
    NotDelegated: "forbidden",
    RollbackRefused: "rollback-refused",
    BadCursor: "invalid-request",
    TooManyMatches: "invalid-request",
    PayloadTooLarge: "too-large",
}


class FieldError(Model):
    """An error in one field of the body, or one parameter of the query."""

    pointer: str | None = None
    parameter: str | None = None
    detail: str


class ProblemDocument(Model):
    """An error response; some types add fields of their own.

    `instance` is the correlation id of the request, `error` repeats `detail`.
    """

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    instance: str
    error: str
    errors: list[FieldError] | None = None


class HttpProblem(Exception):
    """Raised while a request is served, to respond with a problem."""

    def __init__(
        self,
        name: str,
        detail: str | None = None,
        *,
        errors: Sequence[FieldError] = (),
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        """Name one of `PROBLEM_TYPES`; *detail* describes this case, else its explanation does.

        *more* are further fields of the response, by their wire names; none of the common ones.
        """
        assert not set(more) & set(ProblemDocument.model_fields), more
        self.kind = PROBLEM_TYPES[name]
        super().__init__(detail or self.kind.explanation)
        self.errors = list(errors)
        self.headers = headers or {}
        self.more = more

    @property
    def document(self) -> ProblemDocument:
        """The body of the response to the current request."""
        return self.document_for(g.get("request_id", "-"))

    def document_for(self, request_id: str) -> ProblemDocument:
        """The body of the response to that request."""
        return ProblemDocument(
            type=self.kind.type,
            title=self.kind.title,
            status=self.kind.status,
            detail=str(self),
            instance=request_id,
            error=str(self),
            errors=self.errors or None,
            **self.more,
        )


def retry_after(seconds: float) -> dict[str, str]:
    """The header that says when to retry."""
    return {"Retry-After": str(max(1, math.ceil(seconds)))}


def not_found(detail: str) -> HttpProblem:
    """The problem of an unknown id in the path."""
    return HttpProblem("not-found", detail)


def invalid(error: ValidationError, *, query: bool = False) -> HttpProblem:
    """The problem of a body or a query that a model refuses."""
    if error.error_count() > MAX_MISTAKES:
        return HttpProblem("invalid-request", explain(error))
    errors = []
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        steps = [str(step) for step in item["loc"]]
        detail = strip_prefix(item["msg"])
        if query:
            errors.append(FieldError(parameter=".".join(steps) or None, detail=detail))
        else:
            escaped = [step.replace("~", "~0").replace("/", "~1") for step in steps]
            errors.append(
                FieldError(pointer="".join(f"/{step}" for step in escaped), detail=detail)
            )
    places = [mistake.parameter or mistake.pointer or "the whole" for mistake in errors]
    detail = "; ".join(
        f"{where}: {mistake.detail}" for where, mistake in zip(places, errors, strict=True)
    )
    return HttpProblem("invalid-request", detail, errors=errors)


def problem_of(error: Exception) -> HttpProblem:
    """The problem to report to the client for *error*."""
    if isinstance(error, HttpProblem):
        return error
    if isinstance(error, HTTPException):
        return _of_http(error)
    for kind, name in _OF_ERROR.items():
        if isinstance(error, kind):
            return HttpProblem(name, str(error))
    if isinstance(error, QueueFull):
        return HttpProblem("too-many-requests", str(error), headers=retry_after(FULL))
    if isinstance(error, StoreUnavailable):
        log.warning("%s: %s", g.get("request_id", "-"), error)
        full = isinstance(error, StoreReadOnly)
        detail = "Redis does not accept writes now" if full else "Redis does not answer"
        return HttpProblem("unavailable", detail, headers=retry_after(_RETRY))
    if isinstance(error, ForeignKey):
        log.error("%s: %s", g.get("request_id", "-"), error)
        return HttpProblem("unavailable", str(error), headers=retry_after(_RETRY))
    if isinstance(error, UnreadableRecord):
        log.error("%s: %s", g.get("request_id", "-"), error)
        return HttpProblem("unreadable", str(error))
    if isinstance(error, ArchiveUnavailable):
        log.warning("%s: %s", g.get("request_id", "-"), error)
        refused = isinstance(error, ArchiveRefused)
        detail = "the archive refused a statement" if refused else "the archive does not answer"
        return HttpProblem("unavailable", detail, headers=retry_after(_RETRY))
    log.error("%s failed", g.get("request_id", "-"), exc_info=error)
    return HttpProblem("internal", "an unexpected error; the log has details")


def _of_http(error: HTTPException) -> HttpProblem:
    name = _OF_HTTP.get(error.code or 500, "bad-request" if (error.code or 500) < 500 else None)
    if name is None:
        return HttpProblem("internal")
    allowed = _methods(getattr(error, "valid_methods", None) or ())
    headers = {"Allow": ", ".join(sorted(allowed))} if allowed else {}
    return HttpProblem(name, error.description if name == "bad-request" else None, headers=headers)


def _methods(valid: Sequence[str]) -> list[str]:
    """The methods of the requested path.

    A path such as `/approvals/approve` also matches `/approvals/{id}`, which has other methods.
    """
    adapter = current_app.create_url_adapter(request)
    if adapter is None:
        return list(valid)
    rules = {method: adapter.match(method=method, return_rule=True)[0] for method in valid}
    least = min((len(rule.arguments) for rule in rules.values()), default=0)
    return [method for method, rule in rules.items() if len(rule.arguments) == least]


def answer_to(error: Exception) -> Response:
    """The response to a request that ended with *error*."""
    if isinstance(error, HTTPException) and error.code is not None and error.code < 400:
        return error.get_response()  # type: ignore[return-value]  # Flask's class at run time
    problem = problem_of(error)
    g.problem = problem
    response = Response(problem.document.to_json(), problem.kind.status, mimetype=MEDIA_TYPE)
    response.headers.extend(problem.headers)
    return response
