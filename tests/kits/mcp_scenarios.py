"""The client that the conformance suite tests: what an action of the plugin does, at its URL."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from boyd.plugins.mcp_client.mcp_connection import McpConnection
from boyd.plugins.mcp_client.remote_server import RemoteServer
from boyd.plugins.mcp_client.tool_server import argument_headers, offers, talking

#: The arguments of the calls that a scenario wants; by default, every tool is called once.
_ADD = {"a": 5, "b": 3}


def run(scenario: str, url: str, context: dict[str, Any]) -> None:
    """List the tools, and make the calls that the scenario asks for."""
    server = RemoteServer(url=url, allow_private=True, timeout=20)
    with talking(server, Path()) as connection:
        tools, refused = offers(connection, server)
        print(connection.revision, list(tools.tools), refused)
        calls = [(call["name"], call["arguments"]) for call in context.get("toolCalls", [])]
        if scenario == "json-schema-2020-12-preservation":
            schema = tools.tools["json_schema_2020_12_tool"].schema_
            calls = [("json_schema_echo", {"schema": schema})]
        for name, arguments in calls or [(name, _ADD) for name in tools.tools]:
            if name in tools.tools:
                _call(connection, name, arguments, tools.tools[name].schema_)


def _call(connection: McpConnection, name: str, arguments: Any, schema: Any) -> None:
    print(connection.call(name, arguments, argument_headers(schema, arguments)))


if __name__ == "__main__":
    run(
        os.environ["MCP_CONFORMANCE_SCENARIO"],
        sys.argv[-1],
        json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")),
    )
