"""The one place that turns what goes wrong into an answer of HTTP (H1, RFC 9457)."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flask import Response, current_app, g, request
from pydantic import ConfigDict, ValidationError
from werkzeug.exceptions import HTTPException

from boyd.errors import (
    AgentPaused,
    AgentRuns,
    BadCursor,
    PayloadTooLarge,
    QueueFull,
    StoreReadOnly,
    StoreUnavailable,
    UnknownAgent,
)
from boyd.models import Model, explain
from boyd.models.base import MAX_MISTAKES, told

log = logging.getLogger("boyd.api")

MEDIA_TYPE = "application/problem+json"

#: Seconds after which to ask again when Redis is away.
_RETRY = 2
#: Seconds after which to ask again when too much waits.
FULL = 10


@dataclass(frozen=True)
class Kind:
    """A type of problem; its name and status are stable."""

    name: str
    status: int
    title: str
    explanation: str


_ALL = (
    Kind(
        "malformed-json",
        400,
        "The body is not JSON",
        "The body is empty where one is needed, not valid UTF-8 or not valid JSON, or an object in "
        "it names a field twice. NaN and Infinity are not JSON. Nothing was done.",
    ),
    Kind(
        "bad-request",
        400,
        "The request cannot be understood",
        "A header or another part of the request is not well-formed. Nothing was done.",
    ),
    Kind(
        "unauthenticated",
        401,
        "A valid key is needed",
        "Send `Authorization: Bearer boyd_<id>_<secret>`. The key is missing, unknown, revoked or "
        "expired. On the host of Redis, `boyd keys create` makes one.",
    ),
    Kind(
        "forbidden",
        403,
        "The key does not allow this",
        "The key is valid, but lacks the scope that is needed, or is limited to some agents where "
        "the whole deployment is concerned.",
    ),
    Kind(
        "requester",
        403,
        "Whoever asked for it may not approve it",
        "The policy of the approval wants somebody else than the requester.",
    ),
    Kind(
        "not-an-approver",
        403,
        "You may not resolve this approval",
        "The policy of the approval names who may; you are not among them, or a person is needed.",
    ),
    Kind("not-found", 404, "Not found", "The path or the id in it is not known."),
    Kind(
        "unknown-agent",
        404,
        "There is no such agent",
        "No agent of that id was started against this Redis, or the key may not see it.",
    ),
    Kind(
        "no-default-agent",
        404,
        "It is not clear which agent is meant",
        "A path without `/agents/{agentId}` means the agent of the setting `agent`, or the only "
        "one there is. Name one of the agents.",
    ),
    Kind(
        "not-pending",
        404,
        "The approval is not pending",
        "It was resolved, has expired or never existed; the answer says what is known of it.",
    ),
    Kind(
        "method-not-allowed",
        405,
        "The path has no such method",
        "The header `Allow` names the methods that it has.",
    ),
    Kind(
        "already-approved",
        409,
        "You have approved this already",
        "The approval needs several people, and you count once.",
    ),
    Kind("finished", 409, "It is over", "What has ended cannot be changed any more."),
    Kind(
        "paused",
        409,
        "The agent is paused",
        "It takes no triggers until it is resumed: `POST /resume`.",
    ),
    Kind(
        "agent-runs",
        409,
        "Processes still run the agent",
        "Only an agent that nobody runs can be retired: stop its workers and beats first.",
    ),
    Kind(
        "no-model",
        409,
        "The agent has no model",
        "Only an agent with a table `[llm]` investigates; workers announce it when they start.",
    ),
    Kind(
        "busy",
        409,
        "The last question is not answered yet",
        "Something more can be said once the investigation has ended: follow its events, or "
        "cancel it.",
    ),
    Kind(
        "idempotency-in-flight",
        409,
        "The same request is being worked on",
        "A request with this `Idempotency-Key` has not been answered yet. Ask again after the "
        "seconds in `Retry-After`.",
    ),
    Kind(
        "changed",
        412,
        "It has changed",
        "The `If-Match` header names a version that is not the current one. Read it again.",
    ),
    Kind("too-large", 413, "The request is too large", "The body has more bytes than are allowed."),
    Kind(
        "unsupported-media-type",
        415,
        "The body is of a type that is not understood",
        "Send JSON, with the header `Content-Type: application/json`.",
    ),
    Kind(
        "invalid-request",
        422,
        "The request does not fit",
        "`errors` names each field of the body by a JSON pointer, or each parameter of the query, "
        "and what is wrong with it. Nothing was done.",
    ),
    Kind("note-required", 422, "A note is needed", "The policy of the approval wants a reason."),
    Kind(
        "idempotency-mismatch",
        422,
        "The Idempotency-Key belongs to another request",
        "A request with this key, and another body or query, was made within the last day.",
    ),
    Kind(
        "too-many-requests",
        429,
        "Too many requests",
        "The allowance of the key is used up, or too much waits already. Ask again after the "
        "seconds in `Retry-After`.",
    ),
    Kind(
        "internal",
        500,
        "Something went wrong inside Boyd",
        "The log of the API tells more, under the correlation id in `instance`.",
    ),
    Kind(
        "endpoint-failed",
        502,
        "The endpoint of the plugin failed",
        "It raised, took too long or answered with what is not JSON. The log of the worker tells "
        "more, under the call in `callId`.",
    ),
    Kind(
        "endpoint-lost",
        503,
        "The worker was lost while it answered",
        "Whether the endpoint has done its work is not known; `callId` is the call.",
    ),
    Kind(
        "unavailable",
        503,
        "Boyd cannot answer this now",
        "Redis does not answer or takes no writes, or too much is going on. Ask again after the "
        "seconds in `Retry-After`.",
    ),
    Kind(
        "overloaded",
        503,
        "More arrives than is taken",
        "The allowance of the key for sending is used up, or too much waits for the agent already. "
        "Nothing was taken: send it again after the seconds in `Retry-After`.",
    ),
    Kind(
        "no-worker",
        503,
        "No worker can do this now",
        "No live worker of this agent takes such work. Start one with `boyd worker`.",
    ),
    Kind("timeout", 504, "It took too long", "A worker has not answered within the time limit."),
)

KINDS = {kind.name: kind for kind in _ALL}

#: What werkzeug raises, by status, that is more than a `bad-request`.
_OF_HTTP = {
    404: "not-found",
    405: "method-not-allowed",
    413: "too-large",
    415: "unsupported-media-type",
}


class FieldError(Model):
    """What is wrong with one field of the body, or one parameter of the query."""

    pointer: str | None = None
    parameter: str | None = None
    detail: str


class ProblemDocument(Model):
    """An error as it is answered; some types add fields of their own.

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


