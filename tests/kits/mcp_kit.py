"""A server that misbehaves as a test says, and agents that use its tools."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from boyd import Agent
from boyd.plugins.mcp_client import McpTools
from boyd.plugins.mcp_client.tool_server import renew_lock

HERE = Path(__file__).parent


def tool(name: str = "send", description: str = "Send a text.", **schema: Any) -> dict[str, Any]:
    """A tool as a server lists it."""
    properties = {"text": {"type": "string"}, "times": {"type": "integer"}}
    plain = {"type": "object", "properties": properties, "required": ["text"]}
    return {"name": name, "description": description, "inputSchema": {**plain, **schema}}


class Rogue:
    """The server `rogue` in a folder, which has an agent file's lock beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.behave()

    def behave(self, *listings: Any, **conduct: Any) -> None:
        """List one of *listings* after the other from now on."""
        (self.folder / "lists").unlink(missing_ok=True)
        conduct_file = {"listings": listings or [[tool()]], **conduct}
        (self.folder / "conduct.json").write_text(json.dumps(conduct_file))

    @property
    def options(self) -> dict[str, Any]:
        """Its options."""
        argv = [sys.executable, "-I", "-S", str(HERE / "mcp_rogue.py"), str(self.folder)]
        return {"argv": argv, "timeout": 20}

    def plugin(self, **options: Any) -> McpTools:
        """The plugin with this server."""
        return McpTools(servers={"rogue": {**self.options, **options}})

    def agent(self, **options: Any) -> Agent:
        """An agent with the tools that are locked."""
        return Agent("test", plugins=[self.plugin(**options)], folder=self.folder)

    def sync(self, **options: Any) -> dict[str, str]:
        """Lock what the server says; what is left out, and why."""
        plugin = self.plugin(**options)
        plugin.use_folder(self.folder)
        lock, failures, left_out = renew_lock(plugin.lock, plugin.options.servers, plugin.folder)
        assert not failures, failures
        lock.write(plugin.lock_file)
        return left_out

    def pin(self, name: str = "send", **more: Any) -> dict[str, Any]:
        """Options that let a locked tool run alone."""
        plugin = self.plugin()
        plugin.use_folder(self.folder)
        digest = plugin.lock_of("rogue").tools[name].digest
        return {"tools": {name: {"autonomy": "auto", "risk": "low", "digest": digest, **more}}}

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The arguments of the calls that it received."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line)["arguments"] for line in lines]
