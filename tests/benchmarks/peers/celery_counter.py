"""The counter on bare Celery, with its defaults."""

from __future__ import annotations

import json
import time
from typing import Any

from celery import Celery

from benchmarks.peers import job
from benchmarks.peers.peer import WorkerPeer

app = Celery("counter", broker=job.URL, backend=job.URL)
app.conf.update(
    task_default_queue="counter",
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    # Twenty callers share this app in one measure: without it each would open a backend of its own.
    result_backend_thread_safe=True,
)


@app.task
def begin(count: int, seconds: float, key: str) -> None:
    """Send the observers."""
    for index in range(count):
        observe.delay(index, count, seconds, key)


@app.task
def observe(index: int, count: int, seconds: float, key: str) -> None:
    """See something; the last one lets the others go on."""
    time.sleep(seconds)
    client = app.backend.client
    client.hset(f"{key}:seen", str(index), json.dumps(job.observe(index)))
    if client.incr(f"{key}:count") == count:
        orient.delay(key)


@app.task
def orient(key: str) -> None:
    """Understand what was seen."""
    client = app.backend.client
    observations = [json.loads(text) for text in client.hvals(f"{key}:seen")]
    client.delete(f"{key}:seen", f"{key}:count")
    decide.delay(job.orient(observations), key)


@app.task
def decide(situation: dict[str, Any], key: str) -> None:
    """Choose."""
    act.delay(job.decide(situation), key)


@app.task
def act(decision: dict[str, Any], key: str) -> None:
    """Do it."""
    complete.delay(job.act(decision), key)


@app.task
def complete(results: list[Any], key: str) -> None:
    """Tell the one who waits."""
    app.backend.client.lpush(key, json.dumps(results))


class CeleryCounter(WorkerPeer):
    """The counter with a worker of eight threads."""

    name = "bare Celery counter"
    command = (
        *("celery", "-q", "-A", __name__, "worker", "--pool", "threads", "-c", "8"),
        *("--without-gossip", "--without-mingle", "-l", "critical"),
    )

    def begin(self, count: int, seconds: float, key: str) -> None:
        """Send the first message."""
        begin.delay(count, seconds, key)


PEER = CeleryCounter