class Problem(Exception):
    """Raised by whoever answers a request, to answer with a problem instead."""

    def __init__(
        self,
        name: str,
        detail: str | None = None,
        *,
        errors: Sequence[FieldError] = (),
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        """Name the problem.

        Args:
            name: one of `KINDS`.
            detail: what is wrong this time.
            errors: what is wrong with each field.
            headers: further headers of the answer.
            more: further fields of the answer, as on the wire; none of those that all have, such as
                `status`, which is that of HTTP.
        """
        assert not set(more) & set(ProblemDocument.model_fields), more
        self.kind = KINDS[name]
        super().__init__(detail or self.kind.explanation)
        self.errors = list(errors)
        self.headers = headers or {}
        self.more = more

    @property
    def document(self) -> ProblemDocument:
        """The body of the answer to the request that is being served."""
        return self.told(g.get("request_id", "-"))

    def told(self, request_id: str) -> ProblemDocument:
        """The body of the answer to that request."""
        return ProblemDocument(
            type=f"/problems/{self.kind.name}",
            title=self.kind.title,
            status=self.kind.status,
            detail=str(self),
            instance=request_id,
            error=str(self),
            errors=self.errors or None,
            **self.more,
        )


def retry_after(seconds: float) -> dict[str, str]:
    """The header that says when to ask again."""
    return {"Retry-After": str(max(1, math.ceil(seconds)))}


def invalid(error: ValidationError, *, query: bool = False) -> Problem:
    """What a model has found wrong with a body or a query."""
    if error.error_count() > MAX_MISTAKES:
        return Problem("invalid-request", explain(error))
    found = []
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        steps = [str(step) for step in item["loc"]]
        detail = told(item["msg"])
        if query:
            found.append(FieldError(parameter=".".join(steps) or None, detail=detail))
        else:
            found.append(FieldError(pointer=_pointer(steps), detail=detail))
    places = [one.parameter or one.pointer or "the whole" for one in found]
    said = "; ".join(f"{where}: {one.detail}" for where, one in zip(places, found, strict=True))
    return Problem("invalid-request", said, errors=found)


def _pointer(steps: Sequence[str]) -> str:
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


def problem_of(error: Exception) -> Problem:
    """The problem that *error* is to a client."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, HTTPException):
        return _of_http(error)
    if isinstance(error, UnknownAgent):
        return Problem("unknown-agent", str(error))
    if isinstance(error, AgentPaused):
        return Problem("paused", str(error))
    if isinstance(error, AgentRuns):
        return Problem("agent-runs", str(error))
    if isinstance(error, BadCursor):
        return Problem("invalid-request", str(error))
    if isinstance(error, PayloadTooLarge):
        return Problem("too-large", str(error))
    if isinstance(error, QueueFull):
        return Problem("too-many-requests", str(error), headers=retry_after(FULL))
    if isinstance(error, StoreUnavailable):
        log.warning("%s: %s", g.get("request_id", "-"), error)
        full = isinstance(error, StoreReadOnly)
        why = "Redis takes no writes now" if full else "Redis does not answer"
        return Problem("unavailable", why, headers=retry_after(_RETRY))
    log.error("%s failed", g.get("request_id", "-"), exc_info=error)
    return Problem("internal", "an unexpected fault; the log tells more")


def _of_http(error: HTTPException) -> Problem:
    name = _OF_HTTP.get(error.code or 500, "bad-request" if (error.code or 500) < 500 else None)
    if name is None:
        return Problem("internal")
    allowed = _methods(getattr(error, "valid_methods", None) or ())
    headers = {"Allow": ", ".join(sorted(allowed))} if allowed else {}
    return Problem(name, error.description if name == "bad-request" else None, headers=headers)


def _methods(valid: Sequence[str]) -> list[str]:
    """The methods of the path that was asked for.

    A path such as `/approvals/approve` also fits `/approvals/{id}`, whose methods are not its own.
    """
    adapter = current_app.create_url_adapter(request)
    if adapter is None:
        return list(valid)
    rules = {method: adapter.match(method=method, return_rule=True)[0] for method in valid}
    least = min((len(rule.arguments) for rule in rules.values()), default=0)
    return [method for method, rule in rules.items() if len(rule.arguments) == least]


def answer_to(error: Exception) -> Response:
    """The answer to a request that ended with *error*."""
    if isinstance(error, HTTPException) and error.code is not None and error.code < 400:
        return error.get_response()  # type: ignore[return-value]  # Flask's class at run time
    problem = problem_of(error)
    g.problem = problem
    answer = Response(problem.document.to_json(), problem.kind.status, mimetype=MEDIA_TYPE)
    answer.headers.extend(problem.headers)
    return answer
