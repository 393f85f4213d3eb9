"""Reads a command line as bash would, as far as that is safe to tell without running it.

It knows words, quotes, lists and pipelines. Anything else is read generously, so that commands are
found wherever they hide, and reported in `CommandLine.strange`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

#: The greatest depth of nested substitutions.
MAX_DEPTH = 8

#: Blanks, a text in single quotes, an escaped character, or other characters of a word.
_TOKEN = re.compile(
    r"""(?P<blanks>[ \t]+) | '(?P<quoted>[^']*)' | \\(?P<escaped>.) |
    (?P<plain>[^ \t\n'"\\$`<>&;|()]+)""",
    re.DOTALL | re.VERBOSE,
)
_SAFE_VARIABLE = re.compile(r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})", re.ASCII)
_GLOBS = frozenset("*?[]{}~")
#: Redirections that write no file.
_HARMLESS = re.compile(r"(?:>&[12]|&?>>?[ \t]*/dev/null|<[ \t]*/dev/null)(?=[ \t\n;|&]|\Z)")
_DESCRIPTORS = frozenset("0123456789")
_OPERATORS = ("&&", "||", "|&", ";", "|", "&")
_PLAIN_OPERATORS = frozenset({"&&", "||", ";", "|"})
_REDIRECTION = re.compile(r"(?:<<<|<<-?|<>|<&|<|&>>|&>|>>|>&|>\||>)[ \t]*")
_BACKTICKED = re.compile(r"(?:[^`\\]|\\.)*", re.DOTALL)
_HEREDOC = re.compile(r"<<(-?)[ \t]*(['\"]?)\\?([\w.-]+)\2")
#: A text in which a backslash begins a code: the second word of `echo $'\\x6c'`.
_ANSI_C = re.compile(r"\$'((?:[^'\\]|\\.)*+)'", re.DOTALL)


@dataclass(frozen=True)
class ShellWord:
    """A word without its quotes; *literal* if bash would not change it."""

    text: str
    literal: bool = True


@dataclass(frozen=True)
class Command:
    """A simple command; *fed* if it reads a file, a here-document or another command."""

    words: tuple[ShellWord, ...]
    fed: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        """The words as text."""
        return tuple(word.text for word in self.words)


@dataclass(frozen=True)
class CommandLine:
    """A parsed command line.

    Attributes:
        commands: all simple commands, including those in substitutions.
        strange: the first construct other than words, lists and pipelines.
        bodies: the texts of here-documents.
    """

    commands: tuple[Command, ...]
    strange: str | None = None
    bodies: tuple[str, ...] = ()


def read(text: str, depth: int = 0) -> CommandLine:
    """Read a command line; never raises."""
    return _Reader(text, depth).read()


@dataclass
class _Open:
    """The command being read."""

    words: list[ShellWord] = field(default_factory=list)
    fed: bool = False


