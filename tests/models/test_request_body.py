"""What the wires send: the same as the official SDKs for the same conversation, and what those leave to their users."""

import base64
import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from flyball import ConfigError
from flyball.message import Message
from flyball.models import AnthropicModel, GeminiModel, OpenAIModel, ResponsesModel
from flyball.models.http import HttpModel
from flyball.request import Request
from flyball.testing import ModelServer, say
from flyball.wire import normalize

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TOOL: dict[str, Any] = {"name": "add", "description": "Add.", "parameters": {"type": "object", "properties": {}}}


def request(*messages: Any, **rest: Any) -> Request:
    return Request(normalize(messages or ["Hello"], run="r"), **rest)


def openai(**options: Any) -> OpenAIModel:
    return OpenAIModel("gpt", stream=False, **options)


def anthropic(**options: Any) -> AnthropicModel:
    return AnthropicModel("claude", stream=False, **options)


def in_one_spelling(body: dict[str, Any]) -> dict[str, Any]:
    """Gemini takes either spelling of a key and of base64; its SDK mixes them, and sends an empty configuration."""
    text = json.dumps({key: value for key, value in body.items() if value != {}})
    for key in ("mime_type", "file_uri", "parameters_json_schema"):
        head, *words = key.split("_")
        text = text.replace(f'"{key}"', f'"{head}{"".join(map(str.capitalize, words))}"')
    pixel = base64.b64decode(PIXEL)
    return json.loads(text.replace(base64.urlsafe_b64encode(pixel).decode(), PIXEL))


class TestAsTheSdks:
    def test_the_body_is_what_the_sdk_sends(
        self, wire: str, kinds: dict[str, type[HttpModel]], conversation: Any, shape: Callable[..., Any]
    ) -> None:
        options: Any = {"stream": False, **conversation.options}
        expected = shape(wire, conversation)["body"]
        model = kinds[wire](expected.get("model", "gemini-2.5-pro"), **options)
        body = model.build_body(conversation.request)
        assert body == (in_one_spelling(expected) if wire == "google" else expected)

    def test_path_and_headers_are_what_the_sdk_sends(
        self, made: Callable[..., HttpModel], wire: str, conversation: Any, shape: Callable[..., Any], key: str
    ) -> None:
        with ModelServer(say("So")) as server:
            model = made(server, **{"stream": False, **conversation.options})
            model.name = "gemini-2.5-pro" if wire == "google" else model.name
            anyio.run(model.ask, conversation.request)
        heard, recorded = server.requests[0], shape(wire, conversation)
        sent = {name: value.replace(key, "***") for name, value in heard.headers.items()}
        assert heard.path == recorded["path"]
        assert {name: sent.get(name) for name in recorded["headers"]} == recorded["headers"]


class TestOpenAI:
    def test_notices_come_behind_the_newest_message(self) -> None:
        body = openai().build_body(request(notices=("Two turns are left.",)))
        assert body["messages"][-1] == {"role": "user", "content": "Two turns are left."}

    def test_elsewhere_the_cap_has_its_older_name(self) -> None:
        asked = request(max_output_tokens=7)
        assert openai().build_body(asked)["max_completion_tokens"] == 7
        assert openai(url="http://127.0.0.1:8080/v1").build_body(asked)["max_tokens"] == 7

    def test_elsewhere_a_reply_may_be_less_long(self) -> None:
        assert (openai().max_output_tokens, openai(url="http://127.0.0.1:8080/v1").max_output_tokens) == (16_384, 4_096)

    def test_a_schema_that_is_not_strict_is_not_called_so(self) -> None:
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
        assert openai().build_body(request(output_schema=schema))["response_format"]["json_schema"]["strict"] is False

    def test_a_schema_that_needs_everything_is_closed_and_called_strict(self) -> None:
        schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}, "required": ["a"]}
        form = openai().build_body(request(output_schema=schema))["response_format"]["json_schema"]
        assert form["strict"] is True
        assert form["schema"]["additionalProperties"] is False
        assert '{"minimum": 3}' in form["schema"]["properties"]["a"]["description"]

    def test_a_schema_that_is_no_object_is_asked_for_in_words(self, snapshot: Callable[..., None]) -> None:
        body = openai().build_body(request(instructions="Be brief.", output_schema={"type": "integer"}))
        assert "response_format" not in body
        assert body["messages"][0]["role"] == "system"
        snapshot(body["messages"][0]["content"])

    def test_the_name_of_a_tool_is_not_on_its_result(self) -> None:
        calls = [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}]
        said = {"role": "assistant", "content": None, "tool_calls": calls}
        asked = request("Go", said, {"role": "tool", "name": "add", "tool_call_id": "c1", "content": "3"})
        assert openai().build_body(asked)["messages"][2] == {"role": "tool", "tool_call_id": "c1", "content": "3"}

    def test_tools_are_chosen_only_where_there_are_some(self) -> None:
        assert "tool_choice" not in openai(tool_choice="required", parallel_calls=False).build_body(request())


