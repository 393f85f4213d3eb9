"""Asks a model for a turn, with retries.

Only this module repeats requests, and only if the server or the connection has failed; every
attempt sends the same bytes.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from ssl import SSLContext
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

import httpx2
from pydantic import SecretStr

from boyd.errors import ConfigError
from boyd.llm.messages import ModelRequest, Turn
from boyd.llm.model_errors import (
    ContextFull,
    Fault,
    ModelRefused,
    ModelUnavailable,
    Stopped,
    fault_of_response,
)
from boyd.llm.providers import anthropic_messages, openai_chat
from boyd.llm.providers.wire import Wire
from boyd.llm.turn_accumulator import TurnAccumulator, Watch
from boyd.models.investigation import RequestOutcome, Usage
from boyd.outbound.guarded_session import Lifeline
from boyd.settings.model import ModelSettings, ModelTimeouts
from boyd.settings.model import Wire as WireName
from boyd.text.redaction import Redactor
from boyd.text.version import VERSION

__all__ = ["WAITS", "Gateway", "Meter", "Watch"]

#: Seconds before each attempt.
WAITS = (0.0, 2.0, 4.0)
#: Seconds between two looks at the watch.
_SLICE = 0.25
#: Seconds to wait for the end marker of an answer that is complete without it.
_LINGER = 5.0
#: Seconds to wait for the reading thread after its connection was cut.
_JOIN = 1.0
#: Characters of a server's error that are repeated.
_MAX_DETAILS = 500
#: Bytes of one event, of an answer, and of an error body.
MAX_EVENT = 1 << 20
MAX_ANSWER = 8 << 20
_MAX_EXCERPT = 64 << 10
_WIRES: dict[WireName, Wire] = {"openai": openai_chat.WIRE, "anthropic": anthropic_messages.WIRE}


@cache
def _certificates() -> SSLContext:
    """The authorities to trust; read once, as that takes longer than all else of a request."""
    return httpx2.create_ssl_context()


class Meter(Protocol):
    """Counts finished requests; must not raise, and may lose a count."""

    def count(self, outcome: RequestOutcome, usage: Usage) -> None:
        """Count one request and the tokens that the server reported for it."""


class Gateway:
    """Client of one agent's model; closes its connection at the end of a `with`.

    *clock* gives seconds since the epoch, for servers that name a date for the next attempt. Raises
    `ConfigError` if the key cannot be sent.
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
        self._meter = meter
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
            # A connection kept between turns goes stale, and finding out would cost an attempt;
            # and an exchange can cut only a connection that it has opened itself.
            limits=httpx2.Limits(max_keepalive_connections=0),
            follow_redirects=False,
            verify=_certificates(),
            # No proxy stands between this host and itself.
            trust_env=not settings.is_here,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def turn(self, request: ModelRequest, watch: Watch) -> Turn:
        """Ask for the next turn, at most three times; its usage includes failed attempts.

        Raises `ModelUnavailable` if every attempt failed, `ModelRefused` if the server rejects the
        request (`ContextFull`: as too long), and `Stopped` if the watch has stopped.
        """
        body = json.dumps(self._wire.body(self._settings, request), ensure_ascii=False)
        content = body.encode("utf-8", "replace")
        earlier_ids = {call.id for message in request.messages for call in message.calls}
        prefix = f"call_{len(request.messages)}"
        spent = Usage()
        fault = Fault("it was not asked")
        for attempt, wait in enumerate(WAITS, 1):
            answer = TurnAccumulator(watch)
            try:
                self._pause(max(wait, fault.wait), watch)
                self._attempt(content, answer, watch)
                turn = answer.turn(
                    earlier_ids=earlier_ids, prefix=prefix, sent=len(body), requests=attempt
                )
                self._count("answered", turn.usage)
                return turn.model_copy(update={"usage": spent + turn.usage})
            except _Abandoned as abandoned:
                used = answer.used or Usage()
                if abandoned.was_sent:
                    self._count("abandoned", used)
                sent = attempt - (not abandoned.was_sent)
                raise Stopped(requests=sent, usage=spent + used) from None
            except Fault as failed:
                fault = failed
            used = answer.used or Usage()
            self._count("refused" if fault.permanent else "failed", used)
            spent += used
            reason = self._explain(fault)
            watch.discard_deltas(reason)
            if fault.permanent:
                refused = ContextFull if fault.full else ModelRefused
                raise refused(reason, requests=attempt, status=fault.status, usage=spent)
        reason = f"{self._explain(fault)} ({len(WAITS)} attempts)"
        raise ModelUnavailable(reason, requests=len(WAITS), status=fault.status, usage=spent)

    def _count(self, outcome: RequestOutcome, usage: Usage) -> None:
        if self._meter is not None:
            self._meter.count(outcome, usage)

    def _pause(self, seconds: float, watch: Watch) -> None:
        seconds_left = seconds
        while True:
            if watch.is_stopped():
                raise _Abandoned(was_sent=False)
            if seconds_left <= 0:
                return
            self._sleep(min(seconds_left, _SLICE))
            seconds_left -= _SLICE

    def _attempt(self, content: bytes, answer: TurnAccumulator, watch: Watch) -> None:
        """Send the request once and feed the response to *answer*."""
        decoder = self._wire.decoder()
        request = self._client.build_request("POST", self._url, content=content)
        with Exchange(self._client, request) as exchange:
            for data in self._events(exchange, answer, watch):
                for event in decoder.decode(data):
                    answer.add(event)
        if not answer.is_complete:
            raise Fault("the answer was cut off without a finish reason or an end marker")

    def _events(self, exchange: Exchange, answer: TurnAccumulator, watch: Watch) -> Iterator[str]:
        """The data of the events until the end of the answer."""
        deadline = _Deadline(self._settings.timeouts)
        while not answer.has_ended:
            if watch.is_stopped():
                raise _Abandoned(was_sent=True)
            item = exchange.next(min(deadline.seconds_left, _SLICE))
            match item:
                case str():
                    yield item
                    deadline.extend(answer.is_complete)
                case PlainResponse():
                    raise fault_of_response(item.status, item.headers, item.body, self._clock())
                case ExchangeEnded():
                    _check_end(item, answer)
                    return
            if deadline.seconds_left <= 0:
                if answer.is_complete:
                    return
                raise Fault(deadline.why)

    def _explain(self, fault: Fault) -> str:
        """The fault without the key, and the beginning of the server's message."""
        reason = f"{self._settings.model} at {urlsplit(self._url).netloc}: {fault}"
        # Redact before truncating: half a secret cannot be found.
        details = self._redactor.redact(fault.details)
        if len(details) > _MAX_DETAILS:
            details = details[: _MAX_DETAILS - 1] + "…"
        reason = self._redactor.redact(reason)
        return f"{reason}: {details}" if details else reason


