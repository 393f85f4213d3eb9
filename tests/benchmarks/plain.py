"""What Boyd is compared with: a bare Celery chain with a chord of the same shape, and a counter.

Five steps, the second of which is a chord of trivial observers. It has Celery's defaults, keeps no
state, and knows nothing of deadlines, epochs, history or recovery. The counter does the same in the
quickest way that is written by hand: observers count themselves in Redis, and the last goes on.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from celery import Celery, chain, chord

URL = os.environ["PLAIN_URL"]

app = Celery("plain", broker=URL, backend=URL)
app.conf.update(
    task_default_queue="plain",
    broker_connection_retry_on_startup=True,
    # Twenty callers share this app in one measure: without it each would open a backend of its own.
    result_backend_thread_safe=True,
)


@app.task
def start() -> int:
    """Begin."""
    return 1


@app.task
def observe(index: int) -> list[dict[str, Any]]:
    """See something."""
    return [{"source": f"o{index}", "type": "metric", "data": {"value": 1}}]


@app.task
def orient(seen: Any) -> dict[str, Any]:
    """Understand."""
    return {"summary": f"{len(seen)} observations"}


@app.task
def decide(situation: Any) -> dict[str, Any]:
    """Choose."""
    return {"action": "no-op", "situation": situation}


@app.task
def act(decision: Any) -> list[Any]:
    """Do nothing."""
    return []


@app.task
def complete(results: Any, key: str) -> None:
    """Tell the one who waits."""
    app.backend.client.lpush(key, "done")


def iteration(count: int, key: str) -> Any:
    """The canvas of one iteration."""
    header = [observe.si(index) for index in range(count)]
    return chain(start.si(), chord(header, orient.s()), decide.s(), act.s(), complete.s(key))


@app.task(ignore_result=True)
def begin_counted(count: int, seconds: float, key: str) -> None:
    """Send the observers."""
    for index in range(count):
        observe_counted.delay(index, count, seconds, key)


@app.task(ignore_result=True)
def observe_counted(index: int, count: int, seconds: float, key: str) -> None:
    """See something; the last one lets the others go on."""
    time.sleep(seconds)
    client = app.backend.client
    client.hset(f"{key}:seen", str(index), json.dumps(observe(index)))
    if client.incr(f"{key}:count") == count:
        orient_counted.delay(key)


@app.task(ignore_result=True)
def orient_counted(key: str) -> None:
    """Understand what was seen."""
    client = app.backend.client
    seen = [json.loads(text) for text in client.hvals(f"{key}:seen")]
    client.delete(f"{key}:seen", f"{key}:count")
    decide_counted.delay(orient(seen), key)


@app.task(ignore_result=True)
def decide_counted(situation: dict[str, Any], key: str) -> None:
    """Choose."""
    act_counted.delay(decide(situation), key)


@app.task(ignore_result=True)
def act_counted(decision: dict[str, Any], key: str) -> None:
    """Do it."""
    complete_counted.delay(act(decision), key)


@app.task(ignore_result=True)
def complete_counted(results: Any, key: str) -> None:
    """Tell the one who waits."""
    complete(results, key)
