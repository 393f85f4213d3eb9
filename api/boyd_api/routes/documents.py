"""`/openapi.json`, `/docs`, `/problems`: the API explains itself."""

from __future__ import annotations

import json
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib import resources

from flask import Response, request

from boyd.models import Model
from boyd.version import VERSION
from boyd_api.openapi import document
from boyd_api.problems import KINDS
from boyd_api.routing import Media, Routes
from boyd_api.serving import Ask, not_found

routes = Routes("documents", base="")

#: Swagger UI, as the package `flask-swagger-ui` carries it.
_VIEWER = resources.files("flask_swagger_ui") / "dist"
_FILES = {"swagger-ui.css": "text/css", "swagger-ui-bundle.js": "text/javascript"}
#: `validatorUrl` stops it from sending the document to a validator elsewhere.
_START = """
SwaggerUIBundle({
  url: "/openapi.json", dom_id: "#docs", validatorUrl: null, deepLinking: true,
  docExpansion: "none", filter: true, displayRequestDuration: true, defaultModelsExpandDepth: 0,
});
"""
_PAGE = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Boyd {VERSION}: HTTP API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/docs/swagger-ui.css">
</head>
<body>
<div id="docs"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script>{_START}</script>
</body>
</html>
"""
#: The page loads from this server only, runs nothing but the viewer, and cannot be framed.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        f"script-src 'self' 'sha256-{b64encode(sha256(_START.encode()).digest()).decode()}'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)


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
    """Show this document as a page from which requests can be sent."""
    return Response(_PAGE, mimetype="text/html", headers={"Content-Security-Policy": _POLICY})


@routes.get(
    "/docs/<name>",
    scope=None,
    answers={200: Media("text/javascript", "The file.", ("text/css",))},
)
def asset(ask: Ask, name: str) -> Response:
    """Load a file that the page needs."""
    if name not in _FILES:
        raise not_found(f"the documentation has no file {name!r}")
    return Response(
        (_VIEWER / name).read_bytes(),
        mimetype=_FILES[name],
        headers={"Cache-Control": "public, max-age=3600"},
    )


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
