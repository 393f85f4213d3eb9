"""`boyd events`, and events as lines of text."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing

import click

from boyd.cli import output
from boyd.cli.api_access import Api
from boyd.cli.options import api_options
from boyd.cli.parameter_types import duration_option
from boyd.cli.waiting import EventFollower
from boyd.models import Event

#: Where a value is cut on a terminal.
_CUT = 60
#: Seconds of silence after which all past events have been sent.
_QUIET = 1.0
_HOUR = 3600.0


def is_repeated(event: Event) -> bool:
    """Tell whether *event* only repeats that a pending approval was proposed again."""
    return event.kind == "approval.seen"


def event_line(
    follower: EventFollower, agent_id: str, event: Event, width: int | None = None
) -> str:
    """An event as one line; the end of an iteration shows its outcome."""
    if event.kind in ("iteration.completed", "iteration.failed"):
        result = follower.result(agent_id, _number(event))
        if result is not None:
            return output.iteration_line(result, width or output.width())
    return plain_line(agent_id, event)


def plain_line(agent_id: str, event: Event, moment: str | None = None) -> str:
    """An event as one line, from its own data; *moment* replaces the time of day."""
    data = event.data
    where = f"{moment or output.clock(event.at)}  {agent_id}"
    if event.kind == "phase":
        return f"{where} #{_number(event)}  {data.get('phase')}"
    if event.kind == "iteration.started":
        return f"{where} #{_number(event)}  started by {output.one_line(str(data.get('trigger')))}"
    if event.kind == "missed":
        return f"{where}  some events were missed: they have expired"
    return f"{where}  {output.one_line(_event_text(event.kind, data))}"


def _number(event: Event) -> int:
    return int(str(event.data.get("iteration", 0)))


def _event_text(kind: str, data: Mapping[str, object]) -> str:
    noun, _, what = kind.partition(".")
    own = str(data.get(noun, ""))[: output.SHORT]
    width = _CUT if output.is_terminal() else sys.maxsize
    others = [
        f"{key}={output.short_value(value, width)}"
        for key, value in data.items()
        if key != noun and value not in (None, "", [], {})
    ]
    return " ".join(filter(None, [noun, own, what, *others]))


@click.command()
@duration_option("--since", "Start this long ago, as in 10m; default: 1h, or now with --follow.")
@click.option("--follow", is_flag=True, help="Keep following until Ctrl-C.")
@output.lines_option
@api_options
def events(api: Api, since: float | None, follow: bool, form: str) -> None:
    """Show the events of an agent, newest last."""
    agent_id = api.agent_id
    follower = EventFollower(api.deployment, [agent_id]) if follow else None
    seen = ""
    if since is not None or not follow:
        begin = int((api.agent.now().timestamp() - (_HOUR if since is None else since)) * 1000)
        with closing(api.agent.events(f"{max(0, begin)}-0", until_quiet=_QUIET)) as past:
            for event in [event for event in past if event.kind != "missed"]:
                seen = event.id
                _print(agent_id, event, form)
    try:
        for _, event in follower.endlessly() if follower else ():
            if event.kind == "missed" or _position(event.id) > _position(seen):
                _print(agent_id, event, form)
    except KeyboardInterrupt:
        return


def _position(event_id: str) -> tuple[int, int]:
    """The position of an event in the stream; an empty id comes first."""
    milliseconds, _, number = event_id.partition("-")
    return (int(milliseconds), int(number)) if number else (-1, 0)


def _print(agent_id: str, event: Event, form: str) -> None:
    if output.print_item(form, {"agentId": agent_id, **event.to_wire()}):
        return
    if not is_repeated(event):
        output.say(plain_line(agent_id, event, output.date(event.at)))
