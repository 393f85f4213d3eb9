"""Renews a lock file, and tells what is different in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from boyd.errors import ConfigError
from boyd.plugins.mcp_client.remote_tools import describe_change
from boyd.plugins.mcp_client.server_failure import ServerFailure
from boyd.plugins.mcp_client.tool_check import visible
from boyd.plugins.mcp_client.tool_lock import LockedServer, ToolLock
from boyd.plugins.mcp_client.tool_server import offers, talking

if TYPE_CHECKING:
    from boyd.plugins.mcp_client.remote_tools import McpTools

#: Characters shown of the description of a new tool; the lock file has all.
_SHOWN = 300


def renew_lock(plugin: McpTools) -> tuple[ToolLock, dict[str, str], dict[str, str]]:
    """The lock as the servers are now, the failures of servers, and the tools that are left out.

    What is locked of a server that fails stays.
    """
    servers: dict[str, LockedServer] = {}
    failures: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name, server in plugin.options.servers.items():
        try:
            with talking(server, plugin.folder) as connection:
                servers[name], refused = offers(connection, server)
        except (ServerFailure, ConfigError) as failure:
            failures[name] = visible(str(failure))
            if name in plugin.lock.servers:
                servers[name] = plugin.lock.servers[name]
            continue
        left_out |= {f"{name}/{visible(tool)}": reason for tool, reason in refused.items()}
    return ToolLock(servers=servers), failures, left_out


def changes(before: ToolLock, after: ToolLock) -> Iterator[str]:
    """Texts about each tool that is new, gone or described in another way."""
    for name in sorted(before.servers.keys() | after.servers.keys()):
        old = before.servers.get(name, LockedServer(protocol=""))
        new = after.servers.get(name, LockedServer(protocol=""))
        if old.protocol != new.protocol:
            yield f"{name}: protocol {old.protocol or 'none'} -> {new.protocol or 'none'}"
        for tool in sorted(old.tools.keys() | new.tools.keys()):
            was, current = old.tools.get(tool), new.tools.get(tool)
            if was is None and current is not None:
                yield f"new: {name}/{tool} {current.digest}\n  {_begin(current.description)}"
            elif current is None:
                yield f"gone: {name}/{tool}"
            elif was is not None and was.digest != current.digest:
                yield f"changed: {name}/{tool} {current.digest}"
                yield describe_change(was, current, f"{name}/{tool}")
            elif was is not None and was.annotations != current.annotations:
                yield f"claims: {name}/{tool} {was.annotations} -> {current.annotations}"


def _begin(description: str) -> str:
    line = visible(" ".join(description.split()))
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]} …"
