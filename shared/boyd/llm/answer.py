"""What one attempt at a turn has brought so far."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal, Protocol

from boyd.llm.faults import Fault
from boyd.llm.fragments import Fragments
from boyd.llm.messages import (
    CallFragment,
    Ended,
    Finished,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    Turn,
    Used,
)
from boyd.llm.thinking import Thinking
from boyd.models.investigation import Finish, ToolCall, Usage

#: How many characters a token has, about, where the server does not count them.
_PER_TOKEN = 4
#: How many characters an answer may have, thoughts included: what reads it holds up others (P18).
MAX_TEXT = 1_000_000


class Watch(Protocol):
    """Whoever looks on while a turn comes about (G6)."""

    def delta(self, kind: Literal["text", "reasoning"], text: str) -> None:
        """A piece has come."""
        ...

    def discarded(self, why: str) -> None:
        """The attempt has failed; what it told does not count."""
        ...

    def stopped(self) -> bool:
        """Whether the turn is to be given up; asked several times a second, so it must be cheap."""
        ...


class Answer:
    """Takes the events of a stream, tells the watch, and becomes a turn."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._thinking = Thinking()
        self._fragments = Fragments()
        self._finish: Finish | None = None
        self._said = 0
        self.used: Usage | None = None
        self.has_ended = False

    @property
    def is_complete(self) -> bool:
        """Whether the server has said that this is all (G5)."""
        return self.has_ended or self._finish is not None

    def take(self, event: StreamEvent) -> None:
        """Take the next event.

        Raises:
            Fault: the answer is longer than any that is of use; reading it would hold up others.
        """
        if isinstance(event, TextDelta | ReasoningDelta):
            self._said += len(event.text)
            if self._said > MAX_TEXT:
                raise Fault(f"its text is longer than {MAX_TEXT} characters")
        if isinstance(event, TextDelta):
            self._show(self._thinking.feed(event.text))
        elif isinstance(event, ReasoningDelta):
            self._show(self._thinking.think(event.text))
        elif isinstance(event, CallFragment):
            self._fragments.add(event)
        elif isinstance(event, Used):
            self.used = event.usage
        elif isinstance(event, Finished):
            self._finish = event.reason
        elif isinstance(event, Ended):
            self.has_ended = True

    def turn(self, *, taken: Collection[str], prefix: str, sent: int, requests: int) -> Turn:
        """The turn that all this is.

        Args:
            taken: the ids of earlier calls.
            prefix: what the ids of calls begin with that have none.
            sent: how many characters were sent, in case the server has not counted.
            requests: how many attempts it took.
        """
        self._show(self._thinking.end())
        calls = self._fragments.calls(taken, prefix)
        finish = self._ending(calls)
        if finish == "filtered" or (finish == "length" and not self._fragments.are_complete):
            calls = []
        return Turn(
            text=self._thinking.text,
            reasoning=self._thinking.thought,
            calls=calls,
            usage=self.used or self._estimated(sent),
            finish=finish,
            requests=requests,
        )

    def _ending(self, calls: list[ToolCall]) -> Finish:
        """Why it ended, whatever the server calls an end with calls."""
        if self._finish in ("length", "filtered"):
            return self._finish
        return "calls" if calls else "stop"

    def _estimated(self, sent: int) -> Usage:
        told = len(self._thinking.text) + len(self._thinking.thought) + self._fragments.size
        return Usage(input_tokens=_tokens(sent), output_tokens=_tokens(told), estimated=True)

    def _show(self, pieces: Iterable[TextDelta | ReasoningDelta]) -> None:
        for piece in pieces:
            kind: Literal["text", "reasoning"] = (
                "text" if isinstance(piece, TextDelta) else "reasoning"
            )
            self._watch.delta(kind, piece.text)


def _tokens(characters: int) -> int:
    return -(-characters // _PER_TOKEN)
