"""What a model is shown of a tool's output: all of a short one, both ends of a long one (T4)."""

from __future__ import annotations

import json

from boyd.models.investigation import ToolObservation, call_label, call_number

#: Characters of output that the model is shown, and how many of those are of its beginning.
SHOWN = 6000
HEAD = 0.6
#: Bytes of output that are kept (T3).
CAPTURED = 65_536
#: Characters that a model may say in one turn: more is no answer that anybody reads.
SAID = 100_000

#: What says nothing unless it is so.
_QUIET = {"timed_out", "interactive", "truncated"}


def for_model(observation: ToolObservation, longest: int = SHOWN) -> str:
    """The message for the model: the envelope as JSON, with the output cut to what it is shown."""
    output = shortened(observation.output, longest, _more(observation, longest))
    return _envelope(observation, output)


def left_out(observation: ToolObservation) -> str:
    """What stands in a message for an output that is not shown any more."""
    size = len(observation.output)
    number = call_number(observation.call_id or "")
    stub = f"[{size} characters left out to make room; read_output(call={number}) shows them]"
    return _envelope(observation, stub)


def _envelope(observation: ToolObservation, output: str) -> str:
    cut = output != observation.output
    shown = observation.patched({"output": output, "truncated": observation.truncated or cut})
    told = {key: value for key, value in shown.to_wire().items() if key not in _QUIET or value}
    return json.dumps({"call": call_label(observation.call_id or ""), **told}, ensure_ascii=False)


def _more(observation: ToolObservation, longest: int) -> str:
    """How the model is shown the rest."""
    number = call_number(observation.call_id or "")
    return f"; read_output(call={number}, offset={int(longest * HEAD)}) goes on there"


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


def shortened(text: str, limit: int = SHOWN, more: str = "") -> str:
    """Both ends of a text that is longer than *limit* characters, and how much is left out.

    *more* is said behind that.
    """
    if len(text) <= limit:
        return text
    head = int(limit * HEAD)
    tail = limit - head
    return f"{text[:head]}\n[{len(text) - limit} characters left out{more}]\n{text[-tail:]}"


def bounded(text: str) -> str:
    """The beginning of what a model has said, with a note when that was too much."""
    if len(text) <= SAID:
        return text
    left = len(text) - SAID
    return f"{text[:SAID]}\n\n[{left} characters left out: at most {SAID} are kept of one turn]"
