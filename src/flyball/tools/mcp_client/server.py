"""MCP servers as tool sources, by command or URL."""

from __future__ import annotations

import logging
import math
import re
import shlex
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast
from urllib.parse import urlsplit

import anyio

from ..._internal import validation
from ..._internal.distribution import format_install
from ..._internal.text import redact_command
from ...errors import ConfigError, SourceError, UsageError
from ..definition import Tool
from .session import McpSession, create_transport, unwrap_error

log = logging.getLogger(__name__)
_URL = re.compile(r"https?://", re.IGNORECASE)


class ServerOptions(TypedDict, total=False):
    """Options of `mcp(...)`. All are optional."""

    only: Collection[str] | None
    """Names of the tools to offer, as the server spells them. None means all."""
    prefix: str
    """Prefix for the names of the tools, such as `prefix="github_"`."""
    timeout: float | None
    """Seconds for one call, 45 by default. None means that only the run's deadline applies."""
    connect_timeout: float
    """Seconds to connect and list the tools, 30 by default. The run's deadline applies too."""
    name: str
    """Name of the server in errors. Default: the command or the URL, without secrets."""
    env: Mapping[str, str]
    """Environment variables of a command. It inherits only a few, such as PATH and HOME, and no keys."""
    cwd: str | Path
    """Working directory of a command. Default: that of this process."""
    headers: Mapping[str, str]
    """Headers for each request to a URL."""


_COMMAND_OPTIONS, _URL_OPTIONS = ("env", "cwd"), ("headers",)


def mcp(server: str | Sequence[str], **options: Unpack[ServerOptions]) -> McpServer:
    """Return an MCP server as an item for an agent's tools.

    `server` is a URL, as in `mcp("https://…/mcp")`, or a command, as in `mcp("python server.py")`. A command is a text,
    split as a shell would split it, or a list. Each run starts and stops its own server process.

    Raises:
        ConfigError: the package `mcp` is not installed, or an option is wrong.
    """
    try:
        import mcp as _  # noqa: F401  (imported early: it takes a second and would block the event loop of a run)
    except ModuleNotFoundError as error:
        if error.name != "mcp":
            raise
        raise UsageError(f"MCP servers need the extra 'mcp': {format_install('mcp')}") from None
    return McpServer(server, options)


class McpServer:
    """An MCP server as a tool source. Create it with `mcp(...)`."""

    def __init__(self, server: str | Sequence[str], options: ServerOptions) -> None:
        validation.check_options("mcp", options, ServerOptions.__annotations__)
        self.url = server if isinstance(server, str) and _URL.match(server) else None
        self.command = () if self.url else _parse_command(server)
        for name in _COMMAND_OPTIONS if self.url else _URL_OPTIONS:
            if name in options:
                raise UsageError(f"mcp: {name} works only with a {'command' if self.url else 'URL'}")
        self.name = validation.check_text(
            "mcp, name", options.get("name") or f"MCP server {_describe_server(self.url, self.command)!r}"
        )
        self.timeout = options.get("timeout", 45.0)
        validation.parse_timeout("mcp, timeout", self.timeout)
        self.connect_timeout = validation.parse_timeout("mcp, connect_timeout", options.get("connect_timeout", 30.0))
        self.only = _parse_names(options.get("only"))
        self.prefix = options.get("prefix", "")
        validation.check_type("mcp, prefix", self.prefix, str)
        self.env = _check_texts("env", options.get("env", {}))
        self.headers = _check_texts("headers", options.get("headers", {}))
        self.cwd = options.get("cwd")

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Sequence[Tool]]:
        """Connect to the server and yield its tools.

        Raises:
            SourceError: the server cannot be reached or does not list its tools in time.
        """
        transport, raised = create_transport(self), list[Exception]()
        connected = block_ended = False
        # A cancel scope must be left in the block that entered it, so it cannot end once the server is connected.
        # Its deadline is removed instead.
        with anyio.CancelScope(deadline=anyio.current_time() + self.connect_timeout) as scope:
            try:
                async with transport.open_client() as client:
                    tools = await McpSession(self, client, transport).list_tools()
                    connected, scope.deadline = True, math.inf
                    try:
                        yield tools
                    except Exception as error:  # the task groups of the transport would wrap it in an ExceptionGroup
                        raised.append(error)
                    block_ended = True
            except Exception as error:
                if not block_ended:
                    raise SourceError(self.name, await transport.describe_failure(unwrap_error(error))) from error
                log.debug("closing %s failed", self.name, exc_info=True)
        if not connected and scope.cancelled_caught:
            raise SourceError(self.name, await transport.describe_failure(None, self.connect_timeout))
        if raised:
            raise raised[0]


def _parse_command(server: Any) -> tuple[str, ...]:
    expected = "a command, as a text or a list of texts, or a URL (http://… or https://…)"
    try:
        words = shlex.split(server) if isinstance(server, str) else list(server)
    except (TypeError, ValueError) as error:
        raise ConfigError("mcp", server, f"{expected} ({error})") from None
    if not words or not all(isinstance(word, str) for word in words) or not words[0]:
        raise ConfigError("mcp", server, expected)
    return tuple(words)


def _describe_server(url: str | None, command: Sequence[str]) -> str:
    # A URL may have a key in its user or query part, a command in its options.
    if url is None:
        return redact_command(command)
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _parse_names(only: Any) -> tuple[str, ...] | None:
    if only is None:
        return None
    if isinstance(only, str) or not isinstance(only, Collection):
        raise ConfigError("mcp, only", only, "a list of names")
    return tuple(map(str, cast("Collection[object]", only)))


def _check_texts(where: str, value: object) -> dict[str, str]:
    # The error does not quote the value, which may be secret.
    table = dict(cast("Mapping[object, object]", value)) if isinstance(value, Mapping) else {None: value}
    if not all(isinstance(text, str) for pair in table.items() for text in pair):
        raise UsageError(f"mcp: {where} must map texts to texts (its value is not shown, because it may be secret)")
    return cast("dict[str, str]", table)
