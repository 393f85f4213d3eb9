"""Keys and sessions: created once, revoked and closed by those who may, seen by nobody else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest import mock

import pytest

from api_kit import Site
from boyd_api.console import session
from boyd_api.console.administration_page import browser_name
from console_kit import Browser

HERE = "/console/keys"
NEW: dict[str, Any] = {
    "name": "pager",
    "principal": "ops@example.com",
    "scopes": ["read", "approvals"],
}
WINDOWS = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/126.0.0.0 Safari/537.36 Edg/126.0.0.0"
)


def new_key(browser: Browser, **more: object) -> str:
    """The page that answers the form for a new key."""
    form = browser.get(f"{HERE}?do=create").form(HERE)
    return browser.send(form, **{**NEW, "days": "90", **more}).text


def test_a_new_key_is_shown_once_and_works(alice: Browser, desk: Site) -> None:
    form = alice.get(f"{HERE}?do=create").form(HERE)
    page = alice.send(form, **NEW, groups="sre, ops", person="on", days="1")
    text = next(word for word in page.text.split() if word.startswith("boyd_"))

    assert page.headers["Cache-Control"] == "no-store"
    assert f'data-copy="{text}"' in page.source
    assert 'data-live=""' in page.source
    [key] = [api_key for api_key in desk.store.api_keys.all() if api_key.name == "pager"]
    assert (key.groups, key.person, key.created_by) == (["sre", "ops"], True, "alice")
    assert key.expires_at is not None
    assert Browser(desk).sign_in(text).title.startswith("Inbox")
    # A reload sends the form again: it creates nothing, and does not show the text again.
    again = alice.send(form, **NEW, groups="sre, ops", person="on", days="1")
    assert text not in again.source
    assert "is not shown again" in again.text
    assert text.split("_", 2)[2] not in alice.get(HERE).source


def test_a_wrong_form_creates_nothing_and_keeps_what_was_written(
    alice: Browser, desk: Site
) -> None:
    before = len(desk.store.api_keys.all())
    form = alice.get(f"{HERE}?do=create").form(HERE)
    page = alice.send(form, name="pager", principal="two words", scopes=["read"], days="30")

    assert page.status == 400
    assert "principal" in page.text
    assert 'value="two words"' in page.source
    assert 'value="30" selected' in page.source
    assert len(desk.store.api_keys.all()) == before


@pytest.mark.parametrize("path", ["?do=create", "?revoke={}"])
def test_keys_change_only_shortly_after_a_login(alice: Browser, desk: Site, path: str) -> None:
    [target, *_] = desk.store.api_keys.all()
    form = alice.get(f"{HERE}?do=create").form(HERE)
    with mock.patch.object(session, "FRESH", timedelta(0)):
        response = alice.get(HERE + path.format(target.id))
        sent = alice.send(form, **NEW, days="1")
        revoked = alice.post(f"{HERE}/{target.id}/revoke", form.fields)

    assert "This needs a login within the last five minutes. Sign in again" in response.text
    assert "/console/login?why=confirm&amp;next=%2Fconsole%2Fkeys%3F" in response.source
    assert sent.title.startswith("Sign in")
    assert revoked.title.startswith("Sign in")
    assert "pager" not in {api_key.name for api_key in desk.store.api_keys.all()}
    assert desk.store.api_keys.get(target.id) is not None


def test_a_key_is_revoked_with_two_clicks_and_its_sessions_end(
    alice: Browser, bob: Browser, desk: Site
) -> None:
    [key] = [api_key for api_key in desk.store.api_keys.all() if api_key.principal == "bob"]
    response = alice.get(f"{HERE}?revoke={key.id}")
    assert "refused from then on" in response.text
    assert "you will be signed out" not in response.text
    assert desk.store.api_keys.get(key.id) is not None

    alice.send(response.form("/revoke"))

    assert desk.store.api_keys.get(key.id) is None
    assert bob.get(HERE).title.startswith("Sign in")


def test_revoking_the_own_key_warns_of_the_sign_out(alice: Browser, desk: Site) -> None:
    own = desk.store.login_sessions.all()[0].key_id
    response = alice.get(f"{HERE}?revoke={own}")

    assert "you will be signed out" in response.text
    assert alice.send(response.form("/revoke")).title.startswith("Sign in")


def test_a_reader_sees_and_closes_only_own_sessions(
    alice: Browser, guest: Browser, desk: Site
) -> None:
    page = guest.get(HERE)
    other = next(login for login in desk.store.login_sessions.all() if login.principal == "alice")
    fields = page.form("/close").fields

    assert "You may not see the keys: your key 'test' lacks the scope 'admin'" in page.text
    assert "guest this one" in page.text
    assert "alice" not in page.text
    assert guest.post(f"/console/sessions/{other.id}/close", fields).status == 404
    assert guest.post(HERE, {**fields, **NEW, "days": "1"}).status == 403
    assert guest.post(f"{HERE}/{other.key_id}/revoke", fields).status == 403
    assert alice.get(HERE).status == 200
    assert guest.send(page.form("/close")).title.startswith("Sign in")


def test_a_key_that_is_limited_to_agents_changes_no_keys(desk: Site) -> None:
    limited = Browser(desk, desk.key("admin", agents=["desk"], principal="carol"))
    page = limited.get(f"{HERE}?do=create")

    assert "it concerns all agents, and your key 'test' is limited to desk" in page.text
    assert "carol this one" in page.text
    fields = page.form("/close").fields
    assert limited.post(HERE, {**fields, **NEW, "days": "1"}).status == 403


def test_an_admin_closes_any_session(alice: Browser, guest: Browser, desk: Site) -> None:
    theirs = next(login for login in desk.store.login_sessions.all() if login.principal == "guest")
    alice.send(alice.get(HERE).form(f"{theirs.id}/close"))

    assert guest.get(HERE).title.startswith("Sign in")
    assert {login.principal for login in desk.store.login_sessions.all()} == {"alice"}


def test_hostile_names_are_shown_as_text(alice: Browser) -> None:
    new_key(alice, name="<script>alert(1)</script>\u202e")

    assert "<script>alert" not in alice.get(HERE).source


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        (WINDOWS, "Edge 126 on Windows"),
        ("Mozilla/5.0 (Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0", "Firefox 128"),
        ("curl/8.5", "curl/8.5"),
        ("", "unknown"),
        (None, "unknown"),
    ],
)
def test_browsers_are_named(agent: str | None, name: str) -> None:
    assert browser_name(agent).startswith(name)
