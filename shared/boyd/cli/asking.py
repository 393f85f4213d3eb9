"""`boyd ask`: one question to the agent's model, and the answer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn, get_args

import click

from boyd.cli import output
from boyd.cli.connection import Api
from boyd.cli.following import Following
from boyd.cli.ids import short
from boyd.cli.options import api_options
from boyd.cli.transcript import ANSWERED, PlainTranscript, Transcript
from boyd.cli.typed import boyd_here
from boyd.cli.values import Whole, words_option
from boyd.models.investigation import Asked, Ended, Investigation, Profile

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
    following = Following(api, id, note=lambda text: transcript.line("note", text))
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
    from boyd.cli.transcript_live import LiveTranscript

    return LiveTranscript()


def goes_on(id: str) -> NoReturn:
    """End the command, not the investigation."""
    command, name = f"{boyd_here()} investigations", short(id)
    output.note(
        f"It goes on without this command: `{command} follow {name}` shows it,"
        f" `{command} cancel {name}` ends it."
    )
    raise click.exceptions.Exit(output.INTERRUPTED)
