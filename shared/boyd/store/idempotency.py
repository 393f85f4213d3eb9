"""Answers to requests with an `Idempotency-Key`, kept for repetitions of the request."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from boyd.store.keys import DEPLOYMENT, Keys, answer
from boyd.store.server.connection import Client
from boyd.store.server.scripts import Scripts, milliseconds

#: Seconds to keep an answer.
KEPT = 86_400.0


@dataclass(frozen=True)
class StoredAnswer:
    """The first answer to a request."""

    status: int
    headers: Mapping[str, str]
    body: str


@dataclass(frozen=True)
class ReservedAnswer:
    """The result of reserving the answer to a request.

    `reserved`: the caller holds it under `token`. `stored`: it was answered before, with `answer`.
    `mismatch`: a different request used this key. `in flight`: another process works on it, for at
    most `wait` more seconds.
    """

    outcome: Literal["reserved", "stored", "mismatch", "in flight"]
    token: str = ""
    wait: float = 0.0
    answer: StoredAnswer | None = None


class IdempotentAnswers:
    """The answers of a deployment; a *digest* covers the requester, the path and the key."""

    def __init__(self, client: Client, scripts: Scripts) -> None:
        self._client = client
        self._scripts = scripts.of(Keys(DEPLOYMENT))

    def reserve(self, digest: str, request: str, lease: float) -> ReservedAnswer:
        """Reserve the answer for *lease* seconds; *request* is the digest of its content."""
        token = uuid.uuid4().hex
        outcome, *rest = self._scripts.run(
            "reserve_answer",
            answer=answer(digest),
            request=request,
            token=token,
            lease=milliseconds(lease),
        )
        if outcome == "reserved":
            return ReservedAnswer("reserved", token=token)
        if outcome == "in flight":
            return ReservedAnswer("in flight", wait=max(0, int(rest[0])) / 1000)
        if outcome == "stored":
            stored = StoredAnswer(int(rest[0]), json.loads(rest[1]), rest[2])
            return ReservedAnswer("stored", answer=stored)
        return ReservedAnswer("mismatch")

    def renew(self, digest: str, token: str, lease: float) -> bool:
        """Renew the lease of a request; False when it is lost."""
        renewed = self._scripts.run(
            "renew_answer", answer=answer(digest), token=token, lease=milliseconds(lease)
        )
        return bool(renewed)

    def keep(self, digest: str, token: str, response: StoredAnswer, seconds: float = KEPT) -> bool:
        """Store the answer for so many *seconds*; False when the lease is lost."""
        stored = self._scripts.run(
            "store_answer",
            answer=answer(digest),
            token=token,
            status=response.status,
            headers=json.dumps(dict(response.headers)),
            body=response.body,
            ttl=milliseconds(seconds),
        )
        return bool(stored)

    def release(self, digest: str, token: str) -> bool:
        """Forget a request without an answer; False when the lease is lost."""
        return bool(self._scripts.run("release_answer", answer=answer(digest), token=token))
