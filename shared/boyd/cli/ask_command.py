"""`boyd ask`: one question to the agent's model, and the answer."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, NoReturn, get_args

import click

from boyd.cli import api_access, output
from boyd.cli.api_access import Api
from boyd.cli.options import api_options, short
from boyd.cli.output import command_name
from boyd.cli.parameter_types import Whole, words_option
from boyd.cli.transcript import ANSWERED, PlainTranscript, Transcript
from boyd.errors import ApiProblem, ApiUnavailable
from boyd.models.investigation import Asked, Ended, Investigation, Logged, Profile

if TYPE_CHECKING:
    from boyd.client import Client

#: Seconds between two tries while the API is away.
_PAUSE = 1.0
#: Refusals that are over soon: too many streams or requests, and an API that cannot work now.
_PASSING = (429, 503)


class LogFollower:
    """The entries of one investigation, each once, whatever becomes of the connection."""

    def __init__(
        self, api: Api, id: str, last: str | None = None, note: Callable[[str], None] = output.note
    ) -> None:
        """Begin after the entry *last*, or with the first one; *note* is told of the connection."""
        self._api = api
        self._client: Client = api.agent
        self._id = id
        self.note = note
        self.last = last

    def question(self) -> Iterator[Logged]:
        """What comes until the question that is being worked on has ended."""
        for logged in self._all():
            yield logged
            if isinstance(logged.entry, Ended):
                return

    def everything(self) -> Iterator[Logged]:
        """What comes until nothing follows an end any more."""
        for logged in self._all():
            yield logged
            if isinstance(logged.entry, Ended) and not self.missed():
                return

    def missed(self) -> list[Logged]:
        """What is in the log already and has not been told."""
        return list(api_access.entries(self._api, self._id, self.last))

    def _all(self) -> Iterator[Logged]:
        """All that comes, without end."""
        away = False
        while True:
            try:
                with closing(self._client.entries(self._id, self.last)) as found:
                    if away:
                        self.note("the API answers again")
                    away = False
                    for logged in found:
                        if logged.id:
                            self.last = logged.id
                            yield logged
                        else:
                            self.note("Redis has lost some of what was shown")
                ended = self._ended()
                if ended is not None:
                    yield ended
            except ApiUnavailable as error:
                away = self._gone(error, away)
            except ApiProblem as problem:
                if problem.status not in _PASSING:
                    raise
                away = self._gone(problem, away)
            time.sleep(_PAUSE)

    def _ended(self) -> Logged | None:
        """The end that the investigation has and its log has not; None: something follows."""
        found = self._client.get(f"/investigations/{self._id}", Investigation)
        if found.status != "ended" or found.ending is None or self.missed():
            return None
        text = found.text or found.detail or "Its log is gone."
        ended = Ended(ending=found.ending, text=text, detail=found.detail, counters=found.counters)
        return Logged(id=self.last or "0-0", entry=ended)

    def _gone(self, error: Exception, away: bool) -> bool:
        if not away:
            self.note(f"{output.one_line(str(error))}; waiting for it to come back")
        return True


_Command = Callable[..., Any]


def asking_options(command: _Command) -> _Command:
    """Give *command* what says how an investigation goes about it, as the `asked` of its body."""
    for option in (
        click.option("--max-steps", type=Whole(1, 1000), help="Turns at most."),
        words_option("--tools", metavar="PATTERN", help="Tools it may use, as in `logs*,disk*`."),
        click.option(
            "--reflection",
            type=click.Choice(get_args(Profile)),
            help="How it is urged to come to an end.",
        ),
    ):
        command = option(command)
    return command


def begin(
    api: Api, question: str, reflection: str | None, tools: tuple[str, ...], max_steps: int | None
) -> Investigation:
    """Begin an investigation.

    Raises:
        ApiProblem: it was refused; `no-model` when the agent has no model.
        ApiUnavailable: nobody answered.
    """
    body = {
        "question": question,
        "profile": reflection,
        "tools": list(tools) or None,
        "limits": {"maxSteps": max_steps} if max_steps else None,
    }
    return api.agent.post("/investigations", Investigation, body)


@click.command()
@click.argument("question")
@click.option(
    "--follow/--no-follow", default=True, help="Show it until it has ended, or only print its id."
)
@asking_options
@click.option("--json", "as_json", is_flag=True, help="The same as `-o json`.")
@output.output_option
@api_options
def ask(api: Api, question: str, follow: bool, as_json: bool, form: str, **how: Any) -> None:
    """Ask the agent's model, which uses the agent's tools to find out.

    Prints what it does as it does it, and at the end the answer; `-` reads the question from
    standard input. Into a pipe goes the answer alone.
    """
    form = "json" if as_json else form
    text = sys.stdin.buffer.read().decode(errors="replace") if question == "-" else question
    if not text.strip():
        raise click.BadParameter("there is nothing in it", param_hint="QUESTION")
    made = begin(api, text, **how)
    if follow:
        _finish(api, made.id, form)
    elif not output.print_data(form, made):
        output.say(made.id)


def _finish(api: Api, id: str, form: str) -> None:
    """Show it to its end; ends the command unless there is an answer."""
    live = form == "table" and output.is_terminal()
    ended = _watched(api, id, live)
    if form != "table":
        output.print_data(form, api.agent.get(f"/investigations/{id}", Investigation))
    elif not live:
        output.say(output.clean(ended.text).rstrip())
    if ended.ending not in ANSWERED:
        raise click.exceptions.Exit(output.FAILED)


def _watched(api: Api, id: str, live: bool) -> Ended:
    """The end of the only question, once it has come; everything before is shown."""
    transcript = live_transcript() if live else PlainTranscript(output.note, answers=False)
    following = LogFollower(api, id, note=lambda text: transcript.line("note", text))
    try:
        with transcript:
            for logged in following.question():
                if not isinstance(logged.entry, Asked):
                    transcript.show(logged.entry)
                if isinstance(logged.entry, Ended):
                    return logged.entry
    except KeyboardInterrupt:
        goes_on(id)
    raise AssertionError("what is followed comes to an end")


def live_transcript() -> Transcript:
    """A transcript on the terminal."""
    from boyd.cli.live_transcript import LiveTranscript

    return LiveTranscript()


def goes_on(id: str) -> NoReturn:
    """End the command, not the investigation."""
    command, name = f"{command_name()} investigations", short(id)
    output.note(
        f"It goes on without this command: `{command} follow {name}` shows it,"
        f" `{command} cancel {name}` ends it."
    )
    raise click.exceptions.Exit(output.INTERRUPTED)
