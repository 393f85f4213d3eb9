"""One signed POST request, in a thread that can be abandoned.

Imported with the first callback: the HTTP client takes more memory than the rest of the module.
"""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Sequence
from datetime import datetime

import requests
from requests_hardened.ip_filter import InvalidIPAddress
from standardwebhooks import Webhook

from boyd.errors import causes
from boyd.outbound.guarded_session import GuardedSession

#: Bytes of a response that are read and discarded, so that the receiver can send it.
MAX_ANSWER = 4096


def sign(body: bytes, webhook_id: str, secrets: Sequence[str], at: datetime) -> dict[str, str]:
    """The headers of a callback, with a signature by each secret."""
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


class CallbackRequest:
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
    """Describe a failed request without IP addresses, which tell clients about the network."""
    if isinstance(error, InvalidIPAddress):
        return "the host's address is not public"
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    *_, root = causes(error)
    if isinstance(root, ssl.SSLError):
        return f"TLS: {root.strerror or root}"
    if isinstance(error, requests.ConnectionError) and isinstance(root, OSError):
        return f"no connection: {root.strerror or root}"
    return f"{type(root).__name__}: {root}"
