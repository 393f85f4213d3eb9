"""Delivery of callbacks: one signed POST request."""

from __future__ import annotations

import os
import random
import ssl
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import requests
from requests_hardened.ip_filter import InvalidIPAddress
from standardwebhooks import Webhook

from boyd.models import Delivery
from boyd.outbound.guarded_session import GuardedSession, check_url

#: Seconds between attempts: nine attempts in a little less than eight hours.
DELAYS = (5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0)
#: Relative jitter of the delays, so that simultaneous failures are not retried simultaneously.
JITTER = 0.1
#: Bytes of a response that are read and discarded, so that the receiver can send it.
MAX_ANSWER = 4096
MAX_ERROR = 300


def retry_delay(failures: int) -> float | None:
    """Seconds to wait after the *failures*-th failed attempt; None after the last one."""
    if not 1 <= failures <= len(DELAYS):
        return None
    return DELAYS[failures - 1] * random.uniform(1 - JITTER, 1 + JITTER)


@dataclass(frozen=True)
class CallbackSender:
    """Sends callbacks by the Standard Webhooks protocol.

    Attributes:
        secrets: `whsec_…`, one signature each; without any, requests are not signed.
        allow_private: allow addresses that are not public.
        timeout: seconds in total, including name resolution.
    """

    secrets: Sequence[str] = field(default=(), repr=False)
    allow_private: bool = False
    timeout: float = 10.0

    def post(self, url: str, body: bytes, webhook_id: str, at: datetime) -> Delivery:
        """Send *body* (JSON) once; failures are results, not errors, and redirects are failures.

        *webhook_id* identifies the message, and is the same for every attempt; *at* is signed.
        """
        start = time.monotonic()
        status, error = self._attempt(url, body, webhook_id, at)
        ok = status is not None and 200 <= status < 300
        return Delivery(
            at=at,
            ok=ok,
            status=status,
            error=None if ok else _single_line(error or f"the answer was {status}{_hint(status)}"),
            duration=round(1000 * (time.monotonic() - start), 1),
        )

    def _attempt(
        self, url: str, body: bytes, webhook_id: str, at: datetime
    ) -> tuple[int | None, str | None]:
        refused = check_url(url, allow_private=self.allow_private)
        if refused:
            return None, f"the URL is refused: {refused}"
        try:
            headers = _headers(body, webhook_id, self.secrets, at)
        except Exception as error:  # noqa: BLE001 - a secret or a body that cannot be signed
            return None, f"it cannot be signed: {type(error).__name__}"
        exchange = _Exchange(
            url, body, headers, allow_private=self.allow_private, timeout=self.timeout
        )
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
    """A request in a thread that can be abandoned.

    A name lookup cannot be interrupted; the thread then ends when the resolver gives up.
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
        """The HTTP status, or the error."""
        thread = threading.Thread(target=self._run, name="boyd-callback", daemon=True)
        thread.start()
        thread.join(self._timeout)
        if thread.is_alive():
            # Read first: to the thread, a cut in the middle of the headers looks like their end.
            status = self._status
            self._session.line.cut()
            return status, f"no answer within {self._timeout:g} s"
        return self._status, self._error

    def _run(self) -> None:
        try:
            self._send()
        except Exception as error:  # noqa: BLE001 - a failure is a result
            self._error = _describe(error)
        finally:
            self._session.close()

    def _send(self) -> None:
        # The session ignores the environment, but the operator's own CA bundle must still count.
        trusted = os.environ.get("REQUESTS_CA_BUNDLE") or True
        with self._session.post(
            self._url, data=self._body, headers=self._headers, stream=True, verify=trusted
        ) as response:
            self._status = response.status_code
            response.raw.read(MAX_ANSWER, decode_content=False)


def _describe(error: Exception) -> str:
    """The error, without addresses that the client could not know."""
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
    """The original cause."""
    while True:
        inside = [getattr(error, "reason", None), *error.args[::-1], error.__cause__]
        cause = next((item for item in inside if isinstance(item, BaseException)), None)
        if cause is None:
            return error
        error = cause


def _hint(status: int | None) -> str:
    return ", and redirects are not followed" if status and 300 <= status < 400 else ""


def _single_line(text: str) -> str:
    return " ".join(text.split())[:MAX_ERROR]
