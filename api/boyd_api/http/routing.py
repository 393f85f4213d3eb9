"""Route declarations, which give the URL rules, the checks of requests and the OpenAPI document.

    routes = Routes("runs")

    @routes.post("/runs", scope="runs", answers={201: RunCreated})
    def submit(ctx: RequestContext, body: RunRequest) -> JsonResponse:
        \"\"\"Submit a run.\"\"\"

The parameters of the function tell the rest: `body` and `query` are models that validate, a `body`
that may be None is optional, and all others are parts of the path. Flask matches the paths; scopes,
the agent in the path and the problems of a route, which the document lists, it knows nothing of.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar

from flask import Response
from werkzeug.routing import BaseConverter

from boyd.models import Model, Scope

BASE = "/api/v0"

#: The agents that a route concerns. `agent`: one, also below `/agents/{agentId}`. `visible`: those
#: that the key may see. `deployment`: all, so a key that is limited to some is refused.
Reach = Literal["agent", "visible", "deployment"]

#: The status of a response, or all statuses that are not listed.
Status = int | Literal["default"]

View = Callable[..., Any]
_V = TypeVar("_V", bound=View)

#: A variable part of a path.
PART = re.compile(r"<(?:\w+:)?(\w+)>")


class Rest(BaseConverter):
    """Matches the rest of a path, slashes included, or nothing."""

    regex = r"(?s:.*)"
    weight = 200
    part_isolating = False


class ActionId(BaseConverter):
    """Matches the id of an action, whose name may have a slash, as that of a remote tool has."""

    regex = r"[^/]+(?:/[^/]+)?"
    part_isolating = False


@dataclass(frozen=True)
class JsonResponse:
    """A response of a route.

    Attributes:
        status: HTTP status; by default the first that the route declares.
        nulls: paths of fields that are sent as null when they are absent, as in `agent/model`; all
            other absent fields are left out.
        kept: the body for repetitions of the request, where *body* may be seen only once.
    """

    body: Model
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    nulls: Sequence[str] = ()
    kept: Model | None = None


@dataclass(frozen=True)
class Media:
    """A response that is not the JSON object of a model."""

    type: str
    description: str
    also: Sequence[str] = ()


@dataclass(frozen=True)
class Route:
    """A declared route.

    Attributes:
        noun: its resource, which heads a section of the docs.
        base: the path above all routes of the resource.
        path: below the base, with `<name>`, `<action:name>` or `<rest:name>` parts.
        scope: the scope that a key needs; without one, the route needs no key.
        answers: response models by status; the first is the default.
        label: its name among the routes of the resource; empty: that of the function.
        problems: those that it raises itself, besides those that follow from the rest.
        idempotent: honours `Idempotency-Key`.
        headers: further request headers that it reads, with their meaning.
        consumes: media types of an optional body that it reads itself.
        inlet: receives messages of systems that retry only after 5xx: it has limits of its own, and
            a message beyond them is refused with 503.
    """

    noun: str
    method: str
    base: str
    path: str
    view: View
    scope: Scope | None
    answers: Mapping[Status, type[Model] | Media]
    label: str = ""
    reach: Reach = "agent"
    problems: Sequence[str] = ()
    idempotent: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    consumes: Sequence[str] = ()
    inlet: bool = False

    @property
    def name(self) -> str:
        """Its unique name."""
        return f"{self.noun}.{self.label or self.view.__name__}"

    @cached_property
    def body(self) -> type[Model] | None:
        """The model of the body."""
        return self._parameter("body")[0]

    @cached_property
    def body_optional(self) -> bool:
        """True if the body may be absent."""
        return self._parameter("body")[1]

    @cached_property
    def query(self) -> type[Model] | None:
        """The model of the query."""
        return self._parameter("query")[0]

    def _parameter(self, name: str) -> tuple[type[Model] | None, bool]:
        """The model in the type of a parameter, and True if it may be None."""
        hint = typing.get_type_hints(self.view).get(name)
        kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
        return (kinds[0], True) if kinds else (hint, False)

    @property
    def rules(self) -> dict[str, str]:
        """URL rules by endpoint, which is also the id of the OpenAPI operation."""
        if self.reach == "agent":
            scoped = f"{self.base}/agents/<agentId>{self.path}"
            return {self.name: self.base + self.path, f"{self.name}_of_agent": scoped}
        return {self.name: self.base + self.path}

    @cached_property
    def usual_status(self) -> int:
        """The default status: the first that is declared."""
        return next(status for status in self.answers if isinstance(status, int))

    @property
    def parts(self) -> list[str]:
        """Names of the variable parts of the path."""
        return PART.findall(self.path)

    @property
    def possible_problems(self) -> list[str]:
        """Names of all problems that the route may respond with."""
        names = ["bad-request", "internal", *self.problems]
        if self.scope is not None:
            busy = "overloaded" if self.inlet else "too-many-requests"
            names += ["unauthenticated", "forbidden", busy, "unavailable", "unreadable"]
        if self.reach == "agent":
            names += ["unknown-agent", "no-default-agent"]
        if self.parts:
            names += ["not-found"]
        if self.body:
            names += ["malformed-json", "unsupported-media-type", "too-large", "invalid-request"]
        if self.consumes:
            names += ["too-large", "unsupported-media-type"]
        if self.query:
            names += ["invalid-request"]
        if self.idempotent:
            names += ["idempotency-mismatch", "idempotency-in-flight", "storage-budget"]
        return list(dict.fromkeys(names))


class Routes:
    """The routes of one resource, in the order of their declaration."""

    def __init__(self, noun: str, base: str = BASE) -> None:
        self.noun = noun
        self.base = base
        self.all: list[Route] = []

    def get(self, path: str, **settings: Any) -> Callable[[_V], _V]:
        """Declare a route that reads; see `add`."""
        return self.add("GET", path, **settings)

    def post(self, path: str, **settings: Any) -> Callable[[_V], _V]:
        """Declare a route that creates or acts, and can be repeated safely; see `add`."""
        return self.add("POST", path, **{"idempotent": True, **settings})

    def delete(self, path: str, **settings: Any) -> Callable[[_V], _V]:
        """Declare a route that removes; see `add`."""
        return self.add("DELETE", path, **settings)

    def add(self, method: str, path: str, **settings: Any) -> Callable[[_V], _V]:
        """Declare a route; see `Route` for its settings.

        Without `answers`, it responds with 200 and the model that the function returns.
        """
        if settings["scope"] is None:
            settings["reach"] = "visible"

        def declare(view: _V) -> _V:
            if "answers" not in settings:
                settings["answers"] = {200: typing.get_type_hints(view)["return"]}
            self.all.append(Route(self.noun, method, self.base, path, view, **settings))
            return view

        return declare


RouteResult = JsonResponse | Model | Response
