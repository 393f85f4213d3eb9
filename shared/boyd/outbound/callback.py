"""Callbacks: one signed POST, and what became of it."""

from __future__ import annotations

import os
import random
import ssl
import threading
import time
from collections.abc import Sequence
from datetime import datetime

import requests
from requests_hardened.ip_filter import InvalidIPAddress
from standardwebhooks import Webhook

from boyd.models import Delivery
from boyd.outbound.guarded_session import GuardedSession, check_url

#: Seconds from a failed attempt to the next: nine attempts in somewhat less than eight hours.
DELAYS = (5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0)
#: How far a delay may be off, so that what failed together is not sent again together.
JITTER = 0.1
#: What is read of an answer, so that its sender sees it taken; nobody looks at it.
MAX_ANSWER = 4096
MAX_ERROR = 300


def retry_delay(failures: int) -> float | None:
    """Seconds to wait after the *failures*-th failed attempt; None when there is no other one."""
    if not 1 <= failures <= len(DELAYS):
        return None
    return DELAYS[failures - 1] * random.uniform(1 - JITTER, 1 + JITTER)


def post_callback(
    url: str,
    body: bytes,
    *,
    webhook_id: str,
    at: datetime,
    secrets: Sequence[str],
    allow_private: bool,
    timeout: float,
) -> Delivery:
    """Send *body* once, as Standard Webhooks has it; whatever happens is told and not raised (R5).

    Redirects are not followed and count as failures: a receiver that moved has to be named anew.

    Args:
        url: where to.
        body: JSON in UTF-8.
        webhook_id: the same for every attempt, so that the receiver can tell them apart.
        at: the time, which is signed; receivers refuse what is minutes off.
        secrets: `whsec_…`, one signature each; none: it is not signed.
        allow_private: whether addresses that are not public are allowed.
        timeout: seconds for everything, from resolving the name to the answer.
    """
    start = time.monotonic()
    status, error = _attempt(url, body, webhook_id, secrets, at, allow_private, timeout)
    ok = status is not None and 200 <= status < 300
    return Delivery(
        at=at,
        ok=ok,
        status=status,
        error=None if ok else _one_line(error or f"the answer was {status}{_hint(status)}"),
        duration=round(1000 * (time.monotonic() - start), 1),
    )


def _attempt(
    url: str,
    body: bytes,
    webhook_id: str,
    secrets: Sequence[str],
    at: datetime,
    allow_private: bool,
    timeout: float,
) -> tuple[int | None, str | None]:
    refused = check_url(url, allow_private=allow_private)
    if refused:
        return None, f"the URL is refused: {refused}"
    try:
        headers = _headers(body, webhook_id, secrets, at)
    except Exception as error:  # noqa: BLE001 - a secret or a body that cannot be signed
        return None, f"it cannot be signed: {type(error).__name__}"
    exchange = _Exchange(url, body, headers, allow_private=allow_private, timeout=timeout)
    return exchange.result()


def _headers(body: bytes, webhook_id: str, secrets: Sequence[str], at: datetime) -> dict[str, str]:
    headers = {
        "Content-Type": "application/json",
        "Accept-Encoding": "identity",
        "webhook-id": webhook_id,
        "webhook-timestamp": str(int(at.timestamp())),
    }
    if secrets:
        text = body.decode("utf-8")
        signatures = [Webhook(secret).sign(webhook_id, at, text) for secret in secrets]
        headers["webhook-signature"] = " ".join(signatures)
    return headers


class _Exchange:
    """A request and its answer in a thread of their own, which can be given up.

    Looking up a name cannot be interrupted; then the thread ends when the resolver gives up.
    """

    def __init__(
        self, url: str, body: bytes, headers: dict[str, str], *, allow_private: bool, timeout: float
    ) -> None:
        self._url = url
        self._body = body
        self._headers = headers
        self._timeout = timeout
        self._session = GuardedSession(allow_private=allow_private, timeout=timeout)
        self._status: int | None = None
        self._error: str | None = None

    def result(self) -> tuple[int | None, str | None]:
        """The answer's status, and why there is none."""
        thread = threading.Thread(target=self._run, name="boyd-callback", daemon=True)
        thread.start()
        thread.join(self._timeout)
        if thread.is_alive():
            self._session.line.cut()
            return self._status, f"no answer within {self._timeout:g} s"
        return self._status, self._error

    def _run(self) -> None:
        try:
            self._send()
        except Exception as error:  # noqa: BLE001 - a failure is a result
            self._error = _said(error)
        finally:
            self._session.close()

    def _send(self) -> None:
        # Without the environment requests would not know the operator's own authorities either.
        trusted = os.environ.get("REQUESTS_CA_BUNDLE") or True
        with self._session.post(
            self._url, data=self._body, headers=self._headers, stream=True, verify=trusted
        ) as response:
            self._status = response.status_code
            response.raw.read(MAX_ANSWER, decode_content=False)


def _said(error: Exception) -> str:
    """What went wrong, without addresses that a client could not have known."""
    if isinstance(error, InvalidIPAddress):
        return "the host's address is not public"
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    root = _root(error)
    if isinstance(root, ssl.SSLError):
        return f"TLS: {root.strerror or root}"
    if isinstance(error, requests.ConnectionError) and isinstance(root, OSError):
        return f"no connection: {root.strerror or root}"
    return f"{type(root).__name__}: {root}"


def _root(error: BaseException) -> BaseException:
    """The error that all the others are about."""
    while True:
        inside = [getattr(error, "reason", None), *error.args[::-1], error.__cause__]
        found = next((one for one in inside if isinstance(one, BaseException)), None)
        if found is None:
            return error
        error = found


def _hint(status: int | None) -> str:
    return ", and redirects are not followed" if status and 300 <= status < 400 else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())[:MAX_ERROR]
