"""Idempotency keys: a repeated request is executed once, and answered as the first time.

A request is claimed before it is executed, under a lease that is renewed meanwhile: if this process
dies, the request can soon be retried. Only successful responses (2xx) are kept; a refused or failed
request is released, so that it can be retried later or with another body.
"""

from __future__ import annotations

import hashlib
import logging
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from flask import Response, g, request

from boyd.errors import StoreError
from boyd.models import Actor
from boyd.runtime import Leases
from boyd.store import IdempotentAnswers, StoredAnswer
from boyd_api.http.problems import HttpProblem, retry_after

log = logging.getLogger("boyd.api")

HEADER = "Idempotency-Key"
#: Seconds that a request may take beyond the longest wait.
GRACE = 30.0
#: Seconds until a request can be retried whose process has died.
LEASE = 5.0

#: Bytes that Redis keeps for an answer; what a longer one has beyond these is counted by itself.
ANSWER_BYTES = 2048

#: Printable ASCII characters.
PATTERN = r"^[\x20-\x7e]+$"
_FORM = re.compile(r"[\x20-\x7e]{1,255}")
_KEPT_HEADERS = ("Content-Type", "Location", "ETag")


def read_key() -> str | None:
    """The key of the request, if it has one; raises `HttpProblem` if it is invalid."""
    key = request.headers.get(HEADER)
    if key is not None and not _FORM.fullmatch(key):
        raise HttpProblem("bad-request", f"{HEADER} must have 1 to 255 printable characters")
    return key


def derive_id(actor: Actor, key: str | None) -> str:
    """An id for the object that the request creates: the same for the same key and body.

    Another body gives another id, because it may come with the same key after a refusal.
    """
    if key is None:
        return str(uuid.uuid4())
    name = "\n".join(("boyd", *_place(actor, key), _content_digest()))
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


@dataclass(frozen=True)
class KeyedRequest:
    """A request with an idempotency key.

    Attributes:
        limit: seconds within which it ends.
        reserved: bytes of storage that its response may use.
        take_storage: reserves more bytes, or raises `HttpProblem`.
    """

    actor: Actor
    key: str
    limit: float
    reserved: int
    take_storage: Callable[[int], None]


def once(
    answers: IdempotentAnswers,
    leases: Leases,
    keyed: KeyedRequest,
    work: Callable[[], tuple[Response, str]],
) -> Response:
    """Execute *work*, or return the response that the same request had before.

    *work* returns the response and the body to keep, for which there may be no room. Raises
    `HttpProblem` if another request had the key, or the same one is being executed.
    """
    digest = _digest(*_place(keyed.actor, keyed.key))
    claim = answers.reserve(digest, _content_digest(), LEASE)
    if claim.answer is not None:
        headers = {**claim.answer.headers, "Idempotency-Replayed": "true"}
        return Response(claim.answer.body, claim.answer.status, headers)
    if claim.outcome == "mismatch":
        detail = f"the {HEADER} {keyed.key!r} belongs to another request"
        raise HttpProblem("idempotency-mismatch", detail)
    if claim.outcome == "in flight":
        raise HttpProblem("idempotency-in-flight", headers=retry_after(1))
    with leases.renewing(lambda: answers.renew(digest, claim.token, LEASE), keyed.limit):
        response, body = work()
    status, sent = response.status_code, response.headers
    try:
        if status >= 300 or g.get("refused") or not _has_room(body, keyed):
            answers.release(digest, claim.token)
        else:
            headers = {name: sent[name] for name in _KEPT_HEADERS if name in sent}
            answers.keep(digest, claim.token, StoredAnswer(status, headers, body))
    except StoreError as error:
        # The work is done, and the client hears so; a repetition creates objects of the same ids.
        log.warning("a response could not be stored: %s", error)
    return response


def _has_room(body: str, keyed: KeyedRequest) -> bool:
    """Reserve what a response needs beyond the bytes reserved; False if there is no room."""
    size = len(body.encode())
    try:
        if size > keyed.reserved:
            keyed.take_storage(size - keyed.reserved)
    except HttpProblem as error:
        log.warning("a response is not kept for a repetition: %s", error)
        return False
    return True


def _place(actor: Actor, key: str) -> tuple[str, str, str, str]:
    return actor.principal, request.method, request.path, key


def _content_digest() -> str:
    body = hashlib.sha256(request.get_data()).hexdigest()
    return _digest(request.query_string.decode("latin-1"), body)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
