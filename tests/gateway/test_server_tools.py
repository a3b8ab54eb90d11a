"""Tools that run at the provider: their calls are counted, limited and paid."""

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from flyball import Limits
from flyball.gateway.gateway import Gateway
from flyball.gateway.gateway_options import GatewayOptions
from flyball.gateway.server_tools import ServerCallCounter, find_kinds, limit_server_tools
from flyball.testing import say
from flyball.testing.server import ModelServer, sent, status
from flyball.wire.formats import ANTHROPIC, CHAT, GEMINI, RESPONSES

from .conftest import BOUND_S, environment_for

SEARCH = {"type": "web_search_20250305", "name": "web_search"}
RUN_CODE = {"type": "code_execution_20250825", "name": "code_execution"}
NO_SCHEMA: dict[str, Any] = {}
OWN: dict[str, Any] = {"name": "add", "input_schema": NO_SCHEMA}
BASH = {"type": "bash_20250124", "name": "bash"}


def test_only_tools_at_the_provider_are_limited_and_always_in_the_same_way() -> None:
    first: dict[str, Any] = {"tools": [SEARCH, OWN, BASH, RUN_CODE]}
    later: dict[str, Any] = {"tools": [SEARCH, OWN, BASH, RUN_CODE]}
    assert limit_server_tools(first, ANTHROPIC, ceiling=7, left=7)
    assert limit_server_tools(later, ANTHROPIC, ceiling=7, left=2)
    assert first == later == {"tools": [SEARCH | {"max_uses": 7}, OWN, BASH, RUN_CODE]}
    lower: dict[str, Any] = {"tools": [SEARCH | {"max_uses": 3}]}
    assert not limit_server_tools(lower, ANTHROPIC, ceiling=7, left=7)


def test_a_response_may_make_as_many_calls_as_are_left() -> None:
    body: dict[str, Any] = {"tools": [{"type": "web_search"}]}
    assert limit_server_tools(body, RESPONSES, ceiling=7, left=2)
    assert body["max_tool_calls"] == 2
    assert not limit_server_tools(body, RESPONSES, ceiling=7, left=4)
    assert not limit_server_tools({"tools": []}, CHAT, ceiling=7, left=4)


