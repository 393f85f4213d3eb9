"""The OpenAPI document tells all that the API does, and says so in a form that tools read."""

from __future__ import annotations

import base64
import hashlib
import re
from concurrent.futures import ThreadPoolExecutor
from threading import Event, get_ident
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from api_kit import Site
from boyd_api.app import ALL
from boyd_api.http import documentation
from boyd_api.http.documentation import document
from boyd_api.http.problems import PROBLEM_TYPES

SPEC: dict[str, Any] = document(ALL)
OPERATIONS = [
    pytest.param(path, method, operation, id=operation["operationId"])
    for path, methods in SPEC["paths"].items()
    for method, operation in methods.items()
]


#: Words that restrict nothing by themselves.
ANNOTATIONS = {"description", "discriminator", "title"}


def keywords(shape: Any) -> set[str]:
    """The keywords of a schema and of all within it."""
    if not isinstance(shape, dict):
        return set()
    within = [*shape.get("properties", {}).values(), *shape.get("prefixItems", [])]
    within += [shape.get("items"), shape.get("additionalProperties")]
    within += [part for word in ("allOf", "anyOf", "oneOf") for part in shape.get(word, [])]
    return set(shape).union(*map(keywords, within))


def references(value: Any) -> set[str]:
    """Every `$ref` in *value*."""
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


def test_it_is_served_as_a_document_and_as_a_page(site: Site) -> None:
    answer = site.client.get("/openapi.json")
    page = site.client.get("/docs")

    assert answer.json["openapi"].startswith("3.1")
    assert page.mimetype == "text/html"
    assert '"/openapi.json"' in page.text


def test_the_page_loads_its_viewer_from_this_server_and_nothing_from_elsewhere(site: Site) -> None:
    page = site.client.get("/docs")
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    [script] = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = page.headers["Content-Security-Policy"].split("; ")

    assert "//" not in page.text.replace("<!doctype html>", "")
    for path in loaded:
        if not path.startswith("data:"):
            answer = site.client.get(path)
            assert answer.status_code == 200
            assert answer.mimetype == ("text/css" if path.endswith(".css") else "text/javascript")
    assert f"script-src 'self' 'sha256-{digest}'" in policy
    assert {"default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'"} <= set(policy)
    assert "unsafe" not in page.headers["Content-Security-Policy"]
    assert "validatorUrl: null" in script


def test_the_page_has_no_other_files(site: Site) -> None:
    for name in ("swagger-ui.js", "VERSION", "..", "%2e%2e%2f__init__.py"):
        assert site.client.get(f"/docs/{name}").status_code == 404


def test_every_rule_is_an_operation_with_an_id_of_its_own() -> None:
    operations = {(path, method) for path, methods in SPEC["paths"].items() for method in methods}
    served = {
        (re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule), route.method.lower())
        for route in ALL
        for rule in route.rules.values()
    }
    ids = [
        method["operationId"] for methods in SPEC["paths"].values() for method in methods.values()
    ]

    assert operations == served
    assert len(ids) == len(set(ids))


def test_every_reference_leads_somewhere() -> None:
    schemas = {f"#/components/schemas/{name}" for name in SPEC["components"]["schemas"]}

    assert references(SPEC) <= schemas


@pytest.mark.long
def test_no_two_shapes_share_a_name() -> None:
    shapes: dict[str, Any] = {}
    for route in ALL:
        models = [*route.answers.values(), route.body, route.query]
        for model in models:
            if isinstance(model, type):
                schema = model.model_json_schema()
                parts = schema.pop("$defs", {})
                for name, shape in {**parts, model.__name__: schema}.items():
                    assert shapes.setdefault(name, shape) == shape, name


@pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS)
def test_an_operation_tells_what_it_does_needs_and_answers(
    path: str, method: str, operation: dict[str, Any]
) -> None:
    [route] = [r for r in ALL if operation["operationId"] in r.rules]
    in_path = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}

    assert operation["summary"].endswith(".")
    assert in_path == set(re.findall(r"{(\w+)}", path))
    assert (operation.get("security") == [{"bearer": []}]) == (route.scope is not None)
    assert {str(status) for status in route.answers} <= set(operation["responses"])
    for name in route.possible_problems:
        assert str(PROBLEM_TYPES[name].status) in operation["responses"], name
    assert ("requestBody" in operation) == (route.body is not None or bool(route.consumes))
    if route.body is not None:
        assert operation["requestBody"]["required"] is not route.body_optional
    if route.idempotent:
        assert "Idempotency-Key" in {p["name"] for p in operation["parameters"]}


@pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS)
def test_a_request_that_acts_can_be_repeated_safely(
    path: str, method: str, operation: dict[str, Any]
) -> None:
    [route] = [r for r in ALL if operation["operationId"] in r.rules]

    assert route.idempotent or method != "post", "every POST creates or acts"


@pytest.mark.long
def test_a_validator_of_openapi_finds_nothing_wrong() -> None:
    assert list(OpenAPIV31SpecValidator(SPEC).iter_errors()) == []


def test_names_stay_apart_when_a_generator_spells_them_in_its_way() -> None:
    ids = [
        operation["operationId"]
        for methods in SPEC["paths"].values()
        for operation in methods.values()
    ]

    for names in (ids, list(SPEC["components"]["schemas"])):
        assert len({re.sub(r"\W|_", "", name).lower() for name in names}) == len(names)


def test_a_field_with_a_default_need_not_be_sent() -> None:
    shapes = SPEC["components"]["schemas"]
    for model in {route.body for route in ALL if route.body}:
        needed = {field.alias for field in model.model_fields.values() if field.is_required()}

        assert set(shapes[model.__name__].get("required", [])) == needed, model.__name__
    assert shapes["SentRun"]["properties"]["priority"]["description"] == 'Default: `"medium"`.'
    # Generators take a field with a default for one that is always there, also in requests.
    fields = [field for shape in shapes.values() for field in shape.get("properties", {}).values()]
    assert not [field for field in fields if "default" in field]


def test_the_fields_that_every_answer_has_are_required() -> None:
    answers = [answer for route in ALL for answer in route.answers.values()]
    for model in {answer for answer in answers if isinstance(answer, type)}:
        sent = {
            field.alias
            for field in model.model_fields.values()
            if field.get_default(call_default_factory=True) is not None and not field.exclude
        }

        assert set(SPEC["components"]["schemas"][model.__name__].get("required", [])) == sent


def test_a_body_has_one_form_and_a_shape_only_words_of_json_schema() -> None:
    words = set().union(*map(keywords, SPEC["components"]["schemas"].values()))

    for methods in SPEC["paths"].values():
        for operation in methods.values():
            assert len(operation.get("requestBody", {}).get("content", ["none"])) == 1
    assert words <= Draft202012Validator.VALIDATORS.keys() | ANNOTATIONS


def test_it_names_the_server_and_what_a_callback_brings() -> None:
    submit = SPEC["paths"]["/api/v0/runs"]["post"]
    [sent] = submit["callbacks"]["ended"].values()

    assert SPEC["servers"][0]["url"] == "/"
    content = sent["post"]["requestBody"]["content"]["application/json"]
    assert set(content["schema"]["required"]) == {"runId", "status", "result", "completedAt"}


def test_headers_and_urls_have_the_form_that_is_checked() -> None:
    submit = SPEC["paths"]["/api/v0/runs"]["post"]
    [key] = [
        parameter for parameter in submit["parameters"] if parameter["name"] == "Idempotency-Key"
    ]
    form = re.compile(key["schema"]["pattern"])
    url = SPEC["components"]["schemas"]["SentRun"]["properties"]["callbackUrl"]["anyOf"][0]

    assert form.search("once ~ 1")
    assert not form.search("\u00e9")
    assert re.search(url["pattern"], "HTTPS://example.com/x")
    assert not re.search(url["pattern"], "https:///x")


def test_metrics_are_documented_in_both_formats() -> None:
    content = SPEC["paths"]["/metrics"]["get"]["responses"]["200"]["content"]

    assert set(content) == {"text/plain", "application/openmetrics-text"}


def test_the_document_is_made_once_for_clients_that_ask_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    makers: list[int] = []
    second = Event()

    def slow_document(_: object) -> dict[str, str]:
        makers.append(get_ident())
        if len(makers) > 1:
            second.set()
        second.wait(0.3)  # until another client makes it, too, if it can
        return {"openapi": "3.1.0"}

    monkeypatch.setattr(documentation, "document", slow_document)
    make = documentation.document_once([])
    with ThreadPoolExecutor(2) as clients:
        answers = [answer.result() for answer in [clients.submit(make), clients.submit(make)]]

    assert answers == [b'{"openapi": "3.1.0"}'] * 2
    assert len(makers) == 1
