"""Tools that run at the provider: their calls are counted and limited."""

from typing import Any

import pytest

from flyball.gateway.server_tools import count_server_calls, has_server_tools, limit_server_tools
from flyball.wire.formats import ANTHROPIC, CHAT, RESPONSES

SEARCH = {"type": "web_search_20250305", "name": "web_search"}
OWN: dict[str, Any] = {"name": "add", "input_schema": {}}
BASH = {"type": "bash_20250124", "name": "bash"}


def test_only_tools_at_the_provider_are_limited_and_always_in_the_same_way() -> None:
    first: dict[str, Any] = {"tools": [SEARCH, OWN, BASH]}
    later: dict[str, Any] = {"tools": [SEARCH, OWN, BASH]}
    assert limit_server_tools(first, ANTHROPIC, ceiling=7, left=7)
    assert limit_server_tools(later, ANTHROPIC, ceiling=7, left=2)
    assert first == later == {"tools": [SEARCH | {"max_uses": 7}, OWN, BASH]}
    lower: dict[str, Any] = {"tools": [SEARCH | {"max_uses": 3}]}
    assert not limit_server_tools(lower, ANTHROPIC, ceiling=7, left=7)


def test_a_response_may_make_as_many_calls_as_are_left() -> None:
    body: dict[str, Any] = {"tools": [{"type": "web_search"}]}
    assert limit_server_tools(body, RESPONSES, ceiling=7, left=2)
    assert body["max_tool_calls"] == 2
    assert not limit_server_tools(body, RESPONSES, ceiling=7, left=4)
    assert not limit_server_tools({"tools": []}, CHAT, ceiling=7, left=4)


@pytest.mark.parametrize(
    ("data", "count"),
    [
        ({"usage": {"server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 1}}}, 3),
        ({"type": "message_delta", "usage": {"server_tool_use": {"web_search_requests": 4}}}, 4),
        ({"output": [{"type": "web_search_call"}, {"type": "message"}, {"type": "mcp_call"}]}, 2),
        ({"type": "response.completed", "response": {"output": [{"type": "file_search_call"}]}}, 1),
        ({"usage": {"server_tool_use": None}}, 0),
        ({"usage": {"server_tool_use": {"web_search_requests": "many"}}}, 0),
        ({}, 0),
    ],
)
def test_calls_at_the_provider_are_read_from_the_reply(data: Any, count: int) -> None:
    assert count_server_calls(data) == count


def test_tools_of_the_program_do_not_run_at_the_provider() -> None:
    assert not has_server_tools({"tools": [OWN, BASH, {"type": "function", "function": {"name": "web_search"}}]})
    assert has_server_tools({"tools": [OWN, SEARCH]})
