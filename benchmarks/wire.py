"""What a wire costs beside a bare httpx2 post and a JSON parse of the same request and the same reply.

CPU time of this process (the server is another one), the candidates taking turns, best of many rounds. A conversation
of 2 messages and one of 42; whole replies, and streamed ones, where the bare reader splits lines and parses each event.
Exits with 1 when the target is missed.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2

from flyball.models import AnthropicModel, OpenAIModel
from flyball.request import Request
from flyball.wire import normalize

CALLS, ROUNDS, TARGET = 60, 12, 1.5
ANSWER = "The sum of the two numbers is three, as far as I can tell from what the tool has said. " * 4
SERVER = f"""
import sys
from flyball.testing import ModelServer, say
with ModelServer.looping(say("").streaming(*{[ANSWER[at : at + 6] for at in range(0, len(ANSWER), 6)]})) as it:
    print(it.url, flush=True)
    sys.stdin.read()
"""
TOOL = {
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
}


def conversation(rounds: int) -> Request:
    said: list[Any] = ["What is the sum of all these numbers?", {"role": "assistant", "content": "I will see."}]
    for n in range(rounds):
        function = {"name": "add", "arguments": f'{{"a": {n}, "b": 2}}'}
        call = {"id": f"call-{n}", "type": "function", "function": function}
        said.append({"role": "assistant", "content": None, "tool_calls": [call]})
        said.append({"role": "tool", "tool_call_id": f"call-{n}", "content": f"It is {n + 2}, " * 20})
    return Request(normalize(said, run="bench"), "Be brief.", [TOOL])


async def bare(client: httpx2.AsyncClient, url: str, headers: dict[str, str], body: dict[str, Any]) -> None:
    response = await client.post(url, json=body, headers=headers)
    json.loads(response.content)


async def bare_stream(client: httpx2.AsyncClient, url: str, headers: dict[str, str], body: dict[str, Any]) -> None:
    async with client.stream("POST", url, json=body, headers=headers) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                json.loads(line[6:])


async def cpu(work: Callable[[], Awaitable[object]]) -> float:
    began = time.process_time()
    for _ in range(CALLS):
        await work()
    return (time.process_time() - began) / CALLS


async def compared(
    server: str, wire: type[OpenAIModel | AnthropicModel], stream: bool, request: Request
) -> tuple[float, float]:
    """Seconds of CPU for one request: bare, and ours."""
    home = server + ("/v1" if wire is OpenAIModel else "")
    path = "/chat/completions" if wire is OpenAIModel else "/v1/messages"
    model = wire("bench", url=home, key="sk-of-the-benchmark", stream=stream)
    body = model.build_body(request)
    headers = {"authorization": "Bearer sk-of-the-benchmark"}
    best = [float("inf"), float("inf")]
    async with httpx2.AsyncClient(timeout=60) as client:
        post = bare_stream if stream else bare
        for _ in range(ROUNDS):
            best[0] = min(best[0], await cpu(lambda: post(client, home + path, headers, body)))
            best[1] = min(best[1], await cpu(lambda: model.ask(request)))
    return best[0], best[1]


async def main() -> int:
    missed = 0
    with subprocess.Popen([sys.executable, "-c", SERVER], stdin=-1, stdout=-1, text=True) as server:
        assert server.stdin
        assert server.stdout
        url = server.stdout.readline().strip()
        for wire in (OpenAIModel, AnthropicModel):
            for stream in (False, True):
                for request in (conversation(0), conversation(20)):
                    plain, ours = await compared(url, wire, stream, request)
                    missed += ours / plain > TARGET
                    name = f"{wire.__name__.removesuffix('Model')}, {'streamed' if stream else 'whole'}"
                    print(
                        f"{name:20} {len(request.messages):3} messages {ours * 1e6:5.0f} us  "
                        f"{ours / plain:4.2f}x bare ({plain * 1e6:.0f} us)  (target {TARGET:g}x)"
                    )
        server.stdin.close()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
