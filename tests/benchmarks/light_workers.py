"""Workers of the queue `host` by the hundred in one process, which the rest takes for real.

Heartbeats, turns, connections, queues and steps are those of `boyd worker -Q host`. Missing are
Celery's worker and its pool: each has a thread that takes one message after the other.
"""

from __future__ import annotations

import contextlib
import resource
import signal
import sys
import threading
from typing import Any

from kombu import Exchange, Queue

from boyd.messaging.celery_app import TASKS
from boyd.runtime import IterationSteps
from boyd.settings.logs import setup_logging
from boyd.settings.process_settings import Settings, load_settings
from boyd.text import queues
from boyd_worker.agent_host import AgentHost
from boyd_worker.maintenance import Maintenance

#: Bytes of the stack of a thread; there are three or four for each worker.
STACK = 512 * 1024
#: Hosts have processors of their own; here batches that run at once only wait for each other.
_PROCESSOR = threading.Lock()


class LightWorker:
    """A worker on a host of its own, with one agent."""

    def __init__(self, settings: Settings, number: int) -> None:
        host = settings.worker.model_copy(update={"host": f"host{number}.example.org"})
        self._host = AgentHost(settings.model_copy(update={"worker": host}), "worker", ["host"])
        [(self._agent_id, engine)] = self._host.engines.items()
        self._steps = IterationSteps(engine)
        self._maintenance = Maintenance(self._host)

    def start(self) -> None:
        """Announce it, and take messages from now on."""
        self._host.prepare()
        threading.Thread(target=self._consume, daemon=True).start()
        self._maintenance.start()

    def _consume(self) -> None:
        name = queues.full_name(self._host.queues[0], self._agent_id)
        queue = Queue(name, Exchange(""), routing_key=name)
        with self._host.app.connection_for_read() as connection:
            consumer = connection.Consumer([queue], callbacks=[self._observe], no_ack=True)
            with consumer:
                while True:
                    with contextlib.suppress(TimeoutError):
                        connection.drain_events(timeout=60)

    def _observe(self, body: Any, message: Any) -> None:
        assert message.headers["task"] == TASKS["observe"]
        [_, *ids], *_ = body
        with _PROCESSOR:
            self._steps.run("observe", *ids)


def main(agent: str, first: int, count: int) -> None:
    """Run so many workers until SIGTERM; say when they are ready."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    threading.stack_size(STACK)
    settings = load_settings({"agents": [agent]})
    setup_logging("warning", settings.log_format)
    for number in range(first, first + count):
        LightWorker(settings, number).start()
    print("ready", flush=True)
    signal.pause()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
