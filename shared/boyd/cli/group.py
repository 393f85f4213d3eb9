"""The command group: commands are imported when they are used, so that `boyd` starts quickly."""

from __future__ import annotations

import importlib
from difflib import get_close_matches

import click

from boyd.cli.interrupts import Importing
from boyd.version import VERSION

GROUP = "boyd.commands"

#: Our own commands, in the order that the help shows: name and where it lies.
COMMANDS = {
    "up": "boyd.cli.up_command:up",
    "status": "boyd.cli.status_command:status",
    "history": "boyd.cli.history_command:history",
    "agents": "boyd.cli.control_commands:agents",
    "observers": "boyd.cli.observe_commands:observers",
    "events": "boyd.cli.event_commands:events",
    "ask": "boyd.cli.ask_command:ask",
    "chat": "boyd.cli.chat_command:chat",
    "investigations": "boyd.cli.investigation_commands:investigations",
    "agent": "boyd.cli.agent_commands:agent",
    "goals": "boyd.cli.goal_commands:goals",
    "questions": "boyd.cli.goal_commands:questions",
    "graph": "boyd.cli.graph_commands:graph",
    "trigger": "boyd.cli.control_commands:trigger",
    "runs": "boyd.cli.run_commands:runs",
    "actions": "boyd.cli.action_commands:actions",
    "approvals": "boyd.cli.approval_commands:approvals",
    "pause": "boyd.cli.control_commands:pause",
    "abandon": "boyd.cli.control_commands:abandon",
    "retire": "boyd.cli.control_commands:retire",
    "resume": "boyd.cli.control_commands:resume",
    "freeze": "boyd.cli.control_commands:freeze",
    "unfreeze": "boyd.cli.control_commands:unfreeze",
    "audit": "boyd.cli.audit_commands:audit",
    "keys": "boyd.cli.key_commands:keys",
    "init": "boyd.cli.init_command:init",
    "check": "boyd.cli.check_command:check",
    "observe": "boyd.cli.observe_commands:observe",
    "doctor": "boyd.cli.doctor_command:doctor",
    "completion": "boyd.cli.completion:completion",
}


class Commands(click.Group):
    """Our commands and those that other packages add by entry point."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, ours first."""
        from importlib.metadata import entry_points

        added = [point.name for point in entry_points(group=GROUP)]
        return [*COMMANDS, *sorted(set(added) - set(COMMANDS))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now."""
        path = COMMANDS.get(cmd_name) or _added(cmd_name)
        if path is None:
            return None
        module, _, name = path.partition(":")
        with Importing():
            command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is meant, and what is left for it.

        Raises:
            UsageError: there is none of that name; click knows no others, as none is imported yet.
        """
        name = args[0]
        if name.startswith("-") or ctx.resilient_parsing or self.get_command(ctx, name):
            return super().resolve_command(ctx, args)
        close = " or ".join(get_close_matches(name, self.list_commands(ctx)))
        what_to_do = f"did you mean {close}?" if close else "--help lists what there is"
        raise click.UsageError(f"no command {name!r}; {what_to_do}", ctx)


def _added(name: str) -> str | None:
    """Where the command lies that another package adds by that name."""
    from importlib.metadata import entry_points

    return next((point.value for point in entry_points(group=GROUP, name=name)), None)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="boyd")
def boyd() -> None:
    """Watch, understand, decide, act: an agent loop on as many hosts as you give it."""
