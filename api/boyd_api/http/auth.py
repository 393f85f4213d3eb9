"""Authentication: no route runs, and no intake accepts a message, before it was admitted here."""

from __future__ import annotations

import base64
import hashlib
import math
from dataclasses import dataclass

from flask import g, request

from boyd.errors import ConfigError, StoreUnavailable
from boyd.intake.sender_checks import SenderRefused, check_sender, read_secrets
from boyd.intake.sns import SnsUnavailable
from boyd.models import Actor, ApiKey, Delegable, Scope, agent_of, utc_now
from boyd.settings.intake_settings import DeclaredIntake, KeyAuth, SnsAuth
from boyd.store.api_keys import is_key
from boyd_api.http.problems import HttpProblem, retry_after
from boyd_api.http.request_context import names_loopback
from boyd_api.http.routing import Route
from boyd_api.http.services import Services
from boyd_api.oidc.identities import NoScopes, ProviderUnavailable, TokenRefused

#: Seconds after which to send a message again whose sender could not be checked.
_SENDER_RETRY = 10
#: The scheme that a refusal asks for.
_CHALLENGES = {"basic": "Basic", "header": "Secret", "query": "Secret"}
_CHALLENGES |= {"hmac": "Signature", "sns": "Signature"}


@dataclass(frozen=True)
class Sender:
    """A sender that was checked.

    Attributes:
        identity: what it may do: send to this intake of this agent.
        message: an id of the message, if the same one must not be taken twice.
    """

    identity: ApiKey
    message: str | None


def authenticate_sender(services: Services) -> Sender | None:
    """Check the sender of the request; None if it has to show a key.

    Raises `HttpProblem` if it does not prove who it is, or that cannot be told now.
    """
    parts = request.view_args or {}
    match = services.intake(parts.get("agentId"), parts.get("format", ""))
    if match is None or isinstance(match[1].auth, KeyAuth):
        return None
    agent_id, intake = match
    try:
        message = _check(services, intake)
    except SenderRefused as error:
        challenge = {"WWW-Authenticate": f'{_CHALLENGES[intake.auth.method]} realm="boyd"'}
        raise HttpProblem("unauthenticated", str(error), headers=challenge) from None
    except (SnsUnavailable, ConfigError) as error:
        raise HttpProblem("unavailable", str(error), headers=retry_after(_SENDER_RETRY)) from None
    return Sender(_sender_identity(agent_id, intake.name), message)


def _check(services: Services, intake: DeclaredIntake) -> str | None:
    """Check the sender by the method of the intake; an id of the message, if it has one."""
    services.check_reachable()  # the clock of Redis decides whether the message is recent
    headers = {name.lower(): value for name, value in request.headers.items()}
    auth = intake.auth
    if isinstance(auth, SnsAuth):
        return services.sns.check(auth, request.get_data())
    assert not isinstance(auth, KeyAuth), "keys are checked elsewhere"
    secrets = read_secrets(services.settings.intake.secrets, auth.secret)
    query, now = request.args.to_dict(flat=False), services.store.clock.seconds()
    return check_sender(auth, secrets, headers, request.get_data, now, query)


def sender_principal(agent_id: str, name: str) -> str:
    """The principal of the senders to an intake that checks them itself."""
    return f"intake:{agent_id}/{name}"


def _sender_identity(agent_id: str, name: str) -> ApiKey:
    principal = sender_principal(agent_id, name)
    digest = hashlib.sha256(principal.encode()).hexdigest()[:16]
    return ApiKey(
        id=f"intake-{digest}",
        name=name,
        principal=principal,
        scopes=["trigger"],
        agents=[agent_id],
        hash="",
        created_at=utc_now(),
        created_by=principal,
    )


#: The principal of requests that need no key.
ANONYMOUS = "anonymous"

#: The name of a key's separate rate limit for intake.
_INTAKE_LIMIT = "intake"

#: Seconds after which to send an access token again that could not be checked.
_RETRY = 2
_HOW = "send `Authorization: Bearer boyd_<id>_<secret>`; `boyd keys create` creates a key"


@dataclass(frozen=True)
class Caller:
    """The sender of a request, and its key; None where none is needed."""

    actor: Actor
    key: ApiKey | None


def anonymous() -> Caller:
    """The sender of a request that needs no key."""
    return Caller(Actor(principal=ANONYMOUS, address=request.remote_addr), None)


def admit(services: Services, route: Route) -> Caller:
    """Admit the request.

    Raises `HttpProblem` without a valid key, if the key lacks the scope, or beyond its rate limit.
    """
    sender = authenticate_sender(services) if route.inlet else None
    if sender is not None:
        g.message = sender.message
        _admit_key(services, None, inlet=True, identity=sender.identity)
        return Caller(sender.identity.actor(request.remote_addr), sender.identity)
    text = _intake_key() if route.inlet else _bearer_key()
    if text is None:
        _check_open(services)
    key = _admit_key(services, text, inlet=route.inlet)
    if key is None:
        return anonymous()
    if route.scope is not None and not key.allows(route.scope):
        detail = f"the key {key.name!r} lacks the scope {route.scope!r}"
        raise HttpProblem("forbidden", detail, scope=route.scope)
    if route.reach == "deployment" and key.agents:
        limit = f"the key {key.name!r} is limited to {', '.join(key.agents)}"
        raise HttpProblem("forbidden", f"this request concerns all agents, but {limit}")
    return Caller(key.actor(request.remote_addr), key)


