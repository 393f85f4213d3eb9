"""The background threads of a worker."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from boyd.errors import StoreUnavailable
from boyd_worker import maintenance
from boyd_worker.maintenance import Maintenance, _Task


@pytest.mark.parametrize("error", [StoreUnavailable("away"), RuntimeError("broken")])
def test_a_periodic_task_outlives_an_error(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(maintenance, "end_process", lambda: None)
    outcomes: list[str] = []

    def work() -> None:
        outcomes.append("raised" if not outcomes else "repeated")
        if len(outcomes) == 1:
            raise error

    task = _Task("test", work, lambda: len(outcomes) < 2)
    task.thread.start()
    task.thread.join()

    assert outcomes == ["raised", "repeated"]


@pytest.mark.parametrize("logs", [True, False])
def test_a_process_ends_with_its_periodic_task(monkeypatch: pytest.MonkeyPatch, logs: bool) -> None:
    signals: list[int] = []

    def work() -> None:
        # An error that can be logged is only logged, unless a plugin has broken logging.
        raise SystemExit if logs else RuntimeError("broken")

    def break_log(*_: Any) -> None:
        raise RuntimeError("replaced by a plugin")

    monkeypatch.setattr(os, "kill", lambda _, number: signals.append(number))
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(maintenance.log, "exception", break_log)
    task = _Task("test", work, lambda: True)
    task.thread.start()
    task.thread.join(120)

    assert not task.thread.is_alive()
    assert signals == [signal.SIGTERM]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_forks_between_two_turns_of_its_periodic_tasks() -> None:
    order: list[str] = []
    works, forks = threading.Event(), threading.Event()

    def work() -> None:
        works.set()
        forks.wait()
        time.sleep(0.2)  # for a fork that does not wait
        order.append("turn")

    task = _Task("test", work, lambda: not order)
    task.hold_back_forks()
    task.thread.start()
    works.wait()
    forks.set()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if order else 1)
    _, status = os.waitpid(pid, 0)
    task.thread.join()

    assert (os.waitstatus_to_exitcode(status), order) == (0, ["turn"])


def test_a_sweep_that_ends_after_the_stop_does_not_hold_up_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sweeps, has_left = threading.Event(), threading.Event()
    swept: list[threading.Thread] = []

    def sweep(*_: Any) -> bool:
        swept.append(threading.current_thread())
        sweeps.set()
        return not has_left.wait(120)

    host: Any = MagicMock(role="beat")
    host.settings.worker.max_hung = 1
    host.settings.timing = SimpleNamespace(sweep=0.01, heartbeat_interval=0.01)
    host.store.throttle.return_value.beat.return_value = SimpleNamespace(acquired=True, again=[])
    host.store.fleet.leave.side_effect = lambda _: has_left.set()
    monkeypatch.setattr(maintenance, "sweep_all", sweep)
    threads = Maintenance(host)
    threads.start()
    assert sweeps.wait(120)
    threads.stop()
    swept[0].join(120)

    assert not swept[0].is_alive()
