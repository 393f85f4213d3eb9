"""The plugin `mcp`: the tools of MCP servers as actions and tools of models."""

from boyd.plugins.mcp_client.remote_tools import McpTools

__all__ = ["McpTools"]
