"""Keeps children running, and stops them in order.

    with Supervisor(print) as supervisor:
        supervisor.start(redis)
        if supervisor.wait_until("redis", answers, timeout=60):
            supervisor.start(worker)
            supervisor.run()

Leaving the block stops all children. A child that dies is restarted after a pause that doubles with
each death. If its first start fails with a fatal status, or it dies repeatedly without ever having
settled, the supervisor raises, so that `boyd up` fails instead of flapping for ever.
"""

from __future__ import annotations

import math
import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from subprocess import SubprocessError
from types import FrameType
from typing import Any, Self

from boyd.embedded.child import ChildProcess, ChildSpec, last_log_lines, log_size, rotate_log
from boyd.errors import BoydError

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A terminal and a wrapper (make, uv run) may both deliver one Ctrl-C.
SAME_PRESS_SECONDS = 0.3


class Wakeup:
    """Ends a wait of the main thread when a child dies or a stop is requested.

    A `threading.Event` could deadlock: a signal handler would set it during the wait that it
    interrupted.
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
        self._handle(signal.SIGCHLD, lambda *_: None)  # the byte in the pipe is the message
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup wants it
                self._handle(number, self._on_stop)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers_before.items():
            # The process is leaving: a late signal would only replace its exit status.
            late = number in STOP_SIGNALS and self._last_stop > -math.inf
            signal.signal(number, signal.SIG_IGN if late else handler)
        self._handlers_before.clear()
        signal.set_wakeup_fd(self._fd_before)
        assert self._pipe is not None
        for descriptor in self._pipe:
            os.close(descriptor)
        self._pipe = None

    def stop(self) -> None:
        """Request a stop; a second request means at once. Safe in handlers and threads."""
        self.stops += 1
        if self._pipe is not None:
            with suppress(BlockingIOError):  # a full pipe wakes it anyway
                os.write(self._pipe[1], b"\0")

    def wait(self, seconds: float) -> None:
        """Return after *seconds*, or as soon as something happens."""
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


# A signal or a dead child wakes the loop at once; this covers a lost wake-up.
LONGEST_WAIT_SECONDS = 1.0
ROTATE_EVERY_SECONDS = 30.0
# Time left to children that are stopped at once.
LAST_SECONDS = 1.0


class ChildStartFailed(BoydError):
    """A part of Boyd cannot start."""


@dataclass(frozen=True)
class Pace:
    """Restart policy, with times in seconds.

    Attributes:
        first: pause before the first restart; it doubles each time.
        longest: the longest pause.
        calm: lifetime after which the pauses start from `first` again.
        settled: lifetime after which a child is restarted for ever; being ready counts as well.
        tries: deaths after which a child that has not settled is given up.
    """

    first: float = 0.5
    longest: float = 30.0
    calm: float = 60.0
    settled: float = 10.0
    tries: int = 5


class Supervisor:
    """Runs children; use it in the main thread, which receives the signals.

    SIGINT, SIGTERM and SIGHUP request a stop; a second one means at once.
    """

    def __init__(self, notify: Callable[[str], object], pace: Pace | None = None) -> None:
        """Report events of children to *notify*, one line each."""
        self._tell = notify
        self._pace = pace or Pace()
        self._wakeup = Wakeup()
        self._posts: list[_Post] = []
        self._rotate_at = 0.0

    def __enter__(self) -> Self:
        self._wakeup.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.shutdown()
        finally:
            self._wakeup.__exit__()

    @property
    def stopping(self) -> bool:
        """A stop was requested."""
        return self._wakeup.stops > 0

    def start(self, child: ChildSpec) -> None:
        """Start *child* now; `wait_until` and `run` supervise it.

        Raises:
            ChildStartFailed: its program or its log file cannot be opened.
        """
        post = _Post(child, self._pace)
        try:
            post.process = ChildProcess(child)
        except (OSError, SubprocessError) as error:
            raise ChildStartFailed(f"{child.name} cannot start: {_reason(error)}") from None
        self._posts.append(post)

    def pids(self) -> dict[str, int | None]:
        """The pid of each child by name; None while it waits for a restart."""
        posts = self._posts
        return {post.child.name: post.process.pid if post.process else None for post in posts}

    def wait_until(
        self, name: str, ready: Callable[[], bool], timeout: float, every: float = 0.05
    ) -> bool:
        """Supervise until child *name* is ready; return False if a stop was requested.

        Args:
            name: the child.
            ready: a quick check that does not raise.
            timeout: seconds in total.
            every: seconds between two checks.

        Raises:
            ChildStartFailed: it took too long, or a child cannot start.
        """
        post = next(post for post in self._posts if post.child.name == name)
        deadline = time.monotonic() + timeout
        while not self.stopping:
            if post.process and ready():
                post.settled = True
                return True
            if time.monotonic() >= deadline:
                raise ChildStartFailed(f"{name} was not ready within {timeout:g} s{post.quote(1)}")
            self._supervise_all(time.monotonic() + every)
        return False

    def run(self, tick: Callable[[], object] | None = None, every: float = 1.0) -> None:
        """Supervise until a stop is requested; call *tick* every *every* seconds.

        Raises:
            ChildStartFailed: a child cannot start.
        """
        due = time.monotonic() if tick else math.inf
        while not self.stopping:
            if tick and time.monotonic() >= due:
                tick()
                due = time.monotonic() + every
            self._supervise_all(due)

    def stop(self) -> None:
        """Make `run` return soon; safe in signal handlers and threads."""
        self._wakeup.stop()

    def shutdown(self) -> None:
        """Stop the children in reverse order, each with its grace period."""
        for post in reversed(self._posts):
            if self._wakeup.stops > 1:
                break
            self._end(post)
        left = [post for post in self._posts if post.process]
        for post in left:
            post.send(post.child.death_signal)
        self._wait_for_end(left, LAST_SECONDS, stops=2)
        for post in left:
            post.kill()
        self._posts.clear()

    def _supervise_all(self, until: float) -> None:
        now = time.monotonic()
        pauses = [post.restart_at for post in self._posts if post.process is None]
        self._wakeup.wait(min(until, now + LONGEST_WAIT_SECONDS, *pauses) - now)
        for post in self._posts:
            if not self.stopping:  # a child that dies now got the signal, too
                self._supervise(post)
        self._rotate_logs()

    def _supervise(self, post: _Post) -> None:
        death = post.process.death() if post.process else None
        if not post.process and time.monotonic() >= post.restart_at:
            try:
                post.process = ChildProcess(post.child)
            except (OSError, SubprocessError) as error:
                death = f"could not be started ({_reason(error)})"
        if death:
            self._after_death(post, death)

    def _after_death(self, post: _Post, death: str) -> None:
        name, log = post.child.name, post.child.log
        if post.is_fatal:
            post.process = None
            raise ChildStartFailed(f"{name} cannot start: {post.last_words}")
        reason = post.reason
        pause = post.record_death()
        if not post.settled and post.deaths >= self._pace.tries:
            times = f"{post.deaths} times in a row"
            raise ChildStartFailed(f"{name} cannot start: it {death}, {times}{post.quote(10)}")
        self._notify(f"{name} {death}{reason}; starting it again in {pause:g} s (log: {log})")

    def _rotate_logs(self) -> None:
        now = time.monotonic()
        if now >= self._rotate_at:
            self._rotate_at = now + ROTATE_EVERY_SECONDS
            for log in {post.child.log for post in self._posts}:
                rotate_log(log)

    def _end(self, post: _Post) -> None:
        child = post.child
        post.send(child.stop_signal)
        self._wait_for_end([post], child.grace, stops=1)
        if post.process and self._wakeup.stops <= 1:
            self._notify(f"{child.name} did not stop within {child.grace:g} s and was killed")
            post.kill()

    def _wait_for_end(self, posts: Sequence[_Post], seconds: float, stops: int) -> None:
        """Wait for the end of all, at most *seconds*, or until more than *stops* were requested."""
        deadline = time.monotonic() + seconds
        while True:
            for post in posts:
                if post.process and post.process.death():
                    post.process = None
            left = deadline - time.monotonic()
            if not any(post.process for post in posts) or left <= 0 or self._wakeup.stops > stops:
                return
            self._wakeup.wait(min(left, LONGEST_WAIT_SECONDS))

    def _notify(self, text: str) -> None:
        with suppress(OSError):  # the terminal may be gone; the children still run
            self._tell(text)


class _Post:
    """One child: its current process and the history of its restarts."""

    def __init__(self, child: ChildSpec, pace: Pace) -> None:
        self.child = child
        self.process: ChildProcess | None = None
        self.settled = False
        self.deaths = 0
        self.restart_at = 0.0
        self._pace = pace
        self._pause = pace.first
        self._log_began = log_size(child.log)

    def send(self, number: signal.Signals) -> None:
        if self.process:
            self.process.send(number)

    def kill(self) -> None:
        if self.process:
            self.process.kill()
        self.process = None

    @property
    def is_fatal(self) -> bool:
        """Its first process ended with a fatal status."""
        first = not self.deaths and not self.settled
        return first and self.process is not None and self.process.status in self.child.fatal

    @property
    def last_words(self) -> str:
        """Its last log line, or the path of its log."""
        lines = last_log_lines(self.child.log, 1, self._log_began)
        return lines[0].removeprefix("boyd: ") if lines else f"see {self.child.log}"

    @property
    def reason(self) -> str:
        """Its last log line if it has ended by itself and in error, as the end of a message."""
        has_failed = self.process is not None and (self.process.status or 0) > 0
        lines = last_log_lines(self.child.log, 1, self._log_began) if has_failed else []
        return f": {lines[0].removeprefix('boyd: ')}" if lines else ""

    def record_death(self) -> float:
        """Record a death; return the seconds until the restart."""
        lived = self.process.seconds if self.process else 0.0
        self.process = None
        self.deaths += 1
        self.settled = self.settled or lived >= self._pace.settled
        pause = self._pace.first if lived >= self._pace.calm else self._pause
        self._pause = min(pause * 2, self._pace.longest)
        self.restart_at = time.monotonic() + pause
        return pause

    def quote(self, count: int) -> str:
        """Its last *count* log lines, as the end of an error message."""
        lines = last_log_lines(self.child.log, count, self._log_began)
        if not lines:
            return f"; it logged nothing to {self.child.log}"
        if count == 1:
            return f"; the last line of {self.child.log}: {lines[-1]}"
        return "\n  ".join([f"; the end of {self.child.log}:", *lines])


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)