class _Reader:
    def __init__(self, text: str, depth: int) -> None:
        self.text = text
        self.depth = depth
        self.at = 0
        self.commands: list[Command] = []
        self.bodies: list[str] = []
        self.strange: str | None = None
        self.open = _Open()
        self.outer: list[_Open] = []
        self.parts: list[str] | None = None
        self.literal = True
        self.quoted = False
        self.awaited: list[tuple[str, bool]] = []
        # The beginning acts like a newline.
        self.separator = "\n"

    def read(self) -> CommandLine:
        if self.depth > MAX_DEPTH:
            return CommandLine((), "it nests too deeply")
        while self.at < len(self.text):
            self._step()
        self._end_line()
        return CommandLine(tuple(self.commands), self.strange, tuple(self.bodies))

    def _step(self) -> None:
        char = self.text[self.at]
        if char == "#" and self.parts is None:
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
        elif token := _TOKEN.match(self.text, self.at):
            self.at = token.end()
            self._token(token)
        elif char == "\n":
            self._newline()
        elif char == '"':
            self._double()
        elif char == "'":
            self._end_unbalanced()
        elif char in "$`":
            self._expansion(char)
        elif char in "()":
            self._parenthesis(char)
        elif char == "\\":
            self._note("a backslash at the end")
            self.at += 1
        elif char not in "<>&" or not self._redirection():
            self._operator()

    # Words

    def _token(self, token: re.Match[str]) -> None:
        text = token[token.lastgroup or 0]
        if token.lastgroup == "blanks":
            self._end_word()
        elif token.lastgroup == "plain":
            if not text.isprintable():
                self._note("a control character")
            self._add(text, literal=_GLOBS.isdisjoint(text), quoted=False)
        elif token.lastgroup == "quoted" or text != "\n":
            self._add(text)

    def _add(self, text: str, literal: bool = True, quoted: bool = True) -> None:
        self.parts = self.parts or []
        self.parts.append(text)
        self.literal = self.literal and literal
        self.quoted = self.quoted or quoted

    def _double(self) -> None:
        self._add("")
        self.at += 1
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == '"':
                self.at += 1
                return
            if char == "\\":
                self._add_escape()
            elif char in "$`":
                self._expansion(char, within=True)
            else:
                self._add(char)
                self.at += 1
        self._end_unbalanced()

    def _add_escape(self) -> None:
        """A backslash in double quotes, which stays unless it escapes something."""
        following = self.text[self.at + 1 : self.at + 2]
        if following != "\n":
            self._add(following if following in '$`"\\' else f"\\{following}")
        self.at += 2

    def _end_unbalanced(self) -> None:
        self._note("a quote that is not closed")
        self._add(self.text[self.at + 1 :])
        self.at = len(self.text)

    def _end_word(self) -> None:
        if self.parts is not None:
            self.open.words.append(ShellWord("".join(self.parts), self.literal))
        self.parts, self.literal, self.quoted = None, True, False

    # Expansions

    def _expansion(self, char: str, within: bool = False) -> None:
        """An expansion that begins with a dollar or a backtick, *within* double quotes or not."""
        simple = _SAFE_VARIABLE.match(self.text, self.at)
        if simple:
            self._add(simple[0], literal=False)
            self.at = simple.end()
        elif char == "`":
            closing = _BACKTICKED.match(self.text, self.at + 1)
            self._substitution(self.at + 1, closing.end() if closing else len(self.text))
        elif not within and (quoted := _ANSI_C.match(self.text, self.at)):
            self._note("an expansion that is more than a variable")
            self._add(_decode(quoted[1]), literal=False)
            self.at = quoted.end()
        elif self.text.startswith("$(", self.at):
            self._substitution(self.at + 2, self._closing_parenthesis(self.at + 2))
        else:
            self._note("an expansion that is more than a variable")
            self._add("$", literal=False)
            self.at += 1

    def _substitution(self, start: int, end: int) -> None:
        self._note("a command substitution")
        inner = read(self.text[start:end].replace("\\`", "`"), self.depth + 1)
        self.commands += inner.commands
        self.bodies += inner.bodies
        self._add(self.text[self.at : end + 1], literal=False)
        self.at = end + 1

    def _closing_parenthesis(self, start: int) -> int:
        """The end of the parenthesis that opened before *start*, ignoring quoted ones."""
        depth, at = 1, start
        while at < len(self.text):
            char = self.text[at]
            if char == "\\":
                at += 1
            elif char == "'":
                end = self.text.find("'", at + 1)
                at = end if end > 0 else at
            depth += {"(": 1, ")": -1}.get(char, 0)
            if not depth:
                return at
            at += 1
        return len(self.text)

    # Between words

    def _newline(self) -> None:
        self.at += 1
        empty = self.parts is None and not self.open.words
        if not (empty and self.separator in {"\n", "&&", "||", "|"}):
            self._separate("\n")
        for end, tabs in self.awaited:
            self._here_document(end, tabs)
        self.awaited.clear()

    def _operator(self) -> None:
        operator = next(o for o in _OPERATORS if self.text.startswith(o, self.at))
        self.at += len(operator)
        if operator not in _PLAIN_OPERATORS:
            self._note("a command in the background" if operator == "&" else f"the pipe {operator}")
        self._separate(operator)

    def _separate(self, separator: str) -> None:
        self._end_word()
        if not self.open.words and separator != "\n":
            self._note(f"nothing before {separator}")
        self._end_command()
        self.separator = separator
        self.open.fed = separator in {"|", "|&"}

    def _end_command(self) -> None:
        self._end_word()
        if self.open.words:
            self.commands.append(Command(tuple(self.open.words), self.open.fed))
        self.open = _Open()

    def _end_line(self) -> None:
        self._end_word()
        if not self.open.words and self.separator in {"&&", "||", "|", "|&"}:
            self._note(f"nothing after {self.separator}")
        self._end_command()
        while self.outer:
            self._note("a parenthesis that is not closed")
            self.open = self.outer.pop()
            self._end_command()

    def _parenthesis(self, char: str) -> None:
        self._note("parentheses")
        self.at += 1
        if char == "(":
            self._end_word()
            self.outer.append(self.open)
            self.open = _Open(fed=self.open.fed)
        else:
            self._end_command()
            self.open = self.outer.pop() if self.outer else _Open()
        self.separator = "\n"

    # Redirections

    def _redirection(self) -> bool:
        """Read a redirection; False if there is none."""
        harmless = _HARMLESS.match(self.text, self.at)
        if harmless:
            self._end_redirected_word(harmless[0][0])
            self.at = harmless.end()
            return True
        if self.text[self.at] == "&" and not self.text.startswith("&>", self.at):
            return False
        self._note("a redirection")
        self._end_redirected_word(self.text[self.at])
        heredoc = _HEREDOC.match(self.text, self.at)
        if heredoc and not self.text.startswith("<<<", self.at):
            self.awaited.append((heredoc[3], bool(heredoc[1])))
            self.at = heredoc.end()
            return True
        match = _REDIRECTION.match(self.text, self.at)
        assert match, "it begins with one of them"
        self.at = match.end()
        if not self.text.startswith("(", self.at):
            self._skip_target()
        return True

    def _end_redirected_word(self, first: str) -> None:
        """End the word before a redirection, unless it is the number of a descriptor."""
        word = "".join(self.parts or [])
        # Before &> a number is a word.
        if word in _DESCRIPTORS and not self.quoted and first != "&":
            self.parts = None
        self._end_word()
        self.open.fed = self.open.fed or first == "<"

    def _skip_target(self) -> None:
        count = len(self.open.words)
        while self.at < len(self.text) and self.text[self.at] not in " \t\n;|&<>()":
            self._step()
        self._end_word()
        del self.open.words[count:]

    def _here_document(self, end: str, tabs: bool) -> None:
        start = self.at
        while self.at < len(self.text):
            begin = self.at
            end_of_line = self.text.find("\n", begin)
            self.at = len(self.text) if end_of_line < 0 else end_of_line + 1
            line = self.text[begin : self.at].rstrip("\n")
            if (line.lstrip("\t") if tabs else line) == end:
                self.bodies.append(self.text[start:begin])
                return
        self.bodies.append(self.text[start:])

    def _note(self, construct: str) -> None:
        self.strange = self.strange or construct


def is_empty(text: str) -> bool:
    """True if the text has only blanks and comments."""
    line = read(text)
    return not line.commands and line.strange is None


def all_words(text: str) -> Iterator[str]:
    """All words in *text*, in any context."""
    yield from re.findall(r"[^\s'\"`$(){};|&<>\\]+", text)


def _decode(text: str) -> str:
    """The value of a text in `$'…'`; the text itself if its codes are malformed."""
    try:
        return text.encode("ascii", "backslashreplace").decode("unicode_escape")
    except UnicodeDecodeError:
        return text
