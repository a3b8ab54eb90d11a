"""Foreign tools: those of MCP servers, which are started or called with a run. They need the extra `mcp`."""

from .server import McpServer, ServerOptions, mcp

__all__ = ["McpServer", "ServerOptions", "mcp"]
