"""Asks a model for a turn, as often as it takes (G1 to G5).

This is the only place that repeats a request: the client below it does not. What is repeated is
the same to the byte, and only when the server or the way to it has failed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Protocol, Self
from urllib.parse import urlsplit

import httpx2
from pydantic import SecretStr

from boyd.errors import ConfigError
from boyd.llm.exchange import Exchange, ExchangeOver, Other, ServerEvent, TurnAccumulator, Watch
from boyd.llm.messages import ModelRequest, Turn
from boyd.llm.model_errors import (
    ContextFull,
    Fault,
    ModelRefused,
    ModelUnavailable,
    Stopped,
    of_status,
)
from boyd.llm.providers import anthropic_messages, openai_chat
from boyd.llm.providers.wire import Wire
from boyd.models.investigation import RequestOutcome, Usage
from boyd.redaction import Redactor
from boyd.settings.model import ModelSettings, ModelTimeouts
from boyd.settings.model import Wire as WireName
from boyd.version import VERSION


class Meter(Protocol):
    """Counts requests as they end; it may not fail, and lose one when it cannot count it."""

    def count(self, outcome: RequestOutcome, usage: Usage) -> None:
        """A request has ended so, and has cost so much, as far as the server said."""
        ...


class Uncounted:
    """Counts nothing."""

    def count(self, outcome: RequestOutcome, usage: Usage) -> None:
        """See `Meter`."""


__all__ = ["WAITS", "Gateway", "Watch"]

#: Before each attempt, in seconds.
WAITS = (0.0, 2.0, 4.0)
#: How long nobody looks whether the turn is still wanted, in seconds.
_SLICE = 0.25
#: How long to wait for the end marker of an answer that is complete without it, in seconds.
_LINGER = 5.0
#: How much of what a server says is repeated, in characters.
_MAX_SAID = 500
_WIRES: dict[WireName, Wire] = {
    "openai": openai_chat.WIRE,
    "anthropic": anthropic_messages.WIRE,
}


class Gateway:
    """Talks to the model of one agent; closes its client at the end of a `with`.

    Args:
        settings: where the model is.
        key: what the server knows us by.
        meter: counts the requests.
        sleep: waits for some seconds.
        clock: seconds since the epoch, for servers that name a date to come back at.

    Raises:
        ConfigError: the key cannot be sent.
    """

    def __init__(
        self,
        settings: ModelSettings,
        key: SecretStr | None = None,
        *,
        meter: Meter | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._redactor = Redactor([key.get_secret_value()] if key else [])
        self._meter = meter or Uncounted()
        self._sleep = sleep
        self._clock = clock
        self._wire = _WIRES[settings.wire]
        self._url = self._wire.url(settings)
        _check_key(key)
        timeouts = settings.timeouts
        self._client = httpx2.Client(
            headers={
                **self._wire.headers(key),
                "accept": "text/event-stream",
                "accept-encoding": "identity",
                "content-type": "application/json",
                "user-agent": f"boyd/{VERSION}",
            },
            timeout=httpx2.Timeout(timeouts.total, connect=timeouts.connect),
            # Between two turns a connection goes stale, and an attempt would be lost to find out;
            # and only one that it has opened itself can be cut by an exchange.
            limits=httpx2.Limits(max_keepalive_connections=0),
            follow_redirects=False,
            verify=httpx2.create_ssl_context(),
            # No proxy stands between this host and itself.
            trust_env=not settings.is_here,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def turn(self, request: ModelRequest, watch: Watch) -> Turn:
        """Ask for the next turn, at most three times (G3).

        The usage of the turn includes what failed attempts have cost, as far as the server said.

        Raises:
            ModelUnavailable: every attempt failed.
            ModelRefused: the server does not take this request; `ContextFull`: it is too long.
            Stopped: the watch has stopped.
        """
        body = json.dumps(self._wire.body(self._settings, request), ensure_ascii=False)
        # Serialised once: each attempt sends the same bytes.
        content = body.encode("utf-8", "replace")
        taken = {call.id for message in request.messages for call in message.calls}
        prefix = f"call_{len(request.messages)}"
        spent = Usage()
        fault = Fault("it was not asked")
        for attempt, wait in enumerate(WAITS, 1):
            answer = TurnAccumulator(watch)
            try:
                self._pause(max(wait, fault.wait), watch)
                self._attempt(content, answer, watch)
                turn = answer.turn(taken=taken, prefix=prefix, sent=len(body), requests=attempt)
                self._meter.count("answered", turn.usage)
                return turn.model_copy(update={"usage": spent + turn.usage})
            except _Abandoned as abandoned:
                used = answer.used or Usage()
                if abandoned.was_sent:
                    self._meter.count("abandoned", used)
                sent = attempt - (not abandoned.was_sent)
                raise Stopped(requests=sent, usage=spent + used) from None
            except Fault as failed:
                fault = failed
            used = answer.used or Usage()
            self._meter.count("refused" if fault.lasting else "failed", used)
            spent += used
            why = self._told(fault)
            watch.discarded(why)
            if fault.lasting:
                refused = ContextFull if fault.full else ModelRefused
                raise refused(why, requests=attempt, status=fault.status, usage=spent)
        raise ModelUnavailable(
            f"{self._told(fault)} ({len(WAITS)} attempts)",
            requests=len(WAITS),
            status=fault.status,
            usage=spent,
        )

    def _pause(self, seconds: float, watch: Watch) -> None:
        """Wait, and look now and then whether the turn is still wanted."""
        left = seconds
        while True:
            if watch.stopped():
                raise _Abandoned(was_sent=False)
            if left <= 0:
                return
            self._sleep(min(left, _SLICE))
            left -= _SLICE

    def _attempt(self, content: bytes, answer: TurnAccumulator, watch: Watch) -> None:
        """Send the request once, and have *answer* take what comes.

        Raises:
            Fault: no complete answer came.
        """
        decoder = self._wire.decoder()
        request = self._client.build_request("POST", self._url, content=content)
        with Exchange(self._client, request) as exchange:
            for data in self._events(exchange, answer, watch):
                for event in decoder.decode(data):
                    answer.take(event)
        if not answer.is_complete:
            raise Fault("the answer ended in the middle, without a reason or an end marker")

    def _events(self, exchange: Exchange, answer: TurnAccumulator, watch: Watch) -> Iterator[str]:
        """The data of the events, until the answer has ended."""
        patience = _Patience(self._settings.timeouts)
        while not answer.has_ended:
            if watch.stopped():
                raise _Abandoned(was_sent=True)
            item = exchange.next(min(patience.left, _SLICE))
            if isinstance(item, ServerEvent):
                yield item.data
                patience.begin(answer.is_complete)
            elif isinstance(item, Other):
                raise of_status(item.status, item.headers, item.body, self._clock())
            elif isinstance(item, ExchangeOver):
                self._check_end(item, answer)
                return
            if patience.left <= 0:
                if answer.is_complete:
                    return
                raise Fault(patience.why)

    def _check_end(self, end: ExchangeOver, answer: TurnAccumulator) -> None:
        """What is complete counts, however the connection ended.

        Raises:
            Fault: it is not, and the connection has failed.
        """
        error = end.error
        if error is None:
            return
        if not isinstance(error, httpx2.HTTPError):
            raise error
        if not answer.is_complete:
            raise Fault(f"{type(error).__name__}: {error}") from error

    def _told(self, fault: Fault) -> str:
        """What went wrong, without the key, and with the beginning of what the server said."""
        why = f"{self._settings.model} at {urlsplit(self._url).netloc}: {fault}"
        # Cut last: half a secret cannot be found.
        said = self._redactor.redact(fault.said)
        cut = said if len(said) <= _MAX_SAID else said[: _MAX_SAID - 1] + "…"
        return f"{self._redactor.redact(why)}: {cut}" if cut else self._redactor.redact(why)


class _Abandoned(Exception):
    """Nobody wants the turn any more."""

    def __init__(self, *, was_sent: bool) -> None:
        super().__init__()
        self.was_sent = was_sent


class _Patience:
    """How long to wait for what."""

    def __init__(self, timeouts: ModelTimeouts) -> None:
        self._timeouts = timeouts
        now = time.monotonic()
        self._end = now + timeouts.total
        self._until = now + timeouts.first
        self._reason = f"no event came within {timeouts.first:g} s"

    def begin(self, is_complete: bool) -> None:
        """An event has come; wait for the next."""
        idle = min(self._timeouts.idle, _LINGER) if is_complete else self._timeouts.idle
        self._until = time.monotonic() + idle
        self._reason = f"no further event came within {idle:g} s"

    @property
    def left(self) -> float:
        """How many seconds to wait for the next event."""
        return min(self._until, self._end) - time.monotonic()

    @property
    def why(self) -> str:
        """What the answer was not in time for."""
        if self._end <= self._until:
            return f"the answer was not complete within {self._timeouts.total:g} s"
        return self._reason


def _check_key(key: SecretStr | None) -> None:
    if key is None:
        return
    text = key.get_secret_value()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ConfigError("the key of the model is empty or has characters that no header can hold")
