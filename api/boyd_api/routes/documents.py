"""`/openapi.json`, `/docs`, `/problems`: the API explains itself."""

from __future__ import annotations

import json
from functools import cache

from flask import Response, render_template, request

from boyd.models import Model
from boyd.version import VERSION
from boyd_api.openapi import document
from boyd_api.problems import KINDS
from boyd_api.routing import Media, Routes
from boyd_api.serving import Ask, not_found

routes = Routes("documents", base="")

#: The page loads nothing, runs nothing, and cannot be framed.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"


class ProblemType(Model):
    """A type of problem, explained."""

    type: str
    name: str
    status: int
    title: str
    explanation: str


class Index(Model):
    """Where things are."""

    name: str = "Boyd"
    version: str = VERSION
    docs: str = "/docs"
    openapi: str = "/openapi.json"
    api: str = "/api/v0"
    health: str = "/healthz"


@routes.get(
    "/",
    scope=None,
    answers={200: Index, 302: Media("text/html", "A browser is led to `/docs`.")},
)
def index(ask: Ask) -> Index | Response:
    """Tell where things are; a browser is led to the documentation."""
    wants = request.accept_mimetypes.best_match(["application/json", "text/html"])
    if wants == "text/html" and request.headers.get("Accept"):
        return Response(status=302, headers={"Location": "/docs"}, mimetype="text/html")
    return Index()


@routes.get(
    "/openapi.json",
    scope=None,
    answers={200: Media("application/json", "The OpenAPI 3.1 document.")},
)
def openapi(ask: Ask) -> Response:
    """Show this document."""
    return Response(_document(), mimetype="application/json")


@routes.get("/docs", scope=None, answers={200: Media("text/html", "A page for people.")})
def docs(ask: Ask) -> Response:
    """Show this document as a page."""
    page = Response(_page(), mimetype="text/html")
    page.headers["Content-Security-Policy"] = _POLICY
    return page


@routes.get("/problems/<name>", scope=None, answers={200: ProblemType})
def problem(ask: Ask, name: str) -> ProblemType:
    """Explain a type of problem."""
    kind = KINDS.get(name)
    if kind is None:
        raise not_found(f"no problem {name!r}; there are: {', '.join(KINDS)}")
    return ProblemType(
        type=f"/problems/{name}",
        name=name,
        status=kind.status,
        title=kind.title,
        explanation=kind.explanation,
    )


@cache
def _document() -> str:
    from boyd_api.routes import ALL

    return json.dumps(document(ALL))


@cache
def _page() -> str:
    made = json.loads(_document())
    return render_template("docs.html", api=made, problems=KINDS.values(), version=VERSION)
