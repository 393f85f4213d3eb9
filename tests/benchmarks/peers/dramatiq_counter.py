"""The counter on Dramatiq.

A worker that finds no message sleeps for up to some seconds before it looks again: only work that
never ends says how fast it is.
"""

from __future__ import annotations

import json
import time
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.peers import job
from benchmarks.peers.peer import WorkerPeer

broker = RedisBroker(url=job.URL)
dramatiq.set_broker(broker)


@dramatiq.actor
def begin(count: int, seconds: float, key: str) -> None:
    """Send the observers."""
    for index in range(count):
        observe.send(index, count, seconds, key)


@dramatiq.actor
def observe(index: int, count: int, seconds: float, key: str) -> None:
    """See something; the last one lets the others go on."""
    time.sleep(seconds)
    broker.client.hset(f"{key}:seen", str(index), json.dumps(job.observe(index)))
    if broker.client.incr(f"{key}:count") == count:
        orient.send(key)


@dramatiq.actor
def orient(key: str) -> None:
    """Understand what was seen."""
    observations = [json.loads(text) for text in broker.client.hvals(f"{key}:seen")]
    broker.client.delete(f"{key}:seen", f"{key}:count")
    decide.send(job.orient(observations), key)


@dramatiq.actor
def decide(situation: dict[str, Any], key: str) -> None:
    """Choose."""
    act.send(job.decide(situation), key)


@dramatiq.actor
def act(decision: dict[str, Any], key: str) -> None:
    """Do it."""
    complete.send(job.act(decision), key)


@dramatiq.actor
def complete(results: list[Any], key: str) -> None:
    """Tell the one who waits."""
    broker.client.lpush(key, json.dumps(results))


class DramatiqCounter(WorkerPeer):
    """The counter with two processes of eight threads."""

    name = "Dramatiq counter"
    command = ("dramatiq", __name__, "--processes", "2", "--threads", "8")

    def begin(self, count: int, seconds: float, key: str) -> None:
        """Send the first message."""
        begin.send(count, seconds, key)


PEER = DramatiqCounter