#: What an agent has to be allowed to use a scope of another agent; `read` is up to its key.
_DELEGATED: dict[Scope, Delegable] = {"runs": "runs", "trigger": "runs", "actions": "actions"}


def check_delegation(
    services: Services, key: ApiKey | None, scope: Scope | None, agent_id: str | None
) -> None:
    """Check that an agent may use that scope of an agent or, without one, of all.

    Raises `NotDelegated` if that agent's policy forbids it, and `HttpProblem` if nothing allows it.
    """
    caller = agent_of(key.principal) if key else None
    if key is None or caller is None or scope is None or scope == "read":
        return
    if agent_id is None or scope not in _DELEGATED:
        detail = f"no agent may use the scope {scope!r}; {key.principal} is one"
        raise HttpProblem("forbidden", detail, scope=scope)
    services.store.delegations.check(agent_id, caller, _DELEGATED[scope])


def admit_anonymous(services: Services) -> Caller:
    """Admit a request without a key; raises `HttpProblem` unless the settings allow it."""
    _check_open(services)
    _admit_key(services, None)
    return anonymous()


def admit_text(services: Services, text: str) -> ApiKey:
    """The API key with that text; raises `HttpProblem` if it is not valid."""
    key = _admit_key(services, text, tokens=False)
    assert key is not None, "a text that is admitted belongs to a key"
    return key


def _bearer_key() -> str | None:
    header = request.headers.get("Authorization")
    if header is None:
        return None
    scheme, _, text = header.strip().partition(" ")
    if scheme.lower() != "bearer" or not text.strip():
        raise _not_authenticated(f"the Authorization header has no bearer key; {_HOW}")
    return text.strip()


def _intake_key() -> str | None:
    """The key of a system that may not support bearer keys: a password, or `X-API-Key`."""
    header = request.headers.get("Authorization", "")
    scheme, _, text = header.strip().partition(" ")
    if scheme.lower() == "basic":
        return _password(text)
    return _bearer_key() or request.headers.get("X-API-Key", "").strip() or None


def _password(text: str) -> str:
    try:
        _, colon, password = base64.b64decode(text.strip(), validate=True).decode().partition(":")
    except ValueError:
        colon = password = ""
    if not colon or not password:
        raise _not_authenticated(f"the Authorization header has no password; {_HOW}")
    return password


def _check_open(services: Services) -> None:
    """Refuse a request without a key, unless that is allowed and it comes from this machine.

    A browser on it sends requests of any web page: those name another host or origin.
    """
    if not services.settings.api.allow_unauthenticated:
        raise _not_authenticated(f"no key was sent; {_HOW}")
    must = "requests without a key must"
    if not names_loopback():
        raise HttpProblem("forbidden", f"{must} use a loopback host, not {request.host!r}")
    origin = request.headers.get("Origin")
    if origin is not None and origin.partition("://")[2] != request.host:
        raise HttpProblem("forbidden", f"{must} not come from the origin {origin!r}")
    # A browser leaves the origin out when a page has it fetch an image or follow a link.
    site = request.headers.get("Sec-Fetch-Site", "none").strip().lower()
    if site in ("cross-site", "same-site"):
        raise HttpProblem("forbidden", f"{must} not come from pages of other sites")


def _admit_key(
    services: Services,
    text: str | None,
    *,
    inlet: bool = False,
    tokens: bool = True,
    identity: ApiKey | None = None,
) -> ApiKey | None:
    """Check and count the request of a key, a token, or an *identity* that was checked already."""
    services.check_reachable()
    limits = services.settings.intake if inlet else services.settings.api
    purpose = _INTAKE_LIMIT if inlet else ""
    token_identity = _identity(services, text) if text is not None and tokens else None
    access = services.store.api_keys
    try:
        if checked := identity or token_identity:
            admission = access.admit_identity(checked, limits.rate, limits.burst, purpose)
            if token_identity is not None:
                services.note_name(token_identity)
        else:
            admission = access.admit(text, limits.rate, limits.burst, purpose)
    except StoreUnavailable as error:
        services.note_away(error)
        raise
    g.now = admission.now
    if admission.refused in ("unknown", "expired"):
        reason = "has expired" if admission.refused == "expired" else "is not known, or was revoked"
        raise _not_authenticated(f"the key {reason}; `boyd keys create` creates one")
    g.limits = {
        "RateLimit-Limit": str(limits.burst),
        "RateLimit-Remaining": str(admission.remaining),
        "RateLimit-Reset": str(math.ceil(admission.whole)),
    }
    if admission.refused == "too-many":
        name = "overloaded" if inlet else "too-many-requests"
        detail = f"more than {limits.rate:g} requests a second; try again later"
        raise HttpProblem(name, detail, headers=retry_after(admission.wait))
    return admission.key


def _identity(services: Services, text: str) -> ApiKey | None:
    """The identity of an access token; None if there is no provider, or *text* is a key."""
    if services.provider is None or is_key(text):
        return None
    try:
        return services.provider.identity_of(text)
    except TokenRefused as error:
        raise _not_authenticated(str(error)) from None
    except NoScopes as error:
        raise HttpProblem("forbidden", str(error)) from None
    except ProviderUnavailable as error:
        raise HttpProblem("unavailable", str(error), headers=retry_after(_RETRY)) from None


def _not_authenticated(detail: str) -> HttpProblem:
    challenge = {"WWW-Authenticate": 'Bearer realm="boyd"'}
    return HttpProblem("unauthenticated", detail, headers=challenge)
