"""An MCP server as a source of tools: a command that is started with each run, or a URL that is called."""

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
from ...errors import ConfigError, SourceError
from ..tool import Tool
from .session import McpSession, create_transport, unwrap_error

log = logging.getLogger(__name__)
_SECRET = re.compile(r"(?i)token|key|secret|passw|auth|credential")

_URL = re.compile(r"https?://", re.IGNORECASE)


class ServerOptions(TypedDict, total=False):
    """What `mcp(...)` takes beside the server. Everything may be left out."""

    only: Collection[str] | None
    """Which of its tools are offered, by the names that the server gives them; else all."""
    prefix: str
    """What their names begin with here, as in `prefix="github_"`."""
    timeout: float | None
    """Seconds for one call (45), never past the end of the run's work; None for no cap of its own."""
    connect_timeout: float
    """Seconds until the server must have told its tools (30), never past the end of the run's work."""
    name: str
    """What errors call it; else the command, or the URL without what may be secret in it."""
    env: Mapping[str, str]
    """Of a command: variables beside the few that it inherits (PATH, HOME and such), of which none is a key."""
    cwd: str | Path
    """Of a command: the folder in which it is started."""
    headers: Mapping[str, str]
    """Of a URL: sent with each request."""


_COMMAND_OPTIONS, _URL_OPTIONS = ("env", "cwd"), ("headers",)


def mcp(server: str | Sequence[str], **options: Unpack[ServerOptions]) -> McpServer:
    """The tools of an MCP server, for an agent's list of tools: `mcp("python server.py")`, or `mcp("https://…/mcp")`.

    A command is a text, split as a shell would, or a list. Each run starts a server of its own, and stops it.
    """
    try:
        import mcp as _  # noqa: F401  (here, as it takes a second: in a run it would hold up the event loop)
    except ModuleNotFoundError as error:
        if error.name != "mcp":
            raise
        raise ConfigError("mcp", "no package 'mcp'", "the extra of that name: pip install 'flyball[mcp]'") from None
    return McpServer(server, options)


class McpServer:
    """An MCP server whose tools an agent may use; `mcp(...)` makes one."""

    def __init__(self, server: str | Sequence[str], options: ServerOptions) -> None:
        validation.check_options("mcp", options, ServerOptions.__annotations__)
        self.url = server if isinstance(server, str) and _URL.match(server) else None
        self.command = () if self.url else _parse_command(server)
        for name in _COMMAND_OPTIONS if self.url else _URL_OPTIONS:
            if name in options:
                raise ConfigError(
                    f"mcp, {name}", server, f"a {'command' if self.url else 'URL'}, where {name} is given"
                )
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
        """Its tools, for as long as the block lasts; SourceError says why they cannot be had."""
        link, raised = create_transport(self), list[Exception]()
        connected = left = False
        # A block is left in the scope in which it was entered; so the deadline is lifted, where it cannot be left.
        with anyio.CancelScope(deadline=anyio.current_time() + self.connect_timeout) as scope:
            try:
                async with link.open_client() as client:
                    tools = await McpSession(self, client, link).list_tools()
                    connected, scope.deadline = True, math.inf
                    try:
                        yield tools
                    except Exception as error:  # task groups would wrap it
                        raised.append(error)
                    left = True
            except Exception as error:
                if not left:
                    raise SourceError(self.name, await link.describe_failure(unwrap_error(error))) from error
                log.debug("%s was not closed well", self.name, exc_info=True)
        if not connected and scope.cancelled_caught:
            raise SourceError(self.name, await link.describe_failure(None, self.connect_timeout))
        if raised:
            raise raised[0]


def _parse_command(server: Any) -> tuple[str, ...]:
    """A command as the words that it has."""
    expected = "a command, as a text or a list of texts, or a URL (http://… or https://…)"
    try:
        words = shlex.split(server) if isinstance(server, str) else list(server)
    except (TypeError, ValueError) as error:
        raise ConfigError("mcp", server, f"{expected} ({error})") from None
    if not words or not all(isinstance(word, str) for word in words) or not words[0]:
        raise ConfigError("mcp", server, expected)
    return tuple(words)


def _describe_server(url: str | None, command: Sequence[str]) -> str:
    """What may be said of it aloud: a URL may have a key in its user or its query, a command in its options."""
    if url is None:
        return _redact_command(command)
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _redact_command(command: Sequence[str]) -> str:
    """A command without the values of options that are called like secrets."""
    shown: list[str] = []
    hidden = False
    for word in command:
        name, has_value, _ = word.partition("=")
        secret = _SECRET.search(name) is not None and (bool(has_value) or name.startswith("-"))
        if hidden and not word.startswith("-"):
            shown.append("***")
        else:
            shown.append(f"{shlex.quote(name)}=***" if secret and has_value else shlex.quote(word))
        hidden = secret and not has_value
    return " ".join(shown)


def _parse_names(only: Any) -> tuple[str, ...] | None:
    if only is None:
        return None
    if isinstance(only, str) or not isinstance(only, Collection):
        raise ConfigError("mcp, only", only, "a list of names")
    return tuple(map(str, cast("Collection[object]", only)))


def _check_texts(where: str, value: object) -> dict[str, str]:
    """A mapping of texts; the error does not show it, as its values may be secret."""
    table = dict(cast("Mapping[object, object]", value)) if isinstance(value, Mapping) else {None: value}
    if not all(isinstance(one, str) for pair in table.items() for one in pair):
        raise ConfigError(
            f"mcp, {where}", "something else (not shown: it may be secret)", "a mapping of texts to texts"
        )
    return cast("dict[str, str]", table)
