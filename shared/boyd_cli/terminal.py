"""Reads lines from a terminal, and waits for the API with a spinner and streams that reconnect."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Self, TypeVar

import click

from boyd.errors import ApiProblem, ApiUnavailable, BoydError
from boyd.models import Event, LoopResult
from boyd.models.investigation import Ended, Investigation, Logged
from boyd_cli import INTERRUPTED, api_access, output
from boyd_cli.api_access import Api

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from rich.status import Status

    from boyd_cli.client import Client, Stream


class Prompt:
    """The lines of standard input."""

    def __init__(self, mark: str) -> None:
        self._mark = mark

    def question(self) -> str | None:
        """Read the next line; None at the end."""
        if sys.stdin.isatty():
            click.echo(self._mark, nl=False, err=True)
        line = sys.stdin.buffer.readline().decode(errors="replace")
        return line.rstrip("\r\n") if line else None

    def reply(self, text: str) -> str | None:
        """Ask *text*; None without an answer, or when nobody can be asked.

        Raises:
            KeyboardInterrupt: Ctrl-C.
        """
        return None

    def remember(self, lines: Iterable[str]) -> None:
        """Add *lines* to the history, if there is one."""


class TerminalPrompt(Prompt):
    """A prompt with editing and a history."""

    def __init__(
        self, mark: str, hint: str, history: History | None, completer: Completer | None
    ) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import InMemoryHistory

        super().__init__(mark)
        self._hint = hint
        self._history = history or InMemoryHistory()
        self._session: PromptSession[str] = PromptSession(
            history=self._history,
            completer=completer,
            complete_while_typing=False,
            complete_in_thread=True,
            key_bindings=None if completer else _bindings(),
        )

    def question(self) -> str | None:
        """See `Prompt`; Ctrl-C discards the line, Ctrl-D ends."""
        while True:
            try:
                return self._session.prompt(self._mark)
            except KeyboardInterrupt:
                output.note(self._hint)
            except EOFError:
                return None

    def reply(self, text: str) -> str | None:
        """See `Prompt`; Ctrl-D gives no answer."""
        from prompt_toolkit import prompt

        try:
            return prompt(text)
        except EOFError:
            return None

    def remember(self, lines: Iterable[str]) -> None:
        """See `Prompt`."""
        for text in lines:
            self._history.append_string(output.clean(text))


def open_prompt(
    mark: str, hint: str, history: History | None = None, completer: Completer | None = None
) -> Prompt:
    """Open the prompt that suits standard input.

    Args:
        mark: printed before each line.
        hint: printed after Ctrl-C; it says how to leave.
        history: earlier lines; default: kept in memory.
        completer: for Tab. Without one Alt-Enter begins a new line.
    """
    return TerminalPrompt(mark, hint, history, completer) if output.can_ask() else Prompt(mark)


def _bindings() -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings

    bindings = KeyBindings()

    @bindings.add("escape", "enter")
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings


_T = TypeVar("_T")

#: Seconds between two questions: the first pause, and the longest.
_FIRST = 0.05
_LONGEST = 0.5
#: Seconds between two attempts to open a stream.
_PAUSE = 1.0
#: Seconds for the streams to open.
_OPEN = 10.0
#: Seconds that one wait for events takes at most, so that Ctrl-C is noticed.
BLOCK = 5.0
#: Refusals that are over soon: too many streams or requests, and an API that cannot work now.
_PASSING = (429, 503, 504)
#: Refusals after which events are not followed any more.
_FINAL = (401, 403, 404)

#: What a thread passes on of an agent: an event, None when a stream opens, or an error.
_Item = tuple[str, Event | BoydError | None]


class Outage:
    """Reports once that the API is away, and once that it is back."""

    def __init__(self, note: Callable[[str], None] = output.note) -> None:
        self.note = note
        self._away = False

    def begin(self, error: Exception) -> None:
        """Report *error*, unless the outage is known."""
        if not self._away:
            self.note(f"{output.one_line(str(error))}; retrying until it is back")
        self._away = True

    def end(self, *, report: bool = True) -> None:
        """Note that the API has answered."""
        if self._away and report:
            self.note("the API is back")
        self._away = False


class Spinner:
    """A wait with a spinner on a terminal; Ctrl-C ends the command with its own status."""

    def __init__(self, seconds: float | None, *, ends_command: bool = True) -> None:
        """Wait for *seconds*, or without a limit; with *ends_command* Ctrl-C ends the command."""
        self._ends_command = ends_command
        self._began = time.monotonic()
        self._until = float("inf") if seconds is None else self._began + seconds
        self._pause = _FIRST
        self._status: Status | None = None
        self._outage = Outage()

    def __enter__(self) -> Self:
        if output.is_terminal():
            self._status = output.console().status("")
            self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._status is not None:
            self._status.stop()
        if kind is KeyboardInterrupt and self._ends_command:
            output.note("It continues without this command.")
            raise click.exceptions.Exit(INTERRUPTED) from None

    @property
    def is_over(self) -> bool:
        """True if the time has passed."""
        return time.monotonic() >= self._until

    def ask(self, question: Callable[[], _T]) -> _T | None:
        """Return the answer to *question*, or None while the API is away."""
        try:
            answer = question()
        except ApiUnavailable as error:
            self._outage.begin(error)
            return None
        self._outage.end(report=False)
        return answer

    def insist(self, question: Callable[[], _T]) -> _T:
        """Repeat *question* until the API answers it."""
        while True:
            try:
                answer = question()
            except BoydError as error:
                if not _is_passing(error):
                    raise
                self._outage.begin(error)
            else:
                self._outage.end(report=False)
                return answer
            self.pause("waiting for the API")

    def pause(self, doing: Callable[[], str] | str) -> None:
        """Let some time pass; a terminal shows *doing*."""
        if self._status is not None:
            from rich.text import Text

            took = output.seconds(int(time.monotonic() - self._began))
            text = doing if isinstance(doing, str) else self.ask(doing) or ""
            self._status.update(Text(f"{output.one_line(text)}  {took}"))
        time.sleep(max(0.0, min(self._pause, self._until - time.monotonic())))
        self._pause = min(_LONGEST, self._pause * 1.5)


def _reconnect(
    connect: Callable[[], Stream[_T]],
    at_end: Callable[[], Iterator[_T]],
    is_passing: Callable[[BoydError], bool],
) -> Iterator[_T | BoydError | None]:
    """Read one stream after the other: its items, None when one opens, the error when one breaks.

    *at_end* gives what follows a stream that has ended. Errors that do not pass are raised.
    """
    while True:
        try:
            with closing(connect()) as stream:
                yield None
                yield from stream
            yield from at_end()
        except BoydError as error:
            if not is_passing(error):
                raise
            yield error
        time.sleep(_PAUSE)


class EventFollower:
    """The events of several agents from now on, each agent over a stream of its own."""

    def __init__(self, client: Client, agent_ids: Sequence[str]) -> None:
        """Open the streams; no event after this is missed."""
        self.client = client
        self._items: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._away: set[str] = set()
        self._outage = Outage()
        opened = [threading.Event() for _ in agent_ids]
        for agent_id, event in zip(agent_ids, opened, strict=True):
            threading.Thread(target=self._follow, args=(agent_id, event), daemon=True).start()
        until = time.monotonic() + _OPEN
        for event in opened:
            event.wait(max(0.0, until - time.monotonic()))

    def _follow(self, agent_id: str, opened: threading.Event) -> None:
        """Pass events on until the process ends or the API refuses for good; runs in a thread."""
        client, last, is_open = self.client.of(agent_id), "", False

        def connect() -> Stream[Event]:
            try:
                return client.events(last or None)
            finally:
                opened.set()

        def report_closure() -> Iterator[Event]:
            raise ApiUnavailable(f"the API at {client.url} has closed the event stream")

        try:
            for item in _reconnect(connect, report_closure, _may_reopen):
                self._items.put((agent_id, item))
                if isinstance(item, Event):
                    last = item.id or last
                elif item is None:
                    is_open = True
                elif is_open:
                    # No event before this moment is missing.
                    last = last or f"{int(client.now().timestamp() * 1000) - 2000}-0"
        except BoydError as error:
            self._items.put((agent_id, error))

    def wait(self, seconds: float = BLOCK) -> list[tuple[str, Event]]:
        """Wait for events; return all since the last call as (agent id, event).

        Raises:
            ApiProblem: an agent cannot be followed any more.
        """
        events = []
        try:
            item = self._items.get(timeout=seconds)
            while True:
                events += self._receive(*item)
                item = self._items.get_nowait()
        except queue.Empty:
            return events

    def endlessly(self) -> Iterator[tuple[str, Event]]:
        """Yield events until the caller stops reading; raises as `wait`."""
        while True:
            yield from self.wait()

    def _receive(self, agent_id: str, item: Event | BoydError | None) -> list[tuple[str, Event]]:
        if isinstance(item, Event):
            return [(agent_id, item)]
        if item is not None:
            if not _may_reopen(item):
                raise item
            self._away.add(agent_id)
            self._outage.begin(item)
        else:
            self._away.discard(agent_id)
            if not self._away:
                self._outage.end()
        return []

    def result(self, agent_id: str, iteration: int) -> LoopResult | None:
        """Read a past iteration; None if it does not exist, or the API is away."""
        try:
            return self.client.of(agent_id).get(f"/loop/history/{iteration}", LoopResult)
        except BoydError:
            return None


def _may_reopen(error: BoydError) -> bool:
    return not (isinstance(error, ApiProblem) and error.status in _FINAL)


class LogFollower:
    """The log of one investigation, each entry once, across broken connections."""

    def __init__(
        self, api: Api, id: str, last: str | None = None, note: Callable[[str], None] = output.note
    ) -> None:
        """Begin after the entry *last*; *note* reports the state of the connection."""
        self._api = api
        self._client: Client = api.agent
        self._id = id
        self.note = note
        self.last = last

    def question(self) -> Iterator[Logged]:
        """Yield entries until the current question has ended."""
        for logged in self._all():
            yield logged
            if isinstance(logged.entry, Ended):
                return

    def everything(self) -> Iterator[Logged]:
        """Yield entries until an end that nothing follows."""
        for logged in self._all():
            yield logged
            if isinstance(logged.entry, Ended) and not self.read_missing():
                return

    def read_missing(self) -> list[Logged]:
        """Read the entries that are in the log and have not been yielded."""
        return list(api_access.entries(self._api, self._id, self.last))

    def _all(self) -> Iterator[Logged]:
        outage = Outage(lambda text: self.note(text))
        for item in _reconnect(self._connect, self._end, _is_passing):
            if isinstance(item, BoydError):
                outage.begin(item)
            elif item is None:
                outage.end()
            elif item.id:
                self.last = item.id
                yield item
            else:
                self.note("Redis has lost part of the log")

    def _connect(self) -> Stream[Logged]:
        return self._client.entries(self._id, self.last)

    def _end(self) -> Iterator[Logged]:
        """Yield the end of an investigation whose log has lost it."""
        investigation = self._client.get(f"/investigations/{self._id}", Investigation)
        if (
            investigation.status == "ended"
            and investigation.ending is not None
            and not self.read_missing()
        ):
            text = investigation.text or investigation.detail or "Its log is gone."
            end = Ended(
                ending=investigation.ending,
                text=text,
                detail=investigation.detail,
                counters=investigation.counters,
            )
            yield Logged(id=self.last or "0-0", entry=end)


def _is_passing(error: BoydError) -> bool:
    is_busy = isinstance(error, ApiProblem) and error.status in _PASSING
    return is_busy or isinstance(error, ApiUnavailable)
