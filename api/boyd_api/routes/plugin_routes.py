"""`/plugins`: the endpoints of an agent's plugins, answered by its workers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from flask import Response, request

from boyd.models import CallRequest, EndpointInfo, EndpointReply, EndpointRequest
from boyd.models.base import Json
from boyd_api.http.problems import HttpProblem, not_found
from boyd_api.http.request_context import RequestContext, read_json
from boyd_api.http.routing import Media, Routes, Status

routes = Routes("plugins")

_JSON = "application/json"
_ANSWERS: dict[Status, Media] = {
    200: Media(_JSON, "The answer of the endpoint."),
    "default": Media(_JSON, "The same, with the status that the endpoint chose."),
}
_PATH = "/plugins/<plugin>/<rest:path>"
_PROBLEMS = [
    *("method-not-allowed", "no-worker", "timeout", "endpoint-failed", "endpoint-lost"),
    "storage-budget",
]
#: Problems of an endpoint that gave no answer, by status.
_FAILURES = {
    404: "not-found",
    429: "storage-budget",
    502: "endpoint-failed",
    503: "endpoint-lost",
}
_WRITES: dict[str, Any] = {
    "scope": "actions",
    "answers": _ANSWERS,
    "problems": [*_PROBLEMS, "malformed-json", "unsupported-media-type", "invalid-request"],
    "consumes": [_JSON],
    "idempotent": True,
}
#: Statuses of responses without a body.
_EMPTY = (204, 205, 304)


@routes.get(_PATH, scope="read", answers=_ANSWERS, problems=_PROBLEMS, label="read")
@routes.post(_PATH, label="post", **_WRITES)
@routes.add("PUT", _PATH, label="put", **_WRITES)
@routes.add("PATCH", _PATH, label="patch", **_WRITES)
@routes.delete(_PATH, label="delete", **_WRITES)
def send(ctx: RequestContext, plugin: str, path: str) -> Response:
    """Send a request to an endpoint of a plugin."""
    method = "GET" if request.method == "HEAD" else request.method
    match = find(ctx, plugin, method, f"/{path}")
    body = b"" if method == "GET" else request.get_data()
    call = begin(ctx, match, request.args.to_dict(), read_json(body) if body else None)
    reply = await_reply(ctx, call, match.endpoint.timeout * 2)
    text = "" if reply.status in _EMPTY else json.dumps(reply.body)
    return Response(text, reply.status, mimetype=_JSON)


@dataclass(frozen=True)
class EndpointMatch:
    """An endpoint, and the values of the `{name}` parts of its path."""

    endpoint: EndpointInfo
    values: dict[str, str]


@dataclass(frozen=True)
class EndpointCall:
    """A call of an endpoint that a worker answers."""

    id: str
    endpoint: EndpointInfo


def begin(
    ctx: RequestContext, match: EndpointMatch, query: dict[str, str], body: Json = None
) -> EndpointCall:
    """Have a worker call an endpoint. Raises `HttpProblem` without a worker."""
    endpoint = match.endpoint
    work = CallRequest(
        kind="endpoint",
        action=endpoint.id,
        endpoint=EndpointRequest(
            method=endpoint.method, path=match.values, query=query, body=body, actor=ctx.actor
        ),
        actor=ctx.actor,
    )
    return EndpointCall(ctx.call_worker(work, endpoint.queue), endpoint)


def await_reply(ctx: RequestContext, endpoint_call: EndpointCall, seconds: float) -> EndpointReply:
    """The reply of an endpoint, whatever its status. Raises `HttpProblem` if it gave none."""
    call = ctx.await_call(endpoint_call.id, seconds)
    if call is None:
        raise HttpProblem("timeout", f"endpoint {endpoint_call.endpoint.id} did not answer in time")
    reply = call.reply or EndpointReply(status=503, failed="the endpoint returned no answer")
    if reply.failed is not None:
        name = _FAILURES.get(reply.status, "endpoint-failed")
        raise HttpProblem(name, reply.failed, callId=endpoint_call.id)
    return reply


def find(ctx: RequestContext, plugin: str, method: str, path: str) -> EndpointMatch:
    """The endpoint at *path* below the plugin. Raises `HttpProblem` if there is none."""
    allowed = []
    for endpoint in ctx.agent.entry.catalog.endpoints:
        values = endpoint.match(path) if endpoint.plugin == plugin else None
        if values is None:
            continue
        if endpoint.method == method:
            return EndpointMatch(endpoint, values)
        allowed.append(endpoint.method)
    if allowed:
        allowed += ["HEAD"] if "GET" in allowed else []
        headers = {"Allow": ", ".join(sorted(set(allowed)))}
        raise HttpProblem(
            "method-not-allowed", f"{path} does not support {method}", headers=headers
        )
    raise not_found(f"plugin {plugin!r} has no endpoint {path}")
