"""The money of random programs equals a bookkeeping done apart, and is never over a limit."""

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from flyball import Limits
from flyball.gateway.desk import Desk
from flyball.gateway.door import Door
from flyball.gateway.gateway_app import GatewayApp
from flyball.gateway.gateway_options import GatewayOptions
from flyball.gateway.providers import find_upstreams
from flyball.governor.reservation import Need
from flyball.models.catalog import price_of
from flyball.request import Usage
from flyball.result import Stop

ENVIRONMENT = {"OPENAI_API_KEY": "sk-real-key-of-the-user"}
PORT = 1
JSON = {"content-type": "application/json"}
FAULTS = ("", "", "", "", "error", "broken", "no usage", "unreachable")


class Provider(httpx2.AsyncBaseTransport):
    """Provider that bills what it says, and keeps its own account."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.billed: list[Usage] = []
        """Usage of complete replies."""
        self.unclear: list[Usage] = []
        """Usage of replies that broke off, or that were not told."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        raw = await request.aread()
        body = json.loads(raw)
        fault = self.random.choice(FAULTS)
        await asyncio.sleep(self.random.choice((0, 0, 0.001, 0.004)))
        if fault == "error":
            return respond(429, b'{"error": {"message": "busy"}}')
        if fault == "unreachable":
            raise httpx2.ConnectError("refused")
        limit = body.get("max_tokens") or body.get("max_completion_tokens") or 900
        usage = Usage(len(raw) // 4, self.random.randint(1, min(limit, 900)))
        text = "word " * usage.output
        calls = [] if body.get("tool_choice") == "none" else [build_call(self.random)]
        message = {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
        counts = {"prompt_tokens": usage.input, "completion_tokens": usage.output}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        reply: dict[str, Any] = {"id": "x", "model": "gpt-4o", "choices": [choice]}
        if fault in ("no usage", "broken"):
            self.unclear.append(usage)
        else:
            reply["usage"] = counts
            self.billed.append(usage)
        content = json.dumps(reply).encode()
        if fault == "broken":
            return httpx2.Response(200, headers=JSON, content=break_off(content))
        return respond(200, content)


def respond(status: int, content: bytes) -> httpx2.Response:
    return httpx2.Response(status, headers=JSON, stream=httpx2.ByteStream(content))


def build_call(random_: random.Random) -> dict[str, Any]:
    name = f"call-{random_.getrandbits(64)}"
    return {"id": name, "type": "function", "function": {"name": "add", "arguments": "{}"}}


async def break_off(content: bytes) -> AsyncIterator[bytes]:
    yield content[: len(content) // 2]
    raise httpx2.ReadError("reset")


async def talk(client: httpx2.AsyncClient, key: str, chance: random.Random, number: int) -> None:
    """One conversation: turns, retries of the same body, a client that leaves, and parallel requests."""
    messages: list[Any] = [{"role": "user", "content": f"Go on, {number}. " + "x" * chance.randint(0, 2_000)}]
    headers = {"authorization": f"Bearer {key}", "host": f"127.0.0.1:{PORT}"}
    for _ in range(chance.randint(1, 8)):
        body: dict[str, Any] = {"model": "gpt-4o", "messages": messages}
        if chance.random() < 0.5:
            body["max_tokens"] = chance.choice((20, 500, 4_000, 32_000))
        for _ in range(3):  # as an SDK retries
            try:
                timeout = 0.002 if chance.random() < 0.1 else 60
                async with asyncio.timeout(timeout):
                    reply = await client.post("/openai/v1/chat/completions", json=body, headers=headers)
            except (TimeoutError, httpx2.TransportError, ConnectionAbortedError):
                continue
            if reply.status_code not in (429, 502):
                break
        else:
            return
        if reply.status_code != 200:
            return
        message = reply.json()["choices"][0]["message"]
        messages.append(message)
        if not message.get("tool_calls"):
            return
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": "y" * chance.randint(0, 3_000)}
            for call in message["tool_calls"]
        ]


def check_refusals(desk: Desk) -> None:
    """Check each refusal when it is made: not even the shortest reply with its report would have fitted."""
    reserve: Any = desk.run.areserve_turn

    async def checked(conversation: int, need: Need) -> object:
        turn = await reserve(conversation, need)
        if turn is None and desk.run.ending.stops == {Stop.BUDGET}:
            with desk.run.require_parallel().borrow_report(conversation, from_turns=False) as loan:
                assert not fits(desk, need, loan.kept), need
        return turn

    desk.run.areserve_turn = checked  # pyright: ignore[reportAttributeAccessIssue]


def fits(desk: Desk, need: Need, kept: tuple[int, int]) -> bool:
    envelope, report = desk.run.envelope, need.report_tokens or 0
    assert need.model is not None
    price: Any = need.model.reserve_price
    free = [
        envelope.budgets[name].unspent - envelope.reserved(name) + own
        for name, own in zip(("tokens", "usd"), kept, strict=True)
    ]
    after = need.input_tokens + need.min_output_tokens
    cost = price.max_cost(need.input_tokens, need.min_output_tokens) + price.max_cost(after, report)
    return after + after + report <= free[0] and cost <= free[1] and envelope.budgets["turns"].unspent >= need.turns


async def run_programs(seed: int, count: int, limits: Limits) -> tuple[Provider, Desk]:
    chance, provider = random.Random(seed), Provider(seed)
    options = GatewayOptions(limits=limits, environment=ENVIRONMENT)
    upstreams = find_upstreams(ENVIRONMENT, {}, {}, holds_keys=True)
    desk, door = Desk(options), Door(upstreams, "token", PORT)
    desk.run.start(None, {})
    check_refusals(desk)
    key = next(iter(upstreams[0].keys))
    async with httpx2.AsyncClient(transport=provider, timeout=None) as upstream:
        app: Any = GatewayApp(options, desk, door, upstream)
        transport = httpx2.ASGITransport(app, raise_app_exceptions=True)
        async with httpx2.AsyncClient(transport=transport, base_url=f"http://127.0.0.1:{PORT}", timeout=None) as client:
            for start in range(0, count, 10):  # ten at once
                await asyncio.gather(*(talk(client, key, chance, n) for n in range(start, min(count, start + 10))))
    desk.finish()
    return provider, desk


@pytest.mark.parametrize("seed", range(int(os.environ.get("LEDGERS", "5"))))  # 25 are 1,000 conversations
def test_the_account_of_random_conversations_equals_the_provider_s_and_no_limit_is_passed(seed: int) -> None:
    ceiling = random.Random(seed).choice((0.05, 0.2, 1.0, 5.0))
    limits = Limits(turns=500, usd=ceiling, tokens=400_000, retries=100)
    provider, desk = asyncio.run(asyncio.wait_for(run_programs(seed, 40, limits), 120))
    price = price_of("openai", "gpt-4o")
    assert price is not None
    result = desk.run.result
    assert result is not None
    certain, unclear = sum(map(price.cost, provider.billed)), sum(map(price.cost, provider.unclear))
    spent = result.budgets["usd"].used
    assert certain + unclear <= spent <= ceiling * 10**9
    assert result.budgets["tokens"].used <= 400_000
    assert result.usage.total <= sum(usage.total for usage in provider.billed)
    if not provider.unclear and not result.estimated_requests:
        assert spent == certain
    assert result.cost == {"gpt-4o": spent}
    assert desk.run.envelope.budgets["usd"].held == desk.run.envelope.budgets["tokens"].held == 0
    assert sum(chat.cost for chat in desk.conversations.all) <= spent
