"""The background threads of a worker."""

from __future__ import annotations

import threading

import pytest

from boyd.errors import StoreUnavailable
from boyd_worker.maintenance import _Task


@pytest.mark.parametrize("error", [StoreUnavailable("away"), RuntimeError("broken")])
def test_a_periodic_task_outlives_an_error(error: Exception) -> None:
    stopping, came_again = threading.Event(), threading.Event()
    errors = iter([error])

    def work() -> None:
        for one in errors:
            raise one
        came_again.set()

    task = _Task("test", work, lambda: not stopping.wait(0.001))
    task.thread.start()
    try:
        assert came_again.wait(120)
    finally:
        stopping.set()
        task.thread.join()
