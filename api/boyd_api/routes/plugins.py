"""`/plugins`: the endpoints of an agent's plugins, answered by its workers."""

from __future__ import annotations

import json

from flask import Response, request

from boyd.models import CallRequest, EndpointInfo, EndpointReply, EndpointRequest
from boyd_api import parsing
from boyd_api.problems import Problem
from boyd_api.routes.actions import finished, ordered
from boyd_api.routing import Media, Routes
from boyd_api.serving import Ask, not_found

routes = Routes("plugins")

_ANSWER = {200: Media("application/json", "What the endpoint answers.")}
_PATH = "/plugins/<plugin>/<path:path>"
_PROBLEMS = ["no-worker", "timeout", "malformed-json", "unsupported-media-type", "too-large"]


@routes.get(_PATH, scope="read", answers=_ANSWER, problems=_PROBLEMS)
def read(ask: Ask, plugin: str, path: str) -> Response:
    """Read from a plugin's endpoint."""
    return _answer(ask, plugin, path)


@routes.post(_PATH, scope="actions", answers=_ANSWER, problems=_PROBLEMS, idempotent=True)
def post(ask: Ask, plugin: str, path: str) -> Response:
    """Post to a plugin's endpoint."""
    return _answer(ask, plugin, path)


@routes.add("PUT", _PATH, scope="actions", answers=_ANSWER, problems=_PROBLEMS, idempotent=True)
def put(ask: Ask, plugin: str, path: str) -> Response:
    """Put to a plugin's endpoint."""
    return _answer(ask, plugin, path)


@routes.add("PATCH", _PATH, scope="actions", answers=_ANSWER, problems=_PROBLEMS, idempotent=True)
def patch(ask: Ask, plugin: str, path: str) -> Response:
    """Patch through a plugin's endpoint."""
    return _answer(ask, plugin, path)


@routes.delete(_PATH, scope="actions", answers=_ANSWER, problems=_PROBLEMS, idempotent=True)
def delete(ask: Ask, plugin: str, path: str) -> Response:
    """Delete through a plugin's endpoint."""
    return _answer(ask, plugin, path)


def _answer(ask: Ask, plugin: str, path: str) -> Response:
    endpoint, values = _find(ask, plugin, f"/{path}")
    body = request.get_data()
    order = CallRequest(
        kind="endpoint",
        action=endpoint.id,
        endpoint=EndpointRequest(
            method=request.method,
            path=values,
            query=request.args.to_dict(),
            body=parsing.read_json(body) if body else None,
            actor=ask.actor,
        ),
        actor=ask.actor,
    )
    call_id = ordered(ask, order, endpoint.queue)
    call = ask.until(lambda: finished(ask, call_id), endpoint.timeout * 2)
    if call is None:
        raise Problem("timeout", f"endpoint {endpoint.id} has not answered in time")
    reply = call.reply or EndpointReply(
        status=500, body={"error": call.result.error if call.result else "no answer"}
    )
    return Response(json.dumps(reply.body), reply.status, mimetype="application/json")


def _find(ask: Ask, plugin: str, path: str) -> tuple[EndpointInfo, dict[str, str]]:
    allowed = []
    for endpoint in ask.agent.entry.catalog.endpoints:
        values = endpoint.match(path) if endpoint.plugin == plugin else None
        if values is None:
            continue
        if endpoint.method == request.method:
            return endpoint, values
        allowed.append(endpoint.method)
    if allowed:
        headers = {"Allow": ", ".join(sorted(allowed))}
        raise Problem("method-not-allowed", f"{path} has no {request.method}", headers=headers)
    raise not_found(f"plugin {plugin!r} has no endpoint {path}")
