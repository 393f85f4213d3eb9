"""`boyd chat`: a conversation with the agent's model."""

from __future__ import annotations

import functools
from typing import Any

import click

from boyd.errors import ApiProblem, BoydError
from boyd.models import ApprovalItem
from boyd.models.investigation import Asked, Ended, Investigation, Logged, Waits
from boyd.models.responses import StateResponse
from boyd_cli import completion, output
from boyd_cli.api_access import Api
from boyd_cli.commands import approval_commands
from boyd_cli.commands.investigation_commands import asking_options, begin, find, live_transcript
from boyd_cli.options import api_options, id_argument
from boyd_cli.prompt import Prompt, open_prompt
from boyd_cli.views import approval_view
from boyd_cli.views.transcript import ANSWERED, PlainTranscript, Transcript
from boyd_cli.waiting import LogFollower

MARK = "> "


@click.command()
@id_argument("investigation", completion.investigations, required=False)
@asking_options
@api_options
def chat(api: Api, investigation: str | None, **how: Any) -> None:
    """Chat with the agent's model.

    It can use the agent's tools. INVESTIGATION continues an earlier one. Ctrl-C cancels a question,
    Ctrl-D leaves. A pipe gives one question per line, and gets only the answers.
    """
    if investigation is not None and any(how.values()):
        raise click.UsageError("a continued investigation keeps its options")
    found = find(api, investigation) if investigation else None
    agent = None if found else api.agent.get("/state", StateResponse).agent
    if agent is not None and agent.model is None:
        text = f"agent {agent.id!r} has no model; add a table [llm] to its agent file"
        raise ApiProblem("no-model", 409, text)
    made = Chat(api, open_prompt(MARK, "Ctrl-D leaves the conversation."), how)
    try:
        if found is not None:
            made.take_up(found)
        made.run()
    finally:
        made.leave()
    output.fail_if(not made.answered and not output.can_ask())


class Chat:
    """A conversation on this terminal, or through pipes.

    Attributes:
        answered: whether the last question, if any, was answered.
    """

    def __init__(self, api: Api, prompt: Prompt, how: dict[str, Any]) -> None:
        """*how* holds further arguments of `begin`."""
        self._api = api
        self._prompt = prompt
        self._how = how
        self._live = output.is_terminal()
        self._id: str | None = None
        self._following: LogFollower | None = None
        self._over = True
        self.answered = True

    def take_up(self, found: Investigation) -> None:
        """Continue an investigation: show its last exchange and its progress."""
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
        missed = self._following.missed()
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
        with transcript.paused():
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
        why = self._prompt.reply("Reason (optional): ") or None
        outcome = approval_commands.answer(self._api, verb, item, why, ask=False)
        if outcome.problem:
            output.note(f"boyd: {outcome.problem}")
        else:
            approval_commands.say_answer(self._api, outcome, several=False)
