"""The provider whose model never stops: what it calls, what it refuses, and what it answers besides."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

from flyball.testing import call, say
from flyball.testing.server import LoopingProvider
from flyball.wire.bodies import Json

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
GEMINI = "/v1beta/models/gemini-2.5-flash:generateContent"
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
USER = {"role": "user", "content": "Count."}
FIRST = {"role": "user", "parts": [{"text": "Count."}]}
MODEL_CALL: Json = {"role": "model", "parts": [{"functionCall": {"name": "read", "args": {}}}]}
RESULT: Json = {"role": "user", "parts": [{"functionResponse": {"name": "read", "response": {}}}]}


def send(provider: LoopingProvider, path: str, body: Any = None, method: str = "POST", **headers: str) -> Any:
    connection = HTTPConnection(provider.url.removeprefix("http://"), timeout=60)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


@pytest.fixture
def provider() -> Iterator[LoopingProvider]:
    with LoopingProvider() as server:
        yield server


def test_tools_in_the_input_are_called_with_a_free_text(provider: LoopingProvider) -> None:
    tools = [{"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]}]
    items = [{"type": "additional_tools", "role": "developer", "tools": tools}, USER]
    _, reply = send(provider, RESPONSES, {"model": "gpt-5", "input": items})
    item = reply["output"][0]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "exec", "// go on 2")
    answered = [*items, item, {"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "1"}]
    assert send(provider, RESPONSES, {"model": "gpt-5", "input": answered})[0] == 200
    assert send(provider, RESPONSES, {"model": "gpt-5", "input": answered[:-1]})[0] == 400


def test_a_compaction_trigger_is_answered_with_a_compaction(provider: LoopingProvider) -> None:
    _, reply = send(provider, RESPONSES, {"model": "gpt-5", "input": [USER, {"type": "compaction_trigger"}]})
    assert [item["type"] for item in reply["output"]] == ["compaction"]


def test_a_request_without_tools_is_answered_in_its_schema(provider: LoopingProvider) -> None:
    config = {"responseMimeType": "application/json", "responseSchema": SCHEMA}
    _, reply = send(provider, GEMINI, {"contents": [FIRST], "generationConfig": config})
    assert json.loads(reply["candidates"][0]["content"]["parts"][0]["text"]) == {"path": "go on 1"}


def test_arguments_are_given_where_the_schema_has_them_and_differ_from_turn_to_turn() -> None:
    tools = [{"name": name, "input_schema": SCHEMA} for name in ("read", "write")]
    with LoopingProvider(tool=["edit", "write"], arguments={"path": "f{n}", "mode": "w"}) as provider:
        _, reply = send(provider, MESSAGES, {"model": "m", "max_tokens": 9, "messages": [USER], "tools": tools})
    assert [(block["name"], block["input"]) for block in reply["content"]] == [("write", {"path": "f1"})]


def test_a_function_may_choose_some_of_the_replies() -> None:
    with LoopingProvider(lambda body: say("Done.") if len(body["messages"]) > 1 else None) as provider:
        first = send(provider, CHAT, {"model": "m", "messages": [USER]})[1]
        second = send(provider, CHAT, {"model": "m", "messages": [USER, USER]})[1]
    texts = [reply["choices"][0]["message"]["content"] for reply in (first, second)]
    assert texts == ["I need to go on.", "Done."]


@pytest.mark.parametrize(
    ("path", "body", "problem"),
    [
        (CHAT, {"model": "m", "messages": []}, "messages must not be empty"),
        (CHAT, {"messages": [USER]}, "model"),
        (MESSAGES, {"model": "m", "max_tokens": 1, "messages": []}, "at least one message"),
        (
            MESSAGES,
            {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]},
            "non-empty",
        ),
        (
            MESSAGES,
            {"model": "m", "max_tokens": 1, "messages": [USER], "tools": [{"name": "a"}, {"name": "a"}]},
            "unique",
        ),
        (RESPONSES, {"model": "m", "input": []}, "input must not be empty"),
        (GEMINI, {"contents": []}, "contents is not specified"),
        (GEMINI, {"contents": [FIRST, MODEL_CALL]}, "must be followed by function responses"),
        (GEMINI, {"contents": [FIRST, MODEL_CALL, FIRST]}, "number of function response parts"),
        (GEMINI, {"contents": [FIRST, {"role": "user", "parts": MODEL_CALL["parts"]}, RESULT]}, "from the model"),
    ],
)
def test_a_request_that_the_real_api_refuses_gets_status_400(
    provider: LoopingProvider, path: str, body: Any, problem: str
) -> None:
    status, reply = send(provider, path, body)
    assert (status, len(provider.refused)) == (400, 1)
    assert problem in reply["error"]["message"]


def test_a_gemini_history_with_its_results_is_accepted(provider: LoopingProvider) -> None:
    assert send(provider, GEMINI, {"contents": [FIRST, MODEL_CALL, RESULT]})[0] == 200


def test_models_and_counts_are_served_and_are_no_requests_to_a_model(provider: LoopingProvider) -> None:
    assert send(provider, "/v1/models", method="GET")[1]["data"][0]["id"] == "gpt-4o"
    assert send(provider, "/v1/messages/count_tokens", {"messages": [USER]})[1]["input_tokens"] > 0
    assert send(provider, "/v1beta/models/m:countTokens", {"contents": [FIRST]})[1]["totalTokens"] > 0
    assert send(provider, "/v1/unknown", method="GET")[0] == 404
    assert (len(provider.requests), len(provider.other_paths)) == (0, 4)


def test_a_websocket_is_refused_so_that_clients_use_http(provider: LoopingProvider) -> None:
    assert send(provider, RESPONSES, method="GET", Upgrade="websocket", Connection="Upgrade")[0] == 426


def test_the_usage_grows_with_the_body_as_fast_as_asked() -> None:
    with LoopingProvider(call("add", a=1), tokens_per_byte=2) as provider:
        body = {"model": "m", "messages": [USER]}
        _, reply = send(provider, CHAT, body)
    assert reply["usage"]["prompt_tokens"] == 2 * len(json.dumps(body))
