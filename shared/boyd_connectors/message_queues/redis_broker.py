"""Queues in a Redis of somebody else: lists, as Celery uses them, and streams.

This is the one plugin that may import redis-py: it talks to its user's server, never to Boyd's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from boyd.plugin import Context, Secret
from boyd_connectors.message_queues.message_queue import (
    ChangeLost,
    MessageQueue,
    QueueError,
    excerpt,
)

if TYPE_CHECKING:
    import redis

TIME = 5.0
#: Celery's lists for other priorities than the first.
_PRIORITIES = ("\x06\x163", "\x06\x166", "\x06\x169")
#: The name of the unacknowledged messages of Celery.
_CELERY = "(celery)"
#: Messages moved in one step.
_STEP = 100

Key = Annotated[str, Field(min_length=1, max_length=500)]


class RedisLogin(BaseModel):
    """A user of a Redis server and its password."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    username: str | None = None
    password: Secret | None = None


class RedisOptions(BaseModel):
    """A Redis server, and the queues to watch there.

    Attributes:
        host: its name or address.
        port: its port.
        db: the number of the database.
        tls: whether the connection is encrypted, and the server's certificate checked.
        ca_file: certificates of the authorities to trust, in place of the system's.
        lists: keys of lists that are read from the right, such as Celery's queues.
        streams: by key of a stream, its consumer group.
        celery: count the unacknowledged messages of Celery, of all queues together.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = "localhost"
    port: int = Field(default=6379, ge=1, le=65535)
    db: int = Field(default=0, ge=0)
    tls: bool = False
    ca_file: Path | None = None
    lists: list[Key] = Field(default_factory=list, max_length=1000)
    streams: dict[Key, Key] = Field(default_factory=dict, max_length=1000)
    celery: bool = False


class RedisBroker:
    """A Redis as *options* describe it, with the rights of *access*."""

    def __init__(self, options: RedisOptions, access: RedisLogin) -> None:
        self._options = options
        self._access = access

    def queues(self, ctx: Context) -> Sequence[MessageQueue]:
        """The lists and streams; Celery's unacknowledged messages are those of `(celery)`.

        One that cannot be read, such as a stream that is not there yet, is down.
        """
        options = self._options
        with self._connect() as client:
            looks = {name: partial(self._list, client, name) for name in options.lists}
            for name, group in options.streams.items():
                looks[name] = partial(self._stream, client, name, group)
            if options.celery:
                looks[_CELERY] = partial(_celery_queue, client)
            return [_readable(name, look) for name, look in looks.items()]

    def samples(self, queue: str, number: int, ctx: Context) -> list[str]:
        """The beginnings of the oldest messages, those of Celery's first priority first."""
        self._check(queue)
        with self._connect() as client, client.pipeline(transaction=False) as pipe:
            for name in _lists(queue):
                pipe.lrange(name, -number, -1)
            rows = [row for part in pipe.execute() for row in reversed(part)]
        return [excerpt(row) for row in rows[:number]]

    def check_purge(self, queue: str) -> None:
        """Refuse what is no list of the options."""
        self._check(queue)

    def check_requeue(self, queue: str, to: str | None, ctx: Context) -> None:
        """Refuse what is no list of the options, or the same one."""
        self._check(queue)
        if to is None or to == queue:
            raise QueueError("a list does not say where its messages came from: give `to`")
        self._check(to)

    def purge(self, queue: str, ctx: Context) -> int | None:
        """Delete a list, with Celery's lists for other priorities."""
        names = _lists(queue)
        with self._connect(changes=True) as client, client.pipeline(transaction=True) as pipe:
            for name in names:
                pipe.llen(name)
            pipe.delete(*names)
            *lengths, _ = pipe.execute()
        return int(sum(lengths))

    def requeue(self, queue: str, to: str | None, most: int, ctx: Context) -> int:
        """Move the oldest messages of a list to the new end of another one, each exactly once.

        Those of Celery's lists for other priorities keep their priority.
        """
        assert to is not None, "it was checked"
        moved = 0
        with self._connect(changes=True) as client:
            for source, target in zip(_lists(queue), _lists(to), strict=True):
                moved += _move(client, source, target, most - moved)
        return moved

    def _check(self, queue: str) -> None:
        if queue not in self._options.lists:
            raise QueueError(f"{queue} is not among the lists in the options")

    def _list(self, client: redis.Redis, name: str) -> MessageQueue:
        with client.pipeline(transaction=False) as pipe:
            for key in _lists(name):
                pipe.llen(key)
            for key in _lists(name):
                pipe.lindex(key, -1)
            replies = pipe.execute()
        half = len(replies) // 2
        oldest = next((message for message in replies[half:] if message), None)
        head = hashlib.sha256(oldest).hexdigest()[:16] if oldest else ""
        return MessageQueue(name=name, depth=int(sum(replies[:half])), head=head)

    def _stream(self, client: redis.Redis, name: str, group: str) -> MessageQueue:
        groups: Any = client.xinfo_groups(name)
        info = next((entry for entry in groups if entry["name"].decode() == group), None)
        if info is None:
            raise QueueError(f"the stream {name} has no group {group}")
        last = info["last-delivered-id"].decode()
        waiting: Any = client.xrange(name, f"({last}", "+", count=1)
        pending: Any = client.xpending(name, group)
        oldest = [item[0] for item in waiting] + [item for item in [pending["min"]] if item]
        now = _now(client)
        ages = [now - int(item.split(b"-")[0]) / 1000 for item in oldest]
        lag = info.get("lag")  # since Redis 7, and not when entries were deleted
        return MessageQueue(
            name=name,
            depth=int(lag) if lag is not None else _after(client, name, last),
            unacked=int(info["pending"]),
            consumers=int(info["consumers"]),
            age=max([*ages, 0.0]) if ages else None,
        )

    @contextmanager
    def _connect(self, changes: bool = False) -> Iterator[redis.Redis]:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        options, where = self._options, f"Redis at {self._options.host}:{self._options.port}"
        tls: Mapping[str, Any] = {"ssl_ca_certs": options.ca_file and str(options.ca_file)}
        client = redis.Redis(
            host=options.host,
            port=options.port,
            db=options.db,
            username=self._access.username,
            password=self._access.password.read() if self._access.password else None,
            ssl=options.tls,
            socket_timeout=TIME,
            socket_connect_timeout=TIME,
            # What was sent once is not sent again: it may have been done.
            retry=Retry(NoBackoff(), 0),
            client_name="boyd",
            **(tls if options.tls else {}),
        )
        try:
            client.ping()
        except redis.RedisError as error:
            client.close()
            raise QueueError(f"{where} cannot be used: {error}") from None
        try:
            yield client
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise (ChangeLost if changes else QueueError)(f"{where}: {error}") from None
        except redis.RedisError as error:
            raise QueueError(f"{where}: {error}") from None
        finally:
            client.close()


