"""Refusals of a Redis server: of writes, as a replica or with a full memory, and of TLS."""

from __future__ import annotations

import re
import ssl
from functools import cache
from typing import Any

import redis

from boyd.errors import StoreTlsFailed

#: Errors of a server that takes no writes; Redis 6.2 puts them last when it refuses a script.
_REFUSALS = re.compile(r"(?:^|-)(?:READONLY|NOREPLICAS|MASTERDOWN|UNBLOCKED)\b")
#: Errors of a server whose memory or disk is full, or whose cluster is incomplete.
_FULL = re.compile(r"(?:^|-)(?:OOM|MISCONF|CLUSTERDOWN)\b")
#: Errors of a server that is giving some of the keys of a command to another one.
_MOVING = re.compile(r"(?:^|-)TRYAGAIN\b|non local key in a cluster node")


class WritesRefused(redis.ConnectionError):
    """The server takes no writes, and its connection was closed."""


def is_full(error: redis.RedisError) -> bool:
    """Check whether the server takes no writes for lack of memory, disk or other servers."""
    kinds = (redis.exceptions.OutOfMemoryError, redis.exceptions.ClusterDownError)
    return isinstance(error, kinds) or bool(_FULL.search(str(error)))


def is_moving(error: redis.RedisError) -> bool:
    """Check whether keys of the command are on their way to another server."""
    kinds = (redis.exceptions.TryAgainError, redis.exceptions.AskError)
    return isinstance(error, kinds) or bool(_MOVING.search(str(error)))


def tls_failure(error: BaseException | None) -> StoreTlsFailed | None:
    """The error to report if *error* was caused by one of TLS; else None."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = "check ssl_ca_certs and the host in BOYD_REDIS_URL, or renew its certificate"
        return StoreTlsFailed(f"its certificate is refused: {error.verify_message}", advice)
    if error is None:
        return None
    # A server that refuses the client's certificate may hang up without a reason.
    advice = "check ssl_certfile and ssl_keyfile in BOYD_REDIS_URL; the log of Redis may say more"
    return StoreTlsFailed(error.strerror or str(error), advice)


@cache
def leaving(kind: type[Any]) -> type[Any]:
    """A connection class that disconnects from a server which takes no writes.

    Such a server was probably the master once, and the next call may reach the new one. redis-py
    does this only for plain commands behind sentinels.
    """

    class Leaving(kind):  # type: ignore[misc]
        def read_response(self, *args: Any, **options: Any) -> Any:
            try:
                return super().read_response(*args, **options)
            except redis.ResponseError as error:
                if not _refuses(error):
                    raise
                self.disconnect()
                raise WritesRefused(str(error)) from error

    return Leaving


def _refuses(error: Exception) -> bool:
    kinds = (redis.exceptions.ReadOnlyError, redis.exceptions.MasterDownError)
    return isinstance(error, kinds) or bool(_REFUSALS.search(str(error)))
