"""Tokens of the provider, checked by the keys and metadata that it publishes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from authlib.oauth2.claims import JWTClaims
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import ExpiredTokenError, InvalidClaimError, JoseError, MissingClaimError
from joserfc.jwk import GuestProtocol, Key, import_key
from joserfc.jws import JWSRegistry

from boyd.outbound.public_addresses import check_url
from boyd.settings.oidc_settings import OidcSettings
from boyd_api.oidc.identities import ProviderUnavailable, TokenRefused

log = logging.getLogger("boyd.api")

#: Seconds after which a document is read again; for a key that it lacks, that is read sooner.
FRESH = 600.0
SOON = 10.0
#: Seconds for which a document is used while the provider is away.
KEPT = 12 * 3600.0
#: Seconds without another attempt after one has failed.
AWAY = 10.0
#: Seconds to wait for another request that reads the document.
_WAIT = 1.0
#: Kinds of keys that only the provider can sign with.
_ASYMMETRIC = ("RSA", "EC", "OKP")
_NEEDED = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_OPTIONAL = ("userinfo_endpoint", "end_session_endpoint")

_T = TypeVar("_T")
_Clock = Callable[[], float]


class CachedDocument(Generic[_T]):
    """A document that one request at a time reads, while others use the one before."""

    def __init__(self, read: Callable[[], _T]) -> None:
        """Create it; *read* raises `ProviderUnavailable`."""
        self._read = read
        self._lock = threading.Lock()
        self._value: _T | None = None
        self._read_at = self._away_until = float("-inf")
        self._why = "the provider's documents are being read"

    def get(self, age: float = FRESH) -> _T:
        """The document, at most *age* seconds old if the provider answers.

        Raises:
            ProviderUnavailable: it has not answered for too long.
        """
        old = self._value
        if old is not None and self._age() < age:
            return old
        wait = _WAIT if old is None or age < FRESH else 0
        if self._lock.acquire(timeout=wait):
            try:
                if self._age() >= age and time.monotonic() >= self._away_until:
                    self._renew()
            finally:
                self._lock.release()
        if self._value is None or self._age() > KEPT:
            raise ProviderUnavailable(self._why)
        return self._value

    def _age(self) -> float:
        return time.monotonic() - self._read_at

    def _renew(self) -> None:
        try:
            self._value = self._read()
            self._read_at = time.monotonic()
        except ProviderUnavailable as error:
            log.warning("%s", error)
            self._why = str(error)
            self._away_until = time.monotonic() + AWAY


class ProviderDocuments:
    """The metadata and keys of a provider."""

    def __init__(self, settings: OidcSettings, fetch: Callable[[str], Mapping[str, Any]]) -> None:
        """Create them; *fetch* reads a JSON object, or raises `ProviderUnavailable`."""
        self._settings = settings
        self._fetch = fetch
        self._metadata = CachedDocument(self._read_metadata)
        self._keys = CachedDocument(self._read_keys)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata. Raises `ProviderUnavailable`."""
        return self._metadata.get()

    def key(self, kid: str | None) -> Key | None:
        """The key of that id, or the only key there is; a missing one is looked for again.

        Raises:
            ProviderUnavailable: the provider has not answered for too long.
        """
        return _choose_key(self._keys.get(), kid) or _choose_key(self._keys.get(SOON), kid)

    def _read_metadata(self) -> Mapping[str, Any]:
        issuer = self._settings.issuer or ""
        metadata = self._fetch(issuer.rstrip("/") + "/.well-known/openid-configuration")
        if metadata.get("issuer") != issuer:
            own_name = str(metadata.get("issuer"))[:200]
            raise ProviderUnavailable(
                f"oidc.issuer is {issuer!r}, but that names itself {own_name!r}"
            )
        names = [*_NEEDED, *(name for name in _OPTIONAL if name in metadata)]
        for name in names:
            if wrong := check_url(str(metadata.get(name)), allow_private=True):
                raise ProviderUnavailable(f"{issuer}: {name} cannot be used: {wrong}")
        return metadata

    def _read_keys(self) -> list[Key]:
        listed = self._fetch(self.metadata["jwks_uri"]).get("keys")
        candidates = [_usable(document) for document in listed] if isinstance(listed, list) else []
        keys = [key for key in candidates if key is not None]
        if not keys:
            raise ProviderUnavailable(f"{self._settings.issuer} publishes no key that can be used")
        return keys


def _usable(described: Any) -> Key | None:
    """The key, if it can check a signature that nobody else can make."""
    if not isinstance(described, dict) or described.get("kty") not in _ASYMMETRIC:
        return None
    if described.get("use", "sig") != "sig":
        return None
    try:
        return import_key(described)
    except (JoseError, ValueError, TypeError, KeyError):
        return None  # of a kind that this release does not know


