"""The identity provider: login of people, their logout, and access tokens for the API."""

from __future__ import annotations

import hmac
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from authlib.integrations.base_client import OAuthError
from authlib.integrations.requests_client import OAuth2Auth
from authlib.integrations.requests_client.oauth2_session import OAuth2ClientAuth
from authlib.oauth2.client import OAuth2Client
from requests import RequestException

from boyd.models import ApiKey
from boyd.outbound.guarded_session import BoundedSession
from boyd.settings.oidc_settings import OidcSettings
from boyd.store.login_sessions import LONGEST
from boyd_api.oidc.identities import (
    ProviderUnavailable,
    TokenRefused,
    identify,
    principal_of,
)
from boyd_api.oidc.tokens import Claims, ProviderDocuments, TokenReader

log = logging.getLogger("boyd.api")

#: The paths that are registered at the provider.
CALLBACK = "/console/oidc/callback"
LOGGED_OUT = "/console/login?why=left"
#: Seconds after a login at the provider within which it counts as a confirmation.
_RECENT = 300
#: Requests to the provider at the same time, so that a slow one holds few threads of the API.
_MOST = 4
_WAIT = 1.0
#: The longest time for which an access token is accepted, in seconds.
_LONGEST = 366 * 86_400


@dataclass(frozen=True)
class Login:
    """A completed login.

    Attributes:
        identity: who has signed in.
        age: seconds since the provider asked for a password or the like, if it says so.
    """

    identity: ApiKey
    age: float | None


class _Client(OAuth2Client):  # type: ignore[misc]  # Authlib has no annotations
    """Authlib's client over a session of ours, instead of one that it makes."""

    client_auth_class = OAuth2ClientAuth
    token_auth_class = OAuth2Auth
    oauth_error_class = OAuthError


