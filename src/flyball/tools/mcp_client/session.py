"""Sessions with MCP servers: the transport, the tools, and their calls."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Protocol, Unpack, cast

import anyio
import anyio.to_thread

from ..._internal.distribution import DISTRIBUTION
from ...errors import ConfigError, FlyballError, SourceError, ToolFailed, suggest_names, truncate
from ...person import escape_control_characters
from ..context import ToolContext
from ..definition import Options, Tool
from ..json_schema import JsonSchemaArguments
from ..schema_check import SchemaCheck, Uncheckable
from .stdio import OutputTail, ServerProcess

if TYPE_CHECKING:
    import mcp_types
    from mcp import Client
    from mcp_types import CallToolResult

    from .server import McpServer  # cycle: for its type only; a server opens sessions

CallFunction = Callable[[Mapping[str, Any], ToolContext | None], Awaitable[Any]]
"""Calls a tool of the server with checked arguments."""

_MAX_PAGES = 100
"""Maximum number of pages of the list of tools."""
_MAX_CHECK_STEPS = 20_000_000
"""Maximum steps for the check of a result, which runs in a worker thread: about ten seconds."""
_MAX_TOOLS = 1_000
"""Maximum number of tools of a server. All of them are in every request."""
_MAX_DESCRIPTION_CHARACTERS = 10_000
"""Longer descriptions of tools are cut."""
_MAX_ERROR_CHARACTERS = 2_000
"""Maximum length of a server's error or progress message."""
_MAX_PROBLEMS = 3
_MAX_PROBLEM_LENGTH = 300


class McpSession:
    """Connected session with one server."""

    def __init__(self, server: McpServer, client: Client, transport: Transport) -> None:
        self._server = server
        self._client = client
        self._transport = transport
        self._outputs: dict[str, SchemaCheck] = {}
        session: Any = client.session
        session.validate_tool_result = _skip_check

    async def list_tools(self) -> list[Tool]:
        """Return the server's tools that the options select.

        Raises:
            ConfigError: `only` names a tool that the server does not have.
        """
        listed = await self._fetch_tools()
        known = {item.name: item for item in listed}
        for name in self._server.only or ():
            if name not in known:
                raise ConfigError(
                    "mcp, only",
                    name,
                    f"a tool of the server: {_clean(' or '.join(suggest_names(name, known) or known))}",
                )
        return [
            self._build_tool(item) for item in listed if self._server.only is None or item.name in self._server.only
        ]

    async def _fetch_tools(self) -> list[mcp_types.Tool]:
        listed, cursor = list["mcp_types.Tool"](), None
        for _ in range(_MAX_PAGES):
            page = await self._client.list_tools(cursor=cursor)
            listed += page.tools
            cursor = page.next_cursor
            if cursor is None or len(listed) > _MAX_TOOLS:
                break
        if len(listed) > _MAX_TOOLS:
            raise SourceError(self._server.name, f"it has more than {_MAX_TOOLS:,} tools, so none of them is used")
        return listed

    def _build_tool(self, listed: mcp_types.Tool) -> Tool:
        hints = listed.annotations
        reads = hints is not None and hints.read_only_hint is True
        if listed.output_schema is not None:
            self._outputs[listed.name] = SchemaCheck(listed.output_schema, _MAX_CHECK_STEPS)
        return ForeignTool(
            partial(self._call, listed.name),
            listed.input_schema,
            name=re.sub(r"[^A-Za-z0-9_-]", "_", self._server.prefix + listed.name),
            description=truncate(listed.description or listed.title or "", _MAX_DESCRIPTION_CHARACTERS),
            timeout=self._server.timeout,
            effects="read" if reads else "write",
            idempotent=reads or (hints is not None and hints.idempotent_hint is True),
        )

    async def _call(self, name: str, arguments: Mapping[str, Any], context: ToolContext | None) -> Any:
        # If the call is cancelled, the SDK notifies the server.
        from mcp import MCPError

        try:
            result = await self._client.call_tool(
                name, dict(arguments), progress_callback=_make_progress_callback(context)
            )
        except MCPError as error:
            if is_connection_closed(error):
                raise SourceError(self._server.name, await self._transport.describe_failure(error)) from None
            raise ToolFailed(_clean(error.message)) from None
        await self._check_output(name, result)
        return extract_value(result)

    async def _check_output(self, name: str, result: mcp_types.CallToolResult) -> None:
        """Raise ToolFailed if a result does not match the output schema.

        A worker thread does the check, because a result may be large.
        """
        check = self._outputs.get(name)
        if check is None or result.is_error:
            return
        if result.structured_content is None and "structured_content" not in result.model_fields_set:
            raise ToolFailed("its result has no structured content, which its output schema requires")
        check_result = partial(check.problems, result.structured_content, _describe_problem, _MAX_PROBLEMS)
        try:
            problems = await anyio.to_thread.run_sync(check_result, abandon_on_cancel=True)
        except Uncheckable as error:
            raise ToolFailed(f"its result cannot be checked against its output schema: {error}") from None
        if problems:
            raise ToolFailed(f"its result does not fit its output schema: {'; '.join(problems)}")


