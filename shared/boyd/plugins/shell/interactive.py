"""Finds commands that would wait for a person at a terminal; a missed one fails or times out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from boyd.plugins.shell.command_line import MAX_DEPTH, Command, CommandLine, read
from boyd.plugins.shell.programs import SHELLS, name, script, split_names, stages

Words = Sequence[str]
#: Checks a program with its arguments, given whether it has input; returns the reason to refuse it.
Check = Callable[[str, Words, bool], str | None]

EDITORS = split_names(
    "vi vim nvim view vimdiff gvim emacs emacsclient nano pico joe jed micro mcedit ne kak hx"
    " visudo vipw vigr sudoedit"
)
PAGERS = split_names("less more most pg")
SCREENS = split_names(
    "htop btop atop glances nmon iftop nethogs watch dialog whiptail mc ranger nnn ncdu tig lazygit"
    " k9s cmatrix tmux screen byobu minicom picocom"
)
REPLS = SHELLS | split_names(
    "python python2 python3 ipython bpython node deno irb pry ghci lua luajit R julia php ocaml"
    " scala jshell erl iex clisp sbcl gdb lldb bc dc tclsh wish gnuplot octave maxima"
)
_STILL_BARE = re.compile(
    r"-(?:[iqusBIlx]+|-interactive|-login|-norc|-noprofile|-quiet|-silent|-posix|-no-save|-vanilla)"
)
#: Database clients, each with the options that make it do its work and end.
DATABASES = {
    "mysql": "-e --execute",
    "mariadb": "-e --execute",
    "psql": "-c -f -l --command --file --list",
    "mongo": "--eval",
    "mongosh": "--eval -f --file",
    "sqlplus": "",
    "cqlsh": "-e -f --execute --file",
    "clickhouse-client": "-q --query --queries-file",
    "clickhouse": "-q --query --queries-file",
    "duckdb": "-c -s -f",
    "influx": "-execute",
    "sqlcmd": "-Q -i",
}
#: Letters and words that make subcommands of git interactive.
_GIT = {
    "rebase": ("i", "--interactive --edit-todo"),
    "add": ("pie", "--patch --interactive --edit"),
    "stage": ("pie", "--patch --interactive --edit"),
    "commit": ("pe", "--patch --interactive --edit"),
    "checkout": ("p", "--patch"),
    "restore": ("p", "--patch"),
    "reset": ("p", "--patch"),
    "stash": ("p", "--patch"),
    "clean": ("i", "--interactive"),
    "config": ("e", "--edit"),
    "branch": ("", "--edit-description"),
}
#: Options that take the next word as their value.
_SSH_VALUED = split_names("-B -b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w")
_SUDO_VALUED = split_names("-u --user -g --group -h --host -p --prompt -C -r -t -T -U -D -R")
_REDIS_VALUED = split_names("-h -p -s -a -u -r -i -n -d -D -t --user --pass")
#: Options that print something and end.
_PRINTS = split_names("--version --help -V -h -?")
_EDITOR_BATCH = split_names("--batch -batch --eval -e -es -Es -c --check") | _PRINTS
_REDIS_BATCH = split_names(
    "--scan --stat --latency --bigkeys --pipe --rdb --eval --version --help -V -?"
)
_PASSWD_BATCH = split_names("-S --status -l --lock -u --unlock -d --delete -e --expire") | _PRINTS
_GIT_MESSAGE = split_names("--message --file --reuse-message --no-edit --fixup --dry-run")
_CONTAINERS = split_names("docker podman kubectl docker-compose oc")
#: Letters and words that make programs follow their input without end.
_FOLLOWERS = {
    "tail": ("fF", "--follow --retry"),
    "journalctl": ("f", "--follow"),
    "dmesg": ("wW", "--follow --follow-new"),
    **dict.fromkeys(_CONTAINERS, ("f", "--follow")),
}


def find_interactive(line: CommandLine, depth: int = 0) -> str | None:
    """The reason *line* would wait for a person, if there is one."""
    fed = any(command.fed for command in line.commands)
    reasons = (_command(command, fed, depth) for command in line.commands)
    return next(filter(None, reasons), None)


def _command(command: Command, line_fed: bool, depth: int) -> str | None:
    bounded = False
    for words in stages(command.texts):
        program, arguments = name(words[0]), words[1:]
        if "--askpass" in arguments:
            return f"{program} --askpass asks for a password"
        # The input of a loop or a group is redirected at its end, which is another command.
        fed = command.fed or (line_fed and program == "read")
        reason = None
        follows = _follows(program, arguments)
        if not (bounded and follows):
            reason = _check_of(program)(program, arguments, fed)
        if follows and not (reason or bounded):
            reason = f"{program} follows its input and does not end; put `timeout N` in front of it"
        if reason:
            return reason
        inner = script(words)
        if inner and depth < MAX_DEPTH:
            return find_interactive(read(inner), depth + 1)
        bounded = bounded or program == "timeout"
    return None


def _check_of(program: str) -> Check:
    if program in _CHECKS:
        return _CHECKS[program]
    if program in EDITORS:
        return _editor
    if program in SCREENS:
        return _screen
    if program in REPLS or re.fullmatch(r"python[23]\.\d+", program):
        return _repl
    return _database if program in DATABASES else lambda *_: None


def _editor(program: str, arguments: Words, fed: bool) -> str | None:
    is_vi = program in {"vi", "vim", "nvim", "view", "vimdiff", "gvim"}
    batch = _EDITOR_BATCH - {"-e", "--eval", "-c"} if is_vi else _EDITOR_BATCH
    return None if batch & set(arguments) else f"{program} is an editor"


def _screen(program: str, arguments: Words, fed: bool) -> str | None:
    if _PRINTS & set(arguments) or "V" in _letters(arguments):
        return None
    if program == "tmux":
        attached = not arguments or arguments[0] in {"attach", "attach-session", "a", "at"}
        new = arguments[:1] and arguments[0] in {"new", "new-session"}
        detached = "d" in _letters(arguments[1:])
        return "tmux needs a terminal" if attached or (new and not detached) else None
    if program == "screen" and re.search(r"(?:^| )-(?:d?m|X|ls|list|wipe)", " ".join(arguments)):
        return None
    return f"{program} needs a terminal"


def _top(program: str, arguments: Words, fed: bool) -> str | None:
    plain = arguments[:1] and not arguments[0].startswith("-") and "b" in arguments[0]
    batch = "b" in _letters(arguments) or bool(plain) or "--batch" in arguments
    return None if batch or _PRINTS & set(arguments) else f"{program} without -b needs a terminal"


def _repl(program: str, arguments: Words, fed: bool) -> str | None:
    forced = arguments[:1] and re.fullmatch(r"-(?=[^i]*i)[ilqsuB]+|--interactive", arguments[0])
    if forced and program in {*SHELLS, "python", "python3", "node"}:
        return f"{program} {arguments[0]} is interactive"
    if program in {"gdb", "lldb"}:
        batch = {"-batch", "--batch", "-b", *_PRINTS} & set(arguments)
        return None if batch or fed else f"{program} without --batch waits"
    if fed or not all(_STILL_BARE.fullmatch(argument) for argument in arguments):
        return None
    return f"{program} without a script waits for input"


def _database(program: str, arguments: Words, fed: bool) -> str | None:
    batch = DATABASES[program].split()
    is_batch = any(_is_option(argument, option) for argument in arguments for option in batch)
    prints = bool(_PRINTS & set(arguments) - ({"-h"} if program != "sqlplus" else set()))
    file = any(argument.endswith((".js", ".sql")) or argument[:1] == "@" for argument in arguments)
    if fed or is_batch or prints or file:
        return None
    return f"{program} without a statement waits for input"


def _is_option(argument: str, option: str) -> bool:
    """True if *argument* is *option*, perhaps with its value or after other letters."""
    if option.startswith("--"):
        return argument == option or argument.startswith(f"{option}=")
    short = argument.startswith("-") and not argument.startswith("--")
    return argument.startswith(option) or (short and option[1:] in argument[1:4])


def _sqlite(program: str, arguments: Words, fed: bool) -> str | None:
    if fed or _PRINTS & set(arguments) or len(_operands(arguments)) >= 2:
        return None
    return f"{program} without a statement waits for input"


def _redis(program: str, arguments: Words, fed: bool) -> str | None:
    if fed or _REDIS_BATCH & set(arguments) or _operands(arguments, _REDIS_VALUED):
        return None
    return f"{program} without a command waits for input"


def _ssh(program: str, arguments: Words, fed: bool) -> str | None:
    settled = {"-V", "-G", "-Q", "-O", "-N"} & set(arguments)
    if fed or settled or len(_operands(arguments, _SSH_VALUED)) > 1:
        return None
    return "ssh without a command opens a session"


def _sudo(program: str, arguments: Words, fed: bool) -> str | None:
    end = 0
    while end < len(arguments) and arguments[end].startswith("-"):
        end += 2 if arguments[end] in _SUDO_VALUED else 1
    own, letters = arguments[:end], _letters(arguments[:end])
    if "e" in letters or "--edit" in own:
        return f"{program} -e opens an editor"
    asks_not = "n" in letters or {"--non-interactive", *_PRINTS} & set(own)
    if asks_not or (fed and "S" in letters):
        shell = not arguments[end:] and letters & set("is")
        return f"{program} opens a shell" if shell else None
    return f"{program} without -n may ask for a password"


def _passwd(program: str, arguments: Words, fed: bool) -> str | None:
    if (fed and "--stdin" in arguments) or _PASSWD_BATCH & set(arguments):
        return None
    return f"{program} asks for a password"


def _edit(program: str, arguments: Words, fed: bool) -> str | None:
    if _operands(arguments)[:1] == ["edit"] and not (fed and "--stdin" in arguments):
        return f"{program} edit opens an editor"
    return None


def _npm(program: str, arguments: Words, fed: bool) -> str | None:
    operands = _operands(arguments)
    if operands[:1] in (["login"], ["adduser"]):
        return f"{program} {operands[0]} asks for a password"
    # With an initializer, it depends on that one whether questions are asked.
    if operands == ["init"] and not ("y" in _letters(arguments) or "--yes" in arguments):
        return f"{program} init without -y asks questions"
    return None


def _git(program: str, arguments: Words, fed: bool) -> str | None:
    operands = list(arguments)
    while operands and operands[0].startswith("-"):
        del operands[: 2 if operands[0] in {"-C", "-c", "--git-dir", "--work-tree"} else 1]
    if not operands or {"--help", "-h"} & set(operands):
        return None
    subcommand, *rest = operands
    letters, options = _letters(rest), {option.partition("=")[0] for option in rest}
    chosen, words = _GIT.get(subcommand, ("", ""))
    if letters & set(chosen) or options & set(words.split()):
        return f"git {subcommand} is asked to be interactive"
    if subcommand == "commit" and not (letters & set("mFC") or options & _GIT_MESSAGE):
        return "git commit without -m opens an editor"
    annotated = letters & set("as") or "--annotate" in options
    has_message = letters & set("mFdlv") or options & {"--message", "--file"}
    if subcommand == "tag" and annotated and not has_message:
        return "git tag without -m opens an editor"
    if subcommand in {"mergetool", "citool", "gui"}:
        return f"git {subcommand} is interactive"
    return None


def _follows(program: str, arguments: Words) -> bool:
    letters, options = _FOLLOWERS.get(program, ("", ""))
    if program == "tail" and any(argument.startswith("--pid") for argument in arguments):
        return False
    if program in _CONTAINERS and "logs" not in arguments:
        return False
    plain = {argument.partition("=")[0] for argument in arguments if argument[-6:] != "=false"}
    return bool(_letters(arguments) & set(letters) or plain & set(options.split()))


def _letters(arguments: Words) -> set[str]:
    """The letters of all short options, also of clusters."""
    clusters = [re.match(r"-\d*([A-Za-z]+)", argument) for argument in arguments]
    return {letter for cluster in clusters if cluster for letter in cluster[1]}


def _operands(arguments: Words, valued: frozenset[str] = frozenset()) -> list[str]:
    """The arguments that are neither options nor their values."""
    rest = iter(arguments)
    operands = []
    for argument in rest:
        if argument in valued:
            next(rest, None)
        elif not argument.startswith("-"):
            operands.append(argument)
    return operands


def _unless(ends: Callable[[Words, bool], bool], reason: str) -> Check:
    """A check for a program that waits for that reason, unless its arguments make it end."""
    return lambda program, words, fed: None if ends(words, fed) else f"{program} {reason}"


_CHECKS: dict[str, Check] = {
    **dict.fromkeys(
        ("ed", "ex", "ftp", "chfn", "telnet"), _unless(lambda _, fed: fed, "opens a session")
    ),
    **dict.fromkeys(PAGERS, _unless(lambda words, _: bool(_PRINTS & set(words)), "is a pager")),
    **dict.fromkeys(("docker", "kubectl", "systemctl"), _edit),
    **dict.fromkeys(("npm", "pnpm", "yarn"), _npm),
    **dict.fromkeys(("redis-cli", "valkey-cli"), _redis),
    **dict.fromkeys(("sudo", "doas"), _sudo),
    **dict.fromkeys(("top", "iotop"), _top),
    "chpasswd": _unless(lambda _, fed: fed, "waits for input"),
    "crontab": _unless(lambda words, _: "e" not in _letters(words), "-e opens an editor"),
    "git": _git,
    "passwd": _passwd,
    "read": _unless(
        lambda words, fed: fed and "p" not in _letters(words), "waits for input; there is none"
    ),
    "sftp": _unless(
        lambda words, fed: fed or "b" in _letters(words), "without a batch file opens a session"
    ),
    "sqlite3": _sqlite,
    "ssh": _ssh,
    "ssh-keygen": _unless(
        lambda words, _: not _letters(words).isdisjoint("NylFRBeiLHAqk"),
        "without -N asks for a passphrase",
    ),
    "su": _unless(lambda words, fed: fed or bool(script(("su", *words))), "opens a shell"),
}
