"""Conversations with MCP servers: what each offers now, for a call or for the lock file."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mcp_types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
)

from boyd.errors import ConfigError
from boyd.models import JsonObject, unstorable
from boyd.plugins.mcp_client.mcp_connection import Deadline, McpConnection, MessageWire
from boyd.plugins.mcp_client.remote_server import RemoteServer, ServerFailure
from boyd.plugins.mcp_client.tool_descriptions import (
    MAX_TOOLS,
    LockedServer,
    LockedTool,
    ToolLock,
    ambiguous,
    flaw,
    headers_of,
    visible,
    visible_json,
)
from boyd.plugins.mcp_client.wires import HttpWire, StdioWire
from boyd.text.redaction import redactor

#: The most characters of the text of a result, and of its structured content as JSON.
MAX_TEXT = 100_000


@contextmanager
def talking(server: RemoteServer, folder: Path, revision: str = "") -> Iterator[McpConnection]:
    """A connection, ended afterwards; it tries *revision* of the protocol first.

    Raises:
        ServerFailure: the server cannot be reached, or did not behave.
        ConfigError: a secret cannot be read.
    """
    until = Deadline(server.timeout)
    wire: MessageWire = HttpWire(server) if server.url else StdioWire(server, folder)
    try:
        yield McpConnection(wire, until, revision)
    finally:
        wire.close()


def read_tool(connection: McpConnection, name: str) -> LockedTool:
    """The description of a tool as the server gives it now.

    Raises:
        ServerFailure: it does not offer that tool, offers it twice, or in a way that has a flaw.
    """
    tools = [tool for tool in connection.tools() if tool.name == name]
    if len(tools) != 1:
        problem = "no longer offers it" if not tools else "offers several tools of that name"
        raise ServerFailure(f"the server {problem}")
    tool = tools[0]
    if error := flaw(tool.name, tool.description or "", tool.input_schema):
        raise ServerFailure(f"what the server now says of it cannot be used: {error}")
    return _lock_tool(tool)


def offers(connection: McpConnection, server: RemoteServer) -> tuple[LockedServer, dict[str, str]]:
    """All usable tools of a server, and the reasons why others are not, by name."""
    tools: dict[str, LockedTool] = {}
    refused: dict[str, str] = {}
    listed = connection.tools()
    doubtful = ambiguous([tool.name for tool in listed])
    for tool in listed:
        problem = flaw(tool.name, tool.description or "", tool.input_schema)
        if tool.name in doubtful:
            problem = "its name can be mistaken for that of another tool"
        if not problem and len(tools) >= MAX_TOOLS:
            problem = f"there are more than {MAX_TOOLS} tools; see `include`"
        if problem:
            refused[tool.name[:100]] = problem
        elif server.includes(tool.name):
            tools[tool.name] = _lock_tool(tool)
    return LockedServer(protocol=connection.revision, tools=tools), refused


def renew_lock(
    lock: ToolLock, configured: Mapping[str, RemoteServer], folder: Path
) -> tuple[ToolLock, dict[str, str], dict[str, str]]:
    """The lock as the servers are now, the failures of servers, and the tools that are left out.

    What is locked of a server that fails stays.
    """
    servers: dict[str, LockedServer] = {}
    failures: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name, server in configured.items():
        try:
            with talking(server, folder) as connection:
                servers[name], refused = offers(connection, server)
        except (ServerFailure, ConfigError) as failure:
            failures[name] = visible(str(failure))
            if name in lock.servers:
                servers[name] = lock.servers[name]
            continue
        left_out |= {f"{name}/{visible(tool)}": reason for tool, reason in refused.items()}
    return ToolLock(servers=servers), failures, left_out


def _lock_tool(tool: Tool) -> LockedTool:
    notes = tool.annotations
    hints = notes.model_dump(mode="json", by_alias=True, exclude_none=True) if notes else {}
    return LockedTool.of(tool.description or "", tool.input_schema, _hints(hints))


def _hints(annotations: JsonObject) -> JsonObject:
    """The four hints of the specification; a title is one more text that nobody needs."""
    return {name: value for name, value in annotations.items() if isinstance(value, bool)}


def argument_headers(schema: JsonObject, arguments: Mapping[str, Any]) -> dict[str, str]:
    """The headers that repeat arguments, as the schema asks for."""
    values = {
        f"Mcp-Param-{header}": _at(arguments, path) for path, header in headers_of(schema).items()
    }
    return {name: _header(value) for name, value in values.items() if value is not None}


def _at(arguments: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        arguments = arguments.get(key) if isinstance(arguments, Mapping) else None
    return arguments if isinstance(arguments, str | int | float) else None


def _header(value: str | float) -> str:
    """The value as a header can carry it."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    plain = text.isascii() and text.isprintable() and text == text.strip()
    if plain and not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'replace')).decode()}?="


def output_of(result: CallToolResult) -> JsonObject:
    """A result without secrets or invisible characters, cut where it is too long."""
    text = visible(redactor().redact("\n".join(_text(part) for part in result.content)))
    output: JsonObject = {"text": text[:MAX_TEXT]}
    if len(text) > MAX_TEXT:
        output["omitted"] = f"{len(text) - MAX_TEXT} more characters of text"
    structured = result.structured_content
    if structured is None:
        return output
    problem = unstorable(structured)
    if problem or len(json.dumps(structured)) > MAX_TEXT:
        output["structured"] = f"omitted: {problem or f'it is longer than {MAX_TEXT} characters'}"
    else:
        output["structured"] = visible_json(redactor().redact_json(structured))
    return output


def _text(part: Any) -> str:
    """A part of a result as text; what is not text is only named."""
    if isinstance(part, TextContent):
        return part.text
    if isinstance(part, ImageContent | AudioContent):
        return f"[{part.type}, {part.mime_type}, {len(part.data)} characters of base64: left out]"
    if isinstance(part, ResourceLink):
        return f"[resource {part.uri}]"
    if isinstance(part, EmbeddedResource) and isinstance(part.resource, TextResourceContents):
        return part.resource.text
    return f"[{getattr(part, 'type', 'something')}: left out]"
