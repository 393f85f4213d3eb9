"""One request and what comes back, read by a thread, so that nobody has to wait for it.

A time limit on a socket begins anew with every byte, and who waits for one cannot be told to stop.
So the thread waits, and the one who asked takes what has come, or cuts the connection.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx2

from boyd.llm.faults import Fault
from boyd.outbound.session import Lifeline

MAX_EVENT = 1 << 20
MAX_ANSWER = 8 << 20
_MAX_EXCERPT = 64 << 10
#: How long to wait for the thread after its connection was cut, in seconds.
_FAREWELL = 1.0


@dataclass(frozen=True)
class Event:
    """A server-sent event."""

    data: str


@dataclass(frozen=True)
class Other:
    """An answer that is no stream of events."""

    status: int
    headers: Mapping[str, str]
    body: str


@dataclass(frozen=True)
class Over:
    """Nothing comes any more; with an error when that is not as it should be."""

    error: BaseException | None = None


Item = Event | Other | Over


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
            self._items.put(Over(error))
        else:
            self._items.put(Over())

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
            self._items.put(Event(event.data))


def _excerpt(response: httpx2.Response) -> str:
    read = bytearray()
    with suppress(httpx2.RequestError):
        for chunk in response.iter_bytes():
            read += chunk
            if len(read) >= _MAX_EXCERPT:
                break
    return read[:_MAX_EXCERPT].decode("utf-8", "replace")
