"""The OpenAPI 3.1 document, made from the declared routes and the schemas of their models."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from boyd.models import RunResult
from boyd.version import VERSION
from boyd_api import once
from boyd_api.problems import KINDS, MEDIA_TYPE, ProblemDocument
from boyd_api.routing import Media, Route

Schemas = Mapping[type[BaseModel], dict[str, Any]]

_REF = "#/components/schemas/{model}"
_PART = re.compile(r"<(?:(\w+):)?(\w+)>")
_JSON = "application/json"

_DESCRIPTION = (
    "Every path below `/api/v0` that concerns an agent is also there below "
    "`/api/v0/agents/{agentId}`; without that, the default agent is meant.\n\n"
    "Errors are `application/problem+json`; `GET /problems/{name}` explains each type.\n\n"
    "<details><summary>All types</summary>\n\n| Status | Type | Meaning |\n| --- | --- | --- |\n"
    + "\n".join(
        f"| {kind.status} | `{kind.name}` | {kind.explanation} |" for kind in KINDS.values()
    )
    + "\n\n</details>"
)
_IDEMPOTENCY_KEY = {
    "name": once.HEADER,
    "in": "header",
    "required": False,
    "description": "Names the request: repeating it returns the first answer and does nothing.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": once.PATTERN},
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
        "2XX": {"description": "It was received."},
        "410": {"description": "It is not wanted any more, and not sent again."},
        "default": {"description": "It is sent again."},
    },
}


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """The OpenAPI document of *routes*."""
    schemas, shapes = _schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        for operation_id, rule in route.rules.items():
            operation = _operation(route, operation_id, rule, schemas)
            paths.setdefault(_PART.sub(r"{\2}", rule), {})[route.method.lower()] = operation
    bearer = {"type": "http", "scheme": "bearer", "bearerFormat": "boyd_<id>_<secret>"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Boyd", "version": VERSION, "description": _DESCRIPTION},
        "servers": [{"url": "/", "description": "The API that this document came from."}],
        "tags": [{"name": noun} for noun in dict.fromkeys(route.noun for route in routes)],
        "paths": paths,
        "components": {"schemas": shapes, "securitySchemes": {"bearer": bearer}},
    }


def _schemas(routes: Sequence[Route]) -> tuple[Schemas, dict[str, Any]]:
    """The schemas of all models: of each query itself, else a reference; and what they refer to."""
    bodies = [route.body for route in routes if route.body]
    queries = [route.query for route in routes if route.query]
    answers = [one for r in routes for one in r.answers.values() if not isinstance(one, Media)]
    wanted: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {}
    wanted.update(dict.fromkeys((model, "validation") for model in (*bodies, *queries)))
    sent: list[type[BaseModel]] = [*answers, ProblemDocument, RunResult]
    wanted.update(dict.fromkeys((model, "serialization") for model in sent))
    references, definitions = models_json_schema(list(wanted), ref_template=_REF)
    shapes = _without_empty_defaults(definitions["$defs"])
    schemas: dict[Any, Any] = {model: reference for (model, _), reference in references.items()}
    for query in dict.fromkeys(queries):
        schemas[query] = shapes.pop(schemas[query]["$ref"].rpartition("/")[2])
    return schemas, shapes


def _without_empty_defaults(value: Any) -> Any:
    """Remove each default of null where null is no valid value: it only marks a field as absent."""
    if isinstance(value, list):
        return [_without_empty_defaults(each) for each in value]
    if not isinstance(value, dict):
        return value
    empty = value.get("default", ...) is None and "type" in value
    kept = {key: each for key, each in value.items() if not (empty and key == "default")}
    return {key: _without_empty_defaults(each) for key, each in kept.items()}


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
    whole, text = {"type": "integer", "minimum": 0}, {"type": "string", "minLength": 1}
    return [
        {"name": n, "in": "path", "required": True, "schema": whole if kind == "int" else text}
        for kind, n in _PART.findall(rule)
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
        return {"content": {kind: {"schema": {}} for kind in route.consumes}, "required": False}
    if route.body is None:
        return None
    content = {_JSON: {"schema": schemas[route.body]}}
    return {"content": content, "required": not route.body_optional}


def _responses(route: Route, schemas: Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {}
    others = route.answers.get("default")
    chosen = _media(others)["content"] if isinstance(others, Media) else {}
    for status, answer in route.answers.items():
        found[str(status)] = (
            _media(answer)
            if isinstance(answer, Media)
            else {
                "description": HTTPStatus(int(status)).phrase,
                "content": {_JSON: {"schema": schemas[answer]}},
            }
        )
    problem = {MEDIA_TYPE: {"schema": schemas[ProblemDocument]}}
    for status, names in _problems(route).items():
        titles = "; ".join(f"`{name}`: {KINDS[name].title}" for name in names)
        # Whoever chooses the status may choose that of a problem.
        found.setdefault(str(status), {"description": titles, "content": problem | chosen})
    return found


def _media(media: Media) -> dict[str, Any]:
    schema = {} if media.type == _JSON else {"type": "string"}
    content = {kind: {"schema": schema} for kind in (media.type, *media.also)}
    return {"description": media.description, "content": content}


def _problems(route: Route) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for name in route.possible_problems:
        found.setdefault(KINDS[name].status, []).append(name)
    return dict(sorted(found.items()))
