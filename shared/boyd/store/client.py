"""The connection to Redis: time limits everywhere, no hidden retries, our own errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from boyd.errors import ConfigError, StoreError, StoreUnavailable

#: A `redis.Redis` with decoded replies, which its own annotations cannot say.
Client: TypeAlias = Any

#: Seconds to wait for an answer and for a connection.
TIMEOUT = 5.0
CONNECT_TIMEOUT = 2.0


def connect(url: str, *, timeout: float = TIMEOUT) -> Client:
    """A client for *url*; it connects when first used.

    redis-py repeats a command after a time-out unless told not to, which would run a script twice:
    here nothing is retried below the code that knows what a repetition means.

    Raises:
        ConfigError: *url* is not a Redis URL.
    """
    try:
        return redis.Redis.from_url(
            url,
            decode_responses=True,
            socket_timeout=timeout,
            socket_connect_timeout=min(CONNECT_TIMEOUT, timeout),
            socket_keepalive=True,
            retry=Retry(NoBackoff(), 0),
        )
    except ValueError as error:
        raise ConfigError(f"redis_url {masked(url)!r} cannot be used: {error}") from None


@contextmanager
def translated() -> Iterator[None]:
    """Turn the client's errors into ours.

    Raises:
        StoreUnavailable: Redis did not answer.
        StoreError: it answered with an error.
    """
    try:
        yield
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise StoreUnavailable(f"Redis does not answer: {error}") from error
    except redis.RedisError as error:
        raise StoreError(f"Redis refused: {error}") from error


def masked(url: str) -> str:
    """A URL without its password, for messages."""
    without = re.sub(r"(://[^:/@]*):[^@]*@", r"\1:***@", url)
    return re.sub(r"([?&]password=)[^&]*", r"\1***", without)


def pairs(flat: list[Any]) -> dict[str, str]:
    """The reply of HGETALL inside a script, as a mapping."""
    return dict(zip(flat[::2], flat[1::2], strict=True))
