"""What the chain middleware adds to a request, beside the bare ASGI app, in process and without a server.

CPU time, the two taking turns, best of several rounds. A hop with a signed context must add no more than the target;
the rest is only printed. Exits with 1 when the target is missed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from flyball import Limits
from flyball.chain import Chain, ChainDepthMiddleware, Keys

TIMES, ROUNDS, TARGET_US = 2_000, 15, 40.0
KEYS = Keys("a key for the benchmark", "the key before that one")
USUAL = {
    "host": "b.example",
    "accept": "*/*",
    "user-agent": "bench",
    **{f"x-other-{n}": "of a proxy" for n in range(9)},
}


async def bare(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


async def receive() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def send(message: Any) -> None:
    """Nobody reads it."""


def pairs(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in {**USUAL, **headers}.items()]


async def took_us(app: Callable[..., Coroutine[Any, Any, None]], headers: list[tuple[bytes, bytes]]) -> float:
    """CPU time of one request."""
    start = time.process_time()
    for _ in range(TIMES):
        await app({"type": "http", "headers": headers}, receive, send)
    return (time.process_time() - start) / TIMES * 1e6


async def added_us(headers: Mapping[str, str]) -> float:
    app, sent = ChainDepthMiddleware(bare, Chain(name="b", host="b.example", keys=KEYS, settings={})), pairs(headers)
    ours = plain = float("inf")
    for _ in range(ROUNDS):
        plain = min(plain, await took_us(bare, sent))
        ours = min(ours, await took_us(app, sent))
    return ours - plain


async def main() -> int:
    caller = Chain(name="a", host="a.example", keys=KEYS, settings={})
    with Limits(turns=20, tokens=50_000, usd=1.5, seconds=120).open() as envelope:
        signed = caller.headers(within=envelope)
    hop = await added_us(signed)
    print(f"a signed hop adds            {hop:6.1f} us a request  (target {TARGET_US:g} us)")
    print(f"the top of a chain adds      {await added_us({}):6.1f} us a request")
    print(f"a refusal instead of the app {await added_us({'x-flyball-chain': 'no'}):6.1f} us a request")
    start = time.process_time()
    for _ in range(TIMES):
        caller.headers()
    print(f"headers() takes              {(time.process_time() - start) / TIMES * 1e6:6.1f} us")
    return int(hop > TARGET_US)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
