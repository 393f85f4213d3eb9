"""A bare Celery chain with a chord, as its documentation has it.

It has Celery's defaults, and knows nothing of deadlines, epochs, history or recovery.
"""

from __future__ import annotations

from typing import Any

from celery import Celery, chain, chord

from benchmarks.peers import job
from benchmarks.peers.peer import WorkerPeer

app = Celery("canvas", broker=job.URL, backend=job.URL)
app.conf.update(
    task_default_queue="canvas",
    broker_connection_retry_on_startup=True,
    # Twenty callers share this app in one measure: without it each would open a backend of its own.
    result_backend_thread_safe=True,
)


@app.task
def start() -> int:
    """Begin."""
    return 1


@app.task
def observe(index: int) -> job.Seen:
    """See something."""
    return job.observe(index)


@app.task
def orient(seen: list[job.Seen]) -> dict[str, Any]:
    """Understand."""
    return job.orient(seen)


@app.task
def decide(situation: dict[str, Any]) -> dict[str, Any]:
    """Choose."""
    return job.decide(situation)


@app.task
def act(decision: dict[str, Any]) -> list[Any]:
    """Do it."""
    return job.act(decision)


@app.task
def complete(results: list[Any], key: str) -> None:
    """Tell the one who waits."""
    app.backend.client.lpush(key, str(results))


class Canvas(WorkerPeer):
    """The canvas with a worker of eight threads; its observers do not wait."""

    name = "bare chain with chord"
    command = (
        *("celery", "-q", "-A", __name__, "worker", "--pool", "threads", "-c", "8"),
        *("--without-gossip", "--without-mingle", "-l", "critical"),
    )

    def begin(self, count: int, seconds: float, key: str) -> None:
        """Send the whole canvas."""
        header = [observe.si(index) for index in range(count)]
        steps = (start.si(), chord(header, orient.s()), decide.s(), act.s(), complete.s(key))
        chain(*steps).apply_async()


PEER = Canvas
