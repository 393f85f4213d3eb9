"""Identities from the claims of an identity provider, and the cache of its documents."""

from __future__ import annotations

import time
from typing import Any
from unittest import mock

import pytest
from joserfc import jwt
from joserfc.jwk import OKPKey

from api_kit import Site, make_lab
from boyd.errors import ConfigError
from boyd.settings.oidc_settings import OidcSettings
from boyd.settings.process_settings import load_settings
from boyd_api.oidc import tokens
from boyd_api.oidc.identities import (
    NoScopes,
    ProviderUnavailable,
    groups_of,
    identify,
    principal_of,
    readable_name,
)
from boyd_api.oidc.tokens import CachedDocument
from virtual_time import VirtualTime, imaginary_server

ISSUER = "https://id.example.com/realms/ops"
SETTINGS: dict[str, Any] = {
    "issuer": ISSUER,
    "client_id": "boyd",
    "groups": {"oncall": ["approvals", "read"], "leads": ["admin"]},
}


@pytest.mark.parametrize("subject", ["a b", "ann", "ä" * 100, "x" * 255, "a#b", "\x7f", "日本"])
def test_a_principal_has_no_spaces_and_at_most_200_characters(subject: str) -> None:
    principal = principal_of(ISSUER, subject)

    assert principal.startswith(f"{ISSUER}#")
    assert principal.isascii()
    assert principal.isprintable()
    assert " " not in principal
    assert len(principal) <= 200


def test_different_subjects_have_different_principals() -> None:
    long = "x" * 255
    digest = principal_of(ISSUER, long).partition("#")[2]
    subjects = ["a b", "a%20b", "a+b", "a", "A", long, long[:-1], digest]

    assert len({principal_of(ISSUER, subject) for subject in subjects}) == len(subjects)


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"name": "Ann Example", "email": "ann@example.com"}, "Ann Example"),
        ({"name": " ", "preferred_username": "ann"}, "ann"),
        ({"name": 7, "email": "ann@example.com"}, "ann@example.com"),
        ({"name": "Ann\u202e\u2066\n\x1b[31m Example"}, "Ann [31m Example"),
        ({"name": "x" * 300}, "x" * 100),
        ({}, ""),
    ],
)
def test_a_name_is_one_short_line(claims: dict[str, Any], name: str) -> None:
    assert readable_name(claims) == name


@pytest.mark.parametrize(
    ("claims", "claim", "groups"),
    [
        ({"groups": ["a", "b", "a"]}, "groups", ["a", "b"]),
        ({"groups": "a"}, "groups", ["a"]),
        ({"groups": {"a": 1}}, "groups", []),
        ({"groups": [1, None, "", "a", "x" * 201]}, "groups", ["a"]),
        ({"realm_access": {"roles": ["a"]}}, "realm_access.roles", ["a"]),
        ({"https://example.com/groups": ["a"]}, "https://example.com/groups", ["a"]),
        ({"realm_access": "roles"}, "realm_access.roles", []),
        ({}, "groups", []),
    ],
)
def test_groups_come_from_the_claim_in_any_usual_form(
    claims: dict[str, Any], claim: str, groups: list[str]
) -> None:
    assert groups_of(claims, claim) == groups


def test_an_identity_has_the_scopes_of_its_groups_and_no_key() -> None:
    settings = OidcSettings(**SETTINGS)
    ann = identify(settings, {"sub": "ann", "groups": ["oncall", "others"]}, person=True)

    assert ann.scopes == ["read", "approvals"]
    assert ann.groups == ["oncall", "others"]
    assert ann.actor().key is None
    with pytest.raises(NoScopes, match="the groups others"):
        identify(settings, {"sub": "ann", "groups": ["others"]}, person=True)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"issuer": "http://id.example.com"}, "must be https"),
        ({"issuer": "id.example.com"}, "must be an address"),
        ({"issuer": "https://id.example.com/?a=b"}, "must be without"),
        ({"issuer": f"https://id.example.com/{'x' * 120}"}, "at most 120 characters"),
        ({"client_id": None}, "client_id is missing"),
        ({"groups": {}}, "groups is missing"),
        ({"groups": {"oncall": ["reed"]}}, "oidc.groups.oncall"),
        ({"audience": "boyd"}, "audience must differ from client_id"),
        ({"client_idd": "x"}, "did you mean 'client_id'"),
    ],
)
def test_a_wrong_setting_is_named(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load_settings({"oidc": {**SETTINGS, **wrong}})


def test_sign_in_needs_the_public_address_and_the_extra(server: Any) -> None:
    with pytest.raises(ConfigError, match=r"oidc.issuer needs api.url"):
        Site(make_lab(server), server, oidc=SETTINGS)

    missing = {"boyd_api.oidc.provider": None}
    with (
        mock.patch.dict("sys.modules", missing),
        pytest.raises(ConfigError, match=r"pip install 'boyd\[oidc\]'"),
    ):
        Site(make_lab(server), server, oidc=SETTINGS, url="https://boyd.example.com")


def test_the_secret_is_in_no_text_of_the_settings() -> None:
    settings = load_settings({"oidc": {**SETTINGS, "client_secret": "hush-hush-0123456789"}})

    assert "hush" not in f"{settings!r} {settings.oidc!r} {settings.model_dump_json()}"


class Clock:
    """A clock that a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("boyd_api.oidc.tokens.time.monotonic", lambda: self.now)


def test_a_document_is_read_again_when_old_and_kept_while_the_provider_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, answers, times = Clock(monkeypatch), ["one", "two"], []

    def read() -> str:
        times.append(clock.now)
        if not answers:
            raise ProviderUnavailable("away")
        return answers.pop(0)

    document = CachedDocument(read)
    assert [document.get(), document.get()] == ["one", "one"]
    assert len(times) == 1
    clock.now += tokens.FRESH
    assert document.get() == "two"
    clock.now += tokens.FRESH
    assert [document.get(), document.get()] == ["two", "two"]
    assert len(times) == 3, "nobody asks again at once after a failure"
    clock.now += tokens.AWAY
    assert document.get() == "two"
    assert len(times) == 4
    clock.now += tokens.KEPT
    with pytest.raises(ProviderUnavailable):
        document.get()


@imaginary_server()
def test_a_token_and_its_streams_expire_by_the_clock_of_redis(
    monkeypatch: pytest.MonkeyPatch, server: Any
) -> None:
    redis, key = VirtualTime(monkeypatch), OKPKey.generate_key("Ed25519", {"kid": "1"})
    monkeypatch.setattr(tokens.ProviderDocuments, "key", lambda *_: key)
    oidc = {**SETTINGS, "audience": "api"}
    site = Site(make_lab(server), server, oidc=oidc, url="https://boyd.example.com")
    respond = mock.Mock(side_effect=lambda *_: site.app.response_class("data: x"))
    monkeypatch.setattr(site.services.streams, "respond", respond)

    def ask(expires: float) -> int:
        claims = {"iss": ISSUER, "aud": "api", "sub": "ann", "groups": ["oncall"], "exp": expires}
        token = jwt.encode({"alg": "Ed25519", "kid": "1"}, claims, key, algorithms=["Ed25519"])
        headers = {"Authorization": f"Bearer {token}"}
        return int(site.get("/events", headers=headers).status_code)

    now = int(redis.now / 1000)
    assert [ask(time.time() + 60), ask(now - 60), ask(now + 60)] == [401, 401, 200]
    [(_, id, is_valid)] = [call.args for call in respond.call_args_list]
    assert is_valid(id)
    redis.now += 60_000
    site.services.store.clock.read()
    assert not is_valid(id)
