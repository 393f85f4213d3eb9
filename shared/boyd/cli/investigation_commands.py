"""`boyd investigations list|show|follow|cancel`: what the agent's model was asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from datetime import datetime
from itertools import islice

import click

from boyd.cli import api_access, completion, output
from boyd.cli.api_access import Api
from boyd.cli.ask_command import LogFollower, goes_on, live_transcript
from boyd.cli.options import api_options, id_argument, short, the_one
from boyd.cli.parameter_types import Whole
from boyd.cli.tables import label, sentence, whole
from boyd.cli.transcript import ANSWERED, PlainTranscript, Transcript, result_text, used
from boyd.formatting import dollars
from boyd.models.investigation import (
    Ended,
    Investigation,
    Logged,
    Result,
    Said,
    ToolCall,
    ToolObservation,
    call_number,
)

Call = tuple[ToolCall | None, ToolObservation | None]


def find_call(log: Iterable[Logged], number: int) -> Call:
    """The call of that number, and its result; None where there is none."""
    made: ToolCall | None = None
    for logged in log:
        entry = logged.entry
        if isinstance(entry, Said):
            made = next((one for one in entry.calls if call_number(one.id) == number), made)
        elif isinstance(entry, Result) and call_number(entry.observation.call_id or "") == number:
            return made, entry.observation
    return made, None


def call_lines(made: ToolCall, seen: ToolObservation | None) -> Iterator[str]:
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


#: The columns of the list.
COLUMNS = (
    *(whole("id"), whole("status"), whole("took", drop=3), whole("tokens", drop=4)),
    *(whole("cost", drop=2), whole("age", drop=1), whole("steps", drop=5)),
    *(label("source", drop=7), label("asked by", drop=6), sentence("about", least=30)),
)
#: Characters of a whole id.
_WHOLE = 36
#: How far back a beginning of an id is looked for.
_KNOWN = 5000

investigation_argument: Callable[[Callable[..., None]], Callable[..., None]] = id_argument(
    "investigation", completion.investigations
)


@click.group()
def investigations() -> None:
    """See what the agent's model was asked, and what it found."""


@investigations.command("list")
@click.option("--limit", type=Whole(1, 5000), default=20, show_default=True)
@output.output_option
@api_options
def list_(api: Api, limit: int, form: str) -> None:
    """List investigations, newest first."""
    page = min(limit, api_access.PAGE)
    found = list(islice(api_access.investigations(api, limit=page), limit))
    if output.print_data(form, found):
        return
    if not found:
        output.say("There are no investigations.")
        return
    output.print_table(COLUMNS, [_row(api, one) for one in found])


def _row(api: Api, one: Investigation) -> list[str]:
    usage, now = one.counters.usage, api.agent.now()
    return [
        short(one.id),
        one.ending or one.status,
        output.short_seconds(_took(one, now)),
        str(usage.input_tokens + usage.output_tokens),
        dollars(one.counters.cost) if one.counters.cost else "",
        output.short_age(one.created_at, now),
        str(one.counters.steps),
        one.source,
        one.asked_by or "",
        one.name,
    ]


def _took(one: Investigation, now: datetime) -> float:
    """Seconds that it took; of one that goes on the time since it began."""
    if one.status == "ended":
        return one.counters.seconds
    return max(0.0, (now - one.created_at).total_seconds())


@investigations.command()
@investigation_argument
@click.option(
    "--call", type=Whole(1), metavar="NUMBER", help="Show that tool call and all of its output."
)
@output.output_option
@api_options
def show(api: Api, investigation: str, call: int | None, form: str) -> None:
    """Show an investigation and its answer, or one of its tool calls."""
    found = find(api, investigation)
    if call is not None:
        _show_call(api, found, call, form)
    elif not output.print_data(form, found):
        _show(api, found)


def _show_call(api: Api, found: Investigation, number: int, form: str) -> None:
    """Show a tool call; ends the command when there is none of that number."""
    made, seen = find_call(api_access.entries(api, found.id), number)
    if made is None:
        output.stop(output.NOT_FOUND, f"investigation {short(found.id)} has no call #{number}")
    if output.print_data(form, {"call": made, "result": seen}):
        return
    for line in call_lines(made, seen):
        output.say(line)


def find(api: Api, beginning: str) -> Investigation:
    """The one whose id begins like that; ends the command when there is none, or several."""
    if len(beginning) == _WHOLE:
        return api.agent.get(f"/investigations/{beginning}", Investigation)
    known = {
        one.id: one for one in islice(api_access.investigations(api, limit=api_access.PAGE), _KNOWN)
    }
    return known[the_one("investigation", beginning, known)]


def _show(api: Api, found: Investigation) -> None:
    now = api.agent.now()
    output.say(output.one_line(f"{found.name}: {found.ending or found.status}"))
    output.print_pairs(
        [
            ("id", found.id),
            ("detail", found.detail or ""),
            ("source", f"{found.source} {found.key or ''}"),
            ("asked by", found.asked_by or ""),
            ("asked", output.age(found.created_at, now)),
            ("ended", output.age(found.ended_at, now) if found.ended_at else ""),
            ("used", used(found.counters)),
            ("waits for", f"approval {short(found.approval_id)}" if found.approval_id else ""),
            ("cancelled by", found.cancelled_by or ""),
        ]
    )
    if found.text is not None:
        output.say()
        _show_text(found.text)


def _show_text(text: str) -> None:
    if output.is_terminal():
        from boyd.cli.live_transcript import Prose

        output.console().print(Prose(text))
    else:
        output.say(output.clean(text).rstrip())


@investigations.command()
@investigation_argument
@output.lines_option
@api_options
def follow(api: Api, investigation: str, form: str) -> None:
    """Show all that happens in an investigation, from its beginning to its end.

    Exit status 1 unless it ends with an answer. Ctrl-C ends this, not the investigation.
    """
    found = find(api, investigation)
    transcript = _transcript(form)
    following = LogFollower(api, found.id, note=_noting(transcript))
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
        goes_on(found.id)
    if ended is None or ended.ending not in ANSWERED:
        raise click.exceptions.Exit(output.FAILED)


def _transcript(form: str) -> Transcript | None:
    """What shows the entries to people; None: they are data."""
    if form != "table":
        return None
    return live_transcript() if output.is_terminal() else PlainTranscript(output.say)


def _noting(transcript: Transcript | None) -> Callable[[str], None]:
    return (lambda text: transcript.line("note", text)) if transcript else output.note


@investigations.command()
@investigation_argument
@api_options
def cancel(api: Api, investigation: str) -> None:
    """End an investigation: nothing more is started for it."""
    found = find(api, investigation)
    now = api.agent.post(f"/investigations/{found.id}/cancel", Investigation)
    state = "cancelled" if now.status == "ended" else "being cancelled"
    output.say(f"investigation {short(found.id)} is {state}")
