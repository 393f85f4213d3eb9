"""Follows what happens to agents, over the API, which may go away for a while and come back."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import click

from boyd.cli import output
from boyd.cli.api_access import Api
from boyd.cli.options import api_options
from boyd.cli.parameter_types import duration_option
from boyd.errors import ApiProblem, ApiUnavailable, BoydError
from boyd.models import Event, LoopResult

if TYPE_CHECKING:
    from boyd.client import Client

#: Seconds that one wait for events takes at most, so that Ctrl-C is noticed.
BLOCK = 5.0
#: Seconds between two tries while the API is away.
_PAUSE = 1.0
#: Seconds for the streams to open.
_OPEN = 10.0
#: Where a value is cut on a terminal.
_CUT = 60
#: What makes a stream be given up at once.
_FINAL = (401, 403, 404)

_Told = tuple[str, Event | BoydError | None]


class EventFollower:
    """The events of agents from now on, of each over a stream of its own."""

    def __init__(self, client: Client, agent_ids: Sequence[str]) -> None:
        """Open the streams; what happens after this is not missed."""
        self.client = client
        self._told: queue.SimpleQueue[_Told] = queue.SimpleQueue()
        self._away: set[str] = set()
        opened = [threading.Event() for _ in agent_ids]
        for agent_id, event in zip(agent_ids, opened, strict=True):
            stream = _Stream(client.of(agent_id), agent_id, self._told, event)
            threading.Thread(target=stream.follow, daemon=True).start()
        until = time.monotonic() + _OPEN
        for event in opened:
            event.wait(max(0.0, until - time.monotonic()))

    def wait(self, seconds: float = BLOCK) -> list[tuple[str, Event]]:
        """What has happened since the last call, as (agent id, event); waits for the first.

        Raises:
            ApiProblem: an agent cannot be followed any more.
        """
        found = []
        try:
            told = self._told.get(timeout=seconds)
            while True:
                found += self._taken(*told)
                told = self._told.get_nowait()
        except queue.Empty:
            return found

    def _taken(self, agent_id: str, said: Event | BoydError | None) -> list[tuple[str, Event]]:
        if isinstance(said, Event):
            return [(agent_id, said)]
        if isinstance(said, ApiProblem) and said.status in _FINAL:
            raise said
        if said is not None:
            if not self._away:
                output.note(f"{output.one_line(str(said))}; waiting for it to come back")
            self._away.add(agent_id)
        elif agent_id in self._away:
            self._away.remove(agent_id)
            if not self._away:
                output.note("the API answers again")
        return []

    def result(self, agent_id: str, iteration: int) -> LoopResult | None:
        """A past iteration; None when there is no such one, or the API is away."""
        try:
            return self.client.of(agent_id).get(f"/loop/history/{iteration}", LoopResult)
        except BoydError:
            return None


class _Stream:
    """Reads one stream, and opens it again where it broke off."""

    def __init__(
        self,
        client: Client,
        agent_id: str,
        told: queue.SimpleQueue[_Told],
        opened: threading.Event,
    ) -> None:
        self._client = client
        self._agent_id = agent_id
        self._told = told
        self._opened = opened
        self._last: str | None = None

    def follow(self) -> None:
        """Tell what happens, until the process ends or the API wants no more of us."""
        while True:
            try:
                self._read()
            except BoydError as error:
                self._told.put((self._agent_id, error))
                if isinstance(error, ApiProblem) and error.status in _FINAL:
                    return
            finally:
                self._opened.set()
            time.sleep(_PAUSE)

    def _read(self) -> None:
        events = self._client.events(self._last)
        self._opened.set()
        self._told.put((self._agent_id, None))
        try:
            for event in events:
                self._last = event.id or self._last
                self._told.put((self._agent_id, event))
        finally:
            # Nothing has happened before this moment that was not told.
            self._last = self._last or f"{int(self._client.now().timestamp() * 1000) - 2000}-0"
        raise ApiUnavailable(f"the API at {self._client.url} has ended the stream of events")


def is_repeated(event: Event) -> bool:
    """Whether it says again what is known: an approval that waits was proposed once more."""
    return event.kind == "approval.seen"


def event_line(
    follower: EventFollower, agent_id: str, event: Event, width: int | None = None
) -> str:
    """An event as one line; the end of an iteration with what it came to."""
    if event.kind in ("iteration.completed", "iteration.failed"):
        result = follower.result(agent_id, _number(event))
        if result is not None:
            return output.iteration_line(result, width or output.width())
    return plain_line(agent_id, event)


def plain_line(agent_id: str, event: Event, moment: str | None = None) -> str:
    """An event as one line, by what it says itself; *moment* is when, if not the time of day."""
    data = event.data
    where = f"{moment or output.clock(event.at)}  {agent_id}"
    if event.kind == "phase":
        return f"{where} #{_number(event)}  {data.get('phase')}"
    if event.kind == "iteration.started":
        return f"{where} #{_number(event)}  started by {output.one_line(str(data.get('trigger')))}"
    if event.kind == "missed":
        return f"{where}  some events were missed: they are kept no longer"
    return f"{where}  {output.one_line(_words(event.kind, data))}"


def _value(value: object) -> str:
    """As it is written behind `=`; quoted where it would not be seen where it ends."""
    text = output.text_of(value)
    if output.is_terminal():
        text = output.cut(text, _CUT)
    return json.dumps(text, ensure_ascii=False) if isinstance(value, str) and " " in text else text


def _number(event: Event) -> int:
    return int(str(event.data.get("iteration", 0)))


def _words(kind: str, data: Mapping[str, object]) -> str:
    noun, _, what = kind.partition(".")
    own = str(data.get(noun, ""))[: output.SHORT]
    others = [
        f"{key}={_value(value)}"
        for key, value in data.items()
        if key != noun and value not in (None, "", [], {})
    ]
    return " ".join(filter(None, [noun, own, what, *others]))


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
    follower = EventFollower(api.deployment, [agent_id]) if follow else None
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


def _follow(follower: EventFollower, agent_id: str, seen: str, form: str) -> None:
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
