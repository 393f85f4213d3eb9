"""Sign-in with a real OpenID provider, and its access tokens at the API."""

from __future__ import annotations

import base64
import hmac
import json
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import fakeredis
import pytest
import requests

from api_kit import Site, make_desk
from boyd.models import ApprovalPolicy
from boyd_api.commands import listen
from boyd_api.http.server import ApiServer
from boyd_api.oidc import tokens
from harness import Deployment, free_port, wait_until
from npm_kit import OIDC
from oidc_kit import AUDIENCE, SECRET, Provider, WebBrowser, path_of

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def ports() -> tuple[int, int]:
    """The ports of the provider and of the API, which know each other."""
    return free_port(), free_port()


@pytest.fixture(scope="module", name="running")
def _running(ports: tuple[int, int]) -> Iterator[Provider]:
    """One provider for all tests of this module."""
    OIDC.require()
    with Provider(ports[0], f"http://127.0.0.1:{ports[1]}") as provider:
        yield provider


@pytest.fixture
def provider(running: Provider) -> Iterator[Provider]:
    """The provider, which is up when a test begins."""
    yield running
    running.tell("up")


class Service:
    """The API of the agent `desk`, on a port, with sign-in."""

    def __init__(self, provider: Provider, port: int, **oidc: Any) -> None:
        server = fakeredis.FakeServer()
        lab, self.plugin = make_desk(server)
        self.url = f"http://127.0.0.1:{port}"
        self.site = Site(lab, server, oidc=provider.settings(**oidc), url=self.url, max_wait=10)
        settings = self.site.services.settings
        self._server = ApiServer(self.site.app, listen("127.0.0.1", port), settings)
        self._thread = threading.Thread(
            target=self._server.run, args=(self.site.services.stop,), daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End it."""
        self._server.stop()
        self._thread.join(60)

    def browser(self) -> WebBrowser:
        """A new browser."""
        return WebBrowser(self.url)

    def ask(self, token: str, path: str = "/approvals") -> requests.Response:
        """A request to the API with an access token."""
        headers = {"Authorization": f"Bearer {token}"}
        return requests.get(f"{self.url}/api/v0{path}", headers=headers, timeout=60)

    def principal(self, subject: str) -> str:
        """The principal of a subject."""
        return f"{self.site.services.settings.oidc.issuer}#{subject}"


@pytest.fixture
def service(provider: Provider, ports: tuple[int, int]) -> Iterator[Service]:
    """The API, with sign-in."""
    oidc_service = Service(provider, ports[1])
    yield oidc_service
    oidc_service.stop()


def check_refusal(answer: requests.Response, reason: str) -> None:
    """The API says that a token is not valid, and why."""
    assert answer.status_code == 401, answer.text
    assert answer.json()["type"] == "/problems/unauthenticated"
    assert reason in answer.json()["detail"]
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


# Signing in


def test_a_person_signs_in_and_comes_to_the_page_they_wanted(service: Service) -> None:
    waiting = service.site.waiting()
    page = service.browser().sign_in("ann", f"/console/agents/desk/approvals/{waiting}")

    assert path_of(page) == f"/console/agents/desk/approvals/{waiting}"
    assert "Ann Example" in page.text
    [session] = service.site.store.login_sessions.all()
    assert session.principal == service.principal("ann")
    assert session.person


def test_a_policy_that_needs_a_person_of_a_group_is_satisfied(service: Service) -> None:
    policy = ApprovalPolicy(person=True, groups=["oncall"])
    waiting = service.site.waiting(**policy.model_dump(include={"person", "groups"}))
    browser = service.browser()
    here = f"/console/agents/desk/approvals/{waiting}"
    browser.sign_in("ann", here)
    response = browser.get(f"{here}?answer=approve")
    done = browser.post(f"{here}/answer", response, verb="approve")

    assert done.status_code == 200
    wait_until(lambda: service.plugin.done == ["publish news"])
    item = service.site.lab.store.approvals.get(waiting)
    assert item is not None
    assert item.acted_by == service.principal("ann")
    assert "Ann Example" in browser.get(here).text
    [entry] = [e for e in audit(service) if e.kind == "approval.approved"]
    assert (entry.who, entry.name, entry.key) == (service.principal("ann"), "Ann Example", None)


def audit(service: Service) -> list[Any]:
    service.site.store.seal(["desk"])
    return service.site.lab.store.audit_trail.page(limit=50).entries


def test_a_person_whose_groups_have_no_scope_is_refused_with_the_reason(service: Service) -> None:
    page = service.browser().sign_in("guest")

    assert page.status_code == 403
    assert "with the groups visitors in its claim" in page.text
    assert service.site.store.login_sessions.all() == []


def test_a_name_cannot_turn_or_break_the_line(service: Service) -> None:
    page = service.browser().sign_in("trick")

    assert page.status_code == 200
    assert service.site.store.login_sessions.names() == {service.principal("trick"): "Ann Example"}


def test_scopes_are_those_of_all_groups(service: Service) -> None:
    browser = service.browser()
    browser.sign_in("bob")
    assert "Create a key" in browser.get("/console/keys").text

    browser = service.browser()
    browser.sign_in("ann")
    assert "You may not see the keys" in browser.get("/console/keys").text


def test_an_answer_for_another_browser_signs_nobody_in(service: Service) -> None:
    mallory, victim = service.browser(), service.browser()
    page = mallory.begin()
    victim.begin()
    callback = callback_address(mallory, page)
    response = victim.get(callback)

    assert response.status_code == 403
    assert "this browser has not begun this login" in response.text
    assert service.browser().get(callback).status_code == 403
    assert service.site.store.login_sessions.all() == []


def callback_address(browser: WebBrowser, page: requests.Response) -> str:
    """The address of the callback that the provider sends a browser to; it is not opened."""
    addresses: list[str] = []

    def stop(response: requests.Response, **_: Any) -> None:
        where = response.headers.get("Location", "")
        if "/console/oidc/callback" in where:
            addresses.append(where)
            del response.headers["Location"]

    browser.session.hooks["response"] = [stop]
    browser.answer(page, login="ann", password="x")
    browser.session.hooks["response"] = []
    return addresses[0]


def test_a_state_that_was_made_up_is_refused(service: Service) -> None:
    browser = service.browser()
    callback = callback_address(browser, browser.begin())
    parts = urlsplit(callback)
    forged = urlencode({**dict(parse_qsl(parts.query)), "state": "x" * 64})

    assert browser.get(f"{parts.path}?{forged}").status_code == 403
    assert service.site.store.login_sessions.all() == []


def test_a_code_counts_once(service: Service) -> None:
    browser = service.browser()
    page = browser.begin()
    cookies = browser.session.cookies.copy()
    callback = callback_address(browser, page)
    assert browser.get(callback).status_code == 200

    browser.session.cookies = cookies
    response = browser.get(callback)
    assert response.status_code == 403
    assert "Test ID refused the login" in response.text


def test_an_id_token_with_another_nonce_signs_nobody_in(service: Service) -> None:
    browser = service.browser()
    page = browser.begin()
    callback = callback_address(browser, page)
    # The browser's secret is another one, and the state fits it: only the nonce tells.
    secret = "another"
    name = f"boyd-login-{urlsplit(service.url).port}"
    value = base64.urlsafe_b64encode(json.dumps([secret, False, "/console/"]).encode()).decode()
    browser.session.cookies.set(name, value, domain="127.0.0.1", path="/")
    state = hmac.new(secret.encode(), b"state", "sha256").hexdigest()
    parts = urlsplit(callback)
    query = urlencode({**dict(parse_qsl(parts.query)), "state": state})

    response = browser.get(f"{parts.path}?{query}")
    assert response.status_code == 403
    assert service.site.store.login_sessions.all() == []


def test_a_cancelled_login_is_reported(service: Service) -> None:
    browser = service.browser()
    page = browser.begin()
    response = browser.get(f"{urlsplit(page.url)._replace(query='').geturl()}/abort")

    assert response.status_code == 403
    assert "Test ID refused the login" in response.text


# Confirming who one is


def test_a_high_risk_needs_a_recent_login_at_the_provider(service: Service) -> None:
    browser = service.browser()
    browser.sign_in("bob")
    again = browser.begin("/console/login?why=confirm&next=/console/keys")
    assert "prompt=login" in again.history[1].url
    assert 'name="login"' in again.text, "the provider asks again, though bob is signed in there"
    assert path_of(browser.answer(again, login="bob", password="x")) == "/console/keys"


def test_a_session_at_the_provider_is_no_recent_login(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = service.browser()
    page = browser.sign_in("bob")
    real = service.site.store.login_sessions.open
    aged: list[float | None] = []
    sessions = service.site.services.store.login_sessions

    def old(key: Any, *, age: float | None, **more: Any) -> str:
        aged.append(age)
        return real(key, age=None if age is None else age + 400, **more)

    monkeypatch.setattr(sessions, "open", old)
    browser.post("/console/logout", page)
    browser.begin()
    keys = browser.get("/console/keys?do=create")

    assert aged
    assert None not in aged
    assert "This needs a login within the last five minutes" in keys.text


# Signing out


def test_signing_out_leads_to_the_provider_and_ends_the_session_there(service: Service) -> None:
    browser = service.browser()
    page = browser.sign_in("ann")
    left = browser.post("/console/logout", page)

    assert service.site.store.login_sessions.all() == []
    assert left.status_code == 200
    target = left.headers["Refresh"].partition("url=")[2]
    confirm = browser.get(target)
    home = browser.answer(confirm, logout="yes")
    assert path_of(home) == "/console/login"
    assert 'name="login"' in browser.begin().text


def test_the_provider_ends_all_sessions_of_a_person(service: Service) -> None:
    desk, phone, other = service.browser(), service.browser(), service.browser()
    page = desk.sign_in("ann")
    phone.sign_in("ann")
    other.sign_in("bob")
    left = desk.post("/console/logout", page)
    confirm = desk.get(left.headers["Refresh"].partition("url=")[2])
    desk.answer(confirm, logout="yes")

    wait_until(lambda: len(service.site.store.login_sessions.all()) == 1)
    assert path_of(phone.get("/console/")) == "/console/login"
    assert path_of(other.get("/console/")) == "/console/"


def test_only_a_logout_token_ends_sessions(service: Service, provider: Provider) -> None:
    service.browser().sign_in("ann")
    event: dict[str, Any] = {"http://schemas.openid.net/event/backchannel-logout": {}}
    good: dict[str, Any] = {"aud": "boyd", "events": event, "jti": "1"}
    url = f"{service.url}/console/oidc/backchannel-logout"
    wrongs: tuple[dict[str, Any], ...] = (
        {"events": None},
        {"aud": "other"},
        {"nonce": "x"},
        {"iss": "https://else.example.com"},
        {"exp": int(time.time()) - 100},
    )
    for wrong in wrongs:
        token = provider.token(**{**good, **wrong})
        assert requests.post(url, data={"logout_token": token}, timeout=60).status_code == 400
    assert len(service.site.store.login_sessions.all()) == 1

    token = provider.token(**good)
    assert requests.post(url, data={"logout_token": token}, timeout=60).status_code == 200
    assert service.site.store.login_sessions.all() == []


# Access tokens


def test_the_api_accepts_a_program_s_token_which_is_no_person_s(
    service: Service, provider: Provider
) -> None:
    answer = service.ask(provider.program_token(), "/state")

    assert answer.status_code == 200
    assert service.ask(provider.program_token(), "/keys").status_code == 403


def test_a_person_s_token_has_the_rights_of_their_groups(
    service: Service, provider: Provider
) -> None:
    waiting = service.site.waiting(person=True)
    url = f"{service.url}/api/v0/approvals/{waiting}/approve"
    for token, status in (
        (provider.token(), 403),
        (provider.token(sub="other", auth_time=1, groups=["oncall"]), 403),
        (provider.token(auth_time=int(time.time())), 200),
    ):
        headers = {"Authorization": f"Bearer {token}"}
        assert requests.post(url, json={}, headers=headers, timeout=60).status_code == status
    assert service.site.lab.store.approvals.get(waiting).acted_by == service.principal("ann")  # type: ignore[union-attr]


def test_a_token_that_is_not_for_the_api_is_refused_with_the_reason(
    service: Service, provider: Provider
) -> None:
    now = int(time.time())
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"aud": "boyd"}, f"wrong 'aud', which must be '{AUDIENCE}'"),
        ({"aud": "billing"}, "wrong 'aud'"),
        ({"iss": "https://else.example.com"}, "wrong 'iss'"),
        ({"exp": now - 60}, "has expired"),
        ({"nbf": now + 600}, "wrong 'nbf'"),
        ({"exp": None}, "lacks the claim exp"),
        ({"aud": None}, "lacks the claim aud"),
        ({"sub": None}, "lacks the claim sub"),
        ({"sub": ""}, "wrong 'sub'"),
        ({"at_hash": "x"}, "no access token"),
        ({"typ": "ID"}, "no access token"),
    )
    for claims, reason in cases:
        check_refusal(service.ask(provider.token(**claims)), reason)
    check_refusal(service.ask(provider.token({"typ": "logout+jwt"})), "no access token")
    check_refusal(service.ask(provider.program_token("billing")), "wrong 'aud'")


def test_a_token_that_the_provider_has_not_signed_is_refused(
    service: Service, provider: Provider
) -> None:
    good = provider.token()
    head, body, signature = good.split(".")
    assert service.ask(good).status_code == 200
    public = requests.get(f"{provider.issuer}/jwks", timeout=60).json()["keys"][0]
    kid = public["kid"]

    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    def sign_token(header: dict[str, Any], secret: bytes) -> str:
        text = f"{part(header)}.{body}"
        mac = hmac.new(secret, text.encode(), "sha256").digest()
        return f"{text}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"

    none = part({"alg": "none", "kid": kid, "typ": "at+jwt"})
    hs256 = {"alg": "HS256", "kid": kid, "typ": "at+jwt"}
    for forged in (
        f"{none}.{body}.",
        f"{none}.{body}.{signature}",
        sign_token(hs256, public["n"].encode()),
        sign_token(hs256, json.dumps(public).encode()),
        f"{head}.{body}.{signature[:-4]}AAAA",
        f"{head}.{part({'sub': 'bob'})}.{signature}",
        f"{part({'alg': 'RS256', 'kid': 'mine', 'jwk': public})}.{body}.{signature}",
        "a.b.c",
        "..",
    ):
        answer = service.ask(forged)
        assert answer.status_code == 401, forged
        assert "boyd_" not in answer.text


def test_an_opaque_token_is_refused_with_a_hint(service: Service) -> None:
    check_refusal(service.ask("mF_9.B5f-4.1JqM.x"), "have the provider issue JWTs")
    check_refusal(service.ask("opaque"), "have the provider issue JWTs")


def test_without_an_audience_no_token_is_accepted(
    provider: Provider, ports: tuple[int, int]
) -> None:
    service = Service(provider, ports[1], audience=None)
    try:
        check_refusal(service.ask(provider.token()), "oidc.audience")
    finally:
        service.stop()


def test_a_token_is_no_key_for_the_login_form_and_makes_no_links(
    service: Service, provider: Provider
) -> None:
    browser = service.browser()
    token = provider.token(groups=["leads"])
    assert (
        browser.post("/console/login", browser.get("/console/login"), key=token).status_code == 401
    )
    headers = {"Authorization": f"Bearer {token}"}
    url = f"{service.url}/api/v0/login-links"
    assert requests.post(url, headers=headers, timeout=60).status_code == 400


def test_requests_of_one_subject_are_limited_whatever_token_it_uses(
    provider: Provider, ports: tuple[int, int]
) -> None:
    stopped_service = Service(provider, ports[1])
    stopped_service.stop()
    lab, _ = make_desk(fakeredis.FakeServer())
    site = Site(
        lab,
        fakeredis.FakeServer(),
        oidc=provider.settings(),
        url=stopped_service.url,
        rate=0.01,
        burst=2,
    )
    tokens = [provider.token(jti=str(number)) for number in range(3)]
    answers = [
        site.client.get("/api/v0/agents", headers={"Authorization": f"Bearer {token}"})
        for token in [*tokens, provider.token(sub="bob")]
    ]
    site.services.stop()

    assert [answer.status_code for answer in answers] == [200, 200, 429, 200]


# The provider's keys, and its absence


def test_a_new_key_of_the_provider_is_found_by_itself(
    service: Service, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "SOON", 0.0)
    before = provider.token()
    assert service.ask(before).status_code == 200
    provider.tell("rotate")

    assert service.ask(provider.token()).status_code == 200
    check_refusal(service.ask(before), "does not publish")
    assert path_of(service.browser().sign_in("ann")) == "/console/"


def test_unknown_keys_make_few_requests_to_the_provider(
    service: Service, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert service.ask(provider.token()).status_code == 200
    documents = service.site.services.provider._documents  # type: ignore[union-attr]
    real, urls = documents._fetch, []

    def count(url: str) -> Any:
        urls.append(url)
        return real(url)

    monkeypatch.setattr(documents, "_fetch", count)
    for number in range(20):
        check_refusal(service.ask(provider.token({"kid": f"no-{number}"})), "does not publish")
    assert len(urls) <= 1


def test_without_the_provider_keys_and_sessions_go_on(service: Service, provider: Provider) -> None:
    ann = service.browser()
    ann.sign_in("ann")
    token = provider.token()
    assert service.ask(token).status_code == 200
    provider.tell("down")

    assert service.ask(token).status_code == 200
    assert path_of(ann.get("/console/")) == "/console/"
    page = service.browser()
    page.session.cookies.set("unrelated", "1")
    assert service.site.get("/state").status_code == 200


def test_a_provider_that_was_never_reached_is_named(
    provider: Provider, ports: tuple[int, int]
) -> None:
    token = provider.token()
    provider.tell("down")
    service = Service(provider, ports[1])
    try:
        answer = service.ask(token)
        assert answer.status_code == 503
        assert provider.issuer in answer.json()["detail"]
        assert answer.headers["Retry-After"]
        page = service.browser().get("/console/oidc/login")
        assert page.status_code == 503
        assert "does not answer" in page.text
        assert 'name="key"' in page.text
    finally:
        service.stop()


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"allow_private": False}, "oidc.allow_private = true"),
        ({"issuer": "{}/"}, "names itself"),
    ],
)
def test_invalid_oidc_settings_are_reported_at_sign_in(
    provider: Provider, ports: tuple[int, int], wrong: dict[str, Any], reason: str
) -> None:
    if "issuer" in wrong:
        wrong = {"issuer": wrong["issuer"].format(provider.issuer)}
    service = Service(provider, ports[1], **wrong)
    try:
        assert reason in service.browser().get("/console/oidc/login").text
    finally:
        service.stop()


# In a browser, and as a process


def test_chromium_signs_in_and_out_without_a_report_of_the_policy(
    service: Service, chromium: Any
) -> None:
    with chromium.new_context() as context:
        page = context.new_page()
        reports: list[str] = []
        page.on("console", lambda message: reports.append(f"{message.type}: {message.text}"))
        page.goto(f"{service.url}/console/fleet")
        page.get_by_role("link", name="Sign in with Test ID").click()
        page.locator('[name="login"]').fill("ann")
        page.locator('[name="password"]').fill("x")
        page.locator("button").first.click()
        page.wait_for_url(f"{service.url}/console/fleet")
        page.get_by_text("Ann Example").click()
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url("**/session/end**")
        page.locator('button[value="yes"]').click()
        page.wait_for_url(f"{service.url}/console/login**")

    assert [report for report in reports if "Content Security Policy" in report] == []
    assert service.site.store.login_sessions.all() == []


def test_a_process_reads_the_secret_from_a_file_and_logs_that_people_can_sign_in(
    provider: Provider, ports: tuple[int, int], deployment: Deployment
) -> None:
    secret = deployment.folder / "secret"
    secret.write_text(SECRET)
    settings = provider.settings()
    deployment.environment.update(
        BOYD_API__URL=f"http://127.0.0.1:{ports[1]}",
        BOYD_OIDC__ISSUER=settings["issuer"],
        BOYD_OIDC__CLIENT_ID=settings["client_id"],
        BOYD_OIDC__CLIENT_SECRET_FILE=str(secret),
        BOYD_OIDC__NAME=settings["name"],
        BOYD_OIDC__AUDIENCE=settings["audience"],
        BOYD_OIDC__ALLOW_PRIVATE="true",
        BOYD_OIDC__GROUPS=json.dumps(settings["groups"]),
    )
    url = f"http://127.0.0.1:{ports[1]}"
    deployment.start("api", "api", "--port", str(ports[1]), ready=False)
    log = deployment.folder / "api.log"
    wait_until(lambda: "people can sign in with Test ID" in log.read_text(), 30)

    assert path_of(WebBrowser(url).sign_in("ann")) == "/console/"
    headers = {"Authorization": f"Bearer {provider.token()}"}
    assert requests.get(f"{url}/api/v0/agents", headers=headers, timeout=60).status_code == 200
    assert SECRET not in log.read_text()
