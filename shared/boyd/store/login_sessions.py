"""Login sessions of the console, and the names of those who log in.

A session belongs to an API key, which is looked up again with each request, or has an identity of
its own, from a provider. Only the SHA-256 of its secret is stored.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from boyd.models import Actor, ApiKey, Model, Timestamp, from_ms
from boyd.store.api_keys import Refused
from boyd.store.hashes import readable, reading
from boyd.store.keys import API_KEYS, PEOPLE, SESSIONS, login, session
from boyd.store.server.connection import Client, replies_by_type, translate_errors
from boyd.store.server.scripts import KeyedScripts, actor_fields, flat, milliseconds

#: Seconds without a request after which a session ends, and after which it ends in any case.
IDLE = 30 * 60.0
LONGEST = 12 * 3600.0
#: The same for a display on a wall: as long as browsers keep a cookie.
KIOSK = 400 * 86_400
#: Seconds for which a login link is valid.
LINK = 15 * 60.0
#: The most characters kept of the name of a browser.
_BROWSER = 200


@dataclass(frozen=True)
class SessionAdmission:
    """The result of checking the session of a request.

    Attributes:
        key: the identity of the session; None when it is refused.
        refused: the reason for a refusal; `unknown`: it has ended, or its key was revoked.
        wait: seconds until the request would be admitted.
        confirmed_at: the last time the user proved who they are.
        now: the Redis server's time.
    """

    key: ApiKey | None
    refused: Refused | None
    now: datetime
    confirmed_at: datetime | None = None
    wait: float = 0.0


class OpenSession(Model):
    """An open session; `id` is the digest of its secret, `name` that of its key."""

    id: str
    key_id: str
    name: str
    principal: str
    person: bool
    opened_at: Timestamp
    seen_at: Timestamp
    address: str | None = None
    browser: str | None = None


class LoginSessions:
    """The sessions of a deployment."""

    def __init__(self, client: Client, scripts: KeyedScripts) -> None:
        self._client = client
        self._scripts = scripts

    def open(
        self, key: ApiKey, *, address: str | None, browser: str, age: float | None = 0.0
    ) -> str:
        """Open a session and return its secret.

        An API key decides again at each request; an identity without one is kept as it is. *age*
        is how many seconds ago the user authenticated, if known.
        """
        secret = secrets.token_urlsafe(32)
        id = digest(secret)
        whose = {"identity": key.to_json()} if key.is_identity else {"keyId": key.id}
        fields = {**whose, "address": address or "", "browser": browser[:_BROWSER]}
        idle, longest = (KIOSK, KIOSK) if key.is_kiosk else (IDLE, LONGEST)
        if key.is_kiosk:
            fields["longest"] = str(milliseconds(longest))
        self._scripts.run(
            "open_session",
            session=session(id),
            id=id,
            holder=f"{key.name!r} of {key.principal}",
            idle=milliseconds(idle),
            longest=milliseconds(longest),
            age=-1 if age is None else milliseconds(age),
            name=key.name if key.is_identity else "",
            principal=key.principal,
            fields=flat(fields),
            actor=actor_fields(key.actor(address)),
        )
        return secret

    def admit(
        self, secret: str, rate: float, burst: int, *, renew: bool = True
    ) -> SessionAdmission:
        """Check the session of a request and count the request, in one round trip.

        *renew*: a person sent the request, so the session's idle time starts again.
        """
        now, *values = self._scripts.run(
            "admit_session",
            session=session(digest(secret)),
            idle=milliseconds(IDLE),
            longest=milliseconds(LONGEST),
            renew=renew,
            interval=int(1_000_000 / rate),
            burst=burst,
        )
        at = from_ms(now)
        if not values:
            return SessionAdmission(None, "unknown", at)
        record, confirmed, wait, _, _ = values
        with reading("the key of a session"):
            key = ApiKey.from_json(record)
        if key.expires_at is not None and key.expires_at <= at:
            return SessionAdmission(None, "expired", at)
        refused: Refused | None = "too-many" if wait else None
        return SessionAdmission(key, refused, at, from_ms(float(confirmed)), wait / 1000)

    def is_open(self, id: str) -> bool:
        """Check whether a session is open and its key is valid."""
        return any(session.id == id for session in self._read([id]))

    def all(self) -> list[OpenSession]:
        """The open sessions, newest first."""
        with translate_errors():
            ids = self._client.zrange(SESSIONS, 0, -1, desc=True)
        return self._read(ids)

    def close(self, id: str, by: Actor) -> bool:
        """Close a session; False when none of that id is open."""
        closed = self._scripts.run(
            "close_session", session=session(id), id=id, actor=actor_fields(by)
        )
        return bool(closed)

    def close_all(self, principal: str, by: Actor) -> int:
        """Close every session of a principal; return their number."""
        ids = [session.id for session in self.all() if session.principal == principal]
        return sum(self.close(id, by) for id in ids)

    def create_link(self, key_id: str) -> str:
        """A token that logs in once, within `LINK` seconds, with that API key."""
        token = secrets.token_urlsafe(32)
        with translate_errors():
            self._client.set(login(digest(token)), key_id, px=milliseconds(LINK))
        return token

    def use_link(self, token: str) -> ApiKey | None:
        """Consume a login token; the API key that it is for, or None when it is not valid."""
        with translate_errors():
            key_id = self._client.getdel(login(digest(token)))
            if not key_id:
                return None
            pipe = self._client.pipeline(transaction=False)
            text, now = pipe.hget(API_KEYS, key_id).time().execute()
        return _good(text, now)

    def names(self) -> dict[str, str]:
        """The readable name of each principal that a provider of identities vouches for."""
        with translate_errors():
            names: dict[str, str] = self._client.hgetall(PEOPLE)
        return names

    def remember_name(self, principal: str, name: str) -> None:
        """Keep the name that a principal has now; several may have the same one."""
        with translate_errors():
            self._client.hset(PEOPLE, principal, name)

    def _read(self, ids: list[str]) -> list[OpenSession]:
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            for id in ids:
                pipe.hgetall(session(id))
            pipe.hgetall(API_KEYS)
            pipe.time()
            *replies, keys, now = replies_by_type(pipe)
        pairs = zip(ids, replies, strict=True)
        read = [
            readable(f"session {id}", partial(_read, id, keys=keys, time=now), fields)
            for id, fields in pairs
            if fields
        ]
        return [row for row in read if row is not None]


def _good(record: str | None, time: tuple[int, int]) -> ApiKey | None:
    """The key of a record; None if it was revoked, or has expired."""
    key = ApiKey.from_json(record) if record else None
    at = from_ms(time[0] * 1000 + time[1] / 1000)
    return None if key is None or (key.expires_at and key.expires_at <= at) else key


def _read(
    id: str, fields: Mapping[str, str], keys: Mapping[str, str], time: tuple[int, int]
) -> OpenSession | None:
    key = _good(fields.get("identity") or keys.get(fields.get("keyId", "")), time)
    if key is None:
        return None
    return OpenSession(
        id=id,
        key_id=key.id,
        name=key.name,
        principal=key.principal,
        person=key.person,
        opened_at=from_ms(float(fields["openedAt"])),
        seen_at=from_ms(float(fields["seenAt"])),
        address=fields.get("address") or None,
        browser=fields.get("browser") or None,
    )


def digest(secret: str) -> str:
    """The id of a session, or of a login link, from its secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def login_path(token: str) -> str:
    """The path of the page that uses a login link."""
    return f"/console/open/{token}"
