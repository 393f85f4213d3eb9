"""`/openapi.json`, `/docs`, `/problems`: the OpenAPI 3.1 document of the routes, and its viewer."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from http import HTTPStatus
from importlib import resources
from itertools import groupby
from threading import Lock
from typing import Any

from flask import Response, current_app, request
from pydantic import BaseModel
from pydantic.json_schema import (
    GenerateJsonSchema,
    JsonSchemaMode,
    models_json_schema,
)
from pydantic_core import core_schema

from boyd.models import Model, RunResult
from boyd.text.version import VERSION
from boyd_api.http import idempotency_keys
from boyd_api.http.problems import (
    MEDIA_TYPE,
    PROBLEM_TYPES,
    ProblemDocument,
    ProblemType,
    not_found,
)
from boyd_api.http.request_context import RequestContext
from boyd_api.http.routing import PART, Media, Route, Routes

#: The extension of the application that gives the OpenAPI document as JSON.
OPENAPI = "boyd_openapi"

routes = Routes("documents", base="")

Schemas = Mapping[type[BaseModel], dict[str, Any]]

_REF = "#/components/schemas/{model}"
_JSON = "application/json"

_DESCRIPTION = (
    "Every path below `/api/v0` that concerns an agent also exists below "
    "`/api/v0/agents/{agentId}`; the shorter path means the default agent.\n\n"
    "Errors are `application/problem+json`; `GET /problems/{name}` explains each type.\n\n"
    "<details><summary>All types</summary>\n\n| Status | Type | Meaning |\n| --- | --- | --- |\n"
    + "\n".join(
        f"| {kind.status} | `{kind.name}` | {kind.explanation} |" for kind in PROBLEM_TYPES.values()
    )
    + "\n\n</details>"
)
_IDEMPOTENCY_KEY = {
    "name": idempotency_keys.HEADER,
    "in": "header",
    "required": False,
    "description": "Identifies the request: repeating it returns the first response.",
    "schema": {
        "type": "string",
        "minLength": 1,
        "maxLength": 255,
        "pattern": idempotency_keys.PATTERN,
    },
}
#: What is sent to the `callbackUrl` of a run.
_CALLBACK_BODY = {
    "type": "object",
    "required": ["runId", "status", "result", "completedAt"],
    "properties": {
        "runId": {"type": "string"},
        "status": {"enum": ["completed", "failed", "cancelled"]},
        "result": {"anyOf": [{"$ref": _REF.format(model="RunResult")}, {"type": "null"}]},
        "completedAt": {"type": "string", "format": "date-time"},
        "reason": {"type": "string"},
    },
}
_CALLBACK = {
    "summary": "Report that the run has ended.",
    "parameters": [
        {"name": name, "in": "header", "schema": {"type": "string"}}
        for name in ("webhook-id", "webhook-timestamp", "webhook-signature")
    ],
    "requestBody": {"content": {_JSON: {"schema": _CALLBACK_BODY}}},
    "responses": {
        "2XX": {"description": "Received."},
        "410": {"description": "No longer wanted; not retried."},
        "default": {"description": "Retried later."},
    },
}


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
_POLICY = (
    "default-src 'none'; "
    f"script-src 'self' 'sha256-{b64encode(sha256(_START.encode()).digest()).decode()}'; "
    "style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


_REDIRECTED = "A browser is redirected to `/docs`."


class Index(Model):
    """The start page."""

    name: str = "Boyd"
    version: str = VERSION
    docs: str = "/docs"
    openapi: str = "/openapi.json"
    api: str = "/api/v0"
    health: str = "/healthz"
    console: str = "/console/"


@routes.get("/", scope=None, answers={200: Index, 302: Media("text/html", _REDIRECTED)})
def index(ctx: RequestContext) -> Index | Response:
    """List the start pages; a browser is redirected to the console."""
    wants = request.accept_mimetypes.best_match(["application/json", "text/html"])
    if wants == "text/html" and request.headers.get("Accept"):
        return Response(status=302, headers={"Location": "/console/"}, mimetype="text/html")
    return Index()


@routes.get("/openapi.json", scope=None, answers={200: Media(_JSON, "The OpenAPI 3.1 document.")})
def openapi(ctx: RequestContext) -> Response:
    """Show this document."""
    return Response(current_app.extensions[OPENAPI](), mimetype="application/json")


@routes.get("/docs", scope=None, answers={200: Media("text/html", "An HTML page.")})
def docs(ctx: RequestContext) -> Response:
    """Show this document as a page from which requests can be sent."""
    return Response(_PAGE, mimetype="text/html", headers={"Content-Security-Policy": _POLICY})


@routes.get(
    "/docs/<name>", scope=None, answers={200: Media("text/javascript", "The file.", ("text/css",))}
)
def asset(ctx: RequestContext, name: str) -> Response:
    """Load a file that the page needs."""
    if name not in _FILES:
        raise not_found(f"the documentation has no file {name!r}")
    cached = {"Cache-Control": "public, max-age=3600"}
    return Response((_VIEWER / name).read_bytes(), mimetype=_FILES[name], headers=cached)


@routes.get("/problems/<name>", scope=None)
def problem(ctx: RequestContext, name: str) -> ProblemType:
    """Explain a type of problem."""
    if name not in PROBLEM_TYPES:
        raise not_found(f"no problem {name!r}; known: {', '.join(PROBLEM_TYPES)}")
    return PROBLEM_TYPES[name]


def document_once(routes: Sequence[Route]) -> Callable[[], bytes]:
    """A function that makes the OpenAPI document of *routes* when it is first asked for.

    Threads that ask meanwhile wait: each document that is made takes megabytes.
    """
    make = cache(lambda: json.dumps(document(routes)).encode())
    lock = Lock()

    def document_bytes() -> bytes:
        with lock:
            return make()

    return document_bytes


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """The OpenAPI document of *routes*."""
    schemas, shapes = _schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        for operation_id, rule in route.rules.items():
            operation = _operation(route, operation_id, rule, schemas)
            paths.setdefault(PART.sub(r"{\1}", rule), {})[route.method.lower()] = operation
    bearer = {"type": "http", "scheme": "bearer", "bearerFormat": "boyd_<id>_<secret>"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Boyd", "version": VERSION, "description": _DESCRIPTION},
        "servers": [{"url": "/", "description": "The server of this document."}],
        "tags": [{"name": noun} for noun in dict.fromkeys(route.noun for route in routes)],
        "paths": paths,
        "components": {"schemas": shapes, "securitySchemes": {"bearer": bearer}},
    }


def _schemas(routes: Sequence[Route]) -> tuple[Schemas, dict[str, Any]]:
    """The schemas of all models: of each query itself, else a reference; and what they refer to."""
    bodies = [route.body for route in routes if route.body]
    queries = [route.query for route in routes if route.query]
    answers = [
        answer for r in routes for answer in r.answers.values() if not isinstance(answer, Media)
    ]
    models: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {}
    models.update(dict.fromkeys((model, "validation") for model in (*bodies, *queries)))
    sent: list[type[BaseModel]] = [*answers, ProblemDocument, RunResult]
    models.update(dict.fromkeys((model, "serialization") for model in sent))
    references, definitions = models_json_schema(
        list(models), ref_template=_REF, schema_generator=_ClientSchemas
    )
    shapes = definitions["$defs"]
    schemas: dict[Any, Any] = {model: reference for (model, _), reference in references.items()}
    for query in dict.fromkeys(queries):
        schemas[query] = shapes.pop(schemas[query]["$ref"].rpartition("/")[2])
    return schemas, shapes


class _ClientSchemas(GenerateJsonSchema):
    """Schemas from which generators of clients make the right types.

    They take a field with a `default` for one that is always there, also in requests. So a default
    is part of the description, and a field of an answer is required if it is always sent.
    """

    def field_is_required(
        self,
        field: core_schema.ModelField | core_schema.DataclassField | core_schema.TypedDictField,
        total: bool,
    ) -> bool:
        """Require what every answer has; of requests, what has no default."""
        schema = field["schema"]
        if self.mode == "validation" or schema["type"] != "default":
            return super().field_is_required(field, total)
        return not field.get("serialization_exclude") and not _may_be_absent(schema)

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Leave titles out: they only repeat the names of fields."""
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        """Move the default of a field into its description."""
        shape = self.generate_inner(schema["schema"])
        default = schema.get("default")
        if (
            self.mode == "serialization"
            or not isinstance(default, str | int | float)
            or default == ""
        ):
            return shape
        parts = [shape.get("description", ""), f"Default: `{json.dumps(default)}`."]
        return {**shape, "description": " ".join(filter(None, parts))}


