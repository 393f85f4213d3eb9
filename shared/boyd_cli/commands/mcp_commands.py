"""`boyd mcp …`: the tools of MCP servers that an agent uses, and the lock file that holds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from boyd.agent import load_agent
from boyd.errors import ConfigError
from boyd_cli import output
from boyd_cli.views.tables import label, sentence, whole

if TYPE_CHECKING:
    from boyd.plugins.mcp_client import McpTools

COLUMNS = (
    *(label("tool"), whole("risk"), whole("autonomy"), whole("digest", drop=2)),
    *(sentence("the server claims", drop=3), sentence("note", drop=1)),
)


@click.group()
def mcp() -> None:
    """Show and renew what is known of the tools of MCP servers."""


@mcp.command("list")
@click.argument("agent")
@output.output_option
def list_(agent: str, form: str) -> None:
    """List the locked tools of AGENT, an agent file, without connecting to any server.

    What a server claims of a tool, such as that it only reads, is never trusted.
    """
    plugins = _plugins(agent)
    tools: list[dict[str, str | list[str]]] = [
        {
            "tool": f"{plugin.id}:{server}/{tool}",
            "risk": plugin.pin(server, tool).risk,
            "autonomy": plugin.pin(server, tool).autonomy,
            "digest": locked.digest,
            "claims": sorted(name for name, value in locked.annotations.items() if value),
            "note": plugin.remark(server, tool),
        }
        for plugin in plugins
        for server, options in plugin.options.servers.items()
        for tool, locked in plugin.locked(server).tools.items()
        if options.includes(tool)
    ]
    rows = [[*map(_cell, one.values())] for one in tools]
    output.print_list(form, tools, COLUMNS, rows, "No tool is locked: run `boyd mcp sync`.")


def _cell(value: str | list[str]) -> str:
    return value if isinstance(value, str) else ", ".join(value)


@mcp.command()
@click.argument("agent")
@click.option("--check", is_flag=True, help="Write nothing; status 1 if anything differs.")
def sync(agent: str, check: bool) -> None:
    """Ask the servers of AGENT, an agent file, for their tools, and renew its lock file.

    It shows what differs. Review the lock file like code before you commit it: models and people
    read the descriptions in it.
    """
    fine = [_sync(plugin, check) for plugin in _plugins(agent)]
    output.fail_if(not all(fine))


def _sync(plugin: McpTools, check: bool) -> bool:
    from boyd.plugins.mcp_client.lock_changes import changes, renewed

    lock, failures, notes = renewed(plugin)
    for server, why in failures.items():
        output.note(output.one_line(f"failed: {server}: {why}; what is locked stays"))
    for tool, why in notes.items():
        output.say(output.one_line(f"left out: {tool}: {why}"))
    found = list(changes(plugin.lock, lock))
    _say(found)
    if not found:
        output.say(f"{plugin.lock_file}: nothing differs")
    elif not check:
        try:
            lock.write(plugin.lock_file)
        except OSError as error:
            raise ConfigError(f"{plugin.lock_file}: {error.strerror}") from None
        output.say(f"written: {plugin.lock_file}")
    return not failures and not (check and found)


def _say(found: Sequence[str]) -> None:
    for lines in found:
        for line in lines.splitlines():
            output.say("".join(c if c.isprintable() else " " for c in line))


def _plugins(agent: str) -> list[McpTools]:
    """The plugins of this kind of an agent; raises `ConfigError` without any."""
    from boyd.plugins.mcp_client import McpTools

    found = [one for one in load_agent(agent).host.plugins.values() if isinstance(one, McpTools)]
    if not found:
        raise ConfigError(f"{agent}: has no plugin mcp")
    return found
