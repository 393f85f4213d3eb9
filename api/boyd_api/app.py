"""The Flask application: its routes, and how a request is admitted, executed once and answered.

It holds no state, so any number of copies may run.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from flask import Flask, Response, g, request
from werkzeug.exceptions import NotFound
from werkzeug.http import http_date

from boyd.models import Model
from boyd.settings.process_settings import Settings
from boyd.store.hashes import collect_unreadable
from boyd_api.console import CONSOLE, serve_console
from boyd_api.http import auth, documentation, idempotency_keys
from boyd_api.http.documentation import OPENAPI, document_once
from boyd_api.http.problems import answer_to
from boyd_api.http.request_context import (
    RequestContext,
    check_encoding,
    check_prefix,
    read_body,
    read_disconnection,
    read_query,
    unreadable_names,
)
from boyd_api.http.routing import ActionId, JsonResponse, Rest, Route, RouteResult
from boyd_api.http.services import Services
from boyd_api.mcp import mcp_routes
from boyd_api.routes import (
    acknowledgement_routes,
    action_routes,
    administration_routes,
    agent_routes,
    approval_routes,
    incident_routes,
    intake_routes,
    investigation_routes,
    loop_routes,
    monitoring_routes,
    plugin_routes,
    rights_routes,
    run_routes,
)
from boyd_api.routes.intake_routes import agree

_RESOURCES = (
    monitoring_routes.health_routes,
    agent_routes.state_routes,
    loop_routes.loop_routes,
    loop_routes.observation_routes,
    loop_routes.situation_routes,
    agent_routes.observer_routes,
    action_routes.action_routes,
    approval_routes.autonomy_routes,
    action_routes.procedure_routes,
    incident_routes.routes,
    approval_routes.approval_routes,
    acknowledgement_routes.approval_routes,
    acknowledgement_routes.anomaly_routes,
    run_routes.routes,
    investigation_routes.routes,
    intake_routes.routes,
    plugin_routes.routes,
    mcp_routes.routes,
    agent_routes.agent_routes,
    agent_routes.control_routes,
    agent_routes.worker_routes,
    agent_routes.event_routes,
    monitoring_routes.metric_routes,
    administration_routes.audit_routes,
    administration_routes.key_routes,
    rights_routes.routes,
    documentation.routes,
)

#: All routes, in the order in which the documentation shows them.
ALL: list[Route] = [route for resource in _RESOURCES for route in resource.all]

#: The scopes of requests that are refused beyond the storage budget; a freeze or an answer is not.
_ORDERING = frozenset({"actions", "runs", "trigger"})
#: Request ids that are adopted from the client.
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
#: The most bytes of a form part; we read none, so nothing may use memory for one.
_FORM_MEMORY = 0


def create_app(settings: Settings, services: Services | None = None) -> Flask:
    """Create the application.

    Raises `ConfigError` if it would admit everybody from elsewhere, or cannot sign approvals.
    """
    services = services or Services(settings)
    _ = services.signer
    app = Flask("boyd_api", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = settings.api.max_body
    app.config["MAX_FORM_MEMORY_SIZE"] = _FORM_MEMORY
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.url_map.merge_slashes = False
    app.url_map.converters["rest"] = Rest
    app.url_map.converters["action"] = ActionId
    app.extensions["boyd"] = services
    app.extensions[OPENAPI] = document_once(ALL)
    bind(app, services, ALL)
    serve_console(app, services)
    return app


def bind(app: Flask, services: Services, routes: Iterable[Route]) -> None:
    """Serve *routes*, and no others, with *app*."""
    bound: dict[str, Route] = {}
    for route in routes:
        for endpoint, rule in route.rules.items():
            bound[endpoint] = route
            view = partial(_serve, services, route)
            methods = [route.method, *(["OPTIONS"] if route.inlet else [])]
            app.add_url_rule(rule, endpoint, view, methods=methods)
    app.before_request(partial(_admit, services, bound))
    app.after_request(partial(_finish, services))
    app.register_error_handler(Exception, answer_to)


def _admit(services: Services, bound: Mapping[str, Route]) -> Response | None:
    sent = request.headers.get("X-Request-Id", "")
    g.began = time.monotonic()
    g.unreadable = collect_unreadable()
    g.request_id = sent if _REQUEST_ID.fullmatch(sent) else uuid.uuid4().hex
    check_prefix()
    if request.url_rule is None or request.blueprint == CONSOLE:
        return None  # no such path or method: Flask goes on to say so; the console admits by itself
    route = bound.get(request.endpoint or "")
    if route is None:
        raise NotFound
    g.route = route
    if route.inlet:
        request.max_content_length = services.settings.intake.max_body
        if request.method == "OPTIONS":
            return agree(services.settings.intake)
    g.caller = auth.admit(services, route) if route.scope is not None else auth.anonymous()
    return None


def _serve(services: Services, route: Route, **parts: Any) -> Response:
    caller: auth.Caller = g.caller
    agent_id = parts.pop("agentId", None)
    chosen = services.agent(agent_id, caller.key) if route.reach == "agent" else None
    # Endpoints of plugins run code of the agent, also those that only read.
    delegated = "actions" if route.noun == "plugins" else route.scope
    auth.check_delegation(services, caller.key, delegated, chosen.entry.id if chosen else None)
    if route.body is not None or route.consumes:
        check_encoding()
    if route.query is not None:
        parts["query"] = read_query(route.query)
    if route.body is not None:
        parts["body"] = read_body(route.body, route.body_optional)
    key = idempotency_keys.read_key() if route.idempotent else None
    is_gone = read_disconnection()
    ctx = RequestContext(services, caller.actor, caller.key, chosen, key, g.get("now"), is_gone)
    work = partial(_work, route, ctx, parts)
    if key is None:
        return work()[0]
    limit = services.settings.api.max_wait + idempotency_keys.GRACE
    answers = services.store.idempotency
    reserved = idempotency_keys.ANSWER_BYTES if route.scope in _ORDERING else 0
    keyed = idempotency_keys.KeyedRequest(caller.actor, key, limit, reserved, ctx.take_storage)
    return idempotency_keys.once(answers, services.leases, keyed, work)


def _work(route: Route, ctx: RequestContext, parts: Mapping[str, Any]) -> tuple[Response, str]:
    """The response of the route, and the body to keep for a repetition of the request."""
    try:
        if ctx.idempotency_key is not None and route.scope in _ORDERING:
            ctx.take_storage(idempotency_keys.ANSWER_BYTES)
        result: RouteResult = route.view(ctx, **parts)
    except Exception as error:  # noqa: BLE001  # any error becomes a response
        failed = answer_to(error)
        return failed, failed.get_data(as_text=True)
    if isinstance(result, Response):
        return result, result.get_data(as_text=True) if route.idempotent else ""
    answer = result if isinstance(result, JsonResponse) else JsonResponse(result)
    text = _text(answer.body, answer.nulls)
    response = Response(text, answer.status or route.usual_status, mimetype="application/json")
    response.headers.extend(answer.headers)
    return response, text if answer.kept is None else _text(answer.kept, answer.nulls)


def _text(body: Model, nulls: Sequence[str]) -> str:
    if not nulls:
        return body.to_json()
    wire = body.to_wire()
    for path in nulls:
        *parents, name = path.split("/")
        place = wire
        for parent in parents:
            place = place[parent]
        place.setdefault(name, None)
    return json.dumps(wire, ensure_ascii=False, separators=(",", ":"))


def _name_unreadable(response: Response) -> None:
    """Name in the answer the records that it lacks because they cannot be read."""
    caller = g.get("caller")
    names = unreadable_names(caller.key) if caller else []
    if names:
        text = ", ".join(name.encode("ascii", "backslashreplace").decode() for name in names)
        response.headers["Boyd-Unreadable"] = re.sub(r"[^ -~]", "?", text)[:500]


def _finish(services: Services, response: Response) -> Response:
    rule = request.url_rule.rule if request.url_rule else None
    took = time.monotonic() - g.get("began", time.monotonic())
    services.metrics.count_request(request.method, rule, response.status_code, took)
    _report_refusal(services)
    _name_unreadable(response)
    response.headers["X-Request-Id"] = g.get("request_id", "-")
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers.update(g.get("limits", {}))
    now = g.get("now")
    if now is not None:
        # Times in the response are on the clock of the Redis server: clients reckon from it.
        response.headers["Date"] = http_date(now)
    return response


def _report_refusal(services: Services) -> None:
    problem, route = g.get("problem"), g.get("route")
    if problem is None or route is None or not route.inlet:
        return
    format = (request.view_args or {}).get("format", "")
    caller = g.get("caller")
    who = caller.actor.principal if caller else f"somebody at {request.remote_addr}"
    services.refusals.report(format, problem.kind.name, f"{who}: {problem}")