def _may_be_absent(schema: Mapping[str, Any]) -> bool:
    return schema.get("default", ...) is None or schema["schema"]["type"] == "nullable"


def _operation(route: Route, operation_id: str, rule: str, schemas: Schemas) -> dict[str, Any]:
    summary, _, rest = (route.view.__doc__ or "").partition("\n")
    needed = f"Needs a key with the scope `{route.scope}`." if route.scope else "Needs no key."
    everywhere = " It must be a key for all agents." if route.reach == "deployment" else ""
    operation: dict[str, Any] = {
        "operationId": operation_id,
        "tags": [route.noun],
        "summary": summary,
        "description": "\n\n".join(filter(None, [" ".join(rest.split()), needed + everywhere])),
        "parameters": [*_path(rule), *_headers(route), *_query(route, schemas)],
        "requestBody": _body(route, schemas),
        "responses": _responses(route, schemas),
        "security": [{"bearer": []}] if route.scope else [],
        "callbacks": {"ended": {"{$request.body#/callbackUrl}": {"post": _CALLBACK}}}
        if route.name == "runs.submit"
        else {},
    }
    return {key: value for key, value in operation.items() if value}


def _path(rule: str) -> list[dict[str, Any]]:
    text = {"type": "string", "minLength": 1}
    return [
        {"name": name, "in": "path", "required": True, "schema": text}
        for name in PART.findall(rule)
    ]


