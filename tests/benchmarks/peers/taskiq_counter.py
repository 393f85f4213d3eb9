"""The counter on taskiq, with lists in Redis and tasks that wait without a thread."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from redis.asyncio import Redis
from taskiq_redis import ListQueueBroker

from benchmarks.peers import job
from benchmarks.peers.event_loop import run
from benchmarks.peers.peer import WorkerPeer

#: It waits for messages for as long as none comes, which a timeout would end.
broker = ListQueueBroker(job.URL, socket_timeout=None)
client: Any = Redis.from_url(job.URL)


@broker.task
async def begin(count: int, seconds: float, key: str) -> None:
    """Send the observers."""
    for index in range(count):
        await observe.kiq(index, count, seconds, key)


@broker.task
async def observe(index: int, count: int, seconds: float, key: str) -> None:
    """See something; the last one lets the others go on."""
    await asyncio.sleep(seconds)
    await client.hset(f"{key}:seen", str(index), json.dumps(job.observe(index)))
    if await client.incr(f"{key}:count") == count:
        await orient.kiq(key)


@broker.task
async def orient(key: str) -> None:
    """Understand what was seen."""
    observations = [json.loads(text) for text in await client.hvals(f"{key}:seen")]
    await client.delete(f"{key}:seen", f"{key}:count")
    await decide.kiq(job.orient(observations), key)


@broker.task
async def decide(situation: dict[str, Any], key: str) -> None:
    """Choose."""
    await act.kiq(job.decide(situation), key)


@broker.task
async def act(decision: dict[str, Any], key: str) -> None:
    """Do it."""
    await complete.kiq(job.act(decision), key)


@broker.task
async def complete(results: list[Any], key: str) -> None:
    """Tell the one who waits."""
    await client.lpush(key, json.dumps(results))


class TaskiqCounter(WorkerPeer):
    """The counter with two processes, as many as it starts by default."""

    name = "taskiq counter"
    command = ("taskiq", "worker", f"{__name__}:broker", "--log-level", "CRITICAL")

    def begin(self, count: int, seconds: float, key: str) -> None:
        """Send the first message."""
        run(begin.kiq(count, seconds, key))


PEER = TaskiqCounter
