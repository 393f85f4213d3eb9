"""The OpenAPI 3.1 document, made from the declared routes by flask-openapi3.

It is made when it is first asked for: the routes are served by the same declarations, without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flask_openapi3.models.info import Info
from flask_openapi3.models.media_type import MediaType
from flask_openapi3.models.request_body import RequestBody
from flask_openapi3.models.schema import Schema
from flask_openapi3.models.tag import Tag
from flask_openapi3.openapi import OpenAPI
from pydantic import BaseModel, Field, create_model

from boyd.models import Model
from boyd.version import VERSION
from boyd_api import once
from boyd_api.problems import KINDS, MEDIA_TYPE, ProblemDocument
from boyd_api.routing import BASE, Media, Route

_INT_PART = re.compile(r"<int:(\w+)>")
_PARTS = re.compile(r"<(?:\w+:)?(\w+)>")

#: What is sent to the `callbackUrl` of a run.
_CALLBACKS = {
    "ended": {
        "{$request.body#/callbackUrl}": {
            "post": {
                "summary": "Tell that the run has ended.",
                "parameters": [
                    {"name": name, "in": "header", "schema": {"type": "string"}}
                    for name in ("webhook-id", "webhook-timestamp", "webhook-signature")
                ],
                "requestBody": {
                    "content": {
                        "application/json": {
                            "schema": {
                                "type": "object",
                                "required": ["runId", "status", "result", "completedAt"],
                                "properties": {
                                    "runId": {"type": "string"},
                                    "status": {"enum": ["completed", "failed", "cancelled"]},
                                    "result": {
                                        "anyOf": [
                                            {"$ref": "#/components/schemas/RunResult"},
                                            {"type": "null"},
                                        ]
                                    },
                                    "completedAt": {"type": "string", "format": "date-time"},
                                    "reason": {"type": "string"},
                                },
                            }
                        }
                    }
                },
                "responses": {
                    "2XX": {"description": "It was received."},
                    "410": {"description": "It is not wanted any more, and not sent again."},
                    "default": {"description": "It is sent again."},
                },
            }
        }
    }
}

_DESCRIPTION = (
    "Every path below `/api/v0` that concerns an agent is also there below "
    "`/api/v0/agents/{agentId}`; without that, the default agent is meant.\n\n"
    "Errors are `application/problem+json`; `GET /problems/{name}` explains each type."
)


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """The OpenAPI document of *routes*."""
    api = OpenAPI(
        "boyd_openapi",
        info=Info(title="Boyd", version=VERSION, description=_DESCRIPTION),
        security_schemes={
            "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "boyd_<id>_<secret>"}
        },
        # The library adds this status to each operation that lacks it. We name every problem
        # ourselves, and each operation has this one, so all it does is to add the schema.
        validation_error_status=500,
        validation_error_model=ProblemDocument,
        doc_ui=False,
        static_folder=None,
    )
    for route in routes:
        for operation_id, rule in route.rules.items():
            _add(api, route, operation_id, rule)
    made: dict[str, Any] = api.api_doc
    _drop_empty_defaults(made)
    made["servers"] = [{"url": "/", "description": "The API that this document came from."}]
    for path in (f"{BASE}/runs", f"{BASE}/agents/{{agentId}}/runs"):
        if path in made["paths"]:
            made["paths"][path]["post"]["callbacks"] = _CALLBACKS
    return made


def _drop_empty_defaults(value: Any) -> None:
    """Take out each default of null where null is no value: that is how absent is written."""
    if isinstance(value, list):
        for each in value:
            _drop_empty_defaults(each)
    elif isinstance(value, dict):
        if "default" in value and value["default"] is None and "type" in value:
            del value["default"]
        for each in value.values():
            _drop_empty_defaults(each)


def _add(api: OpenAPI, route: Route, operation_id: str, rule: str) -> None:
    declare = getattr(api, route.method.lower())(
        _PARTS.sub(r"<\1>", rule),
        endpoint=operation_id,
        operation_id=operation_id,
        tags=[Tag(name=route.noun)],
        responses=_responses(route),
        security=[{"bearer": []}] if route.scope else None,
        description=_description(route),
    )
    declare(_documented(route, operation_id, rule))
    operation = getattr(api.paths[_PARTS.sub(r"{\1}", rule)], route.method.lower())
    if route.body_optional:
        operation.requestBody.required = False
    if route.consumes:
        content = {kind: MediaType(schema=Schema()) for kind in route.consumes}
        operation.requestBody = RequestBody(content=content, required=False)


def _description(route: Route) -> str:
    _, _, rest = (route.view.__doc__ or "").partition("\n")
    told = " ".join(rest.split())
    needed = f"Needs a key with the scope `{route.scope}`." if route.scope else "Needs no key."
    everywhere = " It must be a key for all agents." if route.reach == "deployment" else ""
    return "\n\n".join(filter(None, [told, needed + everywhere]))


def _documented(route: Route, name: str, rule: str) -> Callable[..., None]:
    """A function whose annotations tell the library what the route reads; it never runs."""

    def view() -> None: ...

    view.__name__ = name
    view.__doc__ = (route.view.__doc__ or "").partition("\n")[0]
    read = {
        "path": _path_model(rule),
        "header": _header_model(route),
        "query": route.query,
        "body": route.body,
    }
    view.__annotations__ = {key: model for key, model in read.items() if model is not None}
    return view


def _path_model(rule: str) -> type[BaseModel] | None:
    whole = set(_INT_PART.findall(rule))
    parts = _PARTS.findall(rule)
    text = (str, Field(min_length=1))
    number = (int, Field(ge=0))
    fields: dict[str, Any] = {part: number if part in whole else text for part in parts}
    return create_model("Path", **fields) if parts else None


def _header_model(route: Route) -> type[BaseModel] | None:
    headers = dict(route.headers)
    fields: dict[str, Any] = {}
    if route.idempotent:
        told = "Names the request: when it is repeated, it is answered as before, and not done."
        name = Field(
            None,
            alias=once.HEADER,
            min_length=1,
            max_length=255,
            pattern=once.PATTERN,
            description=told,
        )
        fields["idempotency_key"] = (str, name)
    for header, told in headers.items():
        field = header.lower().replace("-", "_")
        fields[field] = (str, Field(None, alias=header, description=told))
    return create_model("Headers", **fields) if fields else None


def _responses(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = {}
    others = route.answers.get("default")
    chosen = _media(others)["content"] if isinstance(others, Media) else {}
    for status, answer in route.answers.items():
        found[str(status)] = _media(answer) if isinstance(answer, Media) else _named(answer)
    for status, names in _problems(route).items():
        content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
        said = "; ".join(f"`{name}`: {KINDS[name].title}" for name in names)
        if str(status) not in found:
            # Whoever chooses the status may choose that of a problem.
            found[str(status)] = {"description": said, "content": content | chosen}
    return found


def _named(model: type[Model]) -> type[Model]:
    return model


def _media(media: Media) -> dict[str, Any]:
    schema = {} if media.type == "application/json" else {"type": "string"}
    kinds = (media.type, *media.also)
    return {
        "description": media.description,
        "content": {kind: {"schema": schema} for kind in kinds},
    }


def _problems(route: Route) -> dict[int, Sequence[str]]:
    found: dict[int, list[str]] = {}
    for name in route.possible_problems:
        found.setdefault(KINDS[name].status, []).append(name)
    return {status: found[status] for status in sorted(found)}
