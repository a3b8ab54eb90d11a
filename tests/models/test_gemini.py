"""Gemini: signatures between turns, calls without ids, blocks, failures, keys."""

from typing import Any

import anyio
import pytest

from flyball import Agent, Limits, tool
from flyball.errors import ContextTooLong, Retryable, UsageError
from flyball.models import AnthropicModel, GeminiModel, named
from flyball.models.catalog import find_price
from flyball.request import Finish, Request, Usage
from flyball.settings import Settings
from flyball.testing import ModelServer, assert_honest, call, say, sent, status
from flyball.wire import normalize

HELLO = Request(normalize("Hello", run="r"))


@tool(poll=True)
def read(page: int) -> str:
    """Read a page."""
    return f"page {page}"


def made(server: ModelServer, name: str = "gemini-2.5-pro", **options: Any) -> GeminiModel:
    return GeminiModel(name, url=server.url, **options)


def reply(*parts: dict[str, Any], finish: str = "STOP", **more: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": [*parts]}, "finishReason": finish}], **more}


def test_signatures_go_back_on_the_parts_that_they_came_with() -> None:
    body = reply(
        {"text": "I think.", "thought": True},
        {"text": "I read.", "thoughtSignature": "c2ln"},
        {"functionCall": {"name": "read", "args": {"page": 1}}, "thoughtSignature": "c2lnMQ=="},
        {"functionCall": {"name": "read", "args": {"page": 2}}},
    )
    with ModelServer(status(200, body=body), say("So.")) as server:
        result = assert_honest(Agent(model=made(server, "gemini-3-pro"), tools=[read]).run("Read."))
    assert result.text == "So."
    _, spoken, results = server.requests[1].body["contents"]
    assert spoken == {
        "role": "model",
        "parts": [
            {"text": "I read.", "thoughtSignature": "c2ln"},
            {"functionCall": {"id": "call-0", "name": "read", "args": {"page": 1}}, "thoughtSignature": "c2lnMQ=="},
            {"functionCall": {"id": "call-1", "name": "read", "args": {"page": 2}}},
        ],
    }
    assert [part["functionResponse"] for part in results["parts"]] == [
        {"id": "call-0", "name": "read", "response": {"output": "page 1"}},
        {"id": "call-1", "name": "read", "response": {"output": "page 2"}},
    ]


def test_code_that_the_provider_ran_goes_back_in_its_place() -> None:
    code, ran = {"executableCode": {"language": "PYTHON", "code": "1"}}, {"codeExecutionResult": {"outcome": "OK"}}
    asks = {"functionCall": {"id": "f1", "name": "read", "args": {"page": 1}}}
    with ModelServer(status(200, body=reply(code, ran, asks)), say("So.")) as server:
        assert_honest(Agent(model=made(server), tools=[read]).run("Read."))
    assert server.requests[1].body["contents"][1]["parts"] == [code, ran, asks]


@pytest.mark.parametrize(
    ("name", "signed"),
    [
        ("gemini-3-pro", True),
        ("gemini-flash-latest", True),
        ("gemini-flash-lite-latest", True),
        ("gemini-2.5-pro", False),
        ("gemini-2.5-flash-latest", False),
        ("gemma-3-27b-it", False),
    ],
)
def test_calls_of_another_model_are_signed_where_that_is_demanded(name: str, signed: bool) -> None:
    with ModelServer(sent(call("read", page=1), thinking="Hm."), say("So.")) as server:
        result = Agent(model=AnthropicModel("a", url=server.url), tools=[read]).run("Read.")
    body = GeminiModel(name).build_body(Request(result.messages))
    [part] = body["contents"][1]["parts"]
    assert ("thoughtSignature" in part) is signed


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_safety_block_is_a_failure_of_its_own(stream: bool) -> None:
    with ModelServer(say("So").ending("content_filter")) as server:
        result = assert_honest(Agent(model=made(server, stream=stream)).run("Go."))
    assert (result.stop, result.finish) == ("failed", "content_filter")
    assert result.error is not None
    assert result.error["message"] == "the provider's filter stopped the reply: SAFETY"


def test_a_blocked_prompt_names_the_reason_and_what_it_used() -> None:
    usage = {"promptTokenCount": 7, "totalTokenCount": 7}
    body = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": usage}
    with ModelServer(status(200, body=body)) as server:
        result = assert_honest(Agent(model=made(server)).run("Go."))
    assert (result.stop, result.requests, result.usage) == ("failed", 1, Usage(input=7))
    assert result.error is not None
    assert (result.error["code"], "PROHIBITED_CONTENT" in result.error["message"]) == ("content_filter", True)


@pytest.mark.parametrize("word", ["MALFORMED_FUNCTION_CALL", "OTHER", "TOO_MANY_TOOL_CALLS", "NO_IMAGE"])
def test_a_reply_that_is_not_complete_is_asked_for_again(word: str) -> None:
    broken = reply({"text": "Once"}, finish=word)
    with ModelServer(status(200, body=broken), say("So.")) as server:
        result = assert_honest(Agent(model=made(server), tools=[read]).run("Go."))
    assert (result.text, result.requests, result.turns) == ("So.", 2, 1)


def test_thoughts_count_as_output_and_tools_of_the_provider_as_input() -> None:
    usage = {
        "promptTokenCount": 100, "toolUsePromptTokenCount": 20, "candidatesTokenCount": 30, "thoughtsTokenCount": 10,
        "cachedContentTokenCount": 60, "totalTokenCount": 160,
    }  # fmt: skip
    with ModelServer(status(200, body=reply({"text": "So."}, usageMetadata=usage))) as server:
        found = anyio.run(made(server).ask, HELLO)
    assert found.usage == Usage(input=120, output=40, cached=60, reasoning=10)
    assert Usage.of({"prompt_token_count": 5, "candidates_token_count": 2}) == Usage(input=5, output=2)


def test_usage_counts_once_the_reply_is_complete() -> None:
    begun, more = {"promptTokenCount": 9}, {"promptTokenCount": 9, "candidatesTokenCount": 5}
    parser = GeminiModel("m").create_parser()
    parser.parse_event({"candidates": [{"content": {"parts": [{"text": "So"}]}}], "usageMetadata": begun})
    assert parser.build_reply().usage is None
    parser.parse_event({"candidates": [{"finishReason": "FINISH_REASON_UNSPECIFIED"}], "usageMetadata": more})
    assert (parser.finish, parser.usage) == (None, None)
    parser.parse_event({"candidates": [{"finishReason": "STOP"}]})
    assert parser.build_reply().usage == Usage(input=9, output=5)
    parser.parse_event({"usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 6}})
    assert parser.build_reply().usage == Usage(input=9, output=6)


def test_a_limit_of_money_needs_the_price_of_a_faster_service_tier() -> None:
    for tier, is_known in (("flex", True), ("standard", True), ("priority", False)):
        model = GeminiModel("gemini-2.5-flash", body={"serviceTier": tier})
        assert (find_price(model, Settings({})) is not None) is is_known
    with pytest.raises(UsageError, match=r"gemini-2\.5-flash in its service tier 'priority' is not known"):
        Agent(model=model, limits=Limits(usd=1)).run("Go.")


def test_the_newest_signature_of_a_text_goes_back() -> None:
    parser = GeminiModel("m").create_parser()
    call: dict[str, Any] = {"functionCall": {"name": "read"}, "thoughtSignature": "of the call"}
    parts: list[dict[str, Any]] = [
        {"text": "a", "thoughtSignature": "old"},
        call,
        {"text": "", "thoughtSignature": "new"},
    ]
    parser.parse_reply(reply(*parts))
    kept = {part["of"]: part["part"]["value"]["thoughtSignature"] for part in parser.build_reply().parts}
    assert kept == {"text": "new", 0: "of the call"}


def test_failures_are_told_apart_by_status_and_words() -> None:
    quota = {"code": 429, "message": "Slow down.", "status": "RESOURCE_EXHAUSTED"}
    delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.25s"}
    with ModelServer(
        status(429, body={"error": {**quota, "details": [delay]}}), status(400, "long", code="context_length_exceeded")
    ) as server:
        model = made(server)
        with pytest.raises(Retryable, match=r"Slow down\.") as caught:
            anyio.run(model.ask, HELLO)
        assert caught.value.after == 0.25
        with pytest.raises(ContextTooLong, match="input token count"):
            anyio.run(model.ask, HELLO)


def test_a_wrong_or_missing_key_names_the_variable(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    assert named("google:gemini-2.5-pro").ready() == "there is no key for google: set GEMINI_API_KEY"
    monkeypatch.setenv("GOOGLE_API_KEY", key)
    assert named("google:gemini-2.5-pro").ready() is None
    details = [{"reason": "API_KEY_INVALID"}]
    body = {"error": {"code": 400, "message": f"API key not valid: {key}", "details": details}}
    with ModelServer(status(400, body=body)) as server:
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", server.url)
        result = Agent(model="google:gemini-2.5-pro").run("Go.")
    assert server.requests[0].headers["x-goog-api-key"] == key
    assert "authorization" not in server.requests[0].headers
    assert server.requests[0].path == "/v1beta/models/gemini-2.5-pro:streamGenerateContent"
    assert result.error is not None
    assert "GOOGLE_API_KEY" in result.error["message"]
    assert key not in result.error["message"]


def test_a_schema_is_enforced_where_the_model_allows_it_beside_tools() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    tools: list[dict[str, Any]] = [
        {"name": "f", "description": "F.", "parameters": {"type": "object", "properties": {}}}
    ]
    both = Request(HELLO.messages, tools=tools, output_schema=schema)
    assert "generationConfig" not in GeminiModel("gemini-2.5-pro").build_body(both)
    assert "schema" in str(GeminiModel("gemini-2.5-pro").build_body(both)["systemInstruction"])
    assert "responseJsonSchema" in GeminiModel("gemini-3-pro").build_body(both)["generationConfig"]
    alone = GeminiModel("gemini-2.5-pro").build_body(Request(HELLO.messages, output_schema=schema))
    assert alone["generationConfig"]["responseMimeType"] == "application/json"


def test_fields_of_a_body_are_merged_and_those_of_limits_refused() -> None:
    model = GeminiModel("m", body={"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}})
    body = model.build_body(Request(HELLO.messages, max_output_tokens=9))
    assert body["generationConfig"] == {"maxOutputTokens": 9, "thinkingConfig": {"thinkingBudget": 0}}
    wrong: list[dict[str, Any]] = [{"generationConfig": {"maxOutputTokens": 9}}, {"generation_config": {}}]
    wrong += [{"contents": []}, {"toolConfig": {}}]
    for fields in wrong:
        with pytest.raises(UsageError):
            GeminiModel("m", body=fields)


@pytest.mark.parametrize(
    ("word", "finish"),
    [
        ("MAX_TOKENS", Finish.LENGTH),
        ("CONTINUATION", Finish.LENGTH),
        ("RECITATION", Finish.CONTENT_FILTER),
        ("ESCALATION", Finish.CONTENT_FILTER),
        ("PUP_LIMITED_DISABLED", Finish.CONTENT_FILTER),
    ],
)
def test_reasons_for_an_end_are_those_of_all_wires(word: str, finish: Finish) -> None:
    with ModelServer(status(200, body=reply({"text": "So"}, finish=word))) as server:
        assert anyio.run(made(server).ask, HELLO).finish is finish
