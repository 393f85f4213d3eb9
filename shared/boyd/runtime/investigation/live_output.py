"""Shows a turn while it comes, in pieces without secrets (G6, T8)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Literal, Self

from boyd.models.investigation import Delta, Discarded, Entry
from boyd.redaction import RedactedStream, redactor

#: Seconds between two pieces: people read slower, and each costs a command.
EVERY = 0.2
#: Seconds between two looks whether the turn is still wanted.
LOOK = 1.0

Channel = Literal["text", "reasoning"]


class Live:
    """Watches a turn for the gateway; implements `boyd.llm.gateway.Watch`."""

    def __init__(self, write: Callable[[Sequence[Entry]], bool], step: int, seconds: float) -> None:
        """Show the turn *step* with *write*, which tells whether it is still wanted.

        After so many *seconds* nobody wants it any more.
        """
        self._until = time.monotonic() + seconds
        self._write = write
        self._redactor = redactor()
        self._step = step
        self._stopped = False
        self._looked = time.monotonic()
        self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._show([(channel, stream.flush()) for channel, stream in self._streams.items()])

    def delta(self, kind: Channel, text: str) -> None:
        """Keep a piece, and show what has gathered when it is time."""
        self._held[kind] += self._streams[kind].feed(text)
        if time.monotonic() - self._looked >= EVERY:
            self._show([])

    def discarded(self, why: str) -> None:
        """Take back what was shown of an attempt that has failed."""
        self._begin()
        self._tell([Discarded(step=self._step, why=why)])

    def stopped(self) -> bool:
        """Whether nobody wants the turn any more."""
        if time.monotonic() - self._looked >= LOOK:
            self._show([])
        return self._stopped or self.is_late

    @property
    def is_late(self) -> bool:
        """Whether its time is up."""
        return time.monotonic() >= self._until

    def _begin(self) -> None:
        self._streams: dict[Channel, RedactedStream] = {
            "reasoning": RedactedStream(self._redactor),
            "text": RedactedStream(self._redactor),
        }
        self._held: dict[Channel, str] = {"reasoning": "", "text": ""}

    def _show(self, rest: Sequence[tuple[Channel, str]]) -> None:
        for channel, text in rest:
            self._held[channel] += text
        pieces = [
            Delta(step=self._step, channel=channel, text=text)
            for channel, text in self._held.items()
            if text
        ]
        self._held = {"reasoning": "", "text": ""}
        self._tell(pieces)

    def _tell(self, entries: Sequence[Entry]) -> None:
        self._looked = time.monotonic()
        self._stopped = not self._write(entries) or self._stopped
