"""Reads lines from a terminal, which can be edited, or from a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from boyd_cli import output

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent


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

    made = KeyBindings()

    @made.add("escape", "enter")
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return made