class _Abandoned(Exception):
    """The turn is no longer wanted."""

    def __init__(self, *, was_sent: bool) -> None:
        super().__init__()
        self.was_sent = was_sent


class _Deadline:
    """The time limits of one attempt: until the first event, between events, and in all."""

    def __init__(self, timeouts: ModelTimeouts) -> None:
        self._timeouts = timeouts
        now = time.monotonic()
        self._end = now + timeouts.total
        self._until = now + timeouts.first
        self._reason = f"no event arrived within {timeouts.first:g} s"

    def extend(self, is_complete: bool) -> None:
        """Start waiting for the next event."""
        idle = min(self._timeouts.idle, _LINGER) if is_complete else self._timeouts.idle
        self._until = time.monotonic() + idle
        self._reason = f"no further event arrived within {idle:g} s"

    @property
    def seconds_left(self) -> float:
        """Seconds left for the next event."""
        return min(self._until, self._end) - time.monotonic()

    @property
    def why(self) -> str:
        """The limit that expired."""
        if self._end <= self._until:
            return f"the answer was not complete within {self._timeouts.total:g} s"
        return self._reason


def _check_end(end: ExchangeEnded, answer: TurnAccumulator) -> None:
    """Accept a complete answer, however the connection ended; raise a `Fault` otherwise."""
    error = end.error
    if error is not None and not isinstance(error, httpx2.HTTPError):
        raise error
    if error is not None and not answer.is_complete:
        raise Fault(f"{type(error).__name__}: {error}") from error


def _check_key(key: SecretStr | None) -> None:
    if key is None:
        return
    text = key.get_secret_value()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ConfigError(
            "the model's API key is empty or has characters that are not allowed in a header"
        )


@dataclass(frozen=True)
class PlainResponse:
    """A response that is not an event stream."""

    status: int
    headers: Mapping[str, str]
    body: str


@dataclass(frozen=True)
class ExchangeEnded:
    """The end of the exchange, with the error if it failed."""

    error: BaseException | None = None


#: The data of a server-sent event, or something else.
Item = str | PlainResponse | ExchangeEnded


class Exchange:
    """Sends a request in a thread and hands over the response item by item."""

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

    def __exit__(self, *_: object) -> None:
        self._lifeline.cut()
        self._thread.join(_JOIN)
        if not self._thread.is_alive():
            self._lifeline.close()

    def next(self, timeout: float) -> Item | None:
        """The next item; None if none arrives within *timeout* seconds."""
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
        except BaseException as error:  # noqa: BLE001 - raised in the waiting thread
            self._items.put(ExchangeEnded(error))
        else:
            self._items.put(ExchangeEnded())

    def _read(self, response: httpx2.Response) -> None:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.status_code != httpx2.codes.OK or kind != "text/event-stream":
            headers = {name.lower(): value for name, value in response.headers.items()}
            self._items.put(PlainResponse(response.status_code, headers, _excerpt(response)))
            return
        # Server-sent events are UTF-8, whatever the server says.
        response.encoding = "utf-8"
        size = 0
        for event in httpx2.EventSource(response, max_event_size=MAX_EVENT):
            size += len(event.data)
            if max(size, response.num_bytes_downloaded) > MAX_ANSWER:
                raise Fault(f"the answer is larger than {MAX_ANSWER >> 20} MiB")
            self._items.put(event.data)


def _excerpt(response: httpx2.Response) -> str:
    read = bytearray()
    with suppress(httpx2.RequestError):
        for chunk in response.iter_bytes():
            read += chunk
            if len(read) >= _MAX_EXCERPT:
                break
    return read[:_MAX_EXCERPT].decode("utf-8", "replace")
