"""The connection to Redis: time limits everywhere, no hidden retries, our own errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeAlias

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from boyd.errors import ConfigError, StoreError, StoreReadOnly, StoreUnavailable
from boyd.store.address import Address, masked
from boyd.store.sentinels import Pool, Sentinels, sentinel_options

#: A `redis.Redis` with decoded replies, which its own annotations cannot say.
Client: TypeAlias = Any

#: Seconds to wait for an answer and for a connection.
TIMEOUT = 5.0
CONNECT_TIMEOUT = 2.0
#: What a server says that takes no writes; where a script was refused, Redis 6.2 says it last.
_REFUSALS = re.compile(r"(?:^|-)(?:READONLY|NOREPLICAS|MASTERDOWN|UNBLOCKED)\b")
#: What it says when its memory or its disk is full, or its cluster is not whole.
_FULL = re.compile(r"(?:^|-)(?:OOM|MISCONF|CLUSTERDOWN)\b")


def connect(url: str, *, timeout: float = TIMEOUT) -> Client:
    """A client for *url*; it connects when first used.

    redis-py repeats a command after a time-out unless told not to, which would run a script twice:
    here nothing is retried below the code that knows what a repetition means.

    Raises:
        ConfigError: *url* is not a Redis URL.
    """
    limits = {
        "decode_responses": True,
        "socket_timeout": timeout,
        "socket_connect_timeout": min(CONNECT_TIMEOUT, timeout),
        "retry": Retry(NoBackoff(), 0),
    }
    try:
        address = Address.of(url)
        if "path" not in address.options:
            limits["socket_keepalive"] = True
        by_url = redis.Redis.from_url
        client = _through_sentinels(address, limits) if address.sentinels else by_url(url, **limits)
        pool = client.connection_pool
        pool.connection_class = _leaving(pool.connection_class)
        pool.connection_class(**pool.connection_kwargs)  # it would refuse an option when used
    except (ValueError, TypeError, redis.RedisError) as error:
        raise ConfigError(f"redis_url {masked(url)!r} cannot be used: {error}") from None
    return client


def _through_sentinels(address: Address, limits: dict[str, Any]) -> Client:
    """A client that asks the sentinels where the master is, whenever it has to connect."""
    sentinels = Sentinels(address.sentinels, sentinel_kwargs=sentinel_options(address))  # type: ignore[no-untyped-call]
    options = {**limits, **address.options, "ssl": address.tls}
    return sentinels.master_for(address.service, connection_pool_class=Pool, **options)  # type: ignore[no-untyped-call]


@contextmanager
def translated() -> Iterator[None]:
    """Turn the client's errors into ours.

    Raises:
        StoreUnavailable: Redis did not answer.
        StoreReadOnly: it takes no writes now.
        StoreError: it answered with an error.
    """
    try:
        yield
    except _Refused as error:
        raise StoreReadOnly(f"Redis takes no writes: {error}") from error
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise StoreUnavailable(f"Redis does not answer: {error}") from error
    except redis.RedisError as error:
        if _is_full(error):
            raise StoreReadOnly(f"Redis takes no writes: {error}") from error
        raise StoreError(f"Redis refused: {error}") from error


def pairs(flat: list[Any]) -> dict[str, str]:
    """The reply of HGETALL inside a script, as a mapping."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def whole(text: str | None) -> int | None:
    """The whole number that a stored text is; None when it is none, as after a slip of the hand."""
    try:
        return int(float(text)) if text else None
    except (ValueError, OverflowError):
        return None


class _Refused(redis.ConnectionError):
    """The server takes no writes, so the connection to it was dropped."""


def _refuses(error: Exception) -> bool:
    kinds = (redis.exceptions.ReadOnlyError, redis.exceptions.MasterDownError)
    return isinstance(error, kinds) or bool(_REFUSALS.search(str(error)))


def _is_full(error: redis.RedisError) -> bool:
    kinds = (redis.exceptions.OutOfMemoryError, redis.exceptions.ClusterDownError)
    return isinstance(error, kinds) or bool(_FULL.search(str(error)))


@cache
def _leaving(kind: type[Any]) -> type[Any]:
    """A class of connections that leave a server which takes no writes.

    It was the master once: the next call connects anew and may find another. redis-py knows only
    the refusal of a plain command, and only behind sentinels.
    """

    class Leaving(kind):  # type: ignore[misc]
        def read_response(self, *args: Any, **options: Any) -> Any:
            try:
                return super().read_response(*args, **options)
            except redis.ResponseError as error:
                if not _refuses(error):
                    raise
                self.disconnect()
                raise _Refused(str(error)) from error

    return Leaving


__all__ = ["Client", "connect", "masked", "pairs", "translated", "whole"]
