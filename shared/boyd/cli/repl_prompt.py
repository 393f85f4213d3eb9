"""The prompt of `boyd agent repl` on a terminal: history in a file, and completion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from boyd.cli import output
from boyd.cli.chat_prompt import LinePrompt
from boyd.cli.repl import Lines, Word
from boyd.embedded.files import private_folder
from boyd.errors import BoydError, ConfigError

MARK = "boyd> "
#: Where what was typed is kept, in the state folder.
HISTORY = "repl-history"


def new_lines(words: Mapping[str, Word], state: Path) -> Lines:
    """What fits where this runs."""
    return TerminalLines(words, state) if output.can_ask() else LinePrompt()


class TerminalLines:
    """A prompt that can be edited; Tab completes, the arrow keys call back what was typed."""

    def __init__(self, words: Mapping[str, Word], state: Path) -> None:
        self._session: PromptSession[str] = PromptSession(
            history=_history(state),
            completer=WordCompleter(words),
            complete_while_typing=False,
            complete_in_thread=True,
        )

    def question(self) -> str | None:
        """The next line; Ctrl-C forgets it, Ctrl-D ends."""
        while True:
            try:
                return self._session.prompt(MARK)
            except KeyboardInterrupt:
                output.note("`q` or Ctrl-D leaves.")
            except EOFError:
                return None


class WordCompleter(Completer):
    """Completes the command, and then what its first argument may be."""

    def __init__(self, words: Mapping[str, Word]) -> None:
        self._words = words

    def get_completions(self, document: Document, _: CompleteEvent) -> Iterator[Completion]:
        """All that the text before the cursor may become."""
        name, space, begun = document.text_before_cursor.lstrip().partition(" ")
        if not space:
            listed = self._words.items()
            yield from _fitting(
                name, [f"{one} " if word.arguments else one for one, word in listed]
            )
            return
        word = self._words.get(name)
        if word is not None and word.values is not None:
            try:
                known = sorted(word.values())
            except BoydError:  # nobody answers, and nobody has asked for an error
                return
            yield from _fitting(begun.lstrip(), known)


def _fitting(begun: str, known: Iterable[str]) -> Iterator[Completion]:
    """What begins so, unless it has what a terminal would obey."""
    for one in known:
        if one.startswith(begun) and one.isprintable():
            yield Completion(one, start_position=-len(begun))


def _history(state: Path) -> History:
    """What was typed before, in a file that only its owner may read; in memory where it cannot."""
    try:
        path = private_folder(state) / HISTORY
        path.touch(mode=0o600)
    except (ConfigError, OSError):
        return InMemoryHistory()
    return FileHistory(str(path))
