"""How a route is declared: once, with what it needs and what it may answer.

    routes = Routes("runs")

    @routes.post("/runs", scope="runs", answers={201: RunCreated}, idempotent=True)
    def submit(ask: Ask, body: RunRequest) -> Answer:
        \"\"\"Submit a run.\"\"\"

The arguments of the function tell the rest: `body` and `query` are models that validate, a `body`
that may be None may be absent, and all others are parts of the path.
From this come the URL rules, the checks in front of the function, and the OpenAPI document.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from flask import Response
from werkzeug.routing import BaseConverter

from boyd.models import Model, Scope

BASE = "/api/v0"

#: Whom a route concerns. `agent`: one agent, below `/agents/{agentId}` too. `visible`: it answers
#: with what the key may see. `deployment`: all agents, so a key that is limited to some is refused.
Reach = Literal["agent", "visible", "deployment"]

#: The status of an answer, or all those that are not named.
Status = int | Literal["default"]

View = Callable[..., Any]
_V = TypeVar("_V", bound=View)

_PART = re.compile(r"<(?:\w+(?:\([^)<]*\))?:)?(\w+)>")


class Rest(BaseConverter):
    """All of a path from there on, slashes included, or nothing."""

    regex = r"(?s:.*)"
    weight = 200
    part_isolating = False


@dataclass(frozen=True)
class Answer:
    """What a route answers with.

    Attributes:
        body: the model that is shown.
        status: of HTTP; None: the first that the route declares.
        headers: further headers.
        nulls: paths of fields that are shown as null when they are absent, as in `agent/model`;
            all others are left out then.
        kept: what a repetition of the request is answered with instead, where *body* may be seen
            only once.
    """

    body: Model
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    nulls: Sequence[str] = ()
    kept: Model | None = None


@dataclass(frozen=True)
class Media:
    """An answer that is not a JSON object of one model."""

    type: str
    description: str
    also: Sequence[str] = ()


@dataclass(frozen=True)
class Route:
    """A declared route; see `Routes.add`."""

    name: str
    method: str
    base: str
    path: str
    view: View
    noun: str
    scope: Scope | None
    reach: Reach
    answers: Mapping[Status, type[Model] | Media]
    problems: Sequence[str]
    idempotent: bool
    headers: Mapping[str, str]
    body: type[Model] | None
    body_optional: bool
    query: type[Model] | None
    consumes: Sequence[str]
    inlet: bool

    @property
    def rules(self) -> dict[str, str]:
        """Its URL rules by endpoint, which is also the OpenAPI operation's id."""
        if self.reach == "agent":
            scoped = f"{self.base}/agents/<agentId>{self.path}"
            return {self.name: self.base + self.path, f"{self.name}_of_agent": scoped}
        return {self.name: self.base + self.path}

    @property
    def usual_status(self) -> int:
        """What it answers with when nothing is said: the first status that is declared."""
        return next(status for status in self.answers if isinstance(status, int))

    @property
    def parts(self) -> list[str]:
        """The names of the variable parts of its path."""
        return _PART.findall(self.path)

    @property
    def possible_problems(self) -> list[str]:
        """Every problem that it may answer with, by name."""
        found = ["bad-request", "internal", *self.problems]
        if self.scope is not None:
            busy = "overloaded" if self.inlet else "too-many-requests"
            found += ["unauthenticated", "forbidden", busy, "unavailable"]
        if self.reach == "agent":
            found += ["unknown-agent", "no-default-agent"]
        if self.parts:
            found += ["not-found"]
        if self.body:
            found += ["malformed-json", "unsupported-media-type", "too-large", "invalid-request"]
        if self.consumes:
            found += ["too-large", "unsupported-media-type"]
        if self.query:
            found += ["invalid-request"]
        if self.idempotent:
            found += ["idempotency-mismatch", "idempotency-in-flight"]
        return list(dict.fromkeys(found))


class Routes:
    """The routes of one noun, in the order of their declaration."""

    def __init__(self, noun: str, base: str = BASE) -> None:
        """Name what they are about, which heads their section in the docs, and where they lie."""
        self.noun = noun
        self.base = base
        self.all: list[Route] = []

    def get(self, path: str, **settings: Any) -> Callable[[_V], _V]:
        """Declare a route that reads; see `add`."""
        return self.add("GET", path, **settings)

    def post(self, path: str, **settings: Any) -> Callable[[_V], _V]:
        """Declare a route that creates or acts; see `add`."""
        return self.add("POST", path, **settings)

    def delete(self, path: str, **settings: Any) -> Callable[[_V], _V]:
        """Declare a route that removes; see `add`."""
        return self.add("DELETE", path, **settings)

    def add(
        self,
        method: str,
        path: str,
        *,
        scope: Scope | None,
        answers: Mapping[Status, type[Model] | Media],
        reach: Reach = "agent",
        problems: Sequence[str] = (),
        idempotent: bool = False,
        headers: Mapping[str, str] | None = None,
        consumes: Sequence[str] = (),
        inlet: bool = False,
    ) -> Callable[[_V], _V]:
        """Declare a route.

        Args:
            method: of HTTP.
            path: below the base, with `<name>`, `<int:name>` or `<rest:name>` parts.
            scope: what a key needs; None: anybody may ask, without a key.
            answers: the models that it answers with, by status; the first is the usual one.
            reach: whom it concerns.
            problems: those that it raises itself, besides what follows from the rest.
            idempotent: whether it honours `Idempotency-Key`.
            headers: further headers of the request that it reads, with what they mean.
            consumes: the media types of a body that it reads itself; it may be absent.
            inlet: whether other systems send to it that repeat only what was answered with 5xx: it
                has limits of its own, and what is beyond them is answered with 503.
        """

        def declare(view: _V) -> _V:
            hints = typing.get_type_hints(view)
            body, optional = _model(hints.get("body"))
            query, _ = _model(hints.get("query"))
            self.all.append(
                Route(
                    name=f"{self.noun}.{view.__name__}",
                    method=method,
                    base=self.base,
                    path=path,
                    view=view,
                    noun=self.noun,
                    scope=scope,
                    reach=reach if scope is not None else "visible",
                    answers=answers,
                    problems=tuple(problems),
                    idempotent=idempotent,
                    headers=headers or {},
                    body=body,
                    body_optional=optional,
                    query=query,
                    consumes=tuple(consumes),
                    inlet=inlet,
                )
            )
            return view

        return declare


def _model(hint: Any) -> tuple[type[Model] | None, bool]:
    """The model that an argument's type names, and whether it may be None."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
        return kinds[0], len(kinds) < len(typing.get_args(hint))
    return (hint, False) if inspect.isclass(hint) and issubclass(hint, Model) else (None, False)


Reply = Answer | Model | Response
