"""What one attempt at a turn has brought so far."""

from __future__ import annotations

import queue
import threading
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Protocol, Self

import httpx2

from boyd.llm.messages import (
    CallFragment,
    ReasoningDelta,
    StreamEnded,
    StreamEvent,
    TextDelta,
    Turn,
    TurnFinished,
    Used,
)
from boyd.llm.model_errors import Fault
from boyd.llm.reply_text import ThinkTagParser
from boyd.llm.tool_call_parsing import Fragments
from boyd.models.investigation import Finish, ToolCall, Usage
from boyd.outbound.guarded_session import Lifeline

MAX_EVENT = 1 << 20
MAX_ANSWER = 8 << 20
_MAX_EXCERPT = 64 << 10
#: How long to wait for the thread after its connection was cut, in seconds.
_FAREWELL = 1.0


@dataclass(frozen=True)
class ServerEvent:
    """A server-sent event."""

    data: str


@dataclass(frozen=True)
class Other:
    """An answer that is no stream of events."""

    status: int
    headers: Mapping[str, str]
    body: str


@dataclass(frozen=True)
class ExchangeOver:
    """Nothing comes any more; with an error when that is not as it should be."""

    error: BaseException | None = None


Item = ServerEvent | Other | ExchangeOver


class Exchange:
    """Sends a request; gives what comes back, one item after the other."""

    def __init__(self, client: httpx2.Client, request: httpx2.Request) -> None:
        self._client = client
        self._request = request
        self._lifeline = Lifeline()
        self._items: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="boyd-model", daemon=True)
        request.extensions["trace"] = self._trace

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lifeline.cut()
        self._thread.join(_FAREWELL)
        if not self._thread.is_alive():
            self._lifeline.close()

    def next(self, timeout: float) -> Item | None:
        """The next item; None when none has come within *timeout* seconds."""
        try:
            return self._items.get(timeout=max(timeout, 0.0))
        except queue.Empty:
            return None

    def _trace(self, name: str, info: Mapping[str, Any]) -> None:
        if name.endswith("connect_tcp.complete"):
            with suppress(OSError):
                self._lifeline.watch(info["return_value"].get_extra_info("socket"))

    def _run(self) -> None:
        try:
            response = self._client.send(self._request, stream=True)
            try:
                self._read(response)
            finally:
                response.close()
        except BaseException as error:  # noqa: BLE001 - raised by whoever waits for it
            self._items.put(ExchangeOver(error))
        else:
            self._items.put(ExchangeOver())

    def _read(self, response: httpx2.Response) -> None:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.status_code != httpx2.codes.OK or kind != "text/event-stream":
            excerpt = _excerpt(response)
            headers = {name.lower(): value for name, value in response.headers.items()}
            self._items.put(Other(response.status_code, headers, excerpt))
            return
        # Whatever the server says, server-sent events are in UTF-8.
        response.encoding = "utf-8"
        size = 0
        for event in httpx2.EventSource(response, max_event_size=MAX_EVENT):
            size += len(event.data)
            if max(size, response.num_bytes_downloaded) > MAX_ANSWER:
                raise Fault(f"the answer is larger than {MAX_ANSWER >> 20} MiB")
            self._items.put(ServerEvent(event.data))


def _excerpt(response: httpx2.Response) -> str:
    read = bytearray()
    with suppress(httpx2.RequestError):
        for chunk in response.iter_bytes():
            read += chunk
            if len(read) >= _MAX_EXCERPT:
                break
    return read[:_MAX_EXCERPT].decode("utf-8", "replace")


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


class TurnAccumulator:
    """Takes the events of a stream, tells the watch, and becomes a turn."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._thinking = ThinkTagParser()
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
        elif isinstance(event, TurnFinished):
            self._finish = event.reason
        elif isinstance(event, StreamEnded):
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
