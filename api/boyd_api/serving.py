"""What happens to each request: let in, read, done once, answered."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from flask import Flask, Response, g, request
from werkzeug.exceptions import NotFound
from werkzeug.http import http_date

from boyd.errors import StoreUnavailable
from boyd.models import Actor, ApiKey, Model
from boyd.store import AgentEntry
from boyd_api import auth, once, parsing
from boyd_api.problems import Problem, answer_to
from boyd_api.routing import Answer, Reply, Route
from boyd_api.services import AgentAccess, Services

_T = TypeVar("_T")

#: An id of a request that is taken over from whoever sent it.
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True)
class Ask:
    """A request, once it is let in: the first argument of every route.

    Attributes:
        services: what all requests share.
        actor: who asks; the audit names it.
        key: the key that was shown; None where none is needed.
        chosen: the agent that the path means, where it means one; see `agent`.
        idempotency_key: what names the request, if it carries a name; see `idempotent_id`.
        gone: whether the client has left, as far as the server can tell.
    """

    services: Services
    actor: Actor
    key: ApiKey | None
    chosen: AgentAccess | None
    idempotency_key: str | None
    gone: Callable[[], bool]

    @property
    def agent(self) -> AgentAccess:
        """The agent that the path means."""
        assert self.chosen is not None, "only routes that concern one agent have one"
        return self.chosen

    @property
    def agents(self) -> dict[str, AgentEntry]:
        """The agents that whoever asks may see."""
        return self.services.visible(self.key)

    def idempotent_id(self) -> str:
        """An id for what is created: the same one when the request is repeated with its key."""
        return once.derived_id(self.actor, self.idempotency_key)

    @property
    def repeatable_id(self) -> str | None:
        """The same, for what is not created under an id; None without `Idempotency-Key`."""
        return self.idempotent_id() if self.idempotency_key else None

    def until(self, check: Callable[[], _T | None], seconds: float | None = None) -> _T | None:
        """What *check* gives once it gives something; None when it has not in time.

        *seconds* is how long whoever asks would wait; the setting `api.max_wait` is the most.
        What is waited for has been begun: if Redis goes away meanwhile, it goes on all the same.
        """
        most = self.services.settings.api.max_wait
        patience = most if seconds is None else min(seconds, most)
        try:
            return self.services.tail.until(check, patience, self.gone)
        except StoreUnavailable:
            return None


def bind(app: Flask, services: Services, routes: Iterable[Route]) -> None:
    """Serve *routes* with *app*: those, and no other, answer requests."""
    bound: dict[str, Route] = {}
    for route in routes:
        for endpoint, rule in route.rules.items():
            assert endpoint not in bound, f"two routes are called {endpoint}"
            bound[endpoint] = route
            view = partial(_serve, services, route)
            app.add_url_rule(rule, endpoint, view, methods=[route.method])
    app.before_request(partial(_let_in, services, bound))
    app.after_request(partial(_finish, services))
    app.register_error_handler(Exception, answer_to)


def _let_in(services: Services, bound: Mapping[str, Route]) -> None:
    sent = request.headers.get("X-Request-Id", "")
    g.began = time.monotonic()
    g.request_id = sent if _REQUEST_ID.fullmatch(sent) else uuid.uuid4().hex
    if request.url_rule is None:
        return  # no such path or method: Flask goes on to say so
    route = bound.get(request.endpoint or "")
    if route is None:
        raise NotFound
    g.route = route
    if route.inlet:
        request.max_content_length = services.settings.intake.max_body
    g.caller = auth.admit(services, route) if route.scope is not None else _nobody()


def _nobody() -> auth.Caller:
    return auth.Caller(Actor(principal=auth.ANONYMOUS, address=request.remote_addr), None)


def _serve(services: Services, route: Route, **parts: Any) -> Response:
    caller: auth.Caller = g.caller
    agent_id = parts.pop("agentId", None)
    chosen = services.agent(agent_id, caller.key) if route.reach == "agent" else None
    if route.body is not None or route.consumes:
        parsing.check_encoding()
    if route.query is not None:
        parts["query"] = parsing.read_query(route.query)
    if route.body is not None:
        parts["body"] = parsing.read_body(route.body, route.body_optional)
    key = once.shown_key() if route.idempotent else None
    gone = request.environ.get("waitress.client_disconnected", lambda: False)
    ask = Ask(services, caller.actor, caller.key, chosen, key, gone)
    work = partial(_work, route, ask, parts)
    if key is None:
        return work()[0]
    limit = services.settings.api.max_wait + once.GRACE
    answers = services.store.answers
    return once.once(answers, services.leases, caller.actor, key, limit, work)


def _work(route: Route, ask: Ask, parts: Mapping[str, Any]) -> tuple[Response, str]:
    """The answer of the route, and the body to keep of it."""
    try:
        reply: Reply = route.view(ask, **parts)
    except Exception as error:  # noqa: BLE001  # whatever it is, it becomes an answer
        failed = answer_to(error)
        return failed, failed.get_data(as_text=True)
    if isinstance(reply, Response):
        return reply, "" if reply.is_streamed else reply.get_data(as_text=True)
    given = reply if isinstance(reply, Answer) else Answer(reply)
    text = _text(given.body, given.nulls)
    answer = Response(text, given.status or route.usual_status, mimetype="application/json")
    answer.headers.extend(given.headers)
    return answer, text if given.kept is None else _text(given.kept, given.nulls)


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


def _finish(services: Services, answer: Response) -> Response:
    rule = request.url_rule.rule if request.url_rule else None
    took = time.monotonic() - g.get("began", time.monotonic())
    services.metrics.answered(request.method, rule, answer.status_code, took)
    _note_refusal(services)
    answer.headers["X-Request-Id"] = g.get("request_id", "-")
    answer.headers.setdefault("X-Content-Type-Options", "nosniff")
    answer.headers.setdefault("Cache-Control", "no-store")
    answer.headers.update(g.get("limits", {}))
    now = g.get("now")
    if now is not None:
        # What the answer tells is on the clock of the Redis server: clients reckon from that.
        answer.headers["Date"] = http_date(now)
    return answer


def _note_refusal(services: Services) -> None:
    """Log and count what a system has sent that was not taken."""
    problem, route = g.get("problem"), g.get("route")
    if problem is None or route is None or not route.inlet:
        return
    if problem.kind.name != "unauthenticated":
        format = (request.view_args or {}).get("format", "")
        caller = g.get("caller")
        who = caller.actor.principal if caller else f"somebody at {request.remote_addr}"
        services.refusals.note(format, problem.kind.name, f"{who}: {problem}")


def not_found(detail: str) -> Problem:
    """The problem that a route raises when an id in its path is not known."""
    return Problem("not-found", detail)
