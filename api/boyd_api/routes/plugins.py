"""`/plugins`: the endpoints of an agent's plugins, answered by its workers."""

from __future__ import annotations

import json
from typing import Any

from flask import Response, request

from boyd.models import CallRequest, EndpointInfo, EndpointReply, EndpointRequest
from boyd_api import parsing
from boyd_api.calling import finished, ordered
from boyd_api.problems import Problem
from boyd_api.routing import Media, Routes, Status
from boyd_api.serving import Ask, not_found

routes = Routes("plugins")

_JSON = "application/json"
_ANSWERS: dict[Status, Media] = {
    200: Media(_JSON, "What the endpoint answers."),
    "default": Media(_JSON, "The same, with the status that the endpoint chose."),
}
_PATH = "/plugins/<plugin>/<rest:path>"
_PROBLEMS = ["method-not-allowed", "no-worker", "timeout", "endpoint-failed", "endpoint-lost"]
#: What an endpoint that gave no answer comes to, by status.
_FAILURES = {404: "not-found", 502: "endpoint-failed", 503: "endpoint-lost"}
_SENT: dict[str, Any] = {
    "problems": [*_PROBLEMS, "malformed-json", "unsupported-media-type", "invalid-request"],
    "consumes": [_JSON],
}
#: Answers of these statuses have no body.
_EMPTY = (204, 205, 304)


@routes.get(_PATH, scope="read", answers=_ANSWERS, problems=_PROBLEMS)
def read(ask: Ask, plugin: str, path: str) -> Response:
    """Read from a plugin's endpoint."""
    return _answer(ask, plugin, path)


@routes.post(_PATH, scope="actions", answers=_ANSWERS, idempotent=True, **_SENT)
def post(ask: Ask, plugin: str, path: str) -> Response:
    """Post to a plugin's endpoint."""
    return _answer(ask, plugin, path)


@routes.add("PUT", _PATH, scope="actions", answers=_ANSWERS, idempotent=True, **_SENT)
def put(ask: Ask, plugin: str, path: str) -> Response:
    """Put to a plugin's endpoint."""
    return _answer(ask, plugin, path)


@routes.add("PATCH", _PATH, scope="actions", answers=_ANSWERS, idempotent=True, **_SENT)
def patch(ask: Ask, plugin: str, path: str) -> Response:
    """Patch through a plugin's endpoint."""
    return _answer(ask, plugin, path)


@routes.delete(_PATH, scope="actions", answers=_ANSWERS, idempotent=True, **_SENT)
def delete(ask: Ask, plugin: str, path: str) -> Response:
    """Delete through a plugin's endpoint."""
    return _answer(ask, plugin, path)


def _answer(ask: Ask, plugin: str, path: str) -> Response:
    endpoint, values = _find(ask, plugin, f"/{path}")
    body = b"" if endpoint.method == "GET" else request.get_data()
    job = CallRequest(
        kind="endpoint",
        action=endpoint.id,
        endpoint=EndpointRequest(
            method=endpoint.method,
            path=values,
            query=request.args.to_dict(),
            body=parsing.read_json(body) if body else None,
            actor=ask.actor,
        ),
        actor=ask.actor,
    )
    call_id = ordered(ask, job, endpoint.queue)
    call = ask.until(lambda: finished(ask, call_id), endpoint.timeout * 2)
    if call is None:
        raise Problem("timeout", f"endpoint {endpoint.id} has not answered in time")
    reply = call.reply or EndpointReply(status=503, failed="the endpoint gave no answer")
    if reply.failed is not None:
        name = _FAILURES.get(reply.status, "endpoint-failed")
        raise Problem(name, reply.failed, callId=call_id)
    text = "" if reply.status in _EMPTY else json.dumps(reply.body)
    return Response(text, reply.status, mimetype=_JSON)


def _find(ask: Ask, plugin: str, path: str) -> tuple[EndpointInfo, dict[str, str]]:
    method = "GET" if request.method == "HEAD" else request.method
    allowed = []
    for endpoint in ask.agent.entry.catalog.endpoints:
        values = endpoint.match(path) if endpoint.plugin == plugin else None
        if values is None:
            continue
        if endpoint.method == method:
            return endpoint, values
        allowed.append(endpoint.method)
    if allowed:
        allowed += ["HEAD"] if "GET" in allowed else []
        headers = {"Allow": ", ".join(sorted(set(allowed)))}
        raise Problem("method-not-allowed", f"{path} has no {method}", headers=headers)
    raise not_found(f"plugin {plugin!r} has no endpoint {path}")
