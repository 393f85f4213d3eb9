"""The command group and its errors; commands are imported when used, so `boyd` starts quickly."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from difflib import get_close_matches

import click

from boyd.errors import INIT_FAILED, AgentPaused, ApiProblem, BoydError, InitFailed, UnknownAgent
from boyd.text.version import VERSION
from boyd_cli import INTERRUPTED, Importing, is_interrupt

GROUP = "boyd.commands"

#: The built-in commands in the order of the help: name and path.
COMMANDS = {
    "demo": "boyd_cli.commands.demo_command:demo",
    "up": "boyd_cli.commands.up_command:up",
    "open": "boyd_cli.commands.up_command:open_console",
    "status": "boyd_cli.commands.status_command:status",
    "history": "boyd_cli.commands.history_command:history",
    "incidents": "boyd_cli.commands.incidents_command:incidents",
    "agents": "boyd_cli.commands.control_commands:agents",
    "observers": "boyd_cli.commands.status_command:observers",
    "events": "boyd_cli.commands.status_command:events",
    "ask": "boyd_cli.commands.investigation_commands:ask",
    "chat": "boyd_cli.commands.investigation_commands:chat",
    "investigations": "boyd_cli.commands.investigation_commands:investigations",
    "trigger": "boyd_cli.commands.control_commands:trigger",
    "runs": "boyd_cli.commands.run_commands:runs",
    "actions": "boyd_cli.commands.action_commands:actions",
    "autonomy": "boyd_cli.commands.approval_commands:autonomy",
    "procedures": "boyd_cli.commands.action_commands:procedures",
    "approvals": "boyd_cli.commands.approval_commands:approvals",
    "ack": "boyd_cli.commands.ack_command:ack",
    "pause": "boyd_cli.commands.control_commands:pause",
    "abandon": "boyd_cli.commands.control_commands:abandon",
    "retire": "boyd_cli.commands.control_commands:retire",
    "resume": "boyd_cli.commands.control_commands:resume",
    "freeze": "boyd_cli.commands.control_commands:freeze",
    "unfreeze": "boyd_cli.commands.control_commands:unfreeze",
    "revoke": "boyd_cli.commands.control_commands:revoke",
    "restore": "boyd_cli.commands.control_commands:restore",
    "audit": "boyd_cli.commands.audit_commands:audit",
    "intake": "boyd_cli.commands.observe_commands:intake",
    "keys": "boyd_cli.commands.key_commands:keys",
    "can": "boyd_cli.commands.key_commands:can",
    "init": "boyd_cli.commands.init_command:init",
    "plugins": "boyd_cli.commands.plugin_commands:plugins",
    "check": "boyd_cli.commands.check_commands:check",
    "mcp": "boyd_cli.commands.plugin_commands:mcp",
    "observe": "boyd_cli.commands.observe_commands:observe",
    "replay": "boyd_cli.commands.replay_commands:replay",
    "cases": "boyd_cli.commands.replay_commands:cases",
    "test": "boyd_cli.commands.replay_commands:test",
    "doctor": "boyd_cli.commands.check_commands:doctor",
    "upgrade": "boyd_cli.commands.upgrade_command:upgrade",
    "archive": "boyd_cli.commands.export_commands:archive",
    "traces": "boyd_cli.commands.export_commands:traces",
    "completion": "boyd_cli.completion:completion",
}


class Commands(click.Group):
    """The built-in commands, and those that other packages add by entry point."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List all names, the built-in ones first."""
        return [*COMMANDS, *sorted(_guest_paths().keys() - COMMANDS.keys())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of that name."""
        path = COMMANDS.get(cmd_name) or _guest_paths().get(cmd_name)
        if path is None:
            return None
        module, _, name = path.partition(":")
        with Importing():
            command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, and suggest similar names if there is none.

        Click suggests only commands that were imported.

        Raises:
            UsageError: no command has that name.
        """
        name = args[0]
        if name.startswith("-") or ctx.resilient_parsing or self.get_command(ctx, name):
            return super().resolve_command(ctx, args)
        close = " or ".join(get_close_matches(name, self.list_commands(ctx)))
        hint = f"did you mean {close}?" if close else "--help lists all commands"
        raise click.UsageError(f"no command {name!r}; {hint}", ctx)


def _guest_paths() -> dict[str, str]:
    """The paths of the commands that other packages add, by name, if the package is there.

    One distribution has several packages, and some may have been left out of an image.
    """
    from importlib.metadata import entry_points
    from importlib.util import find_spec

    return {
        point.name: point.value
        for point in entry_points(group=GROUP)
        if find_spec(point.module.partition(".")[0])
    }


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="boyd")
def boyd() -> None:
    """Observe, orient, decide, act: an agent loop across any number of hosts."""


#: Exit statuses of errors; all others are 1.
STATUS: dict[type[BoydError], int] = {UnknownAgent: 4, AgentPaused: 5, InitFailed: INIT_FAILED}


def run() -> int:
    """Run the command that the arguments name; return its exit status.

    0 ok, 1 error, 2 usage, 3 not allowed, 4 not found, 5 conflict, 124 timeout, 130
    interrupted.
    """
    try:
        status = boyd.main(prog_name="boyd", standalone_mode=False)
    except click.Abort:
        if sys.stderr.isatty():
            print(file=sys.stderr)  # after the question
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BoydError as error:
        text, code = _text_and_status(error)
        print(f"boyd: {text}", file=sys.stderr)
        return code
    except (Exception, KeyboardInterrupt) as error:
        if is_interrupt(error):
            return INTERRUPTED
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return _out_of_space(error)
        if isinstance(error, UnicodeEncodeError) and error.encoding == "utf-8":
            print(f"boyd: {error.object!r:.200} is not UTF-8", file=sys.stderr)
            return 2
        raise
    return status if isinstance(status, int) else 0


def _out_of_space(error: OSError) -> int:
    """Say which file has no room, and print no more: Python flushes standard output at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    name = error.filename or "standard output or a file"
    print(f"boyd: {name} cannot be written: {error.strerror}", file=sys.stderr)
    return 1


def _text_and_status(error: BoydError) -> tuple[str, int]:
    if not isinstance(error, ApiProblem):
        return str(error), STATUS.get(type(error), 1)
    from boyd_cli.output import one_line, status_of

    text = one_line(str(error))
    if error.name == "unauthenticated":
        text = one_line(error.detail.partition(";")[0])
        text += "; pass one with --key, BOYD_API_KEY, BOYD_API_KEY_FILE or a profile"
    return text, status_of(error)