async def _skip_check(name: str, result: mcp_types.CallToolResult) -> None:
    """Replace the SDK's unbounded check of results. `McpSession._check_output` does it later."""


def _describe_problem(error: Any) -> list[str]:
    return [escape_control_characters(f"{error.json_path}: {error.message}"[:_MAX_PROBLEM_LENGTH])]


def _clean(message: str) -> str:
    """Return a message of the server without control characters, shortened if it is long."""
    return truncate(escape_control_characters(truncate(message, _MAX_ERROR_CHARACTERS)), _MAX_ERROR_CHARACTERS)


def _make_progress_callback(context: ToolContext | None) -> Any:
    """Return a callback that reports progress to the context."""
    if context is None:
        return None

    async def report(progress: float, total: float | None, message: str | None) -> None:
        done = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        context.report(f"{done}: {_clean(message)}" if message else done)

    return report


class ForeignTool(Tool):
    """Tool of a server, which takes its arguments as one mapping.

    Their names come from the server, and need not be valid Python names.
    """

    def __init__(self, call: CallFunction, schema: Mapping[str, Any], **options: Unpack[Options]) -> None:
        self._input_schema = schema
        super().__init__(call, **options)
        self.is_async = True
        self.result_is_data = True  # the protocol has a flag for errors

    def _build_signature(self, descriptions: Mapping[str, str]) -> JsonSchemaArguments:
        return JsonSchemaArguments(self.name, self._input_schema)

    def bind(self, arguments: Mapping[str, Any], context: ToolContext | None = None) -> Callable[[], Any]:
        """Return the call as a function without parameters."""
        return partial(self.function, arguments, context)

    def __call__(self, **arguments: Any) -> Any:
        """Call the server's tool directly."""
        return self.function(arguments, None)


def extract_value(result: CallToolResult) -> Any:
    """Return the structured content of a result, or else its text.

    Servers repeat structured content as text for clients that do not support it. Such text is dropped.

    Raises:
        ToolFailed: the result is an error.
    """
    texts = [_format_block(block) for block in result.content]
    structured = result.structured_content
    if result.is_error:
        reason = "\n".join(texts) or ("the tool gave no reason" if structured is None else json.dumps(structured))
        raise ToolFailed(escape_control_characters(reason))  # a long one becomes an excerpt, as a long result does
    if structured is None:
        return "\n".join(texts)
    known = _collect_repetitions(structured)
    more = [text for text in texts if not known & _collect_interpretations(text)]
    return {"structured": structured, "text": "\n".join(more)} if more else structured


def _format_block(block: Any) -> str:
    match block.type:
        case "text":
            return block.text
        case "resource" if hasattr(block.resource, "text"):
            return block.resource.text
        case "resource":
            return _describe_omitted("a file", block.resource.uri, block.resource.mime_type, block.resource.blob)
        case "resource_link":
            return f"[{block.name}: {block.uri}]"
        case kind:
            return _describe_omitted(f"an {kind}", None, block.mime_type, block.data)


