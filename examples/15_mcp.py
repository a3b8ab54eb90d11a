"""The tools of an MCP server in a run: it is started with the run, and gone with it. This file is also that server.

Prints:
    t_add: {"result":42}
    t_add: Not run (validation): the arguments of t_add are wrong: b: missing
    t_crash: failed, and the run goes on
    t_add: failed, and the run goes on
    completed: It is 42, and the server is gone.
    failed: the server: it cannot be started: [Errno 2] No such file or directory: 'no-such-program'
"""

import os
import sys

from flyball import Agent
from flyball.testing import ScriptedModel, call, say
from flyball.tools import mcp


def serve() -> None:
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("numbers", log_level="ERROR")

    @server.tool()
    def add(a: int, b: int) -> int:  # pyright: ignore[reportUnusedFunction]
        """Add two numbers."""
        return a + b

    @server.tool()
    def crash() -> None:  # pyright: ignore[reportUnusedFunction]
        """End in the middle of a call."""
        os._exit(1)

    server.run()


def main() -> None:
    model = ScriptedModel(
        call("t_add", a=40, b=2),
        call("t_add", a=40),
        call("t_crash"),
        call("t_add", a=1, b=1),
        say("It is 42, and the server is gone."),
    )
    server = mcp([sys.executable, __file__, "serve"], prefix="t_", timeout=30, name="the server")
    result = Agent(model=model, tools=[server]).run("What is 40 + 2?")
    for outcome in result.tool_results:
        failed = outcome.status == "failed"
        print(f"{outcome.tool}: {'failed, and the run goes on' if failed else outcome.text}")
    print(f"{result.stop}: {result.text}")

    nobody = Agent(model=ScriptedModel(say("")), tools=[mcp("no-such-program", name="the server")]).run("Go.")
    print(f"{nobody.stop}: {(nobody.error or {})['message']}")


if __name__ == "__main__":
    serve() if "serve" in sys.argv else main()
