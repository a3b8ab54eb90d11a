"""The money of random programs equals a bookkeeping done apart, and is never over a limit."""

import asyncio
import json
import math
import os
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
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
from flyball.result import Stop
from flyball.testing.server.looping import is_last_request

ENVIRONMENT = {"OPENAI_API_KEY": "sk-real-key-of-the-user"}
PORT = 1
JSON = {"content-type": "application/json"}
FAULTS = ("", "", "", "", "error", "broken", "no usage", "unreachable")
INPUT_PRICE, OUTPUT_PRICE = 2_500, 10_000
"""Billionths of a dollar for a token of gpt-4o."""
MAX_INPUT_PRICE, MAX_OUTPUT_PRICE = 4_250, 17_000
"""The same with the dearest service tier, at which a request without reported usage counts."""
TOKENS_PER_BYTE, BLOB_BYTES, BLOB_TOKENS, REPORT_REQUEST_TOKENS = 0.4, 2_000, 1_600, 250


@dataclass
class Account:
    """Bookkeeping apart from the gateway: what each request must be counted as."""

    tokens: int = 0
    money: int = 0
    estimates: int = 0
    known: dict[str, "Known"] = field(default_factory=dict[str, "Known"])
    """Facts about a conversation, by the id of its latest call."""

    def add(self, input_tokens: int, output_tokens: int) -> None:
        self.tokens += input_tokens + output_tokens
        self.money += input_tokens * INPUT_PRICE + output_tokens * OUTPUT_PRICE

    def add_estimate(self, input_tokens: int, output_tokens: int) -> None:
        self.estimates += 1
        self.tokens += input_tokens + output_tokens
        self.money += input_tokens * MAX_INPUT_PRICE + output_tokens * MAX_OUTPUT_PRICE


@dataclass
class Known:
    """Usage that the provider told of the latest request of a conversation."""

    size: int = 0
    blobs: int = 0
    input_tokens: int = 0

    def estimate(self, size: int, blobs: int) -> int:
        """Return what the input of the next request is taken for before it is sent."""
        new_bytes, new_blobs = max(0, size - self.size), max(0, blobs - self.blobs)
        likely = self.input_tokens + math.ceil(new_bytes * TOKENS_PER_BYTE) + new_blobs * BLOB_TOKENS
        return min(likely, size + blobs * BLOB_TOKENS)


