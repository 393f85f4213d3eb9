"""`boyd events`: what has happened to an agent, and what happens."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from boyd.cli import output
from boyd.cli.connection import Api
from boyd.cli.durations import duration_option
from boyd.cli.follow import Follower, is_repeated, plain_line
from boyd.cli.options import api_options

if TYPE_CHECKING:
    from boyd.models import Event

#: Seconds of silence after which the past is over: it is sent at once.
_QUIET = 1.0
_HOUR = 3600.0


@click.command()
@duration_option("--since", "Begin so long ago, as in 10m; an hour unless given or --follow.")
@click.option("--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@output.lines_option
@api_options
def events(api: Api, since: float | None, follow: bool, form: str) -> None:
    """Show what has happened to an agent, the newest at the end."""
    agent_id = api.agent_id
    follower = Follower(api.deployment, [agent_id]) if follow else None
    seen = ""
    if since is not None or not follow:
        for event in _past(api, _HOUR if since is None else since):
            seen = event.id
            _print(agent_id, event, form)
    if follower is not None:
        _follow(follower, agent_id, seen, form)


def _past(api: Api, seconds: float) -> list[Event]:
    begin = int((api.agent.now().timestamp() - seconds) * 1000)
    with closing(api.agent.events(f"{max(0, begin)}-0", until_quiet=_QUIET)) as found:
        # Nobody has asked for all that ever was.
        return [event for event in found if event.kind != "missed"]


def _follow(follower: Follower, agent_id: str, seen: str, form: str) -> None:
    try:
        while True:
            for _, event in follower.wait():
                if event.kind == "missed" or _position(event.id) > _position(seen):
                    _print(agent_id, event, form)
    except KeyboardInterrupt:
        return


def _position(event_id: str) -> tuple[int, int]:
    """Where an event is in the stream; before all others when there is none."""
    milliseconds, _, number = event_id.partition("-")
    return (int(milliseconds), int(number)) if number else (-1, 0)


def _print(agent_id: str, event: Event, form: str) -> None:
    if output.print_item(form, {"agentId": agent_id, **event.to_wire()}):
        return
    if not is_repeated(event):
        output.say(plain_line(agent_id, event, output.date(event.at)))
