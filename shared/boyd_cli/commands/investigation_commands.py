"""`boyd ask`, `boyd investigations list|show|follow|cancel`: questions to the agent's model."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import Any, NoReturn, get_args

import click

from boyd.models.investigation import (
    Asked,
    Ended,
    Investigation,
    Logged,
    Profile,
    Result,
    Said,
    ToolCall,
    ToolObservation,
    call_number,
)
from boyd.text.formatting import dollars
from boyd_cli import INTERRUPTED, api_access, completion, output
from boyd_cli.api_access import Api
from boyd_cli.options import api_options, data_options, find_by_prefix, id_argument
from boyd_cli.parameter_types import Whole, words_option
from boyd_cli.views.tables import label, sentence, whole
from boyd_cli.views.transcript import ANSWERED, PlainTranscript, Transcript, result_text, used
from boyd_cli.waiting import LogFollower

Call = tuple[ToolCall | None, ToolObservation | None]


def find_call(log: Iterable[Logged], number: int) -> Call:
    """Find the call of that number and its result."""
    made: ToolCall | None = None
    for logged in log:
        entry = logged.entry
        if isinstance(entry, Said):
            made = next((one for one in entry.calls if call_number(one.id) == number), made)
        elif isinstance(entry, Result) and call_number(entry.observation.call_id or "") == number:
            return made, entry.observation
    return made, None


def call_lines(made: ToolCall, seen: ToolObservation | None) -> Iterator[str]:
    """A call in full, as text."""
    yield f"{made.label} {output.one_line(made.name)}"
    for line in _arguments(made.arguments).split("\n"):
        yield f"  {line}".rstrip()
    if seen is None:
        yield "No result yet."
        return
    yield result_text(seen)
    yield ""
    yield from output.clean(seen.output).rstrip("\n").split("\n")


def _arguments(text: str) -> str:
    try:
        return output.clean(json.dumps(json.loads(text), indent=2, ensure_ascii=False))
    except (ValueError, RecursionError):
        return output.clean(text)


COLUMNS = (
    *(whole("id"), whole("status"), whole("took", drop=3), whole("tokens", drop=4)),
    *(whole("cost", drop=2), whole("age", drop=1), whole("steps", drop=5)),
    *(label("source", drop=7), label("asked by", drop=6), sentence("about", least=30)),
)

investigation_argument = id_argument("investigation", completion.investigations)


def asking_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give *command* the options that `begin` takes."""
    help_ = "How strongly the model is pushed to finish."
    reflection = click.option("--reflection", type=click.Choice(get_args(Profile)), help=help_)
    help_ = "Tools the model may use, as in `logs*,disk*`."
    tools = words_option("--tools", metavar="PATTERN", help=help_)
    help_ = "Maximum number of model turns."
    max_steps = click.option("--max-steps", type=Whole(1, 1000), help=help_)
    made: Callable[..., Any] = reflection(tools(max_steps(command)))
    return made


def begin(
    api: Api, question: str, reflection: str | None, tools: tuple[str, ...], max_steps: int | None
) -> Investigation:
    """Begin an investigation."""
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
    "--follow/--no-follow", default=True, help="Follow it to the end, or only print its id."
)
@asking_options
@click.option("--json", "as_json", is_flag=True, help="Same as `-o json`.")
@data_options
def ask(api: Api, question: str, follow: bool, as_json: bool, form: str, **how: Any) -> None:
    """Ask the agent's model, which can use the agent's tools.

    Shows each step and then the answer; `-` reads the question from standard input. A pipe gets
    only the answer.
    """
    form = "json" if as_json else form
    text = sys.stdin.buffer.read().decode(errors="replace") if question == "-" else question
    if not text.strip():
        raise click.BadParameter("it must not be empty", param_hint="QUESTION")
    made = begin(api, text, **how)
    if not follow:
        if not output.print_data(form, made):
            output.say(made.id)
        return
    live = form == "table" and output.is_terminal()
    ended = _show_until_end(api, made.id, live)
    if form != "table":
        output.print_data(form, api.agent.get(f"/investigations/{made.id}", Investigation))
    elif not live:
        output.say(output.clean(ended.text).rstrip())
    output.fail_if(ended.ending not in ANSWERED)


def _show_until_end(api: Api, id: str, live: bool) -> Ended:
    transcript = live_transcript() if live else PlainTranscript(output.note, answers=False)
    following = LogFollower(api, id, note=functools.partial(transcript.line, "note"))
    try:
        with transcript:
            for logged in following.question():
                if not isinstance(logged.entry, Asked):
                    transcript.show(logged.entry)
                if isinstance(logged.entry, Ended):
                    return logged.entry
    except KeyboardInterrupt:
        exit_interrupted(id)
    raise AssertionError("the log of an investigation ends")


