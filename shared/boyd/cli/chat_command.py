"""`boyd chat`: a conversation with the agent's model."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

import click

from boyd.cli import approval_commands, approval_view, completion, output
from boyd.cli.api_access import Api
from boyd.cli.ask_command import LogFollower, asking_options, begin, live_transcript
from boyd.cli.investigation_commands import find
from boyd.cli.options import api_options, id_argument, short
from boyd.cli.output import command_name
from boyd.cli.transcript import ANSWERED, PlainTranscript, Transcript
from boyd.errors import ApiProblem, BoydError
from boyd.models import ApprovalItem
from boyd.models.investigation import Asked, Ended, Investigation, Logged, Waits
from boyd.models.responses import StateResponse

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

MARK = "> "


class Prompt(Protocol):
    """Asks whoever chats."""

    def question(self) -> str | None:
        """The next question; None when there are no more."""

    def reply(self, text: str) -> str | None:
        """What is answered to *text*; None when nobody can be asked, or does not want to answer.

        Raises:
            KeyboardInterrupt: Ctrl-C.
        """

    def remember(self, questions: Iterable[str]) -> None:
        """Let those be called back."""


class TerminalPrompt:
    """A prompt that can be edited, with the questions of this conversation to call back.

    They are kept in memory alone: what is asked is nobody's business who finds a file.
    """

    def __init__(self) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import InMemoryHistory

        self._history = InMemoryHistory()
        self._session: PromptSession[str] = PromptSession(
            history=self._history, key_bindings=_bindings()
        )

    def question(self) -> str | None:
        """See `Prompt`; Ctrl-C forgets the line, Ctrl-D ends."""
        while True:
            try:
                return self._session.prompt(MARK)
            except KeyboardInterrupt:
                output.note("Ctrl-D leaves the conversation.")
            except EOFError:
                return None

    def reply(self, text: str) -> str | None:
        """See `Prompt`; Ctrl-D does not answer."""
        from prompt_toolkit import prompt

        try:
            return prompt(text)
        except EOFError:
            return None

    def remember(self, questions: Iterable[str]) -> None:
        """See `Prompt`."""
        for text in questions:
            self._history.append_string(output.clean(text))


class LinePrompt:
    """Each line of standard input is a question."""

    def question(self) -> str | None:
        """See `Prompt`."""
        if sys.stdin.isatty():
            click.echo(MARK, nl=False, err=True)
        line = sys.stdin.buffer.readline().decode(errors="replace")
        return line.rstrip("\r\n") if line else None

    def reply(self, text: str) -> str | None:
        """See `Prompt`: nobody can be asked."""
        return None

    def remember(self, questions: Iterable[str]) -> None:
        """See `Prompt`: nothing is called back."""


def new_prompt() -> Prompt:
    """What fits where this runs."""
    return TerminalPrompt() if output.can_ask() else LinePrompt()


def _bindings() -> Any:
    """Enter asks; Alt-Enter begins a new line."""
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    made = KeyBindings()

    @made.add("escape", "enter")
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return made


@click.command()
@id_argument("investigation", completion.investigations, required=False)
@asking_options
@api_options
def chat(api: Api, investigation: str | None, **how: Any) -> None:
    """Talk with the agent's model, which uses the agent's tools.

    INVESTIGATION goes on with an earlier one. Ctrl-C cancels a question, Ctrl-D leaves. From a
    pipe each line is a question, and into a pipe go the answers alone.
    """
    if investigation is not None and any(how.values()):
        raise click.UsageError("what is gone on with keeps its options")
    found = find(api, investigation) if investigation else None
    if found is None:
        _check_model(api)
    made = Chat(api, new_prompt(), how)
    try:
        if found is not None:
            made.take_up(found)
        made.run()
    finally:
        made.leave()
    if not made.answered and not output.can_ask():
        raise click.exceptions.Exit(output.FAILED)


def _check_model(api: Api) -> None:
    """Refuse before anything is typed what would be refused with the first question.

    Raises:
        ApiProblem: the agent has no model.
    """
    agent = api.agent.get("/state", StateResponse).agent
    if agent.model is None:
        text = f"the agent {agent.id!r} has no model; give it a table [llm]"
        raise ApiProblem("no-model", 409, text)


class Chat:
    """A conversation on this terminal, or through pipes.

    Attributes:
        answered: whether the last question was answered, or there was none.
    """

    def __init__(self, api: Api, prompt: Prompt, how: dict[str, Any]) -> None:
        """Begin with the first question; *how* is what `begin` takes besides it."""
        self._api = api
        self._prompt = prompt
        self._how = how
        self._live = output.is_terminal()
        self._id: str | None = None
        self._following: LogFollower | None = None
        self._over = True
        self.answered = True

    def take_up(self, found: Investigation) -> None:
        """Go on with that one: show its last exchange, and what it is doing."""
        following = self._follow(found.id)
        entries = following.missed()
        self._prompt.remember(one.entry.text for one in entries if isinstance(one.entry, Asked))
        asked = [n for n, one in enumerate(entries) if isinstance(one.entry, Asked)]
        last = asked[-1] if asked else 0
        if found.status != "ended":
            following.last = entries[last - 1].id if last else None
            self._turn(following, own=False)
        elif entries:
            following.last = entries[-1].id
            self._recall([entries[last], entries[-1]])

    def run(self) -> None:
        """Answer questions until there are no more.

        Raises:
            Abort: Ctrl-C was not only to cancel a question.
        """
        while (text := self._prompt.question()) is not None:
            if not text.strip():
                continue
            try:
                self._turn(self._ask(text), own=True)
            except KeyboardInterrupt:
                # It came too early or too late to cancel anything.
                if not output.can_ask():
                    raise
            except BoydError as error:
                if self._id is None or not output.can_ask():
                    raise
                output.note(f"boyd: {output.one_line(str(error))}")

    def leave(self) -> None:
        """Say how to come back."""
        if self._id is not None:
            output.note(
                f"`{command_name()} chat {short(self._id)}` goes on with this conversation."
            )

    def _ask(self, text: str) -> LogFollower:
        """Ask a question; what comes of it is to be followed."""
        if self._id is None or self._following is None:
            return self._follow(begin(self._api, text, **self._how).id)
        missed = self._following.missed()
        if missed:
            # Somebody else has gone on with it.
            self._recall(missed)
            self._following.last = missed[-1].id
        self._api.agent.post(f"/investigations/{self._id}/messages", Investigation, {"text": text})
        return self._following

    def _follow(self, id: str) -> LogFollower:
        self._id = id
        self._following = LogFollower(self._api, id)
        return self._following

    def _turn(self, following: LogFollower, own: bool) -> None:
        """Show what comes until the question has ended; Ctrl-C cancels it, a second one leaves.

        Raises:
            Abort: it was the second one, or nobody is there who could ask another question.
        """
        self.answered = self._over = False
        interrupted = False
        transcript = self._transcript()
        following.note = lambda text: transcript.line("note", text)
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
                    self._ended(entry)

    def _transcript(self) -> Transcript:
        return live_transcript() if self._live else PlainTranscript(output.note, answers=False)

    def _recall(self, entries: list[Logged]) -> None:
        """Show what has happened already."""
        with live_transcript() if self._live else PlainTranscript(output.note) as transcript:
            for logged in entries:
                transcript.show(logged.entry)

    def _ended(self, ended: Ended) -> None:
        self._over = True
        self.answered = ended.ending in ANSWERED
        if not self._live:
            output.say(output.clean(ended.text).rstrip())

    def _cancel(self) -> None:
        """Cancel the question.

        Raises:
            Abort: nobody is there who could ask another one.
        """
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
        """Let whoever chats answer an approval, as far as the API lets them."""
        if not output.can_ask():
            return
        with transcript.paused():
            try:
                item = self._api.agent.get(f"/approvals/{approval_id}", ApprovalItem)
                if item.status == "pending":
                    self._answer(approval_commands.fresh(self._api, item))
            except BoydError as error:
                output.note(f"boyd: {output.one_line(str(error))}")

    def _answer(self, item: ApprovalItem) -> None:
        output.say()
        approval_view.show(item, self._api.agent.now())
        said = self._prompt.reply("Approve? y approves, n denies, Enter leaves it waiting: ")
        verb = {"y": "approve", "yes": "approve", "n": "deny", "no": "deny"}.get(
            (said or "").strip().lower()
        )
        if verb is None:
            return
        why = self._prompt.reply("Why? Enter gives no reason: ") or None
        outcome = approval_commands.answered(self._api, verb, item, why, ask=False)
        if outcome.said:
            output.note(f"boyd: {outcome.said}")
        else:
            approval_commands.say_answer(self._api, outcome, several=False)
