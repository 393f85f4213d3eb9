"""Delivery of callbacks: one signed POST request."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from boyd.models import Delivery

#: Seconds between attempts: nine attempts in a little less than eight hours.
DELAYS = (5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0)
#: Relative jitter of the delays, so that simultaneous failures are not retried simultaneously.
JITTER = 0.1
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
        from boyd.outbound.callback_request import CallbackRequest, sign
        from boyd.outbound.public_addresses import check_url

        refused = check_url(url, allow_private=self.allow_private)
        if refused:
            return None, f"the URL is refused: {refused}"
        try:
            headers = sign(body, webhook_id, self.secrets, at)
        except Exception as error:  # noqa: BLE001 - a secret or a body that cannot be signed
            return None, f"it cannot be signed: {type(error).__name__}"
        exchange = CallbackRequest(
            url, body, headers, allow_private=self.allow_private, timeout=self.timeout
        )
        return exchange.result()


def _hint(status: int | None) -> str:
    return ", and redirects are not followed" if status and 300 <= status < 400 else ""


def _single_line(text: str) -> str:
    return " ".join(text.split())[:MAX_ERROR]
