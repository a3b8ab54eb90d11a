"""Cost of the gateway of `flyball exec`, against a bare pass-through proxy of the same libraries, in one run.

Also the cost of a governed transport in the client's own process, against the bare client and against that proxy. Each
server runs in a process of its own. A figure is the ratio of the medians of requests that alternate.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx2

REPLY = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-4o",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Go on. " * 20}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 100, "completion_tokens": 50},
}
CHUNKS = 40
ROUNDS, WARM_UP = 250, 30


def serve(kind: str, upstream: str) -> None:
    """Serve as the provider, the bare proxy or the gateway until standard input ends, and print the address."""
    if kind == "gateway":
        serve_gateway(upstream)
        return
    import socket

    import uvicorn

    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    app: Any = answer if kind == "provider" else Proxy(upstream)
    config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None, access_log=False)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/v1 none", flush=True)
    uvicorn.Server(config).run(sockets=[listener])


def serve_gateway(upstream: str) -> None:
    from flyball import Limits
    from flyball.gateway import Gateway, GatewayOptions

    real = {"OPENAI_BASE_URL": upstream, "OPENAI_API_KEY": "sk-real"}
    limits = Limits(turns=500, tokens=10**12, usd=10**6)
    with Gateway(GatewayOptions(limits=limits, environment=real)) as gateway:
        print(gateway.environment["OPENAI_BASE_URL"], gateway.environment["OPENAI_API_KEY"], flush=True)
        sys.stdin.read()


async def read_body(receive: Any) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """Answer as a provider, at once."""
    body = json.loads(await read_body(receive))
    kind = b"text/event-stream" if body.get("stream") else b"application/json"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
    if not body.get("stream"):
        await send({"type": "http.response.body", "body": json.dumps(REPLY).encode()})
        return
    for number in range(CHUNKS):
        choice = {"index": 0, "delta": {"content": "Go on. "}, "finish_reason": None if number < CHUNKS - 1 else "stop"}
        chunk = {**REPLY, "choices": [choice], "usage": None}
        await send({"type": "http.response.body", "body": f"data: {json.dumps(chunk)}\n\n".encode(), "more_body": True})
    last = {**REPLY, "choices": []}
    await send({"type": "http.response.body", "body": f"data: {json.dumps(last)}\n\ndata: [DONE]\n\n".encode()})


class Proxy:
    """Proxy that passes everything on, and reads nothing."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream.removesuffix("/v1")
        self._client: httpx2.AsyncClient | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on."""
        if self._client is None:
            self._client = httpx2.AsyncClient(timeout=None)
        body = await read_body(receive)
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        request = self._client.build_request("POST", self._upstream + scope["path"], content=body, headers=headers)
        response = await self._client.send(request, stream=True)
        kind = response.headers["content-type"].encode()
        await send(
            {"type": "http.response.start", "status": response.status_code, "headers": [(b"content-type", kind)]}
        )
        async for chunk in response.aiter_raw():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body"})
        await response.aclose()


@contextmanager
def started(kind: str, upstream: str = "") -> Generator[tuple[str, str]]:
    """Start a server and yield its address and key."""
    process = subprocess.Popen(
        [sys.executable, __file__, "serve", kind, upstream], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        address, key = process.stdout.readline().split()
        yield address, key
    finally:
        process.stdin.close()
        process.terminate()
        process.wait(30)


def build_body(size: int, stream: bool) -> dict[str, Any]:
    """Return a request with a history of about this size."""
    messages = [{"role": "user", "content": "Go on."}]
    while size > 0:
        messages += [
            {"role": "assistant", "content": "Some text of the model, as it comes. " * 20},
            {"role": "user", "content": "Some text of a person or a tool. " * 20},
        ]
        size -= 1_450
    body: dict[str, Any] = {"model": "gpt-4o", "messages": messages, "max_tokens": 500}
    return body | ({"stream": True, "stream_options": {"include_usage": True}} if stream else {})


def ask(client: httpx2.Client, address: str, key: str, content: bytes) -> tuple[float, float]:
    """Return the seconds until the first byte and until the end."""
    start = time.perf_counter()
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json", "accept-encoding": "identity"}
    with client.stream("POST", f"{address}/chat/completions", content=content, headers=headers) as response:
        chunks = response.iter_raw()
        next(chunks)
        first = time.perf_counter() - start
        for _ in chunks:
            pass
    assert response.status_code == 200, response.status_code
    return first, time.perf_counter() - start


def compare(
    servers: dict[str, tuple[str, str]], body: dict[str, Any], rounds: int, governed: httpx2.BaseTransport | None = None
) -> dict[str, tuple[float, float]]:
    """Return the medians of each server, from requests that alternate. `governed` is the transport to the last one."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in servers}
    content = json.dumps(body).encode()
    with ExitStack() as stack:
        clients = {name: stack.enter_context(httpx2.Client(timeout=60)) for name in servers}
        if governed is not None:
            clients[next(reversed(clients))] = stack.enter_context(httpx2.Client(timeout=60, transport=governed))
        for number in range(WARM_UP + rounds):
            for name, (address, key) in servers.items():
                taken = ask(clients[name], address, key, content)
                if number >= WARM_UP:
                    times[name].append(taken)
    return {
        name: (statistics.median(first for first, _ in rows), statistics.median(whole for _, whole in rows))
        for name, rows in times.items()
    }


def main() -> None:
    """Print the figures."""
    rounds = int(os.environ.get("ROUNDS", ROUNDS))
    with started("provider") as (url, _), started("proxy", url) as proxy:
        for label, size, stream, target in (
            ("a small request", 0, False, 1.3),
            ("a small request, streamed", 0, True, 1.3),
            ("a body of 400 KB", 400_000, False, 1.5),
            ("a body of 400 KB, streamed", 400_000, True, 1.5),
        ):
            with started("gateway", url) as gateway:  # a run has at most 500 turns
                servers = {"proxy": proxy, "gateway": gateway}
                found = compare(servers, build_body(size, stream), rounds if not size else max(20, rounds // 4))
            for place, name in enumerate(("first byte", "whole")):
                bare, governed = found["proxy"][place], found["gateway"][place]
                times = f"{governed * 1e3:.2f} ms  {governed / bare:.2f}x bare proxy ({bare * 1e3:.2f} ms)"
                print(f"{label}, {name}   {times}  (target {target}x)")
            compare_transport(label, url, proxy, build_body(size, stream), rounds if not size else max(20, rounds // 4))


def compare_transport(label: str, url: str, proxy: tuple[str, str], body: dict[str, Any], rounds: int) -> None:
    """Print the cost of a governed transport."""
    from flyball import Limits
    from flyball.gateway import transport

    limits = Limits(turns=500, tokens=10**12, usd=10**6)
    with transport(limits, upstreams={"openai": url}) as governed:
        servers = {"client": (url, "sk-real"), "proxy": proxy, "transport": (url, "sk-real")}
        found = compare(servers, body, rounds, governed)
    for place, name in enumerate(("first byte", "whole")):
        bare, proxied, own = (found[server][place] for server in servers)
        times = f"{own * 1e3:.2f} ms  {own / bare:.2f}x bare client ({bare * 1e3:.2f} ms)"
        print(f"{label}, transport, {name}   {times}  {own / proxied:.2f}x bare proxy")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2], sys.argv[3])
    else:
        main()
