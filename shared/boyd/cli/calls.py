"""One tool call of an investigation, with all that it was given and all that it has said."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from boyd.cli import output
from boyd.cli.transcript import result_text
from boyd.models.investigation import Logged, Result, Said, ToolCall, ToolObservation, call_number

Call = tuple[ToolCall | None, ToolObservation | None]


def find(log: Iterable[Logged], number: int) -> Call:
    """The call of that number, and its result; None where there is none."""
    made: ToolCall | None = None
    for logged in log:
        entry = logged.entry
        if isinstance(entry, Said):
            made = next((one for one in entry.calls if call_number(one.id) == number), made)
        elif isinstance(entry, Result) and call_number(entry.observation.call_id or "") == number:
            return made, entry.observation
    return made, None


def lines(made: ToolCall, seen: ToolObservation | None) -> Iterator[str]:
    """A call as people read it: nothing of it is cut."""
    yield f"{made.label} {output.one_line(made.name)}"
    for line in _arguments(made.arguments).split("\n"):
        yield f"  {line}".rstrip()
    if seen is None:
        yield "It has no result yet."
        return
    yield result_text(seen)
    yield ""
    yield from output.clean(seen.output).rstrip("\n").split("\n")


def _arguments(text: str) -> str:
    try:
        return output.clean(json.dumps(json.loads(text), indent=2, ensure_ascii=False))
    except (ValueError, RecursionError):
        return output.clean(text)
