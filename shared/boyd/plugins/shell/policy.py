"""The policy for command lines: allowed, denied, or subject to approval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from boyd.plugins.shell import programs
from boyd.plugins.shell.command_line import (
    MAX_DEPTH,
    Command,
    CommandLine,
    all_words,
    is_empty,
    read,
)
from boyd.plugins.shell.interactive import find_interactive

Prefix = tuple[str, ...]

#: The longest argument Linux passes on, in bytes.
MAX_COMMAND = 128 * 1024 - 1

#: Builtins of bash that may run code in their arguments, or change the meaning of later words.
EVALUATORS = programs.split_names(
    ". [ [[ alias bind builtin case command compgen complete compopt coproc declare enable eval"
    " exec export fc for function getopts hash history in jobs let local mapfile printf read"
    " readarray readonly select set shopt source test trap typeset unset wait"
)


@dataclass(frozen=True)
class PolicyVerdict:
    """The verdict on a command line.

    Attributes:
        refused: the reason it never runs: empty, too long, denied or interactive.
        denied: it is refused because the policy denies it.
        interactive: it is refused because it would wait for a person at a terminal.
        uncovered: the reason it needs an approval, if it does.
    """

    refused: str | None = None
    denied: bool = False
    interactive: bool = False
    uncovered: str | None = None


class Policy:
    """Allowed and denied prefixes, by words: `git status` covers `git status --short`."""

    def __init__(self, allow: Sequence[str] = (), deny: Sequence[str] = ()) -> None:
        """Parse the prefixes; raises `ValueError` if one is not plain, or would allow anything."""
        self._allow = [_allowable(text) for text in allow]
        self._deny = [prefix(text) for text in deny]

    def judge(self, command: str) -> PolicyVerdict:
        """Judge a command; the verdict depends on its text only."""
        refused = _unrunnable(command)
        if refused:
            return PolicyVerdict(refused=refused)
        line = read(command)
        denied = self._find_denied(line, command)
        if denied:
            return PolicyVerdict(refused=f"`{denied}` is denied by the policy", denied=True)
        waits = find_interactive(line)
        if waits:
            return PolicyVerdict(refused=f"Interactive: {waits}", interactive=True)
        return PolicyVerdict(uncovered=self._find_uncovered(line))

    def _find_uncovered(self, line: CommandLine) -> str | None:
        if line.strange:
            return f"it has {line.strange}"
        for command in line.commands:
            if not any(_covers(allowed, command) for allowed in self._allow):
                text = " ".join(command.texts)
                quote = text if len(text) <= 100 else f"{text[:100]}…"
                return f"`{quote}` is not allowed"
        return None

    def _find_denied(self, line: CommandLine, text: str) -> str | None:
        """The prefix that denies *line*, if any; the less clear the line, the coarser the check."""
        if not self._deny:
            return None
        for words in _runs(line):
            for denied in self._deny:
                if _denies(denied, words):
                    return " ".join(denied)
        hidden = list(all_words(text)) if line.strange else []
        for denied in self._deny:
            # A match anywhere is also a match from the first mention of the program.
            program = programs.name(denied[0])
            at = next((at for at, w in enumerate(hidden) if programs.name(w) == program), None)
            if at is not None and _denies(denied, hidden[at:]):
                return " ".join(denied)
        return None


def prefix(text: str) -> Prefix:
    """The words of a prefix; raises `ValueError` if it is not a plain command."""
    line = read(text)
    plain = len(line.commands) == 1 and not line.strange and not line.commands[0].fed
    if not plain or not all(word.literal for word in line.commands[0].words):
        raise ValueError(f"{text!r} is not the start of a plain command")
    return line.commands[0].texts


def _allowable(text: str) -> Prefix:
    words = prefix(text)
    if words[0] in EVALUATORS | programs.KEYWORDS or programs.ASSIGNMENT.match(words[0]):
        raise ValueError(f"{text!r} cannot be allowed: bash may run code in its arguments")
    *_, innermost = programs.stages(words)
    if len(list(programs.stages((*words, "1", "program")))) > len(list(programs.stages(words))):
        raise ValueError(f"{text!r} cannot be allowed: it runs any program")
    if innermost[0] in EVALUATORS or programs.reads_input(innermost):
        raise ValueError(f"{text!r} cannot be allowed: it runs any command")
    return words


def _unrunnable(command: str) -> str | None:
    if is_empty(command):
        return "The command is empty"
    if "\0" in command:
        return "The command contains a NUL character"
    size = len(command.encode("utf-8", "surrogatepass"))
    return f"The command is longer than {MAX_COMMAND} bytes" if size > MAX_COMMAND else None


def _covers(allowed: Prefix, command: Command) -> bool:
    begin = command.words[: len(allowed)]
    return all(word.literal for word in begin) and tuple(word.text for word in begin) == allowed


def _runs(line: CommandLine, depth: int = 0) -> Iterator[Sequence[str]]:
    """All commands that *line* visibly runs, also in here-documents and scripts."""
    if depth > MAX_DEPTH:
        return
    for command in line.commands:
        for words in programs.stages(command.texts):
            yield words
            inner = programs.script(words)
            if inner:
                yield from _runs(read(inner), depth + 1)
    for body in line.bodies:
        yield from _runs(read(body), depth + 1)


def _denies(denied: Prefix, words: Sequence[str]) -> bool:
    """True if the program matches and the other words follow in order."""
    if not words or programs.name(words[0]) != programs.name(denied[0]):
        return False
    rest = iter(words[1:])
    return all(word in rest for word in denied[1:])
