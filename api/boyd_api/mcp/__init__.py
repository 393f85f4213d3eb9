"""Boyd as an MCP server: tools and resources for AI assistants; needs the extra `boyd[mcp]`."""
