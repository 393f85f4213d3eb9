"""Refusals of a Redis server: of writes, as a replica or with a full memory, of TLS, of us."""

from __future__ import annotations

import re
import ssl
from functools import cache
from typing import Any

import redis

from boyd.errors import StoreConnectionFailed, StoreUnavailable

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


def outage(error: redis.RedisError) -> StoreUnavailable:
    """The error to report when *error* has prevented or ended a connection."""
    if isinstance(error, redis.InvalidResponse):
        advice = "check its host and port in BOYD_REDIS_URL"
        return StoreConnectionFailed("another program answers instead of Redis", advice)
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if re.search("closed by server|reset by peer|EOF occurred", str(error)):
        advice = "check its port, rediss:// and ssl_certfile in BOYD_REDIS_URL, and its log"
        return StoreConnectionFailed("Redis hangs up", advice)
    if cause is None:
        return StoreUnavailable(f"Redis does not answer: {error}")
    if isinstance(cause, ssl.SSLCertVerificationError):
        reason = f"its certificate is refused: {cause.verify_message}"
        advice = "check ssl_ca_certs and the host in BOYD_REDIS_URL, or renew its certificate"
    else:
        reason = cause.strerror or str(cause)
        advice = "check its port, ssl_certfile and ssl_keyfile in BOYD_REDIS_URL, and its log"
    return StoreConnectionFailed(f"no TLS connection to Redis: {reason}", advice)


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
