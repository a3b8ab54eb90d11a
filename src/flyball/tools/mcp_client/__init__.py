"""Tools of MCP servers, which need the extra `mcp`."""

from .server import McpServer, ServerOptions, mcp

__all__ = ["McpServer", "ServerOptions", "mcp"]
