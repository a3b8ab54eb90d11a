"""Requests that known programs make beside their loop, as the gateway's door sees them."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from flyball import Limits
from flyball.event import ModelRequested
from flyball.gateway.gateway import Gateway
from flyball.gateway.gateway_options import GatewayOptions
from flyball.models.scripted import call, say
from flyball.testing.server import LoopingProvider, ModelServer

from .conftest import environment_for

REPORT = "The report: the task is not finished."
TOOL: dict[str, Any] = {"name": "add", "description": "Add.", "input_schema": {"type": "object", "properties": {}}}
FUNCTION: dict[str, Any] = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}}


class Client:
    """Sends requests as programs do, to a gateway that is open."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway, self.environment = gateway, gateway.environment
        self.http = httpx2.Client(timeout=30)
        self.history: list[Any] = [{"role": "user", "content": "Count."}]

    def post(self, variable: str, path: str, body: Any, **headers: str) -> httpx2.Response:
        names = {"ANTHROPIC": "x-api-key", "OPENAI": "authorization", "GOOGLE_GEMINI": "x-goog-api-key"}
        key = self.environment[f"{variable.replace('GOOGLE_', '')}_API_KEY"]
        sent = {names[variable]: key if variable != "OPENAI" else f"Bearer {key}"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.post(f"{self.environment[f'{variable}_BASE_URL']}{path}", json=body, headers=sent)

    def claude(self, messages: list[Any], **more: Any) -> Any:
        body = {"model": "claude-sonnet-4-5", "max_tokens": 1000, "messages": messages, **more}
        headers = {"user_agent": "claude-cli/2.1 (external)", "x_claude_code_session_id": "s1"}
        return self.post("ANTHROPIC", "/v1/messages?beta=true", body, **headers).json()

    def loop(self, count: int) -> str:
        """Make turns of Claude Code; return the last text."""
        text = ""
        for _ in range(count):
            content = self.claude(self.history, tools=[TOOL])["content"]
            calls = [block["id"] for block in content if block["type"] == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": call, "content": "1"} for call in calls]
            self.history += [
                {"role": "assistant", "content": content},
                {"role": "user", "content": results or "Go on."},
            ]
            text = "".join(block.get("text", "") for block in content)
        return text


@pytest.fixture
def provider() -> Iterator[LoopingProvider]:
    with LoopingProvider() as server:
        yield server


@pytest.fixture
def client(provider: LoopingProvider) -> Iterator[Client]:
    options = GatewayOptions(limits=Limits(turns=2), environment=environment_for(provider))
    with Gateway(options) as gateway:
        made = Client(gateway)
        with made.http:
            yield made


def test_a_title_before_the_first_turn_costs_money_and_no_turn_and_is_not_the_text_of_the_run(
    client: Client, provider: LoopingProvider
) -> None:
    title = client.claude([{"role": "user", "content": "Count."}], system="Write a sentence-case title.")
    assert title["content"][0]["text"] == "I need to go on."
    client.loop(2)
    assert client.loop(1) == REPORT
    late = client.claude([{"role": "user", "content": "Count."}], system="Write a sentence-case title.")
    assert late["content"][0]["text"] == "Stopped"
    client.gateway.close()
    result = client.gateway.result
    assert (len(provider.requests), result.turns, result.text) == (4, 2, REPORT)
    (only,) = result.state["conversations"]
    assert (only["turns"], only["requests"], only["model"]) == (2, 4, "claude-sonnet-4-5")
    purposes = [event.purpose for event in result.events if isinstance(event, ModelRequested)]
    assert purposes == ["side", "turn", "turn", "grace"]


def test_side_requests_beyond_one_per_turn_are_turns(client: Client, provider: LoopingProvider) -> None:
    titles = [
        client.claude([{"role": "user", "content": "Count."}], system="Write a sentence-case title.") for _ in range(6)
    ]
    assert titles[-1]["content"][0]["text"] == "Stopped"
    client.gateway.close()
    assert client.gateway.result.turns == 2
    assert len(provider.requests) == 3 + 2


def test_a_loop_check_without_a_session_is_beside_the_loop_and_gets_its_schema_after_the_end(
    client: Client, provider: LoopingProvider
) -> None:
    declared: Any = [{"functionDeclarations": [{"name": "add", "parameters": {"type": "object", "properties": {}}}]}]
    contents: list[Any] = [{"role": "user", "parts": [{"text": "Count."}]}]
    schema = {
        "type": "OBJECT",
        "properties": {"reasoning": {"type": "STRING"}, "next_speaker": {"type": "STRING", "enum": ["user", "model"]}},
    }

    def ask(body: Any) -> Any:
        path = "/v1beta/models/gemini-2.5-flash:generateContent"
        reply = client.post("GOOGLE_GEMINI", path, body, user_agent="GeminiCLI/0.61.0/gemini-2.5-flash (linux)")
        return reply.json()["candidates"][0]["content"]["parts"]

    def check() -> Any:
        asked = {"role": "user", "parts": [{"text": "Answer as JSON with next_speaker: who speaks next?"}]}
        return ask({"contents": [*contents, asked], "generationConfig": {"responseSchema": schema}})

    check()
    parts: Any = None
    for _ in range(3):
        parts = ask({"contents": contents, "tools": declared})
        contents += [{"role": "model", "parts": parts}]
        answers = [{"functionResponse": {"name": "add", "response": {"output": 1}}}]
        contents += [{"role": "user", "parts": answers}]
    assert parts[0]["text"] == REPORT
    assert json.loads(check()[0]["text"]) == {"reasoning": "Stopped", "next_speaker": "user"}
    client.gateway.close()
    result = client.gateway.result
    assert (result.turns, result.text, provider.last_requests) == (2, REPORT, 1)
    assert [chat["name"] for chat in result.state["conversations"]] == ["conversation 1", "beside the loop"]


def test_a_compaction_keeps_the_session_and_the_next_history_gets_the_report(
    client: Client, provider: LoopingProvider
) -> None:
    client.loop(1)
    order = {"role": "user", "content": "Your task is to create a detailed summary of the conversation so far."}
    client.claude([*client.history, order], tools=[TOOL])
    client.history = [{"role": "user", "content": "This session is continued. The summary: one was added."}]
    client.loop(1)
    assert client.loop(1) == REPORT
    client.gateway.close()
    assert (client.gateway.result.turns, len(client.gateway.chats)) == (2, 1)
    assert (len(provider.requests), provider.last_requests) == (4, 1)


def test_a_report_that_was_spent_on_a_compaction_is_handed_to_the_next_request(
    client: Client, provider: LoopingProvider
) -> None:
    client.loop(2)
    order = [{"role": "user", "content": "Summarize all of it, in words that are not known."}]
    spent = client.claude([*client.history, *order], tools=[TOOL])
    assert spent["content"][0]["text"] == REPORT
    begun = [{"role": "user", "content": "This session is continued from a summary."}]
    assert client.claude(begun, tools=[TOOL])["content"][0]["text"] == REPORT
    assert (len(provider.requests), provider.last_requests) == (3, 1)


def test_a_compaction_without_a_session_is_found_by_its_summary() -> None:
    summary = 'SUMMARY: one "number" was added\nto another, and the user wants more.'
    with ModelServer(call("add"), say(summary), call("add"), say(REPORT)) as server:
        options = GatewayOptions(limits=Limits(turns=2), environment=environment_for(server))
        with Gateway(options) as gateway, Client(gateway).http as http:

            def ask(items: list[Any], **more: Any) -> Any:
                url, key = gateway.environment["OPENAI_BASE_URL"], gateway.environment["OPENAI_API_KEY"]
                body = {"model": "gpt-5.1", "input": items, **more}
                reply = http.post(f"{url}/responses", json=body, headers={"authorization": f"Bearer {key}"})
                return reply.json()["output"]

            first = ask([{"role": "user", "content": "Count."}], tools=[FUNCTION])
            result = {"type": "function_call_output", "call_id": first[0]["call_id"], "output": "1"}
            order = {"role": "user", "content": "You are a context summarization assistant. Summarize."}
            ask([{"role": "user", "content": "Count."}, *first, result, order])
            begun = {"role": "user", "content": f"Go on after this:\n{summary}"}
            assert ask([begun], tools=[FUNCTION])[0]["type"] == "function_call"
            assert ask([begun], tools=[FUNCTION])[0]["content"][0]["text"] == REPORT
        assert (gateway.result.turns, len(gateway.chats)) == (2, 1)


@pytest.mark.parametrize(("wire", "status"), [("chat", 400), ("messages", 402), ("responses", 400), ("gemini", 400)])
def test_the_end_is_two_synthetic_replies_and_then_the_error_that_clients_of_the_wire_do_not_repeat(
    client: Client, wire: str, status: int
) -> None:
    ask = {"role": "user", "content": "Once."}
    parts = {"role": "user", "parts": [{"text": "Once."}]}
    requests = {
        "chat": ("OPENAI", "/chat/completions", {"model": "gpt-4o", "messages": [ask]}),
        "messages": ("ANTHROPIC", "/messages", {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [ask]}),
        "responses": ("OPENAI", "/responses", {"model": "gpt-5.1", "input": [ask]}),
        "gemini": ("GOOGLE_GEMINI", "/v1beta/models/gemini-2.5-flash:generateContent", {"contents": [parts]}),
    }
    replies = [client.post(*requests[wire], x_flyball_run="one") for _ in range(6)]
    assert [reply.status_code for reply in replies] == [200, 200, 200, 200, 200, status]
    assert replies[-1].headers["x-should-retry"] == "false"
    assert "flyball: the run has ended: Maximum agent iterations (2) reached." in str(replies[-1].json()["error"])
