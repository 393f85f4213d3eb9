"""`boyd ask`, `boyd investigations …` and `boyd chat`: questions to the agent's model."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import Any, NoReturn, get_args

import click

from boyd.errors import ApiProblem, BoydError
from boyd.models import ApprovalItem
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
    Waits,
    call_number,
)
from boyd.models.responses import StateResponse
from boyd.text.formatting import dollars
from boyd_cli import INTERRUPTED, api_access, completion, output
from boyd_cli.api_access import Api, find_by_prefix
from boyd_cli.commands import approval_commands
from boyd_cli.options import (
    Whole,
    api_options,
    data_options,
    id_argument,
    lines_option,
    words_option,
)
from boyd_cli.output import label, sentence, whole
from boyd_cli.terminal import LogFollower, Prompt, open_prompt
from boyd_cli.views import approval_view
from boyd_cli.views.transcript import ANSWERED, PlainTranscript, Transcript, result_text, usage_text

Call = tuple[ToolCall | None, ToolObservation | None]


def find_call(log: Iterable[Logged], number: int) -> Call:
    """Find the call of that number and its result."""
    call: ToolCall | None = None
    for logged in log:
        entry = logged.entry
        if isinstance(entry, Said):
            call = next(
                (candidate for candidate in entry.calls if call_number(candidate.id) == number),
                call,
            )
        elif isinstance(entry, Result) and call_number(entry.observation.call_id or "") == number:
            return call, entry.observation
    return call, None


def call_lines(call: ToolCall, result: ToolObservation | None) -> Iterator[str]:
    """A call in full, as text."""
    yield f"{call.label} {output.one_line(call.name)}"
    for line in _arguments(call.arguments).split("\n"):
        yield f"  {line}".rstrip()
    if result is None:
        yield "No result yet."
        return
    yield result_text(result)
    yield ""
    yield from output.clean(result.output).rstrip("\n").split("\n")


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
    decorated: Callable[..., Any] = reflection(tools(max_steps(command)))
    return decorated


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
def ask(api: Api, question: str, follow: bool, as_json: bool, form: str, **options: Any) -> None:
    """Ask the agent's model, which can use the agent's tools.

    Shows each step and then the answer; `-` reads the question from standard input. A pipe gets
    only the answer.
    """
    form = "json" if as_json else form
    text = sys.stdin.buffer.read().decode(errors="replace") if question == "-" else question
    if not text.strip():
        raise click.BadParameter("it must not be empty", param_hint="QUESTION")
    investigation = begin(api, text, **options)
    if not follow:
        if not output.print_data(form, investigation):
            output.say(investigation.id)
        return
    live = form == "table" and output.is_terminal()
    end = _show_until_end(api, investigation.id, live)
    if form != "table":
        output.print_data(form, api.agent.get(f"/investigations/{investigation.id}", Investigation))
    elif not live:
        output.say(output.clean(end.text).rstrip())
    output.fail_if(end.ending not in ANSWERED)


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
    from boyd_cli.views.transcript import LiveTranscript

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
    items = api_access.investigations(api, limit)
    rows = [_row(api, item) for item in items]
    output.print_list(form, items, COLUMNS, rows, "No investigations found.")


def _row(api: Api, investigation: Investigation) -> list[str]:
    usage, now = investigation.counters.usage, api.agent.now()
    took = investigation.counters.seconds
    if investigation.status != "ended":
        took = max(0.0, (now - investigation.created_at).total_seconds())
    return [
        output.short(investigation.id),
        investigation.ending or investigation.status,
        output.short_seconds(took),
        str(usage.input_tokens + usage.output_tokens),
        dollars(investigation.counters.cost) if investigation.counters.cost else "",
        output.short_age(investigation.created_at, now),
        str(investigation.counters.steps),
        investigation.source,
        investigation.asked_by or "",
        investigation.name,
    ]


@investigations.command()
@investigation_argument
@click.option(
    "--call", type=Whole(1), metavar="NUMBER", help="Show this tool call with its full output."
)
@data_options
def show(api: Api, investigation: str, call: int | None, form: str) -> None:
    """Show an investigation and its answer, or one of its tool calls."""
    item = find(api, investigation)
    if call is None:
        if not output.print_data(form, item):
            _show(api, item)
        return
    tool_call, result = find_call(api_access.entries(api, item.id), call)
    if tool_call is None:
        output.stop(output.NOT_FOUND, f"investigation {output.short(item.id)} has no call #{call}")
    if output.print_data(form, {"call": tool_call, "result": result}):
        return
    for line in call_lines(tool_call, result):
        output.say(line)


def find(api: Api, prefix: str) -> Investigation:
    """Find an investigation by a unique prefix of its id; exit with an error otherwise."""
    path, newest = "/investigations", api_access.investigations
    return find_by_prefix(api, prefix, "investigation", path, Investigation, newest)


def _show(api: Api, investigation: Investigation) -> None:
    now, short = api.agent.now(), output.short(investigation.approval_id or "")
    output.say(
        output.one_line(f"{investigation.name}: {investigation.ending or investigation.status}")
    )
    output.print_pairs(
        ("id", investigation.id),
        ("detail", investigation.detail or ""),
        ("source", f"{investigation.source} {investigation.key or ''}"),
        ("asked by", investigation.asked_by or ""),
        ("asked", output.age(investigation.created_at, now)),
        ("ended", output.age(investigation.ended_at, now) if investigation.ended_at else ""),
        ("used", usage_text(investigation.counters)),
        ("waits for", f"approval {short}" if short else ""),
        ("cancelled by", investigation.cancelled_by or ""),
    )
    if investigation.text is None:
        return
    output.say()
    if output.is_terminal():
        from boyd_cli.views.transcript import Prose

        output.console().print(Prose(investigation.text))
    else:
        output.say(output.clean(investigation.text).rstrip())


@investigations.command()
@investigation_argument
@lines_option
@api_options
def follow(api: Api, investigation: str, form: str) -> None:
    """Show an investigation from its beginning to its end.

    Exit status 1 unless it ends with an answer. Ctrl-C does not cancel it.
    """
    item = find(api, investigation)
    transcript: Transcript | None = None
    following = LogFollower(api, item.id)
    if form == "table":
        transcript = live_transcript() if output.is_terminal() else PlainTranscript(output.say)
        following.note = functools.partial(transcript.line, "note")
    end: Ended | None = None
    try:
        with transcript or nullcontext():
            for logged in following.everything():
                end = logged.entry if isinstance(logged.entry, Ended) else None
                if transcript is not None:
                    transcript.show(logged.entry)
                else:
                    output.print_item(form, logged)
    except KeyboardInterrupt:
        exit_interrupted(item.id)
    output.fail_if(end is None or end.ending not in ANSWERED)


@investigations.command()
@investigation_argument
@api_options
def cancel(api: Api, investigation: str) -> None:
    """Cancel an investigation: no further steps are started."""
    item = find(api, investigation)
    cancelled = api.agent.post(f"/investigations/{item.id}/cancel", Investigation)
    state = "cancelled" if cancelled.status == "ended" else "being cancelled"
    output.say(f"investigation {output.short(item.id)} is {state}")


MARK = "> "


@click.command()
@id_argument("investigation", completion.investigations, required=False)
@asking_options
@api_options
def chat(api: Api, investigation: str | None, **options: Any) -> None:
    """Chat with the agent's model.

    It can use the agent's tools. INVESTIGATION continues an earlier one. Ctrl-C cancels a question,
    Ctrl-D leaves. A pipe gives one question per line, and gets only the answers.
    """
    if investigation is not None and any(options.values()):
        raise click.UsageError("a continued investigation keeps its options")
    earlier = find(api, investigation) if investigation else None
    agent = None if earlier else api.agent.get("/state", StateResponse).agent
    if agent is not None and agent.model is None:
        text = f"agent {agent.id!r} has no model; add a table [llm] to its agent file"
        raise ApiProblem("no-model", 409, text)
    conversation = Chat(api, open_prompt(MARK, "Ctrl-D leaves the conversation."), options)
    try:
        if earlier is not None:
            conversation.take_up(earlier)
        conversation.run()
    finally:
        conversation.leave()
    output.fail_if(not conversation.answered and not output.can_ask())


class Chat:
    """A conversation on this terminal, or through pipes.

    Attributes:
        answered: whether the last question, if any, was answered.
    """

    def __init__(self, api: Api, prompt: Prompt, options: dict[str, Any]) -> None:
        """*options* holds further arguments of `begin`."""
        self._api = api
        self._prompt = prompt
        self._how = options
        self._live = output.is_terminal()
        self._id: str | None = None
        self._following: LogFollower | None = None
        self._over = True
        self.answered = True

    def take_up(self, investigation: Investigation) -> None:
        """Continue an investigation: show its last exchange and its progress."""
        following = self._follow(investigation.id)
        entries = following.read_missing()
        self._prompt.remember(
            logged.entry.text for logged in entries if isinstance(logged.entry, Asked)
        )
        questions = [n for n, logged in enumerate(entries) if isinstance(logged.entry, Asked)]
        last = questions[-1] if questions else 0
        if investigation.status != "ended":
            following.last = entries[last - 1].id if last else None
            self._turn(following, own=False)
        elif entries:
            following.last = entries[-1].id
            self._recall([entries[last], entries[-1]])

    def run(self) -> None:
        """Answer questions until there are no more."""
        while (text := self._prompt.question()) is not None:
            if not text.strip():
                continue
            try:
                self._turn(self._ask(text), own=True)
            except KeyboardInterrupt:
                # There was nothing to cancel.
                if not output.can_ask():
                    raise
            except BoydError as error:
                if self._id is None or not output.can_ask():
                    raise
                output.note(f"boyd: {output.one_line(str(error))}")

    def leave(self) -> None:
        """Print how to continue later."""
        if self._id is not None:
            command = f"{output.command_name()} chat {output.short(self._id)}"
            output.note(f"`{command}` continues this conversation.")

    def _ask(self, text: str) -> LogFollower:
        if self._id is None or self._following is None:
            return self._follow(begin(self._api, text, **self._how).id)
        missed = self._following.read_missing()
        if missed:
            # Somebody else has continued the conversation.
            self._recall(missed)
            self._following.last = missed[-1].id
        self._api.agent.post(f"/investigations/{self._id}/messages", Investigation, {"text": text})
        return self._following

    def _follow(self, id: str) -> LogFollower:
        self._id = id
        self._following = LogFollower(self._api, id)
        return self._following

    def _turn(self, following: LogFollower, own: bool) -> None:
        """Show the log until the question has ended; Ctrl-C cancels it, a second one aborts."""
        self.answered = self._over = False
        interrupted = False
        transcript = self._transcript(answers=False)
        following.note = functools.partial(transcript.line, "note")
        while True:
            try:
                if interrupted:
                    self._cancel()
                self._show(transcript, following, own)
                return
            except KeyboardInterrupt:
                if self._over:
                    return
                if interrupted:
                    raise click.Abort from None
                interrupted = True

    def _show(self, transcript: Transcript, following: LogFollower, own: bool) -> None:
        with transcript:
            for logged in following.question():
                entry = logged.entry
                if not (own and isinstance(entry, Asked)):
                    transcript.show(entry)
                if isinstance(entry, Waits):
                    self._offer(transcript, entry.approval_id)
                if isinstance(entry, Ended):
                    self._over = True
                    self.answered = entry.ending in ANSWERED
                    if not self._live:
                        output.say(output.clean(entry.text).rstrip())

    def _transcript(self, *, answers: bool) -> Transcript:
        return live_transcript() if self._live else PlainTranscript(output.note, answers=answers)

    def _recall(self, entries: list[Logged]) -> None:
        with self._transcript(answers=True) as transcript:
            for logged in entries:
                transcript.show(logged.entry)

    def _cancel(self) -> None:
        """Cancel the question; abort unless another one can be asked."""
        again = "; Ctrl-C again leaves" if output.can_ask() else ""
        try:
            self._api.agent.post(f"/investigations/{self._id}/cancel", Investigation)
            output.note(f"The question is cancelled{again}.")
        except BoydError as error:
            if not (isinstance(error, ApiProblem) and error.name == "finished"):
                output.note(f"boyd: {output.one_line(str(error))}{again}")
        if not output.can_ask():
            raise click.Abort

    def _offer(self, transcript: Transcript, approval_id: str) -> None:
        if not output.can_ask():
            return
        with transcript.suspend():
            try:
                item = self._api.agent.get(f"/approvals/{approval_id}", ApprovalItem)
                if item.status == "pending":
                    self._answer(approval_commands.refresh_preview(self._api, item))
            except BoydError as error:
                output.note(f"boyd: {output.one_line(str(error))}")

    def _answer(self, item: ApprovalItem) -> None:
        output.say()
        approval_view.show(item, self._api.agent.now())
        reply = self._prompt.reply("Approve? y approves, n denies, Enter leaves it pending: ")
        verbs = {"y": "approve", "yes": "approve", "n": "deny", "no": "deny"}
        verb = verbs.get((reply or "").strip().lower())
        if verb is None:
            return
        reason = self._prompt.reply("Reason (optional): ") or None
        outcome = approval_commands.answer(self._api, verb, item, reason, ask=False)
        if outcome.problem:
            output.note(f"boyd: {outcome.problem}")
        else:
            approval_commands.say_answer(self._api, outcome, several=False)
