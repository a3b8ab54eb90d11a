"""Requests that real command lines sent, as `make test-exec` showed them, sent again."""

from collections.abc import Iterator
from typing import Any

import pytest

from flyball import Limits
from flyball.gateway.gateway import Gateway
from flyball.gateway.gateway_options import GatewayOptions
from flyball.testing.server import LoopingProvider

from .conftest import environment_for
from .test_side_requests import TOOL, Client

TURNS = 2
PART = [{"role": "user", "content": "Part."}]
COMPACTIONS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "opencode 1.18.33": (
        "ANTHROPIC",
        "/v1/messages",
        "opencode/1.18.33 ai-sdk/provider-utils/4",
        {
            "model": "claude-sonnet-4-5",
            "max_tokens": 8000,
            "system": [{"type": "text", "text": "You are a context summarization agent. You are given a conversation"}],
            "messages": [{"role": "user", "content": "Here is the conversation so far:\n\n<conversation>"}],
        },
    ),
    "Qwen Code 0.24.4": (
        "OPENAI",
        "/chat/completions",
        "QwenCode/0.24.4 (linux; x64)",
        {
            "model": "gpt-4o",
            "messages": [
                {
                    "role": "system",
                    "content": "You are the component that summarizes a conversation when its context window is about "
                    "to overflow. The summary you produce will become the agent's ONLY memory",
                },
                {
                    "role": "user",
                    "content": "First, reason in your <analysis> block. Then produce <state_snapshot>",
                },
            ],
        },
    ),
}


@pytest.fixture
def provider() -> Iterator[LoopingProvider]:
    with LoopingProvider() as server:
        yield server


@pytest.fixture
def client(provider: LoopingProvider) -> Iterator[Client]:
    options = GatewayOptions(limits=Limits(turns=TURNS), environment=environment_for(provider))
    with Gateway(options) as gateway:
        made = Client(gateway)
        with made.http:
            yield made


@pytest.mark.parametrize("program", COMPACTIONS)
def test_a_compaction_is_no_turn_and_never_gets_the_request_for_a_report(
    client: Client, provider: LoopingProvider, program: str
) -> None:
    variable, path, agent, body = COMPACTIONS[program]
    client.loop(TURNS)
    reply = client.post(variable, path, body, user_agent=agent, x_session_id="s")
    assert (reply.status_code, provider.requests[-1].body["messages"]) == (200, body["messages"])
    assert (client.gateway.desk.run_turns, provider.last_requests) == (TURNS, 0)


def test_a_parent_is_answered_for_each_sub_agent_that_ends_after_the_limit(
    client: Client, provider: LoopingProvider
) -> None:
    client.loop(TURNS + 1)
    sub_agents = 5
    for number in range(sub_agents):
        body = {"model": "claude-sonnet-4-5", "max_tokens": 1000, "messages": PART, "tools": [TOOL]}
        names = {"x_claude_code_session_id": "s1", "x_claude_code_agent_id": f"agent-{number}"}
        reply = client.post("ANTHROPIC", "/v1/messages", body, **names).json()
        assert "before this conversation began" in reply["content"][0]["text"]
    woken = [client.loop(1) for _ in range(sub_agents + 2)]
    assert all("The report was given before: The report: the task is not finished." in text for text in woken)
    assert client.claude(client.history, tools=[TOOL])["type"] == "error"
    assert (len(provider.requests), provider.last_requests) == (TURNS + 1, 1)
