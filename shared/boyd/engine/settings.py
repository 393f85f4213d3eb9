"""How a worker takes its steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from boyd.outbound import Delivery, post_callback

#: Sends a callback: URL, body, an id that stays the same when it is repeated, and the time.
Post = Callable[[str, bytes, str, datetime], Delivery]


def post_unsigned(url: str, body: bytes, webhook_id: str, at: datetime) -> Delivery:
    """Send a callback without a signature, to public addresses only."""
    return post_callback(
        url, body, webhook_id=webhook_id, at=at, secrets=(), allow_private=False, timeout=10.0
    )


@dataclass(frozen=True)
class EngineSettings:
    """How a worker takes its steps.

    Attributes:
        worker: names this process in leases and claims.
        host: the name of the host that it runs on.
        bundle_size: how many observers travel in one message.
        width: how many observers of a bundle run at the same time.
        max_bytes: the most JSON that one observer may return.
        phase_limit: seconds after which a control phase that hangs loses its lease.
        post: sends the callbacks of runs.
        thinking: how many threads may wait for a model at the same time.
    """

    worker: str
    host: str
    bundle_size: int = 32
    width: int = 64
    max_bytes: int = 1_000_000
    phase_limit: float = 120.0
    post: Post = post_unsigned
    thinking: int = 4
