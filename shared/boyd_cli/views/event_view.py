"""An event as a line of text."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from boyd import naming
from boyd.models import Event
from boyd_cli import output

#: Where a value is cut on a terminal.
_CUT = 60
#: The verbs of events that say more than is so: a call may be a dry run, or only ask a person.
_VERBS = {"call.executed": "ended"}


def plain_line(agent_id: str, event: Event, moment: str | None = None) -> str:
    """An event as one line, from its own data; *moment* replaces the time of day."""
    data = event.data
    where = f"{moment or output.clock(event.at)}  {agent_id}"
    if event.kind == "phase":
        return f"{where} #{iteration_of(event)}  {data.get('phase')}"
    if event.kind == "iteration.started":
        trigger = output.one_line(str(data.get("trigger")))
        return f"{where} #{iteration_of(event)}  started by {trigger}"
    if event.kind == "missed":
        return f"{where}  some events were missed: they have expired"
    return f"{where}  {output.one_line(_event_text(event.kind, data))}"


def iteration_of(event: Event) -> int:
    """Return the number of the event's iteration, or 0 if it has none."""
    return int(str(event.data.get("iteration", 0)))


def _event_text(kind: str, data: Mapping[str, object]) -> str:
    noun, _, verb = kind.partition(".")
    own = naming.short(str(data.get(noun, "")))
    width = _CUT if output.is_terminal() else sys.maxsize
    others = [
        f"{key}={output.short_value(value, width)}"
        for key, value in data.items()
        if key != noun and value not in (None, "", [], {})
    ]
    return " ".join(filter(None, [noun, own, _VERBS.get(kind, verb), *others]))