def _describe_omitted(what: str, uri: object, mime_type: str | None, data: str) -> str:
    # The data is base64: four characters for three bytes.
    facts = ", ".join(str(fact) for fact in (uri, mime_type, f"{len(data) * 3 // 4:,} bytes") if fact)
    return f"[{what} was omitted: {facts}]"


def _collect_repetitions(structured: Any) -> set[str]:
    """Return all values, as JSON, that a redundant text may repeat.

    These are the whole content, a wrapped result, and the items of that result.
    """
    wrapped = cast("dict[str, Any]", structured).get("result") if isinstance(structured, dict) else None
    items = cast("list[Any]", wrapped) if isinstance(wrapped, list) else []
    values: list[Any] = [structured, wrapped, *items, ""]
    return {json.dumps(value, sort_keys=True) for value in values}


def _collect_interpretations(text: str) -> set[str]:
    """Return, as JSON, a text and the value that it encodes."""
    try:
        return {json.dumps(text), json.dumps(json.loads(text), sort_keys=True)}
    except (ValueError, RecursionError):
        return {json.dumps(text)}


class Transport(Protocol):
    """Connection to a server, by pipes or by HTTP."""

    def open_client(self) -> AbstractAsyncContextManager[Client]:
        """Return a context manager for the connected client of the SDK."""
        ...

    async def describe_failure(self, error: BaseException | None, seconds: float = 0.0) -> str:
        """Describe why the server cannot be reached.

        Without an error it timed out.
        """
        ...


def create_transport(server: McpServer) -> Transport:
    """Return the transport for a server's command or URL."""
    return _StdioTransport(server) if server.url is None else _HttpTransport(server, server.url)


class _StdioTransport:
    def __init__(self, server: McpServer) -> None:
        from mcp.client.stdio import get_default_environment

        tail = OutputTail(server.env.values())
        self._process = ServerProcess(server.command, get_default_environment() | server.env, server.cwd, tail)

    def open_client(self) -> AbstractAsyncContextManager[Client]:
        return _build_client(self._process.open())

    async def describe_failure(self, error: BaseException | None, seconds: float = 0.0) -> str:
        if isinstance(error, OSError):
            return f"it cannot be started: {error}"
        if error is not None and is_connection_closed(error):
            return await self._process.describe_exit()
        reason = f"it did not answer within {seconds:g} s" if error is None else _describe_error(error)
        last_output = self._process.tail.text
        return f"{reason}; its last output: {last_output}" if last_output else reason


class _HttpTransport:
    def __init__(self, server: McpServer, url: str) -> None:
        self._url = url
        self._headers = server.headers
        self._connect_s = server.connect_timeout
        self._tail = OutputTail((url, *server.headers.values()))

    @asynccontextmanager
    async def open_client(self) -> AsyncGenerator[Client]:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        # The tool executor limits how long an answer may take.
        timeout = httpx2.Timeout(None, connect=self._connect_s)
        async with (
            httpx2.AsyncClient(headers=self._headers, timeout=timeout) as http,
            _build_client(streamable_http_client(self._url, http_client=http)) as client,
        ):
            yield client

    async def describe_failure(self, error: BaseException | None, seconds: float = 0.0) -> str:
        if error is None:
            return f"it did not answer within {seconds:g} s"
        return "the connection is lost" if is_connection_closed(error) else self._tail.redact(_describe_error(error))


def _build_client(transport: Any) -> Client:
    from mcp import Client
    from mcp_types import Implementation

    return Client(transport, client_info=Implementation(name="flyball", version=version(DISTRIBUTION)), cache=None)


def unwrap_error(error: BaseException) -> BaseException:
    """Return the first cause inside nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def is_connection_closed(error: BaseException) -> bool:
    """Check whether an error means that the server closed the connection."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    return isinstance(error, MCPError) and error.code == CONNECTION_CLOSED


def _describe_error(error: BaseException) -> str:
    from mcp import MCPError

    if isinstance(error, FlyballError):
        return str(error)
    message = _clean((str(error) or type(error).__name__).split("\n")[0])
    return (
        f"it answered with an error: {message}" if isinstance(error, MCPError) else f"the connection failed: {message}"
    )
