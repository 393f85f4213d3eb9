"""What Boyd is compared with: a bare Celery chain with a chord of the same shape.

Five steps, the second of which is a chord of trivial observers. It has Celery's defaults, keeps no
state, and knows nothing of deadlines, epochs, history or recovery.
"""

from __future__ import annotations

import os
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
