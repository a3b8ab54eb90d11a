"""Shapes of requests that known programs send: tools in the input, system messages anywhere, paths, model names."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from flyball import Limits
from flyball.gateway.gateway import Gateway
from flyball.gateway.gateway_options import GatewayOptions
from flyball.testing.server import LoopingProvider, ModelServer, StatusReply

from .conftest import environment_for

REPORT = "The report: the task is not finished."
NAMESPACE: Any = {
    "type": "additional_tools",
    "tools": [
        {"type": "namespace", "name": "shell", "tools": [{"type": "custom", "name": "exec", "description": "Run."}]}
    ],
}
CUSTOM_CALL: Any = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "exec", "input": "ls"}


def build_response(*output: Any) -> StatusReply:
    usage = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
    body = {"id": "resp_1", "object": "response", "status": "completed", "model": "gpt-5.1", "output": list(output)}
    return StatusReply(200, body=body | {"usage": usage})


def build_text(text: str) -> Any:
    content: Any = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}


def open_gateway(server: ModelServer, **options: Any) -> Gateway:
    options.setdefault("limits", Limits(turns=1))
    return Gateway(GatewayOptions(environment=environment_for(server), **options))


def ask_responses(gateway: Gateway, items: list[Any], **more: Any) -> httpx2.Response:
    given = gateway.environment
    body = {"model": "gpt-5.1-codex", "instructions": "You are a coding agent.", "input": items, **more}
    headers = {"authorization": f"Bearer {given['OPENAI_API_KEY']}", "thread-id": "t1"}
    return httpx2.post(f"{given['OPENAI_BASE_URL']}/responses", json=body, headers=headers, timeout=30)


def ask_messages(gateway: Gateway, path: str = "/v1/messages", **body: Any) -> httpx2.Response:
    given = gateway.environment
    sent = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 1000,
        "messages": [{"role": "user", "content": "Count."}],
        **body,
    }
    headers = {"x-api-key": given["ANTHROPIC_API_KEY"]}
    return httpx2.post(f"{given['ANTHROPIC_BASE_URL']}{path}", json=sent, headers=headers, timeout=30)


@pytest.fixture
def provider() -> Iterator[LoopingProvider]:
    with LoopingProvider() as server:
        yield server


def test_tools_in_the_input_are_forbidden_in_the_last_request_and_a_call_of_them_is_not_handed_on() -> None:
    with ModelServer(build_response(CUSTOM_CALL), build_response(build_text("So far."), CUSTOM_CALL)) as server:
        with open_gateway(server) as gateway:
            items: list[Any] = [NAMESPACE, {"role": "user", "content": "Count."}]
            first = ask_responses(gateway, items, tool_choice="auto").json()["output"]
            assert first == [CUSTOM_CALL]
            items += [CUSTOM_CALL, {"type": "custom_tool_call_output", "call_id": "call_1", "output": "a.txt"}]
            last = ask_responses(gateway, items, tool_choice="auto").json()["output"]
        assert [item["type"] for item in last] == ["message"]
        assert last[0]["content"][0]["text"] == "So far."
        sent = server.requests[-1].body
        assert (sent["tool_choice"], sent["input"][:4]) == ("none", items)
        assert "Answer with text only." in sent["input"][-1]["content"]
    assert (gateway.result.turns, len(gateway.chats)) == (1, 1)
    assert gateway.desk.run.envelope.budgets["tool_calls"].used == 1


def test_a_denied_custom_call_is_answered_with_an_output_of_its_kind() -> None:
    with ModelServer(build_response(CUSTOM_CALL), build_response(build_text("Done."))) as server:
        with open_gateway(server, limits=Limits(turns=9, tool_calls=0)) as gateway:
            items = [NAMESPACE, {"role": "user", "content": "Count."}]
            output = ask_responses(gateway, items, tool_choice="auto").json()["output"]
        assert [item["type"] for item in output] == ["message"]
        *_, call, result = server.requests[-1].body["input"][:4]
        assert (call["type"], call["input"]) == ("custom_tool_call", "ls")
        assert (result["type"], result["call_id"]) == ("custom_tool_call_output", "call_1")
        assert result["output"].startswith("denied: ")


def test_system_messages_in_the_middle_and_at_the_end_of_a_conversation_pass(provider: LoopingProvider) -> None:
    tool: Any = {"name": "add", "description": "Add.", "input_schema": {"type": "object", "properties": {}}}
    with open_gateway(provider) as gateway:
        content = ask_messages(gateway, tools=[tool]).json()["content"]
        results = [{"type": "tool_result", "tool_use_id": content[0]["id"], "content": "1"}]
        history = [
            {"role": "user", "content": "Count."},
            {"role": "assistant", "content": content},
            {"role": "user", "content": results},
            {"role": "system", "content": "The user opened a file."},
        ]
        reply = ask_messages(gateway, tools=[tool], messages=history)
        assert reply.json()["content"][0]["text"] == REPORT
    sent = provider.requests[-1].body["messages"]
    assert sent[:4] == history
    assert sent[4]["role"] == "user"
    assert len(gateway.chats) == 1
    assert gateway.result.events


@pytest.mark.parametrize("path", ["/messages", "/v1/messages", "/v1/messages?beta=true"])
def test_messages_have_their_version_in_the_path_or_not(provider: LoopingProvider, path: str) -> None:
    with open_gateway(provider) as gateway:
        assert ask_messages(gateway, path).status_code == 200
    assert [request.path for request in provider.requests] == ["/v1/messages"]


@pytest.mark.parametrize(
    ("variable", "model"),
    [
        ("ANTHROPIC", "claude-sonnet-4.5"),
        ("ANTHROPIC", "claude-sonnet-4-5-20250929"),
        ("ANTHROPIC", "claude-haiku-4.5"),
        ("OPENAI", "gpt-5.1-2025-11-13"),
        ("OPENAI", "gpt-5.1-codex"),
        ("GOOGLE", "gemini-2.5-pro-preview-06-05"),
        ("GOOGLE", "gemini-3-pro-preview"),
    ],
)
def test_dated_and_dotted_names_of_models_have_a_price(provider: LoopingProvider, variable: str, model: str) -> None:
    with open_gateway(provider, limits=Limits(turns=1, usd=1)) as gateway:
        if variable == "ANTHROPIC":
            reply = ask_messages(gateway, model=model)
        elif variable == "OPENAI":
            reply = ask_responses(gateway, [{"role": "user", "content": "Count."}], model=model)
        else:
            reply = ask_gemini(gateway, f"{model}:generateContent", {"contents": CONTENTS})
        assert reply.status_code == 200, reply.text
    assert 0 < gateway.result.cost[model] < 10**9


CONTENTS: Any = [{"role": "user", "parts": [{"text": "Count."}]}]
DECLARED: Any = [{"functionDeclarations": [{"name": "add", "parameters": {"type": "OBJECT", "properties": {}}}]}]


def ask_gemini(gateway: Gateway, action: str, body: Any, version: str = "/v1beta") -> httpx2.Response:
    given = gateway.environment
    url = f"{given['GOOGLE_GEMINI_BASE_URL']}{version}/models/{action}"
    return httpx2.post(url, json=body, headers={"x-goog-api-key": given["GEMINI_API_KEY"]}, timeout=30)


@pytest.mark.parametrize("action", ["generateContent", "streamGenerateContent?alt=sse", "streamGenerateContent"])
def test_gemini_is_governed_to_its_report_and_its_synthetic_replies(provider: LoopingProvider, action: str) -> None:
    with open_gateway(provider) as gateway:
        contents: list[Any] = list(CONTENTS)
        body = {"contents": contents, "tools": DECLARED, "generationConfig": {"maxOutputTokens": 4000}}
        texts: list[str] = []
        for _ in range(3):
            reply = ask_gemini(gateway, f"gemini-2.5-flash:{action}", body)
            assert reply.status_code == 200
            parts = [
                part for chunk in read_gemini(reply, action) for part in chunk["candidates"][0]["content"]["parts"]
            ]
            texts.append("".join(part.get("text", "") for part in parts))
            calls = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
            results = [{"functionResponse": {"name": name, "response": {"output": 1}}} for name in calls]
            contents += [{"role": "model", "parts": parts}, {"role": "user", "parts": results or [{"text": "Go on."}]}]
    assert texts[1:2] == [REPORT]
    assert texts[2].endswith(f"The report was given before: {REPORT}")
    last = provider.requests[-1].body
    assert last["toolConfig"] == {"functionCallingConfig": {"mode": "NONE"}}
    assert last["tools"] == DECLARED
    assert (gateway.result.turns, len(gateway.chats), len(provider.requests)) == (1, 1, 2)


def read_gemini(reply: httpx2.Response, action: str) -> list[Any]:
    import json

    if action == "generateContent":
        return [reply.json()]
    if action == "streamGenerateContent":
        return reply.json()
    return [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: ")]


def test_a_limit_of_tokens_lowers_the_cap_of_gemini_and_an_error_has_its_form(provider: LoopingProvider) -> None:
    with open_gateway(provider, limits=Limits(turns=9, tokens=3000)) as gateway:
        body: Any = {"contents": CONTENTS, "tools": DECLARED, "generationConfig": {"maxOutputTokens": 60_000}}
        assert ask_gemini(gateway, "gemini-2.5-flash:generateContent", body).status_code == 200
        assert ask_gemini(gateway, "gemini-2.5-flash:countTokens", {"contents": CONTENTS}).status_code == 200
        refused = ask_gemini(gateway, "gemini-2.5-flash:batchGenerateContent", body)
        assert refused.status_code == 403
        error = refused.json()["error"]
        assert (error["code"], error["status"]) == (403, "PERMISSION_DENIED")
        assert "does not govern" in error["message"]
    assert 0 < provider.requests[0].body["generationConfig"]["maxOutputTokens"] < 3000
    assert gateway.result.turns == 1


def test_thoughts_of_gemini_are_billed_as_output() -> None:
    usage = {"promptTokenCount": 100, "candidatesTokenCount": 10, "thoughtsTokenCount": 500, "totalTokenCount": 610}
    candidate = {"content": {"role": "model", "parts": [{"text": "Done."}]}, "finishReason": "STOP"}
    reply = StatusReply(200, body={"candidates": [candidate], "usageMetadata": usage})
    with ModelServer(reply) as server, open_gateway(server) as gateway:
        ask_gemini(gateway, "gemini-2.5-flash:generateContent", {"contents": CONTENTS})
    (only,) = gateway.chats
    assert (only.input_tokens, only.output_tokens) == (100, 510)


def test_an_answer_to_a_probe_of_the_program_does_not_stop_it(provider: LoopingProvider) -> None:
    with open_gateway(provider) as gateway:
        given = gateway.environment
        headers = {"x-api-key": given["ANTHROPIC_API_KEY"]}
        reply = httpx2.head(f"{given['ANTHROPIC_BASE_URL']}/api/hello", headers=headers, timeout=30)
        assert reply.status_code < 600
    assert gateway.result.turns == 0
