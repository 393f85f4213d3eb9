"""What a wire is: how to write requests, and how to read events (G2)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import SecretStr

from boyd.llm.faults import Fault
from boyd.llm.messages import ModelRequest, StreamEvent
from boyd.model_settings import ModelSettings
from boyd.values import check_values


class Decoder(Protocol):
    """Reads the events of one answer; may remember what it has read."""

    def decode(self, data: str) -> Iterable[StreamEvent]:
        """What the data of one server-sent event say.

        Raises:
            Fault: an error, or nothing that belongs on this wire.
        """
        ...


@dataclass(frozen=True)
class Wire:
    """How to talk to one kind of server.

    Attributes:
        url: where requests go.
        headers: what goes with them.
        body: the JSON object of a request.
        decoder: makes what reads one answer.
    """

    url: Callable[[ModelSettings], str]
    headers: Callable[[SecretStr | None], dict[str, str]]
    body: Callable[[ModelSettings, ModelRequest], dict[str, Any]]
    decoder: Callable[[], Decoder]


def frame(settings: ModelSettings, longest: str) -> dict[str, Any]:
    """What a request says on every wire; *longest* is what this one calls the limit of a turn."""
    said = {"model": settings.model, "stream": True, longest: settings.max_output_tokens}
    return said if settings.temperature is None else {**said, "temperature": settings.temperature}


def document(data: str) -> dict[str, Any]:
    """The JSON object that an event carries.

    Raises:
        Fault: it carries none.
    """
    try:
        check_values(data)
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Fault("an event of the stream is no JSON object")
    return value


def part(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The object below *name*; an empty one when there is none."""
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def text(value: Mapping[str, Any], name: str) -> str:
    """The text below *name*; empty when there is none."""
    found = value.get(name)
    return found if isinstance(found, str) else ""


def number(value: Mapping[str, Any], name: str) -> int:
    """The number of tokens below *name*; 0 when there is none."""
    found = value.get(name)
    return max(found, 0) if isinstance(found, int) else 0


def index(value: Mapping[str, Any]) -> int | None:
    """The `index` of a piece; None when there is none."""
    found = value.get("index")
    return found if isinstance(found, int) and not isinstance(found, bool) else None
