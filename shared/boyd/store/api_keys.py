"""Keys of the HTTP API: made, listed, revoked, and checked with each request (H2, H4).

The text of a key is `boyd_<id>_<secret>`.
Of the secret only its SHA-256 is kept. A slow hash would protect nothing: it slows down guessing,
and nobody guesses 256 random bits; but it would cost each request what it costs the guesser.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from boyd.models import Actor, ApiKey, Scope, from_ms
from boyd.store.audit_trail import actor_fields
from boyd.store.connection import Client, translated
from boyd.store.keys import API_KEYS, DEPLOYMENT, Keys, bucket
from boyd.store.scripts import KeyedScripts

_TEXT = re.compile(r"boyd_([a-z0-9]{12})_([A-Za-z0-9_-]{43})")
_ID_CHARACTERS = string.ascii_lowercase + string.digits
_ID_LENGTH = 12
_AUDIT = Keys(DEPLOYMENT).audit_open

Refused = Literal["unknown", "expired", "too-many"]


@dataclass(frozen=True)
class Admission:
    """Whether a request is let in, for which key, and what is left of the key's allowance.

    Attributes:
        key: the key that was shown; None for nobody, and when it is refused as unknown.
        refused: why the request is not let in, if it is not.
        wait: seconds until it would be.
        remaining: how many requests may follow at once.
        whole: seconds until the allowance is whole again.
        now: the time on the Redis server's clock; None when it was not asked.
    """

    key: ApiKey | None
    refused: Refused | None
    wait: float
    remaining: int
    whole: float
    now: datetime | None = None


class ApiKeys:
    """The keys of a deployment."""

    def __init__(self, client: Client, scripts: KeyedScripts) -> None:
        self._client = client
        self._scripts = scripts

    def create(
        self,
        name: str,
        principal: str,
        scopes: Sequence[Scope],
        *,
        by: Actor,
        person: bool = False,
        groups: Sequence[str] = (),
        agents: Sequence[str] = (),
        expires_in: float | None = None,
        key_id: str | None = None,
    ) -> tuple[ApiKey, str | None]:
        """Make a key; the key, and its text, which is never told again.

        Args:
            name: what its owner calls it.
            principal: whom it stands for.
            scopes: what it may do.
            by: who makes it.
            person: whether the principal is a person.
            groups: the groups of the principal.
            agents: the agents it may see; none: all.
            expires_in: seconds that it is good for; None: until it is revoked.
            key_id: its id, where the same request may come twice: then the second call answers
                with the key of the first, and no text.

        Raises:
            pydantic.ValidationError: a value does not fit.
        """
        secret = secrets.token_urlsafe(32)
        now = self._now()
        key = ApiKey(
            id=key_id or _new_id(),
            name=name,
            principal=principal,
            person=person,
            scopes=list(scopes),
            groups=list(groups),
            agents=list(agents),
            hash=_digest(secret),
            created_at=from_ms(now),
            created_by=by.principal,
            expires_at=None if expires_in is None else from_ms(now + expires_in * 1000),
        )
        record, what = key.to_json(), _in_words(key)
        if self._scripts.run(
            "create_api_key", id=key.id, record=record, what=what, actor=actor_fields(by)
        ):
            return key, f"boyd_{key.id}_{secret}"
        return self.get(key.id) or key, None

    def all(self) -> list[ApiKey]:
        """All keys, those that have expired too, oldest first."""
        with translated():
            found = self._client.hvals(API_KEYS)
        return sorted(map(ApiKey.from_json, found), key=lambda key: (key.created_at, key.id))

    def get(self, key_id: str) -> ApiKey | None:
        """One key."""
        with translated():
            text = self._client.hget(API_KEYS, key_id)
        return ApiKey.from_json(text) if text else None

    def is_good(self, key_id: str) -> bool:
        """Whether a key still lets anybody in."""
        key = self.get(key_id)
        return key is not None and (key.expires_at is None or key.expires_at > from_ms(self._now()))

    def revoke(self, key_id: str, by: Actor) -> bool:
        """Make a key useless at once; False when there is none of that id."""
        revoked = self._scripts.run(
            "revoke_api_key", bucket=bucket(key_id), id=key_id, actor=actor_fields(by)
        )
        return bool(revoked)

    def admit(self, text: str | None, rate: float, burst: int, purpose: str = "") -> Admission:
        """Check the key of a request and take the request from its allowance, in one round trip.

        Args:
            text: the key as it was shown; None: none was, and none is needed.
            rate: requests a second that a key may make for ever.
            burst: requests that it may make at once.
            purpose: what the allowance is for, where a key has several.
        """
        match = _TEXT.fullmatch(text or "")
        if text is not None and match is None:
            return _refuse("unknown")
        key_id, digest = (match[1], _digest(match[2])) if match else ("", "")
        now, record, wait, remaining, whole = self._scripts.run(
            "admit_request",
            bucket=bucket(key_id, purpose),
            id=key_id,
            digest=digest,
            interval=int(1_000_000 / rate),
            burst=burst,
        )
        key = ApiKey.from_json(record) if record else None
        if match and (key is None or not hmac.compare_digest(key.hash, digest)):
            return _refuse("unknown")
        if key and key.expires_at and key.expires_at <= from_ms(now):
            return _refuse("expired")
        refused: Refused | None = "too-many" if wait else None
        return Admission(key, refused, wait / 1000, int(remaining), whole / 1000, from_ms(now))

    def _now(self) -> float:
        """The Redis server's clock, which keys expire by; milliseconds."""
        with translated():
            seconds, micros = self._client.time()
        return float(seconds) * 1000 + float(micros) / 1000


def _refuse(why: Refused) -> Admission:
    return Admission(None, why, 0.0, 0, 0.0)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _new_id() -> str:
    return "".join(secrets.choice(_ID_CHARACTERS) for _ in range(_ID_LENGTH))


def _in_words(key: ApiKey) -> str:
    where = f" for {', '.join(key.agents)}" if key.agents else ""
    return f"{key.name!r} of {key.principal}: {', '.join(key.scopes)}{where}"
