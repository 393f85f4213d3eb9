"""`Idempotency-Key`: a request that comes again is answered as the first time, and done once (H3).

A request is taken before it is worked on, under a lease that is renewed meanwhile: if this process
dies, the request may soon be tried again.
What was refused or came to nothing is let go: it may be tried again, when things stand otherwise or
with another body. Kept is the answer to what was done (2xx).
"""

from __future__ import annotations

import hashlib
import logging
import re
import uuid
from collections.abc import Callable

from flask import Response, request

from boyd.errors import StoreError
from boyd.models import Actor
from boyd.runtime import Leases
from boyd.store import IdempotentAnswers, StoredAnswer
from boyd_api.problems import Problem, retry_after

log = logging.getLogger("boyd.api")

HEADER = "Idempotency-Key"
#: Seconds that a request may be worked on beyond the longest wait.
GRACE = 30.0
#: Seconds until a request is free again whose process has died.
LEASE = 5.0

#: What it may hold: printable characters of ASCII.
PATTERN = r"^[\x20-\x7e]+$"
_FORM = re.compile(r"[\x20-\x7e]{1,255}")
_KEPT_HEADERS = ("Content-Type", "Location", "ETag")


def shown_key() -> str | None:
    """The key of the request, if it carries one.

    Raises:
        Problem: it is empty, too long, or not plain text.
    """
    key = request.headers.get(HEADER)
    if key is not None and not _FORM.fullmatch(key):
        raise Problem("bad-request", f"{HEADER} must have 1 to 255 printable characters")
    return key


def derived_id(actor: Actor, key: str | None) -> str:
    """An id for what the request creates: the same one whenever it comes with the same key.

    Another body gives another id, for the same key may come with it after a refusal.
    """
    if key is None:
        return str(uuid.uuid4())
    name = "\n".join(("boyd", *_place(actor, key), _asked()))
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def once(
    answers: IdempotentAnswers,
    leases: Leases,
    actor: Actor,
    key: str,
    limit: float,
    work: Callable[[], tuple[Response, str]],
) -> Response:
    """The answer of *work*, or the one that the same request was given before.

    *work* gives the answer, and the body to keep of it, within *limit* seconds.

    Raises:
        Problem: another request carried the key, or the same one is being worked on.
    """
    digest = _digest(*_place(actor, key))
    taken = answers.take(digest, _asked(), LEASE)
    if taken.answer is not None:
        return _again(taken.answer)
    if taken.outcome == "mismatch":
        raise Problem("idempotency-mismatch", f"another request carried the {HEADER} {key!r}")
    if taken.outcome == "in flight":
        raise Problem("idempotency-in-flight", headers=retry_after(1))
    with leases.hold(lambda: answers.renew(digest, taken.token, LEASE), limit):
        answer, kept = work()
    try:
        if answer.status_code >= 300:
            answers.release(digest, taken.token)
        else:
            headers = {
                name: answer.headers[name] for name in _KEPT_HEADERS if name in answer.headers
            }
            answers.keep(digest, taken.token, StoredAnswer(answer.status_code, headers, kept))
    except StoreError as error:
        # It is done, and whoever asked is told so; a repetition finds the ids it was done under.
        log.warning("an answer could not be kept: %s", error)
    return answer


def _again(stored: StoredAnswer) -> Response:
    answer = Response(stored.body, stored.status)
    answer.headers.update(stored.headers)
    answer.headers["Idempotency-Replayed"] = "true"
    return answer


def _place(actor: Actor, key: str) -> tuple[str, str, str, str]:
    return actor.principal, request.method, request.path, key


def _asked() -> str:
    body = hashlib.sha256(request.get_data()).hexdigest()
    return _digest(request.query_string.decode("latin-1"), body)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
