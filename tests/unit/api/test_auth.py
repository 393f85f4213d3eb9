"""Nobody gets in without a key that allows it, by whatever route."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import fakeredis
import pytest

from api_kit import Site, make_lab
from boyd.errors import ConfigError
from boyd.models import SCOPES, Actor
from boyd.settings.process_settings import load_settings
from boyd_api.app import ALL
from boyd_api.http.routing import Route
from boyd_api.http.services import Services

#: What needs no key; a route that is added here is open to everybody.
OPEN = {
    "/healthz",
    "/readyz",
    "/api/v0/health",
    "/openapi.json",
    "/",
    "/docs",
    "/docs/<name>",
    "/problems/<name>",
}


def rules() -> Any:
    for route in ALL:
        for endpoint, rule in route.rules.items():
            yield pytest.param(route, rule, id=endpoint)


def rules_with_scopes() -> Any:
    return [rule for rule in rules() if rule.values[0].scope is not None]


def url(rule: str, agent: str = "test") -> str:
    """A path that fits *rule*."""
    path = rule.replace("<agentId>", agent)
    for route in ALL:
        for part in route.parts:
            path = path.replace(f"<{part}>", "x")
            path = path.replace(f"<path:{part}>", "x")
    return path


def ask(site: Site, route: Route, rule: str, headers: dict[str, str], **more: Any) -> Any:
    fields = route.query.model_fields if route.query else {}
    needed = {name: "x" for name, field in fields.items() if field.is_required()}
    return site.client.open(
        url(rule), method=route.method, headers=headers, query_string=needed, **more
    )


def test_the_routes_that_are_served_are_those_that_are_declared(site: Site) -> None:
    rules = site.app.url_map.iter_rules()
    served = {rule.rule for rule in rules if not rule.endpoint.startswith("console.")}

    assert served == {rule for route in ALL for rule in route.rules.values()}


def test_only_the_routes_that_should_be_are_open() -> None:
    assert {rule for r in ALL for rule in r.rules.values() if r.scope is None} == OPEN


@pytest.fixture(scope="module", name="closed_site")
def _closed_site() -> Iterator[Site]:
    """A site that only refuses, so that many tests can share it."""
    server = fakeredis.FakeServer()
    site = Site(make_lab(server), server)
    yield site
    site.services.stop()


@pytest.mark.parametrize(("route", "rule"), rules_with_scopes())
def test_without_a_key_no_route_answers(closed_site: Site, route: Route, rule: str) -> None:
    answer = ask(closed_site, route, rule, {})

    assert answer.status_code == 401
    assert answer.mimetype == "application/problem+json"
    assert answer.json["type"] == "/problems/unauthenticated"
    assert "boyd keys create" in answer.json["detail"]
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize(("route", "rule"), rules_with_scopes())
def test_with_a_wrong_key_no_route_answers(closed_site: Site, route: Route, rule: str) -> None:
    text = closed_site.admin["Authorization"]
    other = {"Authorization": text[:-1] + ("A" if text[-1] != "A" else "B")}

    assert ask(closed_site, route, rule, other).status_code == 401
    assert ask(closed_site, route, rule, {"Authorization": "Bearer nonsense"}).status_code == 401
    assert ask(closed_site, route, rule, {"Authorization": "Basic YTpi"}).status_code == 401


@pytest.mark.parametrize(("route", "rule"), rules_with_scopes())
def test_with_an_expired_key_no_route_answers(closed_site: Site, route: Route, rule: str) -> None:
    answer = ask(closed_site, route, rule, closed_site.key("admin", expires_in=-1))

    assert answer.status_code == 401
    assert "expired" in answer.json["detail"]


@pytest.mark.parametrize(("route", "rule"), rules_with_scopes())
def test_without_the_scope_no_route_answers(closed_site: Site, route: Route, rule: str) -> None:
    including = {"admin", "read"} if route.scope == "kiosk" else {"admin"}
    others = [scope for scope in SCOPES if scope not in {route.scope, *including}]
    answer = ask(closed_site, route, rule, closed_site.key(*others))

    assert answer.status_code == 403
    assert answer.json["type"] == "/problems/forbidden"
    assert answer.json["scope"] == route.scope


@pytest.mark.parametrize(("route", "rule"), rules_with_scopes())
def test_a_key_for_another_agent_does_nothing_here(
    closed_site: Site, route: Route, rule: str
) -> None:
    answer = ask(closed_site, route, rule, closed_site.key("admin", agents=["other"]))

    if route.reach == "agent":
        assert answer.status_code == 404
        assert answer.json["type"] in ("/problems/unknown-agent", "/problems/no-default-agent")
        assert "test" not in answer.json["detail"].replace("'test'", "")
    elif route.reach == "deployment":
        assert answer.status_code == 403
    elif route.noun == "mcp":
        # Its messages name agents; test_assistants.py sends some.
        assert answer.status_code == 400
    else:
        assert answer.status_code == (404 if route.parts else route.usual_status)
        assert "test" not in str(answer.json)


@pytest.mark.parametrize(("route", "rule"), rules_with_scopes())
def test_a_key_with_the_scope_gets_past_the_door(site: Site, route: Route, rule: str) -> None:
    assert route.scope is not None
    answer = ask(site, route, rule, site.key(route.scope), buffered=False)
    answer.close()

    assert answer.status_code not in (401, 403, 405, 429, 500, 503)


def test_an_unknown_path_is_not_found_with_and_without_a_key(site: Site) -> None:
    assert site.client.get("/api/v0/nothing").status_code == 404
    assert site.get("/nothing").json["type"] == "/problems/not-found"


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "PATCH", "TRACE"])
def test_a_method_that_is_not_declared_is_refused(site: Site, method: str) -> None:
    answer = site.open(method, "/state")

    assert answer.status_code == 405
    assert answer.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_may_be_written_in_any_case(site: Site, scheme: str) -> None:
    text = site.admin["Authorization"].partition(" ")[2]

    assert site.get("/state", headers={"Authorization": f"{scheme} {text}"}).status_code == 200


def test_admin_includes_every_scope(site: Site) -> None:
    assert site.get("/state").status_code == 200
    assert site.post("/loop/trigger").status_code == 200


def test_a_revoked_key_is_of_no_use_at_once(site: Site) -> None:
    [key] = site.store.api_keys.all()
    assert site.get("/state").status_code == 200
    site.store.api_keys.revoke(key.id, Actor(principal="maker"))

    assert site.get("/state").status_code == 401


def test_a_key_limited_to_one_agent_means_that_one_by_default(site: Site) -> None:
    limited = site.key("read", agents=["test"])

    assert site.get("/state", headers=limited).json["agent"]["id"] == "test"
    assert [a["id"] for a in site.get("/agents", headers=limited).json["agents"]] == ["test"]


# Rates


def test_a_throttled_key_gets_the_time_to_wait(server: Any) -> None:
    site = Site(make_lab(server), server, rate=0.5, burst=3)
    answers = [site.get("/state") for _ in range(4)]

    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[-1].json["type"] == "/problems/too-many-requests"
    assert 1 <= int(answers[-1].headers["Retry-After"]) <= 2
    assert [answer.headers["RateLimit-Remaining"] for answer in answers] == ["2", "1", "0", "0"]
    assert answers[0].headers["RateLimit-Limit"] == "3"
    assert site.get("/state", headers=site.key("read")).status_code == 200, "each has its own"


# Without keys


def test_without_authentication_nobody_is_asked_and_nobody_is_a_person(open_site: Site) -> None:
    answer = open_site.client.post("/api/v0/pause", json={"reason": "x"})

    assert answer.status_code == 200
    assert answer.json["paused"] == "x (by anonymous)"


def test_without_authentication_a_key_that_is_shown_still_has_to_be_good(open_site: Site) -> None:
    limited = open_site.key("read")

    assert open_site.post("/pause", headers=limited).status_code == 403
    wrong = {"Authorization": "Bearer boyd_x_y"}
    assert open_site.client.get("/api/v0/state", headers=wrong).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "[::1"},
        {"Origin": "http://[::1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "Same-Site"},
    ],
)
def test_without_authentication_no_web_page_can_ask_through_a_browser(
    open_site: Site, headers: dict[str, str]
) -> None:
    assert open_site.client.post("/api/v0/freeze", headers=headers).status_code == 403


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_without_authentication_a_page_of_its_own_can_ask(open_site: Site, site: str) -> None:
    headers = {"Sec-Fetch-Site": site}

    assert open_site.client.get("/api/v0/state", headers=headers).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "boyd.example", "::"])
def test_authentication_cannot_be_left_out_where_others_can_reach_it(host: str) -> None:
    settings = load_settings({"api": {"host": host, "allow_unauthenticated": True}})
    with pytest.raises(ConfigError, match="allow_unauthenticated"):
        Services(settings)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_authentication_can_be_left_out_on_a_loopback_address(host: str) -> None:
    Services(load_settings({"api": {"host": host, "allow_unauthenticated": True}}))


def test_every_combination_of_scopes_allows_what_it_names(site: Site) -> None:
    for pair in itertools.combinations([s for s in SCOPES if s != "admin"], 2):
        headers = site.key(*pair)
        assert (site.get("/state", headers=headers).status_code == 200) == ("read" in pair)
