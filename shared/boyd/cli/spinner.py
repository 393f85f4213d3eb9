"""Waits for what the API has begun: a spinner on a terminal, silence elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import click

from boyd.cli import output
from boyd.errors import ApiUnavailable

if TYPE_CHECKING:
    from rich.status import Status

_T = TypeVar("_T")

#: Seconds between two looks: the first, and the longest.
_FIRST = 0.05
_LONGEST = 0.5


class Spinner:
    """Some time to wait; Ctrl-C ends the command with its own status, and nothing else."""

    def __init__(self, seconds: float | None, *, ends_command: bool = True) -> None:
        """Begin to wait for so long; None: as long as it takes.

        Without *ends_command* Ctrl-C is for whoever waits.
        """
        self._ends_command = ends_command
        self._began = time.monotonic()
        self._until = float("inf") if seconds is None else self._began + seconds
        self._pause = _FIRST
        self._status: Status | None = None
        self._away = False

    def __enter__(self) -> Self:
        if output.is_terminal():
            self._status = output.console().status("")
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()
        if kind is KeyboardInterrupt and self._ends_command:
            output.note("It goes on without this command.")
            raise click.exceptions.Exit(output.INTERRUPTED) from None

    @property
    def is_over(self) -> bool:
        """Whether the time has passed."""
        return time.monotonic() >= self._until

    def ask(self, question: Callable[[], _T]) -> _T | None:
        """The answer to *question*; None while nobody answers, which is said once."""
        try:
            found = question()
        except ApiUnavailable as error:
            if not self._away:
                output.note(f"{output.one_line(str(error))}; waiting for it to come back")
            self._away = True
            return None
        self._away = False
        return found

    def pause(self, doing: Callable[[], str] | str) -> None:
        """Let some time pass; *doing* says what is waited for, where anybody reads it."""
        if self._status is not None:
            from rich.text import Text

            took = output.seconds(int(time.monotonic() - self._began))
            text = doing if isinstance(doing, str) else self.ask(doing) or ""
            self._status.update(Text(f"{output.one_line(text)}  {took}"))
        time.sleep(max(0.0, min(self._pause, self._until - time.monotonic())))
        self._pause = min(_LONGEST, self._pause * 1.5)
