"""What a model is shown of a tool's output: all of a short one, both ends of a long one (T4)."""

from __future__ import annotations

import json

from boyd.models.investigation import ToolObservation

#: Characters of output that the model is shown, and how many of those are of its beginning.
SHOWN = 6000
HEAD = 0.6
#: Bytes of output that are kept (T3).
CAPTURED = 65_536

#: What says nothing unless it is so.
_QUIET = {"timed_out", "interactive", "truncated"}


def for_model(observation: ToolObservation) -> str:
    """The message for the model: the envelope as JSON, with the output cut to what it is shown."""
    output = shortened(observation.output)
    cut = len(output) < len(observation.output)
    shown = observation.patched({"output": output, "truncated": observation.truncated or cut})
    told = {key: value for key, value in shown.to_wire().items() if key not in _QUIET or value}
    return json.dumps(told, ensure_ascii=False)


def captured(text: str) -> tuple[str, int]:
    """What is kept of a text, both ends if it is too long, and how many bytes it has in all."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= CAPTURED:
        return text, len(raw)
    head = int(CAPTURED * HEAD)
    begin, end = raw[:head], raw[len(raw) - (CAPTURED - head) :]
    both = [part.decode("utf-8", "ignore") for part in (begin, end)]
    left_out = len(raw) - sum(len(part.encode()) for part in both)
    return f"\n[{left_out} bytes left out]\n".join(both), len(raw)


def shortened(text: str, limit: int = SHOWN) -> str:
    """Both ends of a text that is longer than *limit* characters, and how much is left out."""
    if len(text) <= limit:
        return text
    head = int(limit * HEAD)
    tail = limit - head
    return f"{text[:head]}\n[{len(text) - limit} characters left out]\n{text[-tail:]}"