def _readable(name: str, look: Callable[[], MessageQueue]) -> MessageQueue:
    """The queue, or that it is down when the server refuses to tell of this one."""
    import redis

    try:
        return look()
    except (redis.ResponseError, QueueError) as error:
        return MessageQueue(name=name, depth=0, down=f"it cannot be read: {error}")


def _lists(queue: str) -> list[str]:
    return [queue, *(f"{queue}{suffix}" for suffix in _PRIORITIES)]


def _move(client: redis.Redis, source: str, target: str, most: int) -> int:
    """Move at most so many of the oldest messages; the number of those that were there."""
    moved = 0
    while moved < most:
        step = min(_STEP, most - moved)
        with client.pipeline(transaction=True) as pipe:
            for _ in range(step):
                pipe.lmove(source, target, "RIGHT", "LEFT")
            done = sum(reply is not None for reply in pipe.execute())
        moved += done
        if done < step:
            break
    return moved


def _celery_queue(client: redis.Redis) -> MessageQueue:
    number: Any = client.hlen("unacked")
    first: Any = client.zrange("unacked_index", 0, 0, withscores=True)
    age = max(0.0, _now(client) - first[0][1]) if first else None
    return MessageQueue(name=_CELERY, depth=0, unacked=int(number), age=age)


def _now(client: redis.Redis) -> float:
    seconds, microseconds = client.time()
    return float(seconds) + float(microseconds) / 1e6


def _after(client: redis.Redis, name: str, last: str) -> int:
    """The number of entries after one, counted up to a thousand."""
    rows: Any = client.xrange(name, f"({last}", "+", count=1000)
    return len(rows)
