"""Keeps named children running, and stops them in order.

    with Supervisor(print) as supervisor:
        supervisor.start(redis)
        if supervisor.wait_until("redis", answers, timeout=60):
            supervisor.start(worker)
            supervisor.run()

Leaving the block stops whatever runs. A child that dies is started again after a pause that
doubles from death to death. One that says, at its first start, that it can never start is given up
at once. One that has never settled, and dies again and again from the start,
is given up: the supervisor raises, so that `boyd up` fails instead of flapping for ever.
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

from boyd.embedded import log_files
from boyd.embedded.child import Child, Life
from boyd.errors import BoydError

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


# A signal or a dead child wakes the loop at once; this is for a wake-up that got lost.
LONGEST_WAIT_SECONDS = 1.0
ROTATE_EVERY_SECONDS = 30.0
# What is left to children that are told to die at once.
LAST_SECONDS = 1.0


class ChildStartFailed(BoydError):
    """A part of Boyd cannot start."""


@dataclass(frozen=True)
class Pace:
    """When a child is started again, and when it is given up.

    Attributes:
        first: seconds before the first restart; each further pause is twice as long.
        longest: the longest pause, in seconds.
        calm: a life of so many seconds makes the pauses start from `first` again.
        settled: a child that has lived so many seconds once, or was found ready by
            `wait_until`, can start: from then on it is restarted for ever.
        tries: one that has not settled is given up with this death.
    """

    first: float = 0.5
    longest: float = 30.0
    calm: float = 60.0
    settled: float = 10.0
    tries: int = 5


class Supervisor:
    """Runs children; entered and used in the main thread, because signals and deaths go there.

    SIGINT, SIGTERM and SIGHUP ask it to stop; a second one means at once.
    """

    def __init__(self, notify: Callable[[str], object], pace: Pace | None = None) -> None:
        """Tell *notify*, in one line each, what happens to children."""
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
        """Whether a stop has been asked for."""
        return self._wakeup.stops > 0

    def start(self, child: Child) -> None:
        """Start *child* now; `wait_until` and `run` look after it.

        Raises:
            StartFailed: its program or its log file cannot be opened.
        """
        post = _Post(child, self._pace)
        try:
            post.life = Life(child)
        except (OSError, SubprocessError) as error:
            raise ChildStartFailed(f"{child.name} cannot start: {_reason(error)}") from None
        self._posts.append(post)

    def pids(self) -> dict[str, int | None]:
        """The pid of each child by name, None while it waits for its restart."""
        return {post.child.name: post.life.pid if post.life else None for post in self._posts}

    def wait_until(
        self, name: str, ready: Callable[[], bool], timeout: float, every: float = 0.05
    ) -> bool:
        """Ask *ready* until it says yes, looking after all children meanwhile.

        Args:
            name: the child that has to get ready.
            ready: answers quickly, and raises nothing.
            timeout: seconds it may take in all.
            every: seconds between two questions.

        Returns:
            Whether it is ready; False means that a stop was asked for.

        Raises:
            StartFailed: it took too long, or a child cannot start.
        """
        post = next(post for post in self._posts if post.child.name == name)
        deadline = time.monotonic() + timeout
        while not self.stopping:
            if post.life and ready():
                post.settled = True
                return True
            if time.monotonic() >= deadline:
                raise ChildStartFailed(f"{name} was not ready within {timeout:g} s{post.quote(1)}")
            self._look_after_all(time.monotonic() + every)
        return False

    def run(self, tick: Callable[[], object] | None = None, every: float = 1.0) -> None:
        """Look after the children until a stop is asked for; call *tick* every *every* seconds.

        Raises:
            StartFailed: a child cannot start.
        """
        due = time.monotonic() if tick else math.inf
        while not self.stopping:
            if tick and time.monotonic() >= due:
                tick()
                due = time.monotonic() + every
            self._look_after_all(due)

    def stop(self) -> None:
        """Make `run` return soon; safe in signal handlers and threads."""
        self._wakeup.stop()

    def shutdown(self) -> None:
        """Stop the children, last started first, each with its grace; return when none is left."""
        for post in reversed(self._posts):
            if self._wakeup.stops > 1:
                break
            self._end(post)
        self._end_at_once([post for post in self._posts if post.life])
        self._posts.clear()

    def _look_after_all(self, until: float) -> None:
        now = time.monotonic()
        pauses = [post.restart_at for post in self._posts if post.life is None]
        self._wakeup.wait(min(until, now + LONGEST_WAIT_SECONDS, *pauses) - now)
        for post in self._posts:
            if not self.stopping:  # a child that dies now has heard it too
                self._look_after(post)
        self._rotate_logs()

    def _look_after(self, post: _Post) -> None:
        if post.life:
            how = post.life.ended()
            if how:
                self._after_death(post, how)
        elif time.monotonic() >= post.restart_at:
            self._restart(post)

    def _restart(self, post: _Post) -> None:
        try:
            post.life = Life(post.child)
        except (OSError, SubprocessError) as error:
            self._after_death(post, f"could not be started ({_reason(error)})")

    def _after_death(self, post: _Post, how: str) -> None:
        name, log = post.child.name, post.child.log
        if post.is_fatal:
            post.life = None
            raise ChildStartFailed(f"{name} cannot start: {post.last_words}")
        pause = post.bury()
        if post.hopeless:
            times = f"{post.deaths} times in a row"
            raise ChildStartFailed(f"{name} cannot start: it {how}, {times}{post.quote(10)}")
        self._notify(f"{name} {how}; starting it again in {pause:g} s (log: {log})")

    def _rotate_logs(self) -> None:
        now = time.monotonic()
        if now >= self._rotate_at:
            self._rotate_at = now + ROTATE_EVERY_SECONDS
            for log in {post.child.log for post in self._posts}:
                log_files.rotate(log)

    def _end(self, post: _Post) -> None:
        if not post.life:
            return
        child = post.child
        post.life.send(child.stop_signal)
        self._wait_for_end([post], child.grace, stops=1)
        if post.life and self._wakeup.stops <= 1:
            self._notify(f"{child.name} did not stop within {child.grace:g} s and was killed")
            post.life.kill()
            post.life = None

    def _end_at_once(self, posts: Sequence[_Post]) -> None:
        for post in posts:
            if post.life:
                post.life.send(post.child.death_signal)
        self._wait_for_end(posts, LAST_SECONDS, stops=2)
        for post in posts:
            if post.life:
                post.life.kill()
                post.life = None

    def _wait_for_end(self, posts: Sequence[_Post], seconds: float, stops: int) -> None:
        """Wait until all have ended, or *seconds* are over, or more than *stops* were asked for."""
        deadline = time.monotonic() + seconds
        while True:
            for post in posts:
                if post.life and post.life.ended():
                    post.life = None
            left = deadline - time.monotonic()
            if not any(post.life for post in posts) or left <= 0 or self._wakeup.stops > stops:
                return
            self._wakeup.wait(min(left, LONGEST_WAIT_SECONDS))

    def _notify(self, text: str) -> None:
        with suppress(OSError):  # the terminal may be gone, the children are still ours
            self._tell(text)


class _Post:
    """The place of one child: its present life and what its earlier ones have taught."""

    def __init__(self, child: Child, pace: Pace) -> None:
        self.child = child
        self.life: Life | None = None
        self.settled = False
        self.deaths = 0
        self.restart_at = 0.0
        self._pace = pace
        self._pause = pace.first
        self._log_began = log_files.size(child.log)

    @property
    def hopeless(self) -> bool:
        """Whether it has shown that it cannot start."""
        return not self.settled and self.deaths >= self._pace.tries

    @property
    def is_fatal(self) -> bool:
        """Whether its first life has ended with a status that says that it cannot start."""
        first = not self.deaths and not self.settled
        return first and self.life is not None and self.life.status in self.child.fatal

    @property
    def last_words(self) -> str:
        """The last line it logged, or where it has logged none."""
        lines = log_files.last_lines(self.child.log, 1, self._log_began)
        return lines[0].removeprefix("boyd: ") if lines else f"see {self.child.log}"

    def bury(self) -> float:
        """Note a death; gives the seconds until the next life."""
        lived = self.life.seconds if self.life else 0.0
        self.life = None
        self.deaths += 1
        self.settled = self.settled or lived >= self._pace.settled
        pause = self._pace.first if lived >= self._pace.calm else self._pause
        self._pause = min(pause * 2, self._pace.longest)
        self.restart_at = time.monotonic() + pause
        return pause

    def quote(self, count: int) -> str:
        """The last *count* lines it logged, as the end of an error message."""
        lines = log_files.last_lines(self.child.log, count, self._log_began)
        if not lines:
            return f"; it logged nothing in {self.child.log}"
        if count == 1:
            return f"; the last line of {self.child.log}: {lines[-1]}"
        return "\n  ".join([f"; the end of {self.child.log}:", *lines])


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)
