"""A session with a server: how it is reached, what tools it has, and how they are called."""

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

from ...errors import ConfigError, FlyballError, SourceError, ToolFailed, suggest_names
from ..context import ToolContext
from ..json_schema import JsonSchemaArguments
from ..schema_check import SchemaCheck, Uncheckable
from ..tool import Options, Tool
from .stdio import OutputTail, ServerProcess

if TYPE_CHECKING:
    import mcp_types
    from mcp import Client
    from mcp_types import CallToolResult

    from .server import McpServer  # cycle: its type only; a server opens sessions

CallFunction = Callable[[Mapping[str, Any], ToolContext | None], Awaitable[Any]]
"""Makes a call with arguments that were checked."""


class ForeignTool(Tool):
    """A tool whose arguments have names that no function of ours has, so they are handed over together."""

    def __init__(self, call: CallFunction, schema: Mapping[str, Any], **options: Unpack[Options]) -> None:
        self._input_schema = schema
        super().__init__(call, **options)
        self.is_async = True

    def _build_signature(self, descriptions: Mapping[str, str]) -> JsonSchemaArguments:
        return JsonSchemaArguments(self.name, self._input_schema)

    def bind(self, arguments: Mapping[str, Any], context: ToolContext | None = None) -> Callable[[], Any]:
        """The call, ready to be made."""
        return partial(self.function, arguments, context)

    def __call__(self, **arguments: Any) -> Any:
        """Make the call as if it were no tool."""
        return self.function(arguments, None)


def extract_value(result: CallToolResult) -> Any:
    """The value: structured content where there is some, else the text. ToolFailed where the result is an error.

    Text that only repeats the structured content, as servers write it for clients that do not know that, is dropped.
    """
    texts = [_format_block(block) for block in result.content]
    structured = result.structured_content
    if result.is_error:
        raise ToolFailed("\n".join(texts) or ("it does not say why" if structured is None else json.dumps(structured)))
    if structured is None:
        return "\n".join(texts)
    known = _collect_repetitions(structured)
    more = [text for text in texts if not known & _collect_readings(text)]
    return {"structured": structured, "text": "\n".join(more)} if more else structured


def _format_block(block: Any) -> str:
    """One part of a result, as text; of what is no text, a line says that it was left out."""
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
    """Data is base64: four characters for three bytes."""
    facts = ", ".join(str(fact) for fact in (uri, mime_type, f"{len(data) * 3 // 4:,} bytes") if fact)
    return f"[{what} was left out: {facts}]"


def _collect_repetitions(structured: Any) -> set[str]:
    """Every text that would only repeat it: the whole, a wrapped result, and the items of that."""
    wrapped = cast("dict[str, Any]", structured).get("result") if isinstance(structured, dict) else None
    items = cast("list[Any]", wrapped) if isinstance(wrapped, list) else []
    values: list[Any] = [structured, wrapped, *items, ""]
    return {json.dumps(value, sort_keys=True) for value in values}


def _collect_readings(text: str) -> set[str]:
    """What a text may say, as `_sayings` writes it: itself, and the value that it is as JSON."""
    try:
        return {json.dumps(text), json.dumps(json.loads(text), sort_keys=True)}
    except (ValueError, RecursionError):
        return {json.dumps(text)}


_MAX_PAGES = 100
"""Of a list of tools."""
_MOST_STEPS = 20_000_000
"""Of the check of a result, in a worker: about ten seconds."""
_MOST_PROBLEMS = 3
_LONGEST_PROBLEM = 300


class Transport(Protocol):
    """The way to a server."""

    def open_client(self) -> AbstractAsyncContextManager[Client]:
        """The SDK's client, connected for as long as the block lasts."""
        ...

    async def describe_failure(self, error: BaseException | None, seconds: float = 0.0) -> str:
        """Why it cannot be reached; without an error: because it took so long."""
        ...


def create_transport(server: McpServer) -> Transport:
    """The way to a server: its pipes, or the network."""
    return _StdioTransport(server) if server.url is None else _HttpTransport(server, server.url)


class _StdioTransport:
    """A process of ours."""

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
        said = f"it did not answer within {seconds:g} s" if error is None else _describe_error(error)
        words = self._process.tail.text
        return f"{said}; its last words: {words}" if words else said


class _HttpTransport:
    """A URL."""

    def __init__(self, server: McpServer, url: str) -> None:
        self._url = url
        self._headers = server.headers
        self._connect_s = server.connect_timeout
        self._tail = OutputTail((url, *server.headers.values()))

    @asynccontextmanager
    async def open_client(self) -> AsyncGenerator[Client]:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        timeout = httpx2.Timeout(
            None, connect=self._connect_s
        )  # how long an answer may take is the executor's business
        async with (
            httpx2.AsyncClient(headers=self._headers, timeout=timeout) as http,
            _build_client(streamable_http_client(self._url, http_client=http)) as client,
        ):
            yield client

    async def describe_failure(self, error: BaseException | None, seconds: float = 0.0) -> str:
        if error is None:
            return f"it did not answer within {seconds:g} s"
        return (
            "the connection to it is lost" if is_connection_closed(error) else self._tail.redact(_describe_error(error))
        )


