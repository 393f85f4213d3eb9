"""Sends hints from a thread of its own, so that no request waits for the broker."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence

from boyd.models import Phase
from boyd.runtime import BatchHint, Dispatcher

log = logging.getLogger("boyd.api")

#: How many hints may wait. More are dropped: the sweeper sends what did not arrive.
WAITING = 1000


class BackgroundDispatcher:
    """Carries hints with another dispatcher, which may block; implements `engine.Dispatcher`."""

    def __init__(self, make: Callable[[], Dispatcher]) -> None:
        """Make the other dispatcher with *make*, in the thread, when the first hint is sent."""
        self._make = make
        self._hints: queue.Queue[Callable[[Dispatcher], None]] = queue.Queue(WAITING)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def send(
        self, agent_id: str, iteration: int, epoch: int, phase: Phase, queue: str | None = None
    ) -> None:
        """Say that *phase* is due."""
        self._put(lambda dispatcher: dispatcher.send(agent_id, iteration, epoch, phase, queue))

    def fan_out(self, agent_id: str, iteration: int, batches: Sequence[BatchHint]) -> None:
        """Say that those batches are due."""
        self._put(lambda dispatcher: dispatcher.fan_out(agent_id, iteration, batches))

    def job(self, agent_id: str, name: str, attempt: int, queue: str | None) -> None:
        """Say that a job is due."""
        self._put(lambda dispatcher: dispatcher.job(agent_id, name, attempt, queue))

    def _put(self, hint: Callable[[Dispatcher], None]) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="dispatcher", daemon=True)
                self._thread.start()
        try:
            self._hints.put_nowait(hint)
        except queue.Full:
            log.warning("too many messages wait for the broker; one will be sent by a worker")

    def _run(self) -> None:
        dispatcher: Dispatcher | None = None
        while True:
            hint = self._hints.get()
            try:
                dispatcher = dispatcher or self._make()
                hint(dispatcher)
            except Exception:  # the thread has to outlive whatever a broker does
                log.exception("a message could not be sent and will be sent by a worker")