class TestAnthropic:
    def test_notices_are_part_of_the_users_last_message(self) -> None:
        body = anthropic().build_body(request(notices=("Two turns are left.",)))
        assert body["messages"] == [
            {"role": "user", "content": [{"type": "text", "text": text} for text in ("Hello", "Two turns are left.")]}
        ]

    def test_behind_the_assistants_they_are_a_message(self) -> None:
        body = anthropic().build_body(
            request("Hello", {"role": "assistant", "content": "Hi"}, notices=("One is left.",))
        )
        assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]

    def test_calls_in_a_request_without_tools_get_tools_that_cannot_be_called(self) -> None:
        use: dict[str, Any] = {"type": "tool_use", "id": "t1", "name": "add", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "t1", "content": "3"}
        asked = request("Go", {"role": "assistant", "content": [use, use | {"id": "t2"}]})
        body = anthropic().build_body(asked)
        assert body["tools"] == [{"name": "add", "input_schema": {"type": "object"}}]
        assert body["tool_choice"] == {"type": "none"}
        offered = request("Go", {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]})
        offered.tools = [TOOL]
        assert "tool_choice" not in anthropic().build_body(offered)

    def test_ids_of_other_providers_are_made_such_as_it_takes(self) -> None:
        calls = [{"id": "functions.add:0", "type": "function", "function": {"name": "add", "arguments": "{}"}}]
        asked = request(
            "Go",
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "functions.add:0", "content": "3"},
            tools=[TOOL],
        )
        [_, used, result] = anthropic().build_body(asked)["messages"]
        assert used["content"][0]["id"] == result["content"][0]["tool_use_id"] == "functions_add_0"

    def test_a_conversation_that_begins_with_the_assistant_gets_a_beginning(self) -> None:
        body = anthropic().build_body(request({"role": "assistant", "content": "As I said."}, "Go on"))
        assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]

    def test_a_schema_that_cannot_be_enforced_is_asked_for_in_words(self) -> None:
        schema = {"type": "object", "additionalProperties": {"type": "integer"}}
        body = anthropic().build_body(request(output_schema=schema, instructions="Be brief."))
        assert "output_config" not in body
        first, _, words = body["system"].partition("\n\n")
        assert first == "Be brief."
        assert "JSON" in words

    def test_the_users_fields_are_put_together_with_ours(self) -> None:
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
        body = anthropic(body={"output_config": {"effort": "low"}}).build_body(request(output_schema=schema))
        assert set(body["output_config"]) == {"effort", "format"}

    def test_signed_reasoning_goes_back_where_it_came_from(self) -> None:
        thought = {"type": "thinking", "thinking": "hm", "signature": "abc"}
        said = {"role": "assistant", "content": [thought, {"type": "text", "text": "So"}]}
        asked = request("Go", said, "And?")
        assert anthropic().build_body(asked)["messages"][1]["content"][0] == thought
        assert "thinking" not in str(openai().build_body(asked))


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"body": {"stream": True}}, "stream="),
            ({"body": {"max_tokens": 9}}, "max_output_tokens="),
            ({"body": {"n": 2}}, "body must not contain 'n'"),
            ({"body": {"messages": []}}, "body must not contain 'messages'"),
            ({"body": {"a": {1, 2}}}, "JSON"),
            ({"body": []}, "body"),
            ({"headers": {"a": "b\r\nc: d"}}, "ASCII"),
            ({"headers": {"a": 7}}, "ASCII"),
            ({"headers": ["a"]}, "headers"),
            ({"url": "localhost:8080/v1"}, "http://"),
            ({"url": "https://me:pass@host/v1"}, "key="),
            ({"url": "https://host/v1?x=1"}, r"\? and #"),
            ({"max_output_tokens": 0}, "max_output_tokens"),
            ({"context_tokens": -1}, "context_tokens"),
            ({"stream": "yes"}, "stream"),
            ({"tool_choice": ""}, "tool_choice"),
            ({"temprature": 1}, "temprature"),
            ({"key": ""}, "key"),
        ],
    )
    def test_an_option_that_cannot_be_is_refused_and_says_which(self, options: dict[str, Any], words: str) -> None:
        for kind in (OpenAIModel, AnthropicModel, ResponsesModel, GeminiModel):
            with pytest.raises(ConfigError, match=words) as caught:
                kind("m", **options)
            assert "pass" not in str(caught.value).replace("password", "")
            [name] = options
            assert name.removesuffix("s") in str(caught.value)

    def test_texts_of_refused_options_are_as_stored(self, snapshot: Callable[..., None]) -> None:
        wrong: list[dict[str, Any]] = [
            {"body": {"stream": True}},
            {"body": {"n": 2}},
            {"body": {"messages": []}},
            {"headers": {"a": 7}},
            {"url": "https://me:pass@host/v1"},
            {"temprature": 1},
        ]
        for n, options in enumerate(wrong):
            with pytest.raises(ConfigError) as caught:
                OpenAIModel("m", **options)
            snapshot(caught.value, str(n))

    @pytest.mark.parametrize("name", ["", None, 7])
    def test_a_model_has_a_name(self, name: Any) -> None:
        with pytest.raises(ConfigError) as caught:
            OpenAIModel(name)
        assert (caught.value.where, caught.value.found) == ("model, name", name)

    def test_a_key_is_needed_at_home_only(self, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
        assert "OPENAI_API_KEY" in str(openai().ready())
        assert "ANTHROPIC_API_KEY" in str(anthropic().ready())
        assert openai(url="http://127.0.0.1:8080/v1").ready() is None
        assert openai(headers={"Authorization": "Bearer token"}).ready() is None
        monkeypatch.setenv("OPENAI_API_KEY", key)
        assert openai().ready() is None

    def test_a_key_that_cannot_be_sent_is_told_before_anything_is(self) -> None:
        assert "ASCII" in str(openai(key="two words").ready())

    def test_the_key_of_a_provider_goes_to_no_other(self, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", key)
        assert openai(url="http://127.0.0.1:8080/v1").secrets() == ()
        monkeypatch.setenv("FLYBALL_API_KEY", "another-key")
        assert openai(url="http://127.0.0.1:8080/v1").secrets() == ("another-key",)

    def test_the_environment_may_say_where_a_provider_is(self, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1/")
        monkeypatch.setenv("OPENAI_API_KEY", key)
        assert (openai().provider, openai().secrets()) == ("127.0.0.1:8080", (key,))

    def test_a_provider_is_known_by_its_url_or_by_what_is_said(self) -> None:
        assert openai().provider == "openai"
        assert openai(url="https://some.example/v1").provider == "some.example"
        assert openai(url="https://some.example/v1", provider="some").provider == "some"

    def test_messages_are_not_changed_by_being_sent(self) -> None:
        asked = request("Go", {"role": "assistant", "content": [{"type": "text", "text": "So"}]}, notices=("n",))
        before = [Message.to_dict(message) for message in asked.messages]
        anthropic().build_body(asked)
        openai().build_body(asked)
        assert [Message.to_dict(message) for message in asked.messages] == before