def live_transcript() -> Transcript:
    """A transcript on the terminal."""
    from boyd_cli.views.live_transcript import LiveTranscript

    return LiveTranscript()


def exit_interrupted(id: str) -> NoReturn:
    """End the command, not the investigation."""
    command, name = f"{output.command_name()} investigations", output.short(id)
    output.note(
        f"It continues without this command: `{command} follow {name}` shows it,"
        f" `{command} cancel {name}` cancels it."
    )
    raise click.exceptions.Exit(INTERRUPTED)


@click.group()
def investigations() -> None:
    """Show and cancel questions to the agent's model."""


@investigations.command("list")
@click.option("--limit", type=Whole(1, 5000), default=20, show_default=True)
@data_options
def list_(api: Api, limit: int, form: str) -> None:
    """List investigations, newest first."""
    found = api_access.investigations(api, limit)
    rows = [_row(api, one) for one in found]
    output.print_list(form, found, COLUMNS, rows, "No investigations found.")


def _row(api: Api, one: Investigation) -> list[str]:
    usage, now = one.counters.usage, api.agent.now()
    took = one.counters.seconds
    if one.status != "ended":
        took = max(0.0, (now - one.created_at).total_seconds())
    return [
        output.short(one.id),
        one.ending or one.status,
        output.short_seconds(took),
        str(usage.input_tokens + usage.output_tokens),
        dollars(one.counters.cost) if one.counters.cost else "",
        output.short_age(one.created_at, now),
        str(one.counters.steps),
        one.source,
        one.asked_by or "",
        one.name,
    ]


@investigations.command()
@investigation_argument
@click.option(
    "--call", type=Whole(1), metavar="NUMBER", help="Show this tool call with its full output."
)
@data_options
def show(api: Api, investigation: str, call: int | None, form: str) -> None:
    """Show an investigation and its answer, or one of its tool calls."""
    found = find(api, investigation)
    if call is None:
        if not output.print_data(form, found):
            _show(api, found)
        return
    made, seen = find_call(api_access.entries(api, found.id), call)
    if made is None:
        output.stop(output.NOT_FOUND, f"investigation {output.short(found.id)} has no call #{call}")
    if output.print_data(form, {"call": made, "result": seen}):
        return
    for line in call_lines(made, seen):
        output.say(line)


def find(api: Api, prefix: str) -> Investigation:
    """Find an investigation by a unique prefix of its id; exit with an error otherwise."""
    every = api_access.investigations
    return find_by_prefix(api, "investigation", prefix, Investigation, every)


def _show(api: Api, found: Investigation) -> None:
    now, short = api.agent.now(), output.short(found.approval_id or "")
    output.say(output.one_line(f"{found.name}: {found.ending or found.status}"))
    output.print_pairs(
        ("id", found.id),
        ("detail", found.detail or ""),
        ("source", f"{found.source} {found.key or ''}"),
        ("asked by", found.asked_by or ""),
        ("asked", output.age(found.created_at, now)),
        ("ended", output.age(found.ended_at, now) if found.ended_at else ""),
        ("used", used(found.counters)),
        ("waits for", f"approval {short}" if short else ""),
        ("cancelled by", found.cancelled_by or ""),
    )
    if found.text is None:
        return
    output.say()
    if output.is_terminal():
        from boyd_cli.views.live_transcript import Prose

        output.console().print(Prose(found.text))
    else:
        output.say(output.clean(found.text).rstrip())


@investigations.command()
@investigation_argument
@output.lines_option
@api_options
def follow(api: Api, investigation: str, form: str) -> None:
    """Show an investigation from its beginning to its end.

    Exit status 1 unless it ends with an answer. Ctrl-C does not cancel it.
    """
    found = find(api, investigation)
    transcript: Transcript | None = None
    following = LogFollower(api, found.id)
    if form == "table":
        transcript = live_transcript() if output.is_terminal() else PlainTranscript(output.say)
        following.note = functools.partial(transcript.line, "note")
    ended: Ended | None = None
    try:
        with transcript or nullcontext():
            for logged in following.everything():
                ended = logged.entry if isinstance(logged.entry, Ended) else None
                if transcript is not None:
                    transcript.show(logged.entry)
                else:
                    output.print_item(form, logged)
    except KeyboardInterrupt:
        exit_interrupted(found.id)
    output.fail_if(ended is None or ended.ending not in ANSWERED)


@investigations.command()
@investigation_argument
@api_options
def cancel(api: Api, investigation: str) -> None:
    """Cancel an investigation: no further steps are started."""
    found = find(api, investigation)
    now = api.agent.post(f"/investigations/{found.id}/cancel", Investigation)
    state = "cancelled" if now.status == "ended" else "being cancelled"
    output.say(f"investigation {output.short(found.id)} is {state}")
