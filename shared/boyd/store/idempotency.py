"""Answers to requests that carry an `Idempotency-Key`, for those that ask again (H3)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from boyd.store.connection import Client
from boyd.store.keys import DEPLOYMENT, Keys, answer
from boyd.store.scripts import Scripts
from boyd.store.timing import milliseconds

#: Seconds that an answer is kept.
KEPT = 86_400.0


@dataclass(frozen=True)
class StoredAnswer:
    """An answer as it was given the first time."""

    status: int
    headers: Mapping[str, str]
    body: str


@dataclass(frozen=True)
class ReservedAnswer:
    """What came of taking a request.

    `taken`: it is ours, under *token*. `stored`: here is its *answer*. `mismatch`: another request
    carried this key. `in flight`: somebody works on it, for at most *wait* more seconds.
    """

    outcome: Literal["taken", "stored", "mismatch", "in flight"]
    token: str = ""
    wait: float = 0.0
    answer: StoredAnswer | None = None


class IdempotentAnswers:
    """The answers of a deployment; *digest* names whose request it was, where, and its key."""

    def __init__(self, client: Client, scripts: Scripts) -> None:
        self._client = client
        self._scripts = scripts.of(Keys(DEPLOYMENT))

    def take(self, digest: str, request: str, lease: float) -> ReservedAnswer:
        """Take a request for *lease* seconds; *request* is the digest of what it asks for."""
        token = uuid.uuid4().hex
        outcome, *rest = self._scripts.run(
            "take_answer",
            answer=answer(digest),
            request=request,
            token=token,
            lease=milliseconds(lease),
        )
        if outcome == "taken":
            return ReservedAnswer("taken", token=token)
        if outcome == "in flight":
            return ReservedAnswer("in flight", wait=max(0, int(rest[0])) / 1000)
        if outcome == "stored":
            stored = StoredAnswer(int(rest[0]), json.loads(rest[1]), rest[2])
            return ReservedAnswer("stored", answer=stored)
        return ReservedAnswer("mismatch")

    def renew(self, digest: str, token: str, lease: float) -> bool:
        """Go on working on a request; False when it has passed to another."""
        renewed = self._scripts.run(
            "renew_answer", answer=answer(digest), token=token, lease=milliseconds(lease)
        )
        return bool(renewed)

    def keep(self, digest: str, token: str, given: StoredAnswer, kept: float = KEPT) -> bool:
        """Keep the answer for *kept* seconds; False when the request has passed to another."""
        stored = self._scripts.run(
            "store_answer",
            answer=answer(digest),
            token=token,
            status=given.status,
            headers=json.dumps(dict(given.headers)),
            body=given.body,
            ttl=milliseconds(kept),
        )
        return bool(stored)

    def release(self, digest: str, token: str) -> bool:
        """Forget a request that came to nothing; False when it has passed to another."""
        return bool(self._scripts.run("release_answer", answer=answer(digest), token=token))
