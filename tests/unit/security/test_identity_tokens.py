"""Agents identify themselves to other systems with signed tokens."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey

from boyd import Agent, Plugin, action
from boyd.errors import AgentRevoked, ConfigError
from boyd.models import Actor, CallRequest
from boyd.security.identity_tokens import LIFETIME, IdentityTokens
from boyd.testing import Lab


def pem_of(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


PEM = pem_of(ec.generate_private_key(ec.SECP256R1()))
OTHER = pem_of(ec.generate_private_key(ec.SECP256R1()))


def read(token: str, pem: str = PEM) -> dict[str, Any]:
    """The claims of a token that was signed with that key."""
    return dict(jwt.decode(token, ECKey.import_key(pem), algorithms=["ES256"]).claims)


class Caller(Plugin):
    """Shows another system who calls."""

    id = "caller"

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[str] = []

    @action()
    def call(self, params: dict[str, Any], ctx: Any) -> None:
        """Call the other system."""
        self.sent.append(ctx.identity_token("https://cmdb.example.com"))


def call_for_ann(pem: str | None = PEM) -> tuple[Lab, Caller]:
    """A lab whose action was called for ann."""
    caller = Caller()
    lab = Lab(Agent("shop", plugins=[caller]))
    if pem:
        tokens = IdentityTokens(pem, "https://boyd.example.com", "host-a:1", time.time)
        lab.engine.settings = replace(lab.engine.settings, identity=tokens.sign)
    work = CallRequest(kind="execute", action="caller:call", actor=Actor(principal="ann"))
    lab.launcher.call(work, None, "1")
    lab.deliver()
    return lab, caller


def test_a_token_names_the_agent_the_requester_and_the_execution() -> None:
    lab, caller = call_for_ann()
    [entry] = lab.store.executions.page(10).executions
    claims = read(caller.sent[0])

    assert (claims["iss"], claims["aud"]) == (
        "https://boyd.example.com",
        "https://cmdb.example.com",
    )
    assert (claims["sub"], claims["act"]) == ("ann", {"sub": "agent:shop"})
    assert (claims["execution"], claims["worker"]) == (entry.id, "host-a:1")


def test_a_token_lives_for_minutes_and_no_two_are_the_same() -> None:
    tokens = IdentityTokens(PEM, "boyd", "w", lambda: 1_800_000_000.5)
    first, second = (read(tokens.sign("shop", "a")) for _ in range(2))

    assert first["jti"] != second["jti"]
    assert (first["iat"], first["exp"]) == (1_800_000_000, 1_800_000_000 + LIFETIME)


def test_an_agent_that_acts_for_itself_is_the_subject() -> None:
    tokens = IdentityTokens(PEM, "boyd", "w", time.time)
    for requester in (None, "agent:shop"):
        claims = read(tokens.sign("shop", "a", requester))
        assert claims["sub"] == "agent:shop"
        assert "act" not in claims


def test_an_agent_without_the_right_to_act_gets_no_token() -> None:
    lab, _ = call_for_ann()
    context = lab.engine.context("caller")
    assert context.identity_token("vault")
    lab.client.hset("boyd:{*}:frozen", "revoked:shop", "1 stolen")

    with pytest.raises(AgentRevoked, match="stolen"):
        context.identity_token("vault")


def test_a_token_of_another_key_is_not_believed() -> None:
    token = IdentityTokens(OTHER, "boyd", "w", time.time).sign("shop", "a")

    with pytest.raises(JoseError):
        read(token)


def test_without_a_key_there_are_no_tokens() -> None:
    lab, caller = call_for_ann(None)
    [entry] = lab.store.executions.page(10).executions

    assert caller.sent == []
    result = lab.store.executions.result(entry.id)
    assert result is not None
    assert "identity_key" in (result.error or "")


def test_another_kind_of_key_is_refused_without_showing_it() -> None:
    public = ECKey.import_key(PEM).as_pem(private=False).decode()
    larger = pem_of(ec.generate_private_key(ec.SECP384R1()))
    for text in ("correct-horse", public, larger):
        with pytest.raises(ConfigError, match="no private P-256 key") as error:
            IdentityTokens(text, "boyd", "w", time.time)
        assert text not in str(error.value)
