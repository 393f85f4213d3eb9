"""Which command lines may run without a person, and which may not run at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from boyd.plugins.shell.command_line import (
    MAX_DEPTH,
    Command,
    CommandLine,
    everything,
    nothing,
    read,
)
from boyd.plugins.shell.interactive import interactive
from boyd.plugins.shell.programs import (
    ASSIGNMENT,
    KEYWORDS,
    name,
    named,
    reads_input,
    script,
    stages,
)

Prefix = tuple[str, ...]

#: The most bytes of a command line: Linux passes no longer argument on.
MAX_COMMAND = 128 * 1024 - 1

#: Of bash, what may run code that stands in its arguments, or changes what later words mean.
EVALUATORS = named(
    ". [ [[ alias bind builtin case command compgen complete compopt coproc declare enable eval"
    " exec export fc for function getopts hash history in jobs let local mapfile printf read"
    " readarray readonly select set shopt source test trap typeset unset wait"
)


@dataclass(frozen=True)
class PolicyVerdict:
    """What is to become of a command line.

    Attributes:
        refused: why it never runs: empty, too long, denied or interactive.
        denied: whether that is because the policy denies it.
        interactive: whether that is because it would wait for a person at a terminal.
        uncovered: why it takes an approval; None if it does not.
    """

    refused: str | None = None
    denied: bool = False
    interactive: bool = False
    uncovered: str | None = None


class Policy:
    """Prefixes of commands, by words: `git status` is one of `git status --short`."""

    def __init__(self, allow: Sequence[str] = (), deny: Sequence[str] = ()) -> None:
        """Read the prefixes.

        Raises:
            ValueError: one is not a plain command, or would allow anything.
        """
        self._allow = [_allowable(text) for text in allow]
        self._deny = [prefix(text) for text in deny]

    def judge(self, command: str) -> PolicyVerdict:
        """What is to become of *command*; the same for the same text, wherever it is asked."""
        refused = _unrunnable(command)
        if refused:
            return PolicyVerdict(refused=refused)
        line = read(command)
        denied = self._denied(line, command)
        if denied:
            return PolicyVerdict(refused=f"`{denied}` is denied by the policy", denied=True)
        waits = interactive(line)
        if waits:
            return PolicyVerdict(refused=f"Interactive: {waits}", interactive=True)
        return PolicyVerdict(uncovered=self._uncovered(line))

    def _uncovered(self, line: CommandLine) -> str | None:
        if line.strange:
            return f"it has {line.strange}"
        for command in line.commands:
            if not any(_covers(allowed, command) for allowed in self._allow):
                return f"`{_shown(command)}` is not allowed"
        return None

    def _denied(self, line: CommandLine, text: str) -> str | None:
        """The prefix that denies *line*, if one does; the deeper it hides the coarser the look."""
        if not self._deny:
            return None
        for words in _runs(line):
            for denied in self._deny:
                if _denies(denied, words):
                    return " ".join(denied)
        hidden = list(everything(text)) if line.strange else []
        for denied in self._deny:
            # If it matches anywhere, it does from where the program is named first.
            at = next((at for at, word in enumerate(hidden) if name(word) == name(denied[0])), None)
            if at is not None and _denies(denied, hidden[at:]):
                return " ".join(denied)
        return None


def prefix(text: str) -> Prefix:
    """The words of a prefix.

    Raises:
        ValueError: it is more than words.
    """
    line = read(text)
    plain = len(line.commands) == 1 and not line.strange and not line.commands[0].fed
    if not plain or not all(word.literal for word in line.commands[0].words):
        raise ValueError(f"{text!r} is not the beginning of a plain command")
    return line.commands[0].texts


def _allowable(text: str) -> Prefix:
    words = prefix(text)
    if words[0] in EVALUATORS | KEYWORDS or ASSIGNMENT.match(words[0]):
        raise ValueError(f"{text!r} cannot be allowed: bash may run code in its arguments")
    *_, innermost = stages(words)
    if len(list(stages((*words, "1", "program")))) > len(list(stages(words))):
        raise ValueError(f"{text!r} cannot be allowed: it runs any program")
    if innermost[0] in EVALUATORS or reads_input(innermost):
        raise ValueError(f"{text!r} cannot be allowed: it runs any command")
    return words


def _unrunnable(command: str) -> str | None:
    if nothing(command):
        return "The command is empty"
    if "\0" in command:
        return "The command has a NUL character"
    size = len(command.encode("utf-8", "surrogatepass"))
    return f"The command is longer than {MAX_COMMAND} bytes" if size > MAX_COMMAND else None


def _covers(allowed: Prefix, command: Command) -> bool:
    begin = command.words[: len(allowed)]
    literal = all(word.literal for word in begin)
    return literal and tuple(word.text for word in begin) == allowed


def _runs(line: CommandLine, depth: int = 0) -> Iterator[Sequence[str]]:
    """Every command that *line* runs as far as can be told, in here-documents and scripts too."""
    if depth > MAX_DEPTH:
        return
    for command in line.commands:
        for words in stages(command.texts):
            yield words
            inner = script(words)
            if inner:
                yield from _runs(read(inner), depth + 1)
    for body in line.bodies:
        yield from _runs(read(body), depth + 1)


def _denies(denied: Prefix, words: Sequence[str]) -> bool:
    """Whether the program is the same and the other words follow, others between them or not."""
    if not words or name(words[0]) != name(denied[0]):
        return False
    rest = iter(words[1:])
    return all(word in rest for word in denied[1:])


def _shown(command: Command) -> str:
    text = " ".join(command.texts)
    return text if len(text) <= 100 else f"{text[:100]}…"
