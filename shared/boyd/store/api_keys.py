"""API keys: created, listed, revoked, and checked with each request.

The text of a key is `boyd_<id>_<secret>`. Only the secret's SHA-256 is stored. A slow hash would
slow down every request and protect nothing, because nobody can guess 256 random bits.
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

from boyd.models import Actor, ApiKey, Model, Scope, from_ms
from boyd.models.actor import NewName, NewPrincipal
from boyd.models.rights import RightList
from boyd.store.hashes import readable, reading
from boyd.store.keys import API_KEYS, DEPLOYMENT, Keys, bucket
from boyd.store.server.connection import Client, translate_errors
from boyd.store.server.scripts import KeyedScripts, actor_fields

_TEXT = re.compile(r"boyd_([a-z0-9]{12})_([A-Za-z0-9_-]{43})")
_ID_CHARACTERS = string.ascii_lowercase + string.digits
_ID_LENGTH = 12
_AUDIT = Keys(DEPLOYMENT).audit_open

Refused = Literal["unknown", "expired", "too-many"]


@dataclass(frozen=True)
class Admission:
    """The result of checking a request's key and rate limit.

    Attributes:
        key: the request's key; None without a key, and for an unknown one.
        refused: the reason for a refusal.
        wait: seconds until the request would be admitted.
        remaining: requests that may follow at once.
        whole: seconds until the allowance is full again.
        now: the Redis server's time; None when Redis was not asked.
    """

    key: ApiKey | None
    refused: Refused | None
    wait: float
    remaining: int
    whole: float
    now: datetime | None = None


class _CheckedValues(Model):
    """Values that are checked in new keys only: older ones may have others."""

    name: NewName
    principal: NewPrincipal
    groups: list[NewName]
    may: RightList


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
        may: Sequence[str] = (),
        expires_in: float | None = None,
        key_id: str | None = None,
    ) -> tuple[ApiKey, str | None]:
        """Create a key; return it with its text, which cannot be read again.

        Args:
            name: a label for the key's owner.
            principal: the identity that requests with this key act as.
            scopes: the permissions of the key.
            by: the creator, for the audit.
            person: whether the principal is a person.
            groups: the groups of the principal.
            agents: the agents that the key may access; empty: all.
            may: its rights to actions; empty: those of its scopes.
            expires_in: seconds until the key expires, if it does.
            key_id: an id that makes the call idempotent: a second call returns the first key,
                without its text.

        Raises:
            pydantic.ValidationError: a value is invalid.
        """
        checked = _CheckedValues(name=name, principal=principal, groups=list(groups), may=list(may))
        secret = secrets.token_urlsafe(32)
        now = self._now()
        key = ApiKey(
            id=key_id or _new_id(),
            name=checked.name,
            principal=checked.principal,
            person=person,
            scopes=list(scopes),
            groups=checked.groups,
            agents=list(agents),
            may=checked.may,
            hash=_digest(secret),
            created_at=from_ms(now),
            created_by=by.principal,
            expires_at=None if expires_in is None else from_ms(now + expires_in * 1000),
        )
        record, description = key.to_json(), _in_words(key)
        if self._scripts.run(
            "create_api_key", id=key.id, record=record, what=description, actor=actor_fields(by)
        ):
            return key, f"boyd_{key.id}_{secret}"
        return self.get(key.id) or key, None

    def all(self) -> list[ApiKey]:
        """All keys, including expired ones, oldest first."""
        with translate_errors(API_KEYS):
            texts = self._client.hgetall(API_KEYS)
        read = [readable(_name(id), ApiKey.from_json, text) for id, text in texts.items()]
        keys = [key for key in read if key is not None]
        return sorted(keys, key=lambda key: (key.created_at, key.id))

    def get(self, key_id: str) -> ApiKey | None:
        """One key."""
        with translate_errors(API_KEYS):
            text = self._client.hget(API_KEYS, key_id)
        return _read(key_id, text) if text else None

    def is_good(self, key_id: str) -> bool:
        """Check whether a key exists and has not expired."""
        key = self.get(key_id)
        return key is not None and (key.expires_at is None or key.expires_at > from_ms(self._now()))

    def revoke(self, key_id: str, by: Actor) -> bool:
        """Revoke a key at once; False when there is none with that id."""
        revoked = self._scripts.run(
            "revoke_api_key", bucket=bucket(key_id), id=key_id, actor=actor_fields(by)
        )
        return bool(revoked)

    def admit(self, text: str | None, rate: float, burst: int, purpose: str = "") -> Admission:
        """Check a request's key and count the request against its rate limit, in one round trip.

        Args:
            text: the key as sent; None for a request that has no key and needs none.
            rate: sustained requests per second.
            burst: requests allowed at once.
            purpose: the name of the allowance when a key has several.
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
        key = _read(key_id, record) if record else None
        if match and (key is None or not hmac.compare_digest(key.hash, digest)):
            return _refuse("unknown")
        if key and key.expires_at and key.expires_at <= from_ms(now):
            return _refuse("expired")
        refused: Refused | None = "too-many" if wait else None
        return Admission(key, refused, wait / 1000, int(remaining), whole / 1000, from_ms(now))

    def admit_identity(
        self, identity: ApiKey, rate: float, burst: int, purpose: str = ""
    ) -> Admission:
        """Count the request of an identity that has been checked, as `admit` does for a key."""
        now, _, wait, remaining, whole = self._scripts.run(
            "admit_request",
            bucket=bucket(identity.id, purpose),
            id="",
            digest="",
            interval=int(1_000_000 / rate),
            burst=burst,
        )
        refused: Refused | None = "too-many" if wait else None
        return Admission(identity, refused, wait / 1000, int(remaining), whole / 1000, from_ms(now))

    def _now(self) -> float:
        """The Redis server's time in milliseconds, which decides when keys expire."""
        with translate_errors():
            seconds, micros = self._client.time()
        return float(seconds) * 1000 + float(micros) / 1000


def is_key(text: str) -> bool:
    """Check whether *text* begins as the text of a key does."""
    return text.startswith("boyd_")


def id_of(text: str) -> str:
    """The id in the text of a key."""
    match = _TEXT.fullmatch(text)
    assert match is not None, "the text of a key that was admitted has an id"
    return match[1]


def _name(key_id: str) -> str:
    return f"API key {key_id}"


def _read(key_id: str, text: str) -> ApiKey:
    with reading(_name(key_id)):
        return ApiKey.from_json(text)


def _refuse(refusal: Refused) -> Admission:
    return Admission(None, refusal, 0.0, 0, 0.0)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _new_id() -> str:
    return "".join(secrets.choice(_ID_CHARACTERS) for _ in range(_ID_LENGTH))


def _in_words(key: ApiKey) -> str:
    where = f" for {', '.join(key.agents)}" if key.agents else ""
    may = f", may {'; '.join(key.may)}" if key.may else ""
    return f"{key.name!r} of {key.principal}: {', '.join(key.scopes)}{where}{may}"
