"""Where the questions of a chat come from: a prompt on a terminal, or lines of standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

import click

from boyd.cli import output

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