def _build_client(transport: Any) -> Client:
    from mcp import Client
    from mcp_types import Implementation

    return Client(transport, client_info=Implementation(name="flyball", version=version("flyball")), cache=None)


def unwrap_error(error: BaseException) -> BaseException:
    """What went wrong, without the task groups around it."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def is_connection_closed(error: BaseException) -> bool:
    """Whether it says that nobody is at the other end any more."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    return isinstance(error, MCPError) and error.code == CONNECTION_CLOSED


def _describe_error(error: BaseException) -> str:
    from mcp import MCPError

    if isinstance(error, FlyballError):
        return str(error)
    words = (str(error) or type(error).__name__).splitlines()[0]
    return f"it answered with an error: {words}" if isinstance(error, MCPError) else f"it cannot be talked to: {words}"


class McpSession:
    """The tools of one server, while it is connected."""

    def __init__(self, server: McpServer, client: Client, transport: Transport) -> None:
        self._server = server
        self._client = client
        self._transport = transport
        self._outputs: dict[str, SchemaCheck] = {}
        session: Any = client.session
        session.validate_tool_result = _check_later

    async def list_tools(self) -> list[Tool]:
        """Its tools as ours."""
        listed = await self._fetch_tools()
        known = {one.name: one for one in listed}
        for name in self._server.only or ():
            if name not in known:
                raise ConfigError(
                    "mcp, only", name, f"a tool that it has: {' or '.join(suggest_names(name, known) or known)}"
                )
        return [self._build_tool(one) for one in listed if self._server.only is None or one.name in self._server.only]

    async def _fetch_tools(self) -> list[mcp_types.Tool]:
        listed, cursor = list["mcp_types.Tool"](), None
        for _ in range(_MAX_PAGES):
            page = await self._client.list_tools(cursor=cursor)
            listed += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        return listed

    def _build_tool(self, listed: mcp_types.Tool) -> Tool:
        hints = listed.annotations
        reads = hints is not None and hints.read_only_hint is True
        if listed.output_schema is not None:
            self._outputs[listed.name] = SchemaCheck(listed.output_schema, _MOST_STEPS)
        return ForeignTool(
            partial(self._call, listed.name),
            listed.input_schema,
            name=re.sub(r"[^A-Za-z0-9_-]", "_", self._server.prefix + listed.name),
            description=listed.description or listed.title or "",
            timeout=self._server.timeout,
            effects="read" if reads else "write",
            idempotent=reads or (hints is not None and hints.idempotent_hint is True),
        )

    async def _call(self, name: str, arguments: Mapping[str, Any], context: ToolContext | None) -> Any:
        """One call. Where it is cancelled, the SDK tells the server so."""
        from mcp import MCPError

        try:
            result = await self._client.call_tool(
                name, dict(arguments), progress_callback=_make_progress_callback(context)
            )
        except MCPError as error:
            if is_connection_closed(error):
                raise SourceError(self._server.name, await self._transport.describe_failure(error)) from None
            raise ToolFailed(error.message) from None
        await self._check_output(name, result)
        return extract_value(result)

    async def _check_output(self, name: str, result: mcp_types.CallToolResult) -> None:
        """Raise ToolFailed where a result does not fit the output schema. A worker checks, as a result may be large."""
        check = self._outputs.get(name)
        if check is None or result.is_error:
            return
        if result.structured_content is None and "structured_content" not in result.model_fields_set:
            raise ToolFailed("its result has no structured content, which its output schema asks for")
        check_it = partial(check.problems, result.structured_content, _problem, _MOST_PROBLEMS)
        try:
            problems = await anyio.to_thread.run_sync(check_it, abandon_on_cancel=True)
        except Uncheckable as error:
            raise ToolFailed(f"its result cannot be checked against its output schema: {error}") from None
        if problems:
            raise ToolFailed(f"its result does not fit its output schema: {'; '.join(problems)}")


async def _check_later(name: str, result: mcp_types.CallToolResult) -> None:
    """Do nothing in the place of the SDK's check, which has no bounds; `_check_output` follows."""


def _problem(error: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}"[:_LONGEST_PROBLEM]]


def _make_progress_callback(context: ToolContext | None) -> Any:
    """What a server tells of its progress, as any tool may tell it."""
    if context is None:
        return None

    async def report(progress: float, total: float | None, message: str | None) -> None:
        done = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        context.report(f"{done}: {message}" if message else done)

    return report
