"""`/keys`: who may ask what."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from boyd.models import ApiKey, Model, Scope
from boyd.models.responses import KeyInfo, KeyList, NewKey, Revoked
from boyd_api.routing import Answer, Routes
from boyd_api.serving import Ask, not_found

routes = Routes("keys")

#: Ten years, in seconds.
_LONGEST = 10 * 366 * 86_400.0

_Word = Annotated[str, Field(min_length=1, max_length=200)]


class KeyRequest(Model):
    """A key to make; `expiresIn` is in seconds, `agents` empty: all."""

    name: str = Field(min_length=1, max_length=200)
    principal: str = Field(min_length=1, max_length=200, pattern=r"^\S+$")
    person: bool = False
    scopes: list[Scope] = Field(min_length=1, max_length=6)
    groups: list[_Word] = Field(default_factory=list, max_length=100)
    agents: list[_Word] = Field(default_factory=list, max_length=100)
    expires_in: float | None = Field(default=None, gt=0, le=_LONGEST)


@routes.get("/keys", scope="admin", reach="deployment", answers={200: KeyList})
def show(ask: Ask) -> KeyList:
    """List the keys."""
    return KeyList(keys=[KeyInfo(**_shown(key)) for key in ask.services.store.access.all()])


@routes.post("/keys", scope="admin", reach="deployment", answers={201: NewKey}, idempotent=True)
def create(ask: Ask, body: KeyRequest) -> Answer:
    """Make a key.

    Its text is in this answer and nowhere else: a repetition with the same `Idempotency-Key` is
    answered without it.
    """
    key, text = ask.services.store.access.create(
        **dict(body),
        by=ask.actor,
        key_id=ask.idempotent_id().replace("-", "")[:12],
    )
    known = NewKey(**_shown(key))
    return Answer(known.patched({"key": text}), kept=known)


@routes.delete("/keys/<id>", scope="admin", reach="deployment", answers={200: Revoked})
def revoke(ask: Ask, id: str) -> Revoked:
    """Make a key useless at once."""
    if not ask.services.store.access.revoke(id, ask.actor):
        raise not_found(f"no key {id!r}")
    return Revoked(id=id)


def _shown(key: ApiKey) -> dict[str, Any]:
    return key.model_dump(exclude={"hash"})
