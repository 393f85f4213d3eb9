"""Tells which commands would wait for a person at a terminal; a miss fails or times out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from boyd.plugins.shell.command_line import MAX_DEPTH, Command, CommandLine, read
from boyd.plugins.shell.programs import SHELLS, name, named, script, stages

Words = Sequence[str]

EDITORS = named(
    "vi vim nvim view vimdiff gvim emacs emacsclient nano pico joe jed micro mcedit ne kak hx"
    " visudo vipw vigr sudoedit"
)
PAGERS = frozenset({"less", "more", "most", "pg"})
SCREENS = named(
    "htop btop atop glances nmon iftop nethogs watch dialog whiptail mc ranger nnn ncdu tig lazygit"
    " k9s cmatrix tmux screen byobu minicom picocom"
)
REPLS = SHELLS | named(
    "python python2 python3 ipython bpython node deno irb pry ghci lua luajit R julia php ocaml"
    " scala jshell erl iex clisp sbcl gdb lldb bc dc tclsh wish gnuplot octave maxima"
)
_STILL_BARE = re.compile(
    r"-(?:[iqusBIlx]+|-interactive|-login|-norc|-noprofile|-quiet|-silent|-posix|-no-save|-vanilla)"
)
#: With one of these, or a second operand, a database's client does its work and ends.
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
#: Options of ssh with a value in the next word.
_SSH_VALUED = named("-B -b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w")
_TELLS = frozenset({"--version", "--help", "-V", "-h", "-?"})


def interactive(line: CommandLine, depth: int = 0) -> str | None:
    """Why *line* would wait for a person; None if nothing says that it would."""
    fed = any(command.fed for command in line.commands)
    for command in line.commands:
        reason = _command(command, fed, depth)
        if reason:
            return reason
    return None


def _command(command: Command, line_fed: bool, depth: int) -> str | None:
    bounded = False
    for words in stages(command.texts):
        program, arguments = name(words[0]), words[1:]
        if "--askpass" in arguments:
            return f"{program} --askpass asks for a password"
        # A loop or a group is fed behind its end, which is another command.
        fed = command.fed or (line_fed and program == "read")
        reason = None if bounded and _follows(program, arguments) else _why(program, arguments, fed)
        if reason:
            return reason
        inner = script(words)
        if inner and depth < MAX_DEPTH:
            return interactive(read(inner), depth + 1)
        bounded = bounded or program == "timeout"
    return None


def _why(program: str, arguments: Words, fed: bool) -> str | None:
    check = _CHECKS.get(program)
    if check:
        return check(program, arguments, fed)
    if program in EDITORS:
        return _editor(program, arguments)
    if program in PAGERS:
        return None if _TELLS & set(arguments) else f"{program} is a pager"
    if program in SCREENS:
        return _screen(program, arguments)
    if program in REPLS or re.fullmatch(r"python[23]\.\d+", program):
        return _repl(program, arguments, fed)
    if program in DATABASES:
        return _database(program, arguments, fed)
    if _follows(program, arguments):
        return f"{program} follows its input and does not end; put `timeout N` in front of it"
    return None


def _editor(program: str, arguments: Words) -> str | None:
    batch = {"--batch", "-batch", "--eval", "-e", "-es", "-Es", "-c", "--check", *_TELLS}
    if program in {"vi", "vim", "nvim", "view", "vimdiff", "gvim"}:
        batch -= {"-e", "--eval", "-c"}
    return None if batch & set(arguments) else f"{program} is an editor"


def _screen(program: str, arguments: Words) -> str | None:
    if _TELLS & set(arguments) or _letters(arguments) & set("V"):
        return None
    if program == "tmux":
        attached = not arguments or arguments[0] in {"attach", "attach-session", "a", "at"}
        new = bool(arguments) and arguments[0] in {"new", "new-session"}
        detached = "d" in _letters(arguments[1:])
        return "tmux needs a terminal" if attached or (new and not detached) else None
    if program == "screen" and re.search(r"(?:^| )-(?:d?m|X|ls|list|wipe)", " ".join(arguments)):
        return None
    return f"{program} needs a terminal"


def _top(program: str, arguments: Words, fed: bool) -> str | None:
    plain = arguments[:1] and not arguments[0].startswith("-") and "b" in arguments[0]
    batch = "b" in _letters(arguments) or bool(plain) or "--batch" in arguments
    if batch or _TELLS & set(arguments):
        return None
    return f"{program} without -b needs a terminal"


def _repl(program: str, arguments: Words, fed: bool) -> str | None:
    forced = bool(arguments) and re.fullmatch(r"-(?=[^i]*i)[ilqsuB]+|--interactive", arguments[0])
    if forced and program in {*SHELLS, "python", "python3", "node"}:
        return f"{program} {arguments[0]} is interactive"
    if program in {"gdb", "lldb"}:
        batch = {"-batch", "--batch", "-b"} | _TELLS
        return None if batch & set(arguments) or fed else f"{program} without --batch waits"
    if fed or not all(_STILL_BARE.fullmatch(argument) for argument in arguments):
        return None
    return f"{program} without a script waits for input"


def _database(program: str, arguments: Words, fed: bool) -> str | None:
    batch = DATABASES[program].split()
    given = any(_is_option(argument, option) for argument in arguments for option in batch)
    tells = bool(_TELLS & set(arguments) - ({"-h"} if program != "sqlplus" else set()))
    file = any(argument.endswith((".js", ".sql")) or argument[:1] == "@" for argument in arguments)
    if fed or given or tells or file:
        return None
    return f"{program} without a statement waits for input"


def _is_option(argument: str, option: str) -> bool:
    """Whether *argument* is *option*, perhaps with its value or behind other letters."""
    if option.startswith("--"):
        return argument == option or argument.startswith(f"{option}=")
    short = argument.startswith("-") and not argument.startswith("--")
    return argument.startswith(option) or (short and option[1:] in argument[1:4])


def _with_operands(needed: int) -> Callable[[str, Words, bool], str | None]:
    def check(program: str, arguments: Words, fed: bool) -> str | None:
        if fed or _TELLS & set(arguments) or len(_operands(arguments)) >= needed:
            return None
        return f"{program} without a statement waits for input"

    return check


def _redis(program: str, arguments: Words, fed: bool) -> str | None:
    valued = named("-h -p -s -a -u -r -i -n -d -D -t --user --pass")
    modes = {"--scan", "--stat", "--latency", "--bigkeys", "--pipe", "--rdb", "--eval", *_TELLS}
    modes.discard("-h")
    if fed or modes & set(arguments) or _operands(arguments, valued):
        return None
    return f"{program} without a command waits for input"


def _ssh(program: str, arguments: Words, fed: bool) -> str | None:
    settled = {"-V", "-G", "-Q", "-O", "-N"} & set(arguments)
    if fed or settled or len(_operands(arguments, _SSH_VALUED)) > 1:
        return None
    return "ssh without a command opens a session"


def _sftp(program: str, arguments: Words, fed: bool) -> str | None:
    if fed or "b" in _letters(arguments):
        return None
    return f"{program} without a batch file opens a session"


def _session(program: str, arguments: Words, fed: bool) -> str | None:
    return None if fed else f"{program} opens a session"


def _sudo(program: str, arguments: Words, fed: bool) -> str | None:
    own = _own_options(arguments)
    letters = _letters(own)
    if "e" in letters or "--edit" in own:
        return f"{program} -e opens an editor"
    asks_not = "n" in letters or {"--non-interactive", *_TELLS} & set(own)
    if asks_not or (fed and "S" in letters):
        shell = not arguments[len(own) :] and letters & set("is")
        return f"{program} opens a shell" if shell else None
    return f"{program} without -n may ask for a password"


def _own_options(arguments: Words) -> Words:
    """The options in front of the command that is run."""
    valued = named("-u --user -g --group -h --host -p --prompt -C -r -t -T -U -D -R")
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        at += 2 if arguments[at] in valued else 1
    return arguments[:at]


def _su(program: str, arguments: Words, fed: bool) -> str | None:
    return None if fed or script((program, *arguments)) else f"{program} opens a shell"


def _passwd(program: str, arguments: Words, fed: bool) -> str | None:
    silent = {"-S", "--status", "-l", "--lock", "-u", "--unlock", "-d", "--delete", "-e"}
    stdin = fed and "--stdin" in arguments
    if stdin or (silent | {"--expire"}) & set(arguments) or _TELLS & set(arguments):
        return None
    return f"{program} asks for a password"


def _read(program: str, arguments: Words, fed: bool) -> str | None:
    if fed and "p" not in _letters(arguments):
        return None
    return "read waits for input; there is none"


def _crontab(program: str, arguments: Words, fed: bool) -> str | None:
    return "crontab -e opens an editor" if "e" in _letters(arguments) else None


def _edit(program: str, arguments: Words, fed: bool) -> str | None:
    editing = bool(_operands(arguments)) and _operands(arguments)[0] == "edit"
    if editing and not (fed and "--stdin" in arguments):
        return f"{program} edit opens an editor"
    return _following(program, arguments)


def _npm(program: str, arguments: Words, fed: bool) -> str | None:
    operands = _operands(arguments)
    if operands[:1] in (["login"], ["adduser"]):
        return f"{program} {operands[0]} asks for a password"
    quiet = "y" in _letters(arguments) or "--yes" in arguments
    # With an initializer it is that which decides whether to ask.
    if operands == ["init"] and not quiet:
        return f"{program} init without -y asks questions"
    return None


def _keygen(program: str, arguments: Words, fed: bool) -> str | None:
    letters = _letters(arguments)
    return None if letters & set("NylFRBeiLHAqk") else f"{program} without -N asks for a passphrase"


def _git(program: str, arguments: Words, fed: bool) -> str | None:
    operands = list(arguments)
    while operands and operands[0].startswith("-"):
        del operands[: 2 if operands[0] in {"-C", "-c", "--git-dir", "--work-tree"} else 1]
    if not operands or {"--help", "-h"} & set(operands):
        return None
    subcommand, *rest = operands
    letters, options = _letters(rest), {option.partition("=")[0] for option in rest}
    chosen = _GIT.get(subcommand)
    if chosen and (letters & set(chosen[0]) or options & set(chosen[1].split())):
        return f"git {subcommand} is asked to be interactive"
    if subcommand == "commit":
        message = {"--message", "--file", "--reuse-message", "--no-edit", "--fixup", "--dry-run"}
        if letters & set("mFC") or options & message:
            return None
        return "git commit without -m opens an editor"
    annotated = letters & set("as") or "--annotate" in options
    if subcommand == "tag" and annotated and not (letters & set("mFdlv")):
        return None if options & {"--message", "--file"} else "git tag without -m opens an editor"
    if subcommand in {"mergetool", "citool", "gui"}:
        return f"git {subcommand} is interactive"
    return None


#: Of git's subcommands, letters and words that make them interactive.
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


def _following(program: str, arguments: Words) -> str | None:
    if not _follows(program, arguments):
        return None
    return f"{program} follows its input and does not end; put `timeout N` in front of it"


def _follows(program: str, arguments: Words) -> bool:
    if program == "tail":
        bounded = any(argument.startswith("--pid") for argument in arguments)
        return not bounded and _has(arguments, "fF", "--follow", "--retry")
    if program == "journalctl":
        return _has(arguments, "f", "--follow")
    if program == "dmesg":
        return _has(arguments, "wW", "--follow", "--follow-new")
    if program in {"docker", "podman", "kubectl", "docker-compose", "oc"}:
        return "logs" in arguments and _has(arguments, "f", "--follow")
    return False


def _has(arguments: Words, letters: str, *options: str) -> bool:
    plain = {argument.partition("=")[0] for argument in arguments if argument[-6:] != "=false"}
    return bool(_letters(arguments) & set(letters)) or bool(plain & set(options))


def _letters(arguments: Words) -> set[str]:
    """The letters of all short options, those in a cluster too."""
    clusters = [re.match(r"-\d*([A-Za-z]+)", argument) for argument in arguments]
    return {letter for cluster in clusters if cluster for letter in cluster[1]}


def _operands(arguments: Words, valued: frozenset[str] = frozenset()) -> list[str]:
    """The arguments that are neither options nor their values."""
    found, skip = [], False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in valued:
            skip = True
        elif not argument.startswith("-"):
            found.append(argument)
    return found


_CHECKS: dict[str, Callable[[str, Words, bool], str | None]] = {
    "chfn": _session,
    "chpasswd": lambda program, _, fed: None if fed else f"{program} waits for input",
    "crontab": _crontab,
    "doas": _sudo,
    "docker": _edit,
    "ed": _session,
    "ex": _session,
    "ftp": _session,
    "git": _git,
    "iotop": _top,
    "kubectl": _edit,
    "npm": _npm,
    "passwd": _passwd,
    "pnpm": _npm,
    "read": _read,
    "redis-cli": _redis,
    "sftp": _sftp,
    "sqlite3": _with_operands(2),
    "ssh": _ssh,
    "ssh-keygen": _keygen,
    "su": _su,
    "sudo": _sudo,
    "systemctl": _edit,
    "telnet": _session,
    "top": _top,
    "valkey-cli": _redis,
    "yarn": _npm,
}