class IdentityProvider:
    """The provider of a deployment. *url* is the public address of the API."""

    def __init__(self, settings: OidcSettings, url: str, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._url = url
        self._documents = ProviderDocuments(settings, self._fetch)
        self._clock = clock
        self._tokens = TokenReader(settings, self._documents, clock)
        self._slots = threading.BoundedSemaphore(_MOST)

    @property
    def name(self) -> str:
        """The name that people know."""
        return self._settings.name

    def check(self) -> None:
        """Read the provider's documents, and log whether people can sign in."""
        try:
            self._documents.key(None)
        except ProviderUnavailable as error:
            log.warning("nobody can sign in with %s now: %s", self.name, error)
        else:
            log.info("people can sign in with %s: %s", self.name, self._settings.issuer)

    def login_url(self, secret: str, *, again: bool) -> str:
        """The address where a browser with that *secret* logs in.

        *again*: the provider asks for the password even if the person is signed in there; it does
        so in any case if that was longer ago than a session may last.

        Raises:
            ProviderUnavailable: the provider has not answered for too long.
        """
        # With a maximum age, the provider has to tell when the person has logged in.
        more = {"prompt": "login", "max_age": _RECENT} if again else {"max_age": int(LONGEST)}
        endpoint = self._documents.metadata["authorization_endpoint"]
        url, _ = self._client(None).create_authorization_url(
            endpoint,
            state=_derive(secret, "state"),
            nonce=_derive(secret, "nonce"),
            code_verifier=_derive(secret, "verifier"),
            **more,
        )
        return str(url)

    def finish_login(self, secret: str, answer: Mapping[str, str]) -> Login:
        """The login that the provider's *answer*, the query of the callback, completes.

        Raises:
            TokenRefused: the answer belongs to another browser or login, or its token is invalid.
            NoScopes: the person may do nothing here.
            ProviderUnavailable: the provider does not answer.
        """
        self._check_answer(secret, answer)
        granted = self._exchange(answer["code"], _derive(secret, "verifier"))
        access = granted.get("access_token")
        claims = self._tokens.read_id_token(
            str(granted.get("id_token")), _derive(secret, "nonce"), access
        )
        person = self._with_userinfo(claims, access)
        since = claims.get("auth_time")
        # By the provider's own clock, so that a difference from ours does not matter.
        age = max(0.0, claims["iat"] - since) if isinstance(since, int | float) else None
        return Login(identify(self._settings, person, person=True), age)

    def identity_of(self, token: str) -> ApiKey:
        """The identity of an access token.

        It is a person's only if it says when they logged in: programs have tokens of their own.

        Raises:
            TokenRefused: the token is not valid for the API.
            NoScopes: its subject may do nothing here.
            ProviderUnavailable: the provider's keys cannot be read.
        """
        if self._settings.audience is None:
            raise TokenRefused("access tokens need the setting oidc.audience")
        if token.count(".") != 2:
            raise TokenRefused(
                "the token is neither a key of Boyd nor a JWT: have the provider issue JWTs"
                f" for the audience {self._settings.audience!r}"
            )
        claims = self._tokens.read_access_token(token)
        clients = (claims.get("client_id"), claims.get("azp"))
        person = "auth_time" in claims and claims["sub"] not in clients
        ends = datetime.fromtimestamp(min(claims["exp"], self._clock() + _LONGEST), UTC)
        return identify(self._settings, claims, person=person, expires_at=ends)

    def logout_url(self) -> str | None:
        """The address where a browser signs out, or None if the provider has none or is away."""
        try:
            endpoint = self._documents.metadata.get("end_session_endpoint")
        except ProviderUnavailable:
            return None
        back = {
            "client_id": self._settings.client_id,
            "post_logout_redirect_uri": self._url + LOGGED_OUT,
        }
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(back)}" if endpoint else None

    def read_logout(self, token: str) -> str:
        """The principal whom a logout token of the provider names.

        Raises:
            TokenRefused: it is not valid.
            ProviderUnavailable: the provider's keys cannot be read.
        """
        claims = self._tokens.read_logout_token(token)
        return principal_of(claims["iss"], claims["sub"])

    def _check_answer(self, secret: str, answer: Mapping[str, str]) -> None:
        state = answer.get("state", "")
        if not hmac.compare_digest(state.encode(), _derive(secret, "state").encode()):
            raise TokenRefused("this browser has not begun this login, or has begun another since")
        if answer.get("iss", self._settings.issuer) != self._settings.issuer:
            raise TokenRefused("another provider has answered")
        if "error" in answer or "code" not in answer:
            reason = answer.get("error_description") or answer.get("error") or "no reason"
            raise TokenRefused(f"{self.name} refused the login: {reason[:200]}")

    def _exchange(self, code: str, verifier: str) -> Mapping[str, Any]:
        endpoint = self._documents.metadata["token_endpoint"]
        with self._session() as session:
            try:
                granted = self._client(session).fetch_token(
                    endpoint, grant_type="authorization_code", code=code, code_verifier=verifier
                )
            except OAuthError as error:
                log.warning("%s refused a login: %s", self._settings.issuer, error)
                raise TokenRefused(f"{self.name} refused the login: {error}") from None
        return granted if isinstance(granted, dict) else {}

    def _with_userinfo(self, claims: Claims, access: str | None) -> Claims:
        """The claims with those that the provider tells only when asked."""
        endpoint = self._documents.metadata.get("userinfo_endpoint")
        first = self._settings.groups_claim.partition(".")[0]
        if not endpoint or not access or self._settings.groups_claim in claims or first in claims:
            return claims
        more = self._fetch(endpoint, {"Authorization": f"Bearer {access}"})
        if more.get("sub") != claims["sub"]:
            raise TokenRefused(f"{self.name} has told the claims of somebody else")
        return {**more, **claims}

    def _fetch(self, url: str, headers: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        with self._session() as session:
            response = session.get(url, headers={"Accept": "application/json", **(headers or {})})
            response.raise_for_status()
            if response.status_code != 200:
                raise RequestException(f"{url} answered with {response.status_code}")
            document = response.json()
        if not isinstance(document, dict):
            raise ProviderUnavailable(f"{url} did not answer with a JSON object")
        return document

    @contextmanager
    def _session(self) -> Iterator[BoundedSession]:
        """A session for one request, whose failures are raised as `ProviderUnavailable`."""
        settings = self._settings
        if not self._slots.acquire(timeout=_WAIT):
            raise ProviderUnavailable(f"{settings.issuer} answers too slowly")
        allowed = settings.allow_private
        session = BoundedSession(allow_private=allowed, timeout=settings.timeout)
        try:
            yield session
        except (RequestException, ValueError) as error:
            hint = "" if allowed else "; a private address needs oidc.allow_private = true"
            raise ProviderUnavailable(f"{settings.issuer} does not answer: {error}{hint}") from None
        finally:
            session.close()
            self._slots.release()

    def _client(self, session: BoundedSession | None) -> _Client:
        secret = self._settings.client_secret
        return _Client(
            session,
            client_id=self._settings.client_id,
            client_secret=secret.get_secret_value() if secret else None,
            token_endpoint_auth_method=self._client_auth() if secret else "none",
            scope=" ".join(("openid", *self._settings.extra_scopes)),
            redirect_uri=self._url + CALLBACK,
            code_challenge_method="S256",
        )

    def _client_auth(self) -> str:
        methods = self._documents.metadata.get("token_endpoint_auth_methods_supported")
        only_post = isinstance(methods, list) and "client_secret_basic" not in methods
        return "client_secret_post" if only_post else "client_secret_basic"


def _derive(secret: str, purpose: str) -> str:
    """A value that only a browser with that *secret* can have been given."""
    return hmac.new(secret.encode(), purpose.encode(), "sha256").hexdigest()
