"""The programs that a command really runs, behind assignments, `env`, `sudo`, `timeout 5` etc."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^]]*\])?\+?=", re.ASCII)
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "fish"})
#: Words after which a command begins.
KEYWORDS = frozenset({"if", "then", "elif", "else", "while", "until", "do", "!", "{", "coproc"})


#: Options that make a shell print something and end.
_TELLS = frozenset({"--version", "--help"})
#: Options of shells that take the next word as their value.
_VALUED = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})

#: The most nested wrappers that are followed.
MAX_STAGES = 32


@dataclass(frozen=True)
class Wrapper:
    """A program that runs its arguments.

    Attributes:
        valued: options that take the next word as their value.
        leading: number of words before the command.
        settles: options with which it runs no command.
    """

    valued: frozenset[str] = frozenset()
    leading: int = 0
    settles: frozenset[str] = frozenset()


def split_names(names: str) -> frozenset[str]:
    """A set of names from a list separated by blanks."""
    return frozenset(names.split())


def _wrapper(valued: str = "", leading: int = 0, settles: str = "") -> Wrapper:
    return Wrapper(split_names(valued), leading, split_names(settles))


WRAPPERS = {
    **dict.fromkeys(("builtin", "busybox", "nohup", "setsid", "unbuffer"), _wrapper()),
    **dict.fromkeys(("chrt", "chroot", "taskset"), _wrapper(leading=1)),
    "command": _wrapper(settles="-v -V"),
    "doas": _wrapper("-u -C", settles="-L"),
    "env": _wrapper("-u --unset -C --chdir"),
    "exec": _wrapper("-a"),
    "flock": _wrapper("-w --timeout -E", leading=1),
    "ionice": _wrapper("-c --class -n --classdata -p"),
    "nice": _wrapper("-n --adjustment"),
    "stdbuf": _wrapper("-i -o -e --input --output --error"),
    "sudo": _wrapper(
        "-u --user -g --group -h --host -p --prompt -C -r -t -T -U -D -R",
        settles="-l --list -v --validate -V --version -K -e --edit",
    ),
    "time": _wrapper("-f --format -o --output"),
    "timeout": _wrapper("-s --signal -k --kill-after", leading=1),
    "xargs": _wrapper("-n -I -P -L -s -d -E -a --max-args --max-procs --delimiter --arg-file"),
}


def name(word: str) -> str:
    """The name of a program without its folder."""
    return PurePosixPath(word).name if "/" in word else word


def stages(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The command itself, then what it runs, and so on: `sudo env A=1 ls`, `env A=1 ls`, `ls`."""
    rest = tuple(words)
    for _ in range(MAX_STAGES):
        rest = tuple(itertools.dropwhile(lambda w: w in KEYWORDS or ASSIGNMENT.match(w), rest))
        if not rest:
            return
        yield rest
        wrapper = WRAPPERS.get(name(rest[0]))
        if wrapper is None:
            return
        rest = _inside(wrapper, rest[1:])


def _inside(wrapper: Wrapper, words: tuple[str, ...]) -> tuple[str, ...]:
    """The command that a wrapper with those arguments runs."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        option = words[at]
        at += 1
        if option == "--":
            break
        if option in wrapper.settles:
            return ()
        if option in wrapper.valued:
            at += 1
    return words[at + wrapper.leading :]


def script(words: Sequence[str]) -> str | None:
    """The command line given to a shell, `eval` or `trap` as an argument."""
    program = name(words[0])
    if program == "trap":
        return next((line for line in words[1:] if not line.startswith("-")), None)
    if program == "eval":
        return " ".join(words[1:])
    if program not in {*SHELLS, "su"}:
        return None
    for at, word in enumerate(words[1:], 1):
        takes_line = word == "--command" or re.fullmatch(r"-[a-z]*c[a-z]*", word)
        if takes_line and at + 1 < len(words):
            # Options may come between -c and the line.
            return next((line for line in words[at + 1 :] if not line.startswith("-")), None)
    return None


def reads_input(words: Sequence[str]) -> bool:
    """True if a shell with those arguments reads commands from its input."""
    program = name(words[0])
    if script(words) is not None or program not in {*SHELLS, "su"}:
        return False
    if program == "su":
        return not _TELLS.intersection(words)
    rest = iter(words[1:])
    for word in rest:
        if word in _TELLS or re.fullmatch(r"[-+][A-Za-z]*s[A-Za-z]*", word):
            return word not in _TELLS
        if word in _VALUED:
            next(rest, None)
        elif word[:1] not in ("-", "+"):
            return word.startswith(("/dev/", "/proc/"))
    return True