def _choose_key(keys: list[Key], kid: str | None) -> Key | None:
    if kid is None:
        return keys[0] if len(keys) == 1 else None
    return next((key for key in keys if key.kid == kid), None)


#: Signatures that only the provider can make; with HS256 or none, anybody could.
ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519"),
)
#: Seconds by which clocks may differ.
LEEWAY = 30
_LONGEST_HEADER = 4096
#: The types of access tokens: that of RFC 9068, and what others write.
_ACCESS_TYPES = ("at+jwt", "application/at+jwt", "jwt", "")
#: Claims, and values of Keycloak's `typ`, of tokens that are no permission for the API.
_NO_ACCESS = ("at_hash", "c_hash", "events")
_NO_ACCESS_KINDS = ("ID", "Logout", "Refresh", "Offline")
_LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"

Claims = Mapping[str, Any]


class TokenReader:
    """Checks the tokens of one provider."""

    def __init__(self, settings: OidcSettings, documents: ProviderDocuments, clock: _Clock) -> None:
        self._settings = settings
        self._documents = documents
        self._clock = clock
        self._registry = JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
        self._registry.max_header_length = _LONGEST_HEADER

    def read_id_token(self, text: str, nonce: str, access_token: str | None) -> Claims:
        """The claims of the ID token that answers the login with *nonce*.

        Raises:
            TokenRefused: it is not valid.
            ProviderUnavailable: the provider's keys cannot be read.
        """
        token = self._verify(text)
        params = {
            "nonce": nonce,
            "client_id": self._settings.client_id,
            "access_token": access_token,
        }
        options = self._options(self._settings.client_id)
        claims = CodeIDToken(token.claims, token.header, options, params)
        return self._check_claims(claims)

    def read_access_token(self, text: str) -> Claims:
        """The claims of an access token for the API; raises as `read_id_token`."""
        token = self._verify(text)
        kind = str(token.header.get("typ", "")).lower()
        other = any(claim in token.claims for claim in _NO_ACCESS)
        if kind not in _ACCESS_TYPES or other or token.claims.get("typ") in _NO_ACCESS_KINDS:
            raise TokenRefused("the token is no access token")
        options = self._options(self._settings.audience, "exp")
        return self._check_claims(JWTClaims(token.claims, token.header, options))

    def read_logout_token(self, text: str) -> Claims:
        """The claims of a token that ends its subject's sessions; raises as `read_id_token`."""
        token = self._verify(text)
        events = token.claims.get("events")
        if not isinstance(events, dict) or _LOGOUT_EVENT not in events or "nonce" in token.claims:
            raise TokenRefused("the token is no logout token")
        options = self._options(self._settings.client_id, "exp", "iat", "jti")
        return self._check_claims(JWTClaims(token.claims, token.header, options))

    def _options(self, audience: str | None, *needed: str) -> dict[str, Any]:
        return {
            "iss": {"essential": True, "value": self._settings.issuer},
            "aud": {"essential": True, "value": audience},
            "sub": {"essential": True},
            **{claim: {"essential": True} for claim in needed},
        }

    def _verify(self, text: str) -> jwt.Token:
        try:
            return jwt.decode(text, self._key, algorithms=ALGORITHMS, registry=self._registry)
        except (JoseError, ValueError, TypeError) as error:
            raise TokenRefused(f"the token's signature is not valid: {error}") from None

    def _key(self, guest: GuestProtocol) -> Key:
        kid = guest.headers().get("kid")
        key = self._documents.key(kid if isinstance(kid, str) else None)
        if key is None:
            name = self._settings.issuer
            raise TokenRefused(f"the token is signed with a key that {name} does not publish")
        return key

    def _check_claims(self, claims: JWTClaims) -> Claims:
        try:
            claims.validate(int(self._clock()), LEEWAY)
        except ExpiredTokenError:
            raise TokenRefused("the token has expired") from None
        except MissingClaimError as error:
            raise TokenRefused(f"the token lacks the claim {error.claim}") from None
        except InvalidClaimError as error:
            claim, rule = error.claim, claims.options.get(error.claim, {})
            right = f", which must be {rule['value']!r}" if "value" in rule else ""
            raise TokenRefused(f"the token has a wrong {claim!r}{right}") from None
        except JoseError as error:
            raise TokenRefused(f"the token is not valid: {error}") from None
        if not claims["sub"].strip() or len(claims["sub"]) > 255:
            raise TokenRefused("the token has no usable 'sub'")
        return dict(claims)
