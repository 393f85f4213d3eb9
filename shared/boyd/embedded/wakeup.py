"""Signals as wake-ups of a waiting loop, without polling and without locks in handlers."""

from __future__ import annotations

import math
import os
import select
import signal
import time
from contextlib import suppress
from types import FrameType
from typing import Any, Self

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A terminal and a wrapper (make, uv run) may both deliver one Ctrl-C.
SAME_PRESS_SECONDS = 0.3


class Wakeup:
    """While entered (main thread only), waits end when a child dies or a stop is asked for.

    A threading.Event would do the same, but setting one from a signal handler can deadlock with
    the wait that the handler interrupted.
    """

    def __init__(self) -> None:
        self.stops = 0
        self._last_stop = -math.inf
        self._pipe: tuple[int, int] | None = None
        self._fd_before = -1
        self._handlers_before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        reader, writer = self._pipe = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        self._fd_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self._handle(signal.SIGCHLD, _nothing)
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup wants it
                self._handle(number, self._on_stop)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        self._handlers_before.clear()
        signal.set_wakeup_fd(self._fd_before)
        assert self._pipe is not None
        for descriptor in self._pipe:
            os.close(descriptor)
        self._pipe = None

    def stop(self) -> None:
        """Ask for a stop; asked twice it means at once. From handlers and threads alike."""
        self.stops += 1
        if self._pipe is not None:
            with suppress(BlockingIOError):  # full: it wakes anyway
                os.write(self._pipe[1], b"\0")

    def wait(self, seconds: float) -> None:
        """Return after *seconds*, or as soon as something has happened."""
        assert self._pipe is not None, "enter it first"
        poll = select.poll()
        poll.register(self._pipe[0], select.POLLIN)
        if poll.poll(max(0, math.ceil(seconds * 1000))):
            with suppress(BlockingIOError):
                os.read(self._pipe[0], 4096)

    def _handle(self, number: signal.Signals, handler: Any) -> None:
        self._handlers_before[number] = signal.signal(number, handler)

    def _on_stop(self, _number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._last_stop >= SAME_PRESS_SECONDS:
            self.stop()
        self._last_stop = now


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """The byte in the pipe is all that counts."""
