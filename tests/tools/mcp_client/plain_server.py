"""An MCP server without the SDK, which starts fast and misbehaves as its argument says.

`silent` answers nothing, `nonsense` something else, `dies` at once; `stubborn` ignores that its input ends and that it
is told to go; `parent` has a child, which is stubborn; `daemon` has one in a session of its own; `rude` fails with
control characters and long texts; `deaf` closes its input and then tells its tools; `hostile` has
schemas that take a minute to check. Its pid, and that of its child, are in the file PIDS.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BEHAVIOUR = sys.argv[1] if len(sys.argv) > 1 else ""
OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
PAIR = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
TOOLS: list[dict[str, Any]] = [
    {"name": "add", "description": "Add two numbers.", "inputSchema": PAIR, "annotations": {"readOnlyHint": True}},
    {"name": "pid", "inputSchema": OBJECT, "annotations": {"readOnlyHint": True}},
    {"name": "die", "inputSchema": OBJECT},
    {"name": "hang", "inputSchema": OBJECT},
    {"name": "odd.name/it has", "inputSchema": OBJECT},
]
LEVELS = {f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(19)}
DOUBLING: dict[str, Any] = {**OBJECT, "$defs": {**LEVELS, "l19": {}}, "$ref": "#/$defs/l0"}
HOSTILE: list[dict[str, Any]] = [
    {"name": "doubling_input", "inputSchema": DOUBLING},
    {"name": "endless_output", "inputSchema": OBJECT, "outputSchema": {**OBJECT, "allOf": [{"$ref": "#"}]}},
    {"name": "wrong_output", "inputSchema": OBJECT, "outputSchema": PAIR},
]
RUDE = "\x1b[2J\x9b\u202e" + "y" * 300_000
RUDE_TOOLS: list[dict[str, Any]] = [
    {"name": "fail", "description": "d" * 100_000, "inputSchema": OBJECT},
    {"name": "refuse", "inputSchema": OBJECT},
]


def note(pid: int) -> None:
    if "PIDS" in os.environ:
        with Path(os.environ["PIDS"]).open("a") as file:
            file.write(f"{pid}\n")


def called(name: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
    match name:
        case "add":
            return {"content": [{"type": "text", "text": str(arguments["a"] + arguments["b"])}]}
        case "pid":
            return {"content": [{"type": "text", "text": str(os.getpid())}]}
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            return None
        case "fail":
            return {"content": [{"type": "text", "text": RUDE}], "isError": True}
        case "endless_output" | "wrong_output":
            return {"content": [], "structuredContent": {"a": 1}}
        case _:
            pass
    return {"content": []}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            info = {"name": "plain", "version": "1"}
            version = params["protocolVersion"]
            return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}}
        case "tools/list":
            return {"result": {"tools": TOOLS + {"hostile": HOSTILE, "rude": RUDE_TOOLS}.get(BEHAVIOUR, [])}}
        case "tools/call" if params["name"] == "refuse":
            return {"error": {"code": -32050, "message": RUDE}}
        case "tools/call":
            result = called(params["name"], params.get("arguments") or {})
            return None if result is None else {"result": result}
        case _:
            return {"error": {"code": -32601, "message": f"no method {method}"}}


def begin() -> None:
    note(os.getpid())
    if BEHAVIOUR == "dies":
        sys.exit("no such database")
    if BEHAVIOUR in ("parent", "daemon"):
        command = [sys.executable, "-S", "-E", __file__, "stubborn"]
        own_session = BEHAVIOUR == "daemon"
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, env={}, start_new_session=own_session)
        note(child.pid)
    if BEHAVIOUR == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def messages() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        message = json.loads(line)
        last = BEHAVIOUR == "deaf" and message["method"] == "tools/list"
        if last:
            os.close(0)  # before the answer, so that nothing more can be written to it
        yield message
        if last:
            return


def main() -> None:
    begin()
    for message in messages():
        if BEHAVIOUR == "nonsense":
            print("Hello, I am a web server.", flush=True)  # noqa: T201
        elif BEHAVIOUR != "silent" and "id" in message:
            said = answer(message["method"], message.get("params") or {})
            if said is not None:
                print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)  # noqa: T201
    while BEHAVIOUR in ("stubborn", "deaf"):
        time.sleep(60)


if __name__ == "__main__":
    main()
