"""Signing in and out: sessions, cookies, and what forms need to count."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from unittest import mock

import pytest

from api_kit import MAKER, Site
from boyd.errors import StoreReadOnly
from boyd.models import AuditEntry
from boyd.store.keys import API_KEYS, session
from boyd.store.login_sessions import LoginSessions, digest
from boyd_api.console import session as sessions_of_browsers
from console_kit import Browser


def test_the_first_page_leads_to_the_login_and_back(desk: Site) -> None:
    browser = Browser(desk)
    login = browser.get("/", Accept="text/html")

    assert login.path == "/console/login?next=%2Fconsole%2F&why="
    key = desk.admin["Authorization"].removeprefix("Bearer ")
    assert browser.send(login.form("/login"), key=key).path == "/console/"


def test_a_wrong_key_is_refused_with_the_reason(desk: Site) -> None:
    page = Browser(desk).sign_in("boyd_abcdefghijkl_" + "x" * 43)

    assert page.status == 401
    assert "the key is not known, or was revoked" in page.text


def test_the_cookie_holds_no_key_and_is_not_for_scripts(desk: Site) -> None:
    browser = Browser(desk)
    key = desk.admin["Authorization"].removeprefix("Bearer ")
    form = browser.get("/console/login").form("/login")
    cookie = browser.send(form, follow=False, key=key).headers["Set-Cookie"]

    assert cookie.startswith("boyd-localhost=")
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert "Path=/" in cookie
    assert key.split("_", 2)[2] not in cookie
    secret = cookie.partition("=")[2].partition(";")[0]
    [login] = desk.store.login_sessions.all()
    assert login.id == digest(secret)


def test_elsewhere_the_cookie_is_for_https_and_this_host_only(desk: Site) -> None:
    browser = Browser(desk)
    where = "https://boyd.example.com"
    login = browser.client.get("/console/login", base_url=where)
    assert login.headers["Set-Cookie"].startswith("__Host-boyd-visitor=")
    assert "Secure" in login.headers["Set-Cookie"]


def test_a_revoked_key_ends_its_sessions(desk: Site) -> None:
    key = desk.key("read", principal="bob")
    browser = Browser(desk, key)
    assert browser.get("/console/").status == 200

    desk.store.api_keys.revoke(key["Authorization"].split("_")[1], MAKER)

    assert browser.get("/console/").path.startswith("/console/login")
    assert desk.store.login_sessions.all() == []


def test_signing_out_closes_the_session(alice: Browser, desk: Site) -> None:
    cookie = alice.client.get_cookie("boyd-localhost")
    assert cookie is not None
    left = alice.send(alice.get("/console/").form("/logout"))

    assert "You are signed out" in left.text
    alice.client.set_cookie("boyd-localhost", cookie.value)
    assert alice.get("/console/").path.startswith("/console/login")
    assert [audit_entry.kind for audit_entry in _trail(desk)][-1] == "session.closed"


def test_a_session_ends_without_use_and_only_a_person_keeps_it_open(desk: Site) -> None:
    browser = Browser(desk, desk.key("read"))
    [key] = [redis_key for redis_key in desk.store.client.scan_iter() if ":session:" in redis_key]
    before = desk.store.client.pttl(key)
    desk.store.client.pexpire(key, 1000)

    browser.get("/console/", **{"HX-Request": "true"})
    browser.client.head("/console/stream")
    assert desk.store.client.pttl(key) <= 1000, "a page that refreshes itself kept it open"
    browser.get("/console/")
    assert desk.store.client.pttl(key) > before - 60_000
    assert before <= 30 * 60_000


def test_a_session_ends_after_half_a_day_in_any_case(desk: Site) -> None:
    browser = Browser(desk, desk.key("read"))
    [key] = [redis_key for redis_key in desk.store.client.scan_iter() if ":session:" in redis_key]
    opened = float(desk.store.client.hget(key, "openedAt"))
    desk.store.client.hset(key, "openedAt", opened - 12 * 3600_000)

    assert browser.get("/console/").path.startswith("/console/login")


def test_the_cookie_opens_no_route_of_the_api(alice: Browser) -> None:
    assert alice.client.get("/api/v0/agents").status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {},
    ],
)
def test_a_form_of_another_site_counts_nowhere(alice: Browser, headers: dict[str, str]) -> None:
    form = alice.get("/console/").form("/logout")
    answer = alice.client.post(form.action, data=form.fields, headers=headers)

    assert answer.status_code == 403
    assert alice.get("/console/").path == "/console/"


def test_a_form_without_the_token_of_this_browser_counts_nowhere(
    alice: Browser, bob: Browser
) -> None:
    form = alice.get("/console/").form("/logout")
    for token in ("", "0" * 64, bob.get("/console/").form("/logout").fields["csrf"]):
        response = alice.post(form.action, {**form.fields, "csrf": token})
        assert response.status == 403
        assert "out of date" in response.text
    assert alice.get("/console/").path == "/console/"


def test_a_login_needs_the_token_too(desk: Site) -> None:
    key = desk.admin["Authorization"].removeprefix("Bearer ")
    page = Browser(desk).post("/console/login", {"key": key})

    assert page.status == 403
    assert "your browser has kept no cookie" in page.text


@pytest.mark.parametrize(
    "next",
    [
        "https://evil.example/console/",
        "//evil.example/console/",
        "/\\evil.example",
        "/docs",
        "",
        "//[",
        "/console/\r\nSet-Cookie: a=b",
        "/console/\x00",
    ],
)
def test_a_login_leads_to_no_other_place(desk: Site, next: str) -> None:
    browser = Browser(desk)
    form = browser.get("/console/login").form("/login")
    key = desk.admin["Authorization"].removeprefix("Bearer ")
    answer = browser.send(form, follow=False, key=key, next=next)

    assert answer.headers["Location"] == "/console/"


def test_a_link_signs_in_once(desk: Site) -> None:
    link = desk.post("/login-links").json["path"]
    assert "Set-Cookie" in Browser(desk).get(link).headers, "looking at it is free"

    browser = Browser(desk)
    assert browser.send(browser.get(link).form(link)).path == "/console/"
    late = Browser(desk)
    refused = late.send(late.get(link).form(link))
    assert refused.status == 403
    assert "was used before" in refused.text


def test_only_a_link_that_is_opened_directly_presses_its_button_by_itself(desk: Site) -> None:
    link = desk.post("/login-links").json["path"]

    assert "open.js" in Browser(desk).get(link, **{"Sec-Fetch-Site": "none"}).source
    for site in ("cross-site", "same-site", "same-origin"):
        assert "open.js" not in Browser(desk).get(link, **{"Sec-Fetch-Site": site}).source


def test_an_expired_key_opens_nothing_and_ends_its_sessions(desk: Site) -> None:
    key = desk.key("read", expires_in=3600)
    link = desk.post("/login-links", headers=key).json["path"]
    browser = Browser(desk, key)
    [opened] = desk.store.login_sessions.all()
    assert desk.store.login_sessions.is_open(opened.id)
    _expire(desk, key["Authorization"].split("_")[1])

    assert not desk.store.login_sessions.is_open(opened.id), "a stream would go on"
    assert desk.store.login_sessions.all() == []
    assert browser.get("/console/").path.startswith("/console/login")
    assert browser.send(browser.get(link).form(link)).status == 403


def test_a_link_of_a_revoked_key_opens_nothing(desk: Site) -> None:
    key = desk.key("read")
    link = desk.post("/login-links", headers=key).json["path"]
    desk.store.api_keys.revoke(key["Authorization"].split("_")[1], MAKER)

    browser = Browser(desk)
    assert browser.send(browser.get(link).form(link)).status == 403


def test_a_display_shows_the_overview_and_nothing_else(desk: Site) -> None:
    wall = desk.key("kiosk", principal="wall")
    browser = Browser(desk, wall)
    response = browser.get("/console/kiosk")

    assert response.status == 200
    assert "1 quiet" in response.text
    assert "<a " not in response.source
    assert "<form" not in response.source
    for path in ("/console/", "/console/agents", "/console/fleet", "/console/keys"):
        assert browser.get(path).status == 403
    assert desk.get("/agents", headers=wall).status_code == 403
    assert Browser(desk, desk.key("read")).get("/console/kiosk").status == 200
    assert Browser(desk, desk.key("runs")).get("/console/kiosk").status == 403


def test_the_session_of_a_display_ends_only_with_its_key(desk: Site) -> None:
    wall = desk.key("kiosk", principal="wall")
    link = desk.post("/login-links", headers=wall).json["path"]
    browser = Browser(desk)
    signed_in = browser.send(browser.get(link).form(link), follow=False)
    assert "Max-Age=34560000" in signed_in.headers["Set-Cookie"]
    assert signed_in.headers["Location"] == "/console/kiosk"

    [opened] = desk.store.login_sessions.all()
    name = session(opened.id)
    desk.store.client.hincrby(name, "openedAt", -30 * 86_400_000)
    assert desk.store.client.pttl(name) > 300 * 86_400_000
    assert browser.get("/console/kiosk").status == 200
    Browser(desk, desk.key("read"))
    assert len(desk.store.login_sessions.all()) == 2

    desk.store.api_keys.revoke(wall["Authorization"].split("_")[1], MAKER)
    assert browser.get("/console/kiosk").path.startswith("/console/login")


def test_a_risky_approval_needs_a_recent_login(alice: Browser, desk: Site) -> None:
    id = desk.waiting(risk="high")
    path = f"/console/agents/desk/approvals/{id}"
    form = alice.get(f"{path}?answer=approve").form("/answer")
    later = sessions_of_browsers.FRESH + timedelta(seconds=1)
    with mock.patch.object(sessions_of_browsers, "FRESH", -later):
        login = alice.send(form, note="I looked")

    assert "needs a login within the last five minutes" in login.text
    key = desk.admin["Authorization"].removeprefix("Bearer ")
    back = alice.send(login.form("/login"), key=key)
    assert back.path.startswith(path)
    assert "I looked" in back.source
    assert len(desk.store.login_sessions.all()) == 1, "the new session replaces the old one"


def test_a_redis_that_takes_no_writes_is_called_so_each_time(alice: Browser) -> None:
    refusal = StoreReadOnly("NOREPLICAS Not enough good replicas to write.")
    with mock.patch.object(LoginSessions, "admit", side_effect=refusal):
        for _ in range(2):
            response = alice.get("/console/")
            assert response.status == 503
            assert "Redis does not accept writes now" in response.text


def test_forms_have_a_limit(desk: Site) -> None:
    for content in (b"&a" * 150_000, b"key=" + b"x" * 300_000):
        answer = desk.app.test_client().post(
            "/console/login",
            data=content,
            content_type="application/x-www-form-urlencoded",
            headers={"Sec-Fetch-Site": "same-origin"},
        )
        assert answer.status_code == 413


def test_every_page_has_the_policy_that_forbids_foreign_code(alice: Browser) -> None:
    for path in ("/console/", "/console/login", "/console/nothing", "/console/answered"):
        response = alice.get(path)
        policy = response.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'nonce-")
        assert "unsafe" not in policy
        assert response.headers["Referrer-Policy"] == "no-referrer"
        nonce = re.search(r"'nonce-([^']+)'", policy)
        assert nonce is not None
        for script in re.findall(r"<script[^>]*>", response.source):
            assert f'nonce="{nonce[1]}"' in script
        assert "style=" not in response.source
        assert not re.search(r"\son\w+=", response.source)
    assert alice.get("/console/").source != alice.get("/console/").source


def _expire(desk: Site, id: str) -> None:
    """Let a key expire."""
    record = desk.store.api_keys.get(id)
    assert record is not None
    past = record.patched({"expires_at": datetime.now(UTC) - timedelta(seconds=1)})
    desk.store.client.hset(API_KEYS, id, past.to_json())


def _trail(desk: Site) -> list[AuditEntry]:
    desk.store.audit_trail.seal()
    return list(desk.store.audit_trail.entries())
