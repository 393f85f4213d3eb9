"""The plugin `mcp`: the tools of MCP servers as actions and tools of models."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from pydantic import Field

from boyd.errors import PluginError
from boyd.models import Catalog
from boyd.plugin import Plugin
from boyd.plugins.mcp_client.arguments import arguments_model
from boyd.plugins.mcp_client.remote_tool import UNTRUSTED, RemoteTool
from boyd.plugins.mcp_client.server_options import RemoteServer, ServerName, ToolPin
from boyd.plugins.mcp_client.tool_check import visible
from boyd.plugins.mcp_client.tool_lock import LockedServer, LockedTool, ToolLock

#: Seconds that ending a server may take beyond the time limit of a call.
_MARGIN = 5.0


class McpTools(Plugin):
    """Offers the tools of MCP servers, as the lock file beside the agent file describes them.

    Whatever a server says of a tool is untrusted: a tool is high risk and needs an approval unless
    the options say otherwise for the digest of its description and schema. A tool that the server
    describes in another way than the lock file is only called as a person has approved it.
    """

    id = "mcp"

    class Options(Plugin.Options):
        """The plugin's options.

        Attributes:
            lock: the lock file, relative to the folder of the agent file.
            servers: the servers by name.
        """

        lock: Path = Path("mcp-tools.json")
        servers: dict[ServerName, RemoteServer] = Field(default_factory=dict)

    options: Options
    lock = ToolLock()

    def use_folder(self, folder: Path) -> None:
        """Read the lock file in the *folder* of the agent file, and make the actions.

        Raises:
            ConfigError: the lock file cannot be used.
            PluginError: the extra is not installed.
        """
        if find_spec("mcp_types") is None:
            raise PluginError(self.id, "needs mcp-types: run `pip install 'boyd[mcp]'`")
        self.folder = folder.resolve()
        self.lock_file = self.folder / self.options.lock
        self.lock = ToolLock.read(self.lock_file)
        self.digest = sha256(self.lock.model_dump_json().encode()).hexdigest()
        self.components = [
            self._action(name, server, tool, locked)
            for name, server in self.options.servers.items()
            for tool, locked in self.locked(name).tools.items()
            if server.includes(tool)
        ]

    def locked(self, server: str) -> LockedServer:
        """The entry of a server in the lock file."""
        return self.lock.servers.get(server) or LockedServer(protocol="")

    def pin(self, server: str, tool: str) -> ToolPin:
        """The rules for a locked tool, as far as they were written for it."""
        own = self.options.servers[server].tools.get(tool, ToolPin())
        return own.for_digest(self.locked(server).tools[tool].digest)

    def remark(self, server: str, tool: str) -> str:
        """The reason why the options of a tool do not hold as they are written, if so."""
        own = self.options.servers[server].tools.get(tool)
        if own is None or self.pin(server, tool) is own:
            return ""
        return "its digest is another one than in the options, so nothing that they ease holds"

    def misfits(self, catalog: Catalog) -> Iterable[str]:
        """Servers and tools that the lock file lacks, and pins for another digest."""
        for name, server in self.options.servers.items():
            if name not in self.lock.servers:
                yield f"servers.{name}: {self.options.lock} does not have it: run `boyd mcp sync`"
                continue
            for tool in server.tools:
                locked = self.locked(name).tools.get(tool)
                if locked is None or not server.includes(tool):
                    yield f"servers.{name}.tools.{tool}: no such tool in {self.options.lock}"
                elif remark := self.remark(name, tool):
                    yield f"servers.{name}.tools.{tool}: {remark}; now it is {locked.digest}"

    def _action(self, name: str, server: RemoteServer, tool: str, locked: LockedTool) -> RemoteTool:
        pin = self.pin(name, tool)
        described = visible(locked.description).strip()
        said = f" The server says ({UNTRUSTED}): {described}" if described else ""
        return RemoteTool(
            name=f"{name}/{tool}",
            description=f"Call {tool} of the MCP server {name}.{said}",
            params=arguments_model(locked.schema_),
            risk=pin.risk,
            autonomy=pin.gate,
            reversibility="read-only" if pin.read_only else "unknown",
            idempotent=pin.idempotent,
            target=pin.target,
            tool=True,
            category="search" if pin.read_only else "execution",
            queue=server.queue,
            timeout=server.timeout + _MARGIN,
            server=server,
            server_name=name,
            remote=tool,
            locked=locked,
            protocol=self.locked(name).protocol,
            folder=self.folder,
        )