@pytest.mark.parametrize(
    ("events", "counts"),
    [
        ([{"usage": {"server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 1}}}],
         {"web_search": 2, "web_fetch": 1}),
        ([{"type": "message_delta", "usage": {"server_tool_use": {"web_search_requests": 4}}}], {"web_search": 4}),
        ([{"output": [{"type": "web_search_call"}, {"type": "message"}, {"type": "mcp_call"}]}],
         {"web_search": 1, "mcp": 1}),
        ([{"output_index": 0, "item": {"type": "web_search_call"}},
          {"output_index": 0, "item": {"type": "web_search_call"}},
          {"output_index": 1, "item": {"type": "file_search_call"}}], {"web_search": 1, "file_search": 1}),
        ([{"output_index": 0, "item": {"type": "file_search_call"}},
          {"type": "response.completed", "response": {"output": [{"type": "file_search_call"}]}}], {"file_search": 1}),
        ([{"candidates": [{"groundingMetadata": {"webSearchQueries": ["a", "b"]}}]}], {"web_search": 2}),
        ([{"usage": {"server_tool_use": None}}], {}),
        ([{"usage": {"server_tool_use": {"web_search_requests": "many"}}}], {}),
        ([NO_SCHEMA], {}),
    ],
)  # fmt: skip
def test_calls_at_the_provider_are_read_from_the_reply(events: Any, counts: dict[str, int]) -> None:
    counter = ServerCallCounter()
    for event in events:
        counter.note(event)
    assert (dict(counter.counts), counter.total) == (counts, sum(counts.values()))


def test_tools_of_the_program_do_not_run_at_the_provider() -> None:
    assert not find_kinds({"tools": [OWN, BASH, {"type": "function", "function": {"name": "web_search"}}]}, CHAT)
    assert find_kinds({"tools": [OWN, SEARCH]}, ANTHROPIC) == {"web_search"}
    assert find_kinds({"web_search_options": {}}, CHAT) == {"web_search"}
    tools = [{"functionDeclarations": [{"name": "googleSearch"}]}, {"google_search": NO_SCHEMA}]
    assert find_kinds({"tools": tools}, GEMINI) == {"web_search"}
    assert not find_kinds({"tools": tools[:1]}, GEMINI)


PROMPT = [{"role": "user", "content": "Go."}]
MESSAGES = {"model": "claude-haiku-4-5", "max_tokens": 100, "messages": PROMPT, "tools": [SEARCH, OWN]}
USED = {"input_tokens": 20, "output_tokens": 10, "server_tool_use": {"web_search_requests": 3}}
TOKENS = 20 * 1_000 + 10 * 5_000
"""Price of the tokens in USED, in billionths of a dollar."""
SEARCH_FEE = 10_000_000


def ask(gateway: Gateway, path: str, body: Any) -> httpx2.Response:
    name = "ANTHROPIC" if path == "/v1/messages" else "OPENAI"
    key, url = gateway.environment[f"{name}_API_KEY"], gateway.environment[f"{name}_BASE_URL"]
    return httpx2.post(f"{url}{path}", json=body, headers={"authorization": f"Bearer {key}"}, timeout=BOUND_S)


Options = Callable[..., GatewayOptions]


@pytest.fixture
def options() -> Options:
    def options(server: ModelServer, usd: float | None = None, **more: Any) -> GatewayOptions:
        return GatewayOptions(limits=Limits(turns=9, usd=usd), environment=environment_for(server), **more)

    return options


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("usd", [None, 1.0])
def test_searches_at_the_provider_count_with_their_fee(options: Options, usd: float | None, stream: bool) -> None:
    with ModelServer.looping(sent(say("Found."), usage=USED)) as server, Gateway(options(server, usd)) as gateway:
        assert ask(gateway, "/v1/messages", MESSAGES | {"stream": stream}).status_code == 200
    assert gateway.result.cost == {"claude-haiku-4-5": TOKENS + 3 * SEARCH_FEE}
    assert gateway.result.budgets["usd"].used == TOKENS + 3 * SEARCH_FEE
    limited = [SEARCH | {"max_uses": 5}, OWN] if usd else [SEARCH, OWN]
    assert server.requests[0].body["tools"] == limited


def test_a_search_whose_fee_would_not_fit_is_not_sent(options: Options) -> None:
    with ModelServer.looping(sent(say("Found."), usage=USED)) as server, Gateway(options(server, 0.04)) as gateway:
        reply = ask(gateway, "/v1/messages", MESSAGES).json()
    assert "Maximum cost usd ($0.04) reached: $0.00 used" in json.dumps(reply)
    assert server.requests == []


@pytest.mark.parametrize("unpriced", ["refuse", "tokens_only"])
def test_a_tool_with_an_unknown_fee_is_not_offered_while_money_is_limited(options: Options, unpriced: str) -> None:
    tools = [{"type": "image_generation"}, {"type": "function", "name": "add", "parameters": {"type": "object"}}]
    body = {"model": "gpt-4o", "input": "Go.", "tools": tools, "tool_choice": {"type": "image_generation"}}
    with (
        ModelServer.looping(say("Done.")) as server,
        Gateway(options(server, 1.0, unpriced=unpriced)) as gateway,
    ):
        ask(gateway, "/responses", body)
        ask(gateway, "/responses", body | {"tools": tools[:1]})
    first, second = (request.body for request in server.requests)
    if unpriced == "refuse":
        assert (first["tools"], "tool_choice" in first) == (tools[1:], False)
        assert ("tools" in second, "tool_choice" in second) == (False, False)
        assert [hint.partition(" ")[0] for hint in gateway.desk.content.hints] == ["image_generation"]
    else:
        assert first["tools"] == tools
        assert gateway.desk.content.hints == []


def test_searches_of_responses_are_limited_and_paid(options: Options) -> None:
    searched = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Found."}]}
    usage = {"input_tokens": 20, "output_tokens": 10, "total_tokens": 30}
    reply = {"id": "resp_1", "status": "completed", "model": "gpt-4o", "output": [searched, said], "usage": usage}
    body = {"model": "gpt-4o", "input": "Go.", "tools": [{"type": "web_search"}]}
    with ModelServer.looping(status(200, body=reply)) as server, Gateway(options(server, 1.0)) as gateway:
        assert ask(gateway, "/responses", body).status_code == 200
    assert server.requests[0].body["max_tool_calls"] == 5
    assert gateway.result.budgets["usd"].used == 20 * 2_500 + 10 * 10_000 + SEARCH_FEE