def _headers(route: Route) -> list[dict[str, Any]]:
    others = [
        {"name": n, "in": "header", "description": meaning, "schema": {"type": "string"}}
        for n, meaning in route.headers.items()
    ]
    return [_IDEMPOTENCY_KEY, *others] if route.idempotent else others


def _query(route: Route, schemas: Schemas) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    shape = schemas[route.query]
    required = shape.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": schema}
        for name, schema in shape["properties"].items()
    ]


def _body(route: Route, schemas: Schemas) -> dict[str, Any] | None:
    if route.consumes:
        # Generators of clients choose the type by the value, and any value may be of any type.
        kind, *others = route.consumes
        also = {"description": f"Also as {', '.join(others)}."} if others else {}
        return {**also, "content": {kind: {"schema": {}}}, "required": False}
    if route.body is None:
        return None
    content = {_JSON: {"schema": schemas[route.body]}}
    return {"content": content, "required": not route.body_optional}


def _responses(route: Route, schemas: Schemas) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    others = route.answers.get("default")
    chosen = _media(others)["content"] if isinstance(others, Media) else {}
    for status, answer in route.answers.items():
        if isinstance(answer, Media):
            responses[str(status)] = _media(answer)
        else:
            content = {_JSON: {"schema": schemas[answer]}}
            phrase = HTTPStatus(int(status)).phrase
            responses[str(status)] = {"description": phrase, "content": content}
    problem = {MEDIA_TYPE: {"schema": schemas[ProblemDocument]}}
    kinds = sorted((PROBLEM_TYPES[n] for n in route.possible_problems), key=lambda k: k.status)
    for status, group in groupby(kinds, key=lambda kind: kind.status):
        titles = "; ".join(f"`{kind.name}`: {kind.title}" for kind in group)
        # Whoever chooses the status may choose that of a problem.
        responses.setdefault(str(status), {"description": titles, "content": problem | chosen})
    return responses


def _media(media: Media) -> dict[str, Any]:
    schema = {} if media.type == _JSON else {"type": "string"}
    content = {kind: {"schema": schema} for kind in (media.type, *media.also)}
    return {"description": media.description, "content": content}