class Provider(httpx2.AsyncBaseTransport):
    """Provider that keeps the account, whether it reports usage or not."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.account = Account()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        raw, account = await request.aread(), self.account
        body, size = json.loads(raw), int(request.headers["x-size"])
        contents = [message["content"] for message in body["messages"] if isinstance(message["content"], list)]
        urls = [part["image_url"]["url"] for content in contents for part in content]
        blobs = [len(url) for url in urls if len(url) >= BLOB_BYTES]
        size -= sum(blobs)
        known = self._find_known(body)
        estimate = known.estimate(size, len(blobs))
        estimate += REPORT_REQUEST_TOKENS if is_last_request(body) else 0
        limit: int = body["max_completion_tokens"]  # always set, because money is limited
        fault = self.random.choice(FAULTS)
        try:
            await asyncio.sleep(self.random.choice((0, 0, 0.001, 0.004)))
        except asyncio.CancelledError:  # the client has left, and nothing was heard
            account.add_estimate(estimate, limit)
            raise
        if fault == "error":
            return respond(429, b'{"error": {"message": "busy"}}')
        if fault == "unreachable":
            raise httpx2.ConnectError("refused")
        input_tokens, output_tokens = len(raw) // 4, self.random.randint(1, min(limit, 900))
        calls = [] if body.get("tool_choice") == "none" else [build_call(self.random)]
        message = {"role": "assistant", "content": "word " * output_tokens}
        message |= {"tool_calls": calls} if calls else {}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        reply: dict[str, Any] = {"id": "x", "model": "gpt-4o", "choices": [choice]}
        if fault not in ("no usage", "broken"):
            reply["usage"] = {"prompt_tokens": input_tokens, "completion_tokens": output_tokens}
        content = json.dumps(reply).encode()
        if fault == "broken":
            account.add_estimate(estimate, limit)
            return httpx2.Response(200, headers=JSON, content=break_off(content))
        if fault == "no usage":
            account.add_estimate(estimate, min(limit, math.ceil(len(content) * TOKENS_PER_BYTE)))
        else:
            account.add(input_tokens, output_tokens)
            known.size, known.blobs, known.input_tokens = size, len(blobs), input_tokens
        account.known |= {call["id"]: known for call in calls}
        return respond(200, content)

    def _find_known(self, body: Any) -> Known:
        calls = [call["id"] for message in body["messages"] for call in message.get("tool_calls", ())]
        return self.account.known[calls[-1]] if calls else Known()


def respond(status: int, content: bytes) -> httpx2.Response:
    return httpx2.Response(status, headers=JSON, stream=httpx2.ByteStream(content))


def build_call(random_: random.Random) -> dict[str, Any]:
    name = f"call-{random_.getrandbits(64)}"
    return {"id": name, "type": "function", "function": {"name": "add", "arguments": "{}"}}


async def break_off(content: bytes) -> AsyncIterator[bytes]:
    yield content[: len(content) // 2]
    raise httpx2.ReadError("reset")


class Client:
    """Client of the gateway that may leave before the reply."""

    def __init__(self, app: Any, key: str) -> None:
        self._app = app
        self._key = key

    async def ask(self, body: Any, leaves_after: float | None) -> tuple[int, Any]:
        """Return status and reply. The status is 0 if there is no reply."""
        content, has_left = json.dumps(body).encode(), asyncio.Event()
        headers = {"authorization": f"Bearer {self._key}", "host": f"127.0.0.1:{PORT}", "x-size": str(len(content))}
        scope = {
            "type": "http",
            "method": "POST",
            "raw_path": b"/openai/v1/chat/completions",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        unread, sent = [content], list[Any]()

        async def receive() -> dict[str, Any]:
            if unread:
                return {"type": "http.request", "body": unread.pop()}
            await has_left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        task = asyncio.ensure_future(self._app(scope, receive, send))
        await asyncio.wait({task}, timeout=leaves_after)
        has_left.set()
        try:
            await task
        except ConnectionAbortedError:
            return 0, None
        return sent[0]["status"], json.loads(b"".join(message["body"] for message in sent[1:]))


async def talk(client: Client, chance: random.Random, number: int) -> None:
    """One conversation: turns, retries of the same body, a client that leaves, and parallel requests."""
    messages: list[Any] = [{"role": "user", "content": f"Go on, {number}. " + "x" * chance.randint(0, 3_000)}]
    if chance.random() < 0.3:
        image = {"url": "data:image/png;base64,iVBORw0KGgo" + "A" * chance.randint(500, 5_000)}
        messages.append({"role": "user", "content": [{"type": "image_url", "image_url": image}]})
    for _ in range(chance.randint(1, 8)):
        body: dict[str, Any] = {"model": "gpt-4o", "messages": messages}
        if chance.random() < 0.5:
            body["max_completion_tokens"] = chance.choice((20, 500, 4_000, 32_000))
        for _ in range(3):  # as an SDK retries
            status, reply = await client.ask(body, 0.002 if chance.random() < 0.1 else None)
            if status not in (0, 429, 502):
                break
        else:
            return
        if status != 200:
            return
        message = reply["choices"][0]["message"]
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
        client = Client(GatewayApp(options, desk, door, upstream), key)
        for start in range(0, count, 10):  # ten at once
            await asyncio.gather(*(talk(client, chance, number) for number in range(start, min(count, start + 10))))
    desk.finish()
    return provider, desk


@pytest.mark.parametrize("seed", range(int(os.environ.get("LEDGERS", "25"))))  # 40 conversations each
def test_the_account_of_random_conversations_equals_the_provider_s_and_no_limit_is_passed(seed: int) -> None:
    ceiling = random.Random(seed).choice((0.05, 0.2, 1.0, 5.0))
    limits = Limits(turns=500, usd=ceiling, tokens=400_000, retries=100)
    provider, desk = asyncio.run(asyncio.wait_for(run_programs(seed, 40, limits), 120))
    result, account = desk.run.result, provider.account
    assert result is not None
    spent, tokens = result.budgets["usd"], result.budgets["tokens"]
    assert (spent.used, tokens.used, result.estimated_requests) == (account.money, account.tokens, account.estimates)
    assert spent.used <= ceiling * 10**9
    assert tokens.used <= 400_000
    assert result.cost == {"gpt-4o": spent.used}
    assert spent.held == tokens.held == 0
    assert sum(chat.cost for chat in desk.conversations.all) == spent.used
