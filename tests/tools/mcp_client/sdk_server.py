"""A real MCP server, made with the SDK: it speaks on its pipes; with the argument `http`, on a port that it prints."""

import os
import socket
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

server = MCPServer("test", log_level="CRITICAL")
READS = ToolAnnotations(read_only_hint=True)


@server.tool(annotations=READS)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def refuse(why: str) -> str:
    """Fail."""
    raise ToolError(f"no: {why}")


@server.tool(structured_output=False)
def picture() -> list[str | Image]:
    """A text and a picture."""
    return ["a red dot", Image(data=b"\x89PNG" * 10, format="png")]


@server.tool(annotations=READS)
def big(characters: int) -> str:
    """A long text."""
    return "x" * characters


@server.tool()
def person(name: str) -> dict[str, str]:
    """Structured content."""
    return {"name": name, "town": "Ulm"}


@server.tool()
async def slow(marks: str, ctx: Context) -> str:
    """Report once, then wait until nobody wants the answer any more, and note that in a file."""
    await ctx.report_progress(1, 4, "begun")
    try:
        await anyio.sleep(60)
    except anyio.get_cancelled_exc_class():
        Path(marks).write_text("cancelled")
        raise
    return "late"


@server.tool()
def crash(code: int) -> str:
    """End in the middle of a call."""
    sys.stderr.write("out of cheese\n")
    sys.stderr.flush()
    os._exit(code)


@server.tool(annotations=READS)
def inside(ctx: Context) -> dict[str, object]:
    """Who it is, what it inherited, and what it was sent."""
    request: Any = ctx.request_context.request
    sent = {} if request is None else dict(request.headers)
    return {"environment": dict(os.environ), "folder": str(Path.cwd()), "headers": sent}


def serve() -> None:
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="critical")).run(sockets=[listening])


if __name__ == "__main__":
    serve() if "http" in sys.argv else server.run()
