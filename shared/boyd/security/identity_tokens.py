"""Identity tokens: an agent proves to other systems who acts, for whom, and in which execution.

A token is a JWT that a worker signs with its P-256 key, for one audience and a few minutes. `sub`
is on whose behalf the agent acts, without any of their credentials, and `act` the agent, as in RFC
8693; an agent that acts for itself is the `sub`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from boyd.errors import ConfigError

#: Seconds for which a token is valid.
LIFETIME = 300


class IdentityTokens:
    """Signs the tokens of one worker."""

    def __init__(self, pem: str, issuer: str, worker: str, clock: Callable[[], float]) -> None:
        """Read the private key from its PEM text; *issuer* names the deployment.

        Raises:
            ConfigError: it is no private P-256 key, or the extra `signatures` is not installed.
        """
        try:
            from joserfc.errors import JoseError
            from joserfc.jwk import ECKey
        except ImportError:
            raise ConfigError("identity tokens need the extra: boyd[signatures]") from None
        wrong = ConfigError("identity_key is no private P-256 key in PEM without a password")
        try:
            self._key = ECKey.import_key(pem)
        except (JoseError, ValueError, TypeError):
            raise wrong from None
        if not self._key.is_private or self._key.curve_name != "P-256":
            raise wrong
        self._issuer, self._worker, self._clock = issuer, worker, clock

    def sign(
        self,
        agent_id: str,
        audience: str,
        requester: str | None = None,
        execution: str | None = None,
    ) -> str:
        """A token with which the agent identifies itself to *audience*.

        *requester* is the principal for whom it acts, *execution* what it executes.
        """
        from joserfc import jwt

        agent, now = f"agent:{agent_id}", int(self._clock())
        claims: dict[str, Any] = {
            "iss": self._issuer,
            "sub": requester or agent,
            "aud": audience,
            "iat": now,
            "exp": now + LIFETIME,
            "jti": str(uuid.uuid4()),
            "worker": self._worker,
        }
        if requester not in (None, agent):
            claims["act"] = {"sub": agent}
        if execution:
            claims["execution"] = execution
        header = {"alg": "ES256", "typ": "JWT", "kid": self._key.thumbprint()}
        return jwt.encode(header, claims, self._key, algorithms=["ES256"])
