"""Tokens of the provider: their signature, and what each kind of them must say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from authlib.oauth2.claims import JWTClaims
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import ExpiredTokenError, InvalidClaimError, JoseError, MissingClaimError
from joserfc.jwk import GuestProtocol, Key
from joserfc.jws import JWSRegistry

from boyd.settings.oidc_settings import OidcSettings
from boyd_api.oidc.identities import TokenRefused
from boyd_api.oidc.provider_documents import ProviderDocuments

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

    def __init__(self, settings: OidcSettings, documents: ProviderDocuments) -> None:
        self._settings = settings
        self._documents = documents
        self._registry = JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
        self._registry.max_header_length = _LONGEST_HEADER

    def read_id_token(self, text: str, nonce: str, access_token: str | None) -> Claims:
        """The claims of the ID token that answers the login with *nonce*.

        Raises:
            TokenRefused: it is not valid.
            ProviderUnavailable: the provider's keys cannot be read.
        """
        token = self._verified(text)
        params = {
            "nonce": nonce,
            "client_id": self._settings.client_id,
            "access_token": access_token,
        }
        options = self._options(self._settings.client_id)
        claims = CodeIDToken(token.claims, token.header, options, params)
        return self._checked(claims)

    def read_access_token(self, text: str) -> Claims:
        """The claims of an access token for the API; raises as `read_id_token`."""
        token = self._verified(text)
        kind = str(token.header.get("typ", "")).lower()
        other = any(claim in token.claims for claim in _NO_ACCESS)
        if kind not in _ACCESS_TYPES or other or token.claims.get("typ") in _NO_ACCESS_KINDS:
            raise TokenRefused("the token is no access token")
        options = self._options(self._settings.audience, "exp")
        return self._checked(JWTClaims(token.claims, token.header, options))

    def read_logout_token(self, text: str) -> Claims:
        """The claims of a token that ends its subject's sessions; raises as `read_id_token`."""
        token = self._verified(text)
        events = token.claims.get("events")
        if not isinstance(events, dict) or _LOGOUT_EVENT not in events or "nonce" in token.claims:
            raise TokenRefused("the token is no logout token")
        options = self._options(self._settings.client_id, "exp", "iat", "jti")
        return self._checked(JWTClaims(token.claims, token.header, options))

    def _options(self, audience: str | None, *needed: str) -> dict[str, Any]:
        return {
            "iss": {"essential": True, "value": self._settings.issuer},
            "aud": {"essential": True, "value": audience},
            "sub": {"essential": True},
            **{claim: {"essential": True} for claim in needed},
        }

    def _verified(self, text: str) -> jwt.Token:
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

    def _checked(self, claims: JWTClaims) -> Claims:
        try:
            claims.validate(leeway=LEEWAY)
        except ExpiredTokenError:
            raise TokenRefused("the token has expired") from None
        except MissingClaimError as error:
            raise TokenRefused(f"the token lacks the claim {error.claim}") from None
        except InvalidClaimError as error:
            named, wanted = error.claim, claims.options.get(error.claim, {})
            right = f", which must be {wanted['value']!r}" if "value" in wanted else ""
            raise TokenRefused(f"the token has a wrong {named!r}{right}") from None
        except JoseError as error:
            raise TokenRefused(f"the token is not valid: {error}") from None
        if not claims["sub"].strip() or len(claims["sub"]) > 255:
            raise TokenRefused("the token has no usable 'sub'")
        return dict(claims)
