"""The recorded shapes are what the official SDKs send: each conversation of the conftest, as their users write it.

`make shapes` writes the files anew.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from anthropic.types import MessageParam, ToolParam
from anthropic.types.message_create_params import MessageCreateParamsBase
from google import genai
from google.genai import types
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from openai.types.chat.completion_create_params import CompletionCreateParamsBase

from flyball.testing import ModelServer, say

from .sdk_calls import google_calls, responses_calls

SHAPES = Path(__file__).parent / "shapes"
KEY = "sk-shapes-0123456789"
KEPT = {"accept", "anthropic-version", "authorization", "content-type", "x-api-key", "x-goog-api-key", "x-team"}
"""The headers that say something about the request; the rest is about the SDK, the machine and the connection."""

QUESTION = "How warm is it in Köln?"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CITY: dict[str, object] = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Its name."}},
    "required": ["city"],
    "additionalProperties": False,
}
NOTHING: dict[str, object] = {"type": "object", "properties": {}}
ANSWER: dict[str, object] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "number"}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}


def openai_calls() -> dict[str, CompletionCreateParamsBase]:
    model, asked = "gpt-5.5", list[ChatCompletionMessageParam]([{"role": "user", "content": QUESTION}])
    weather: ChatCompletionToolParam = {
        "type": "function",
        "function": {"name": "weather", "description": "The weather of a city.", "parameters": CITY},
    }
    now: ChatCompletionToolParam = {
        "type": "function",
        "function": {"name": "now", "description": "The time.", "parameters": NOTHING},
    }
    offered: CompletionCreateParamsBase = {"model": model, "messages": asked, "tools": [weather, now]}
    dialogue: list[ChatCompletionMessageParam] = [
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "How are you?"},
    ]
    return {
        "text": {"model": model, "messages": dialogue},
        "system": {"model": model, "messages": [{"role": "system", "content": "Be brief."}, *asked]},
        "tools": offered,
        "call_and_result": {"model": model, "messages": [*asked, *openai_call_and_result()], "tools": [weather]},
        "parallel_calls": {"model": model, "messages": openai_parallel_calls(), "tools": [weather, now]},
        "image_inline": {"model": model, "messages": [openai_image(f"data:image/png;base64,{PIXEL}")]},
        "image_linked": {"model": model, "messages": [openai_image("https://example.com/cat.png")]},
        "choice_auto": {**offered, "tool_choice": "auto"},
        "choice_required": {**offered, "tool_choice": "required"},
        "choice_none": {**offered, "tool_choice": "none"},
        "choice_one": {**offered, "tool_choice": {"type": "function", "function": {"name": "weather"}}},
        "one_call_at_a_time": {**offered, "parallel_tool_calls": False},
        "output_schema": {
            "model": model,
            "messages": asked,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": ANSWER, "strict": True},
            },
        },
        "max_tokens": {"model": model, "messages": asked, "max_completion_tokens": 300},
        "streaming": {"model": model, "messages": asked, "stream_options": {"include_usage": True}},
        "extra": {"model": model, "messages": asked, "service_tier": "auto"},
    }


def openai_call_and_result() -> list[ChatCompletionMessageParam]:
    function: Any = {"name": "weather", "arguments": '{"city": "Köln"}'}
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "17 °C"},
    ]


def openai_parallel_calls() -> list[ChatCompletionMessageParam]:
    return [
        {"role": "user", "content": "How warm is it in Köln, and how late?"},
        {
            "role": "assistant",
            "content": "I will look.",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Köln"}'}},
                {"id": "call_2", "type": "function", "function": {"name": "now", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "17 °C"},
        {"role": "tool", "tool_call_id": "call_2", "content": "the clock has stopped"},
    ]


def openai_image(url: str) -> ChatCompletionMessageParam:
    return {
        "role": "user",
        "content": [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": url}}],
    }


def anthropic_calls() -> dict[str, MessageCreateParamsBase]:
    weather: ToolParam = {"name": "weather", "description": "The weather of a city.", "input_schema": {**CITY}}
    now: ToolParam = {"name": "now", "description": "The time.", "input_schema": {**NOTHING}}
    question: MessageParam = {"role": "user", "content": QUESTION}
    plain: MessageCreateParamsBase = {"model": "claude-opus-5", "max_tokens": 8192, "messages": [question]}
    offered: MessageCreateParamsBase = {**plain, "tools": [weather, now]}
    dialogue: list[MessageParam] = [
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "How are you?"},
    ]
    inline, linked = anthropic_images()
    return {
        "text": {**plain, "messages": dialogue},
        "system": {**plain, "system": "Be brief."},
        "tools": offered,
        "call_and_result": {**plain, "messages": [question, *anthropic_call_and_result()], "tools": [weather]},
        "parallel_calls": {**offered, "messages": anthropic_parallel_calls()},
        "image_inline": {**plain, "messages": [inline]},
        "image_linked": {**plain, "messages": [linked]},
        "choice_auto": {**offered, "tool_choice": {"type": "auto"}},
        "choice_required": {**offered, "tool_choice": {"type": "any"}},
        "choice_none": {**offered, "tool_choice": {"type": "none"}},
        "choice_one": {**offered, "tool_choice": {"type": "tool", "name": "weather"}},
        "one_call_at_a_time": {**offered, "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        "output_schema": {**plain, "output_config": {"format": {"type": "json_schema", "schema": ANSWER}}},
        "max_tokens": {**plain, "max_tokens": 300},
        "streaming": plain,
        "extra": {**plain, "service_tier": "auto"},
    }


def anthropic_call_and_result() -> list[MessageParam]:
    return [
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Köln"}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "17 °C"}]},
    ]


def anthropic_parallel_calls() -> list[MessageParam]:
    stopped = "the clock has stopped"
    return [
        {"role": "user", "content": "How warm is it in Köln, and how late?"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I will look."},
                {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Köln"}},
                {"type": "tool_use", "id": "call_2", "name": "now", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_1", "content": "17 °C"},
                {"type": "tool_result", "tool_use_id": "call_2", "content": stopped, "is_error": True},
            ],
        },
    ]


def anthropic_images() -> tuple[MessageParam, MessageParam]:
    inline: Any = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    linked: Any = {"type": "url", "url": "https://example.com/cat.png"}

    def shown(source: Any) -> MessageParam:
        parts: Any = [{"type": "text", "text": "What is this?"}, {"type": "image", "source": source}]
        return {"role": "user", "content": parts}

    return shown(inline), shown(linked)


def send(name: str, create: Callable[..., Any], call: Any) -> None:
    extra: Any = {"extra_headers": {"x-team": "blue"}, "extra_body": {"odd": [3]}}
    answer = create(**call, **(extra if name == "extra" else {}), **({"stream": True} if name == "streaming" else {}))
    if name == "streaming":
        with answer as chunks:
            list(chunks)


def sent_by_openai() -> dict[str, Any]:
    server = ModelServer.looping(say("Warm."))
    with server, openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        for name, call in openai_calls().items():
            send(name, client.chat.completions.create, call)
    return told(f"openai {openai.__version__}", list(openai_calls()), server)


def sent_by_anthropic() -> dict[str, Any]:
    server = ModelServer.looping(say("Warm."))
    with server, anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0) as client:
        for name, call in anthropic_calls().items():
            send(name, client.messages.create, call)
    return told(f"anthropic {anthropic.__version__}", list(anthropic_calls()), server)


def sent_over_responses() -> dict[str, Any]:
    server = ModelServer.looping(say("Warm."))
    with server, openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        for name, call in responses_calls().items():
            send(name, client.responses.create, call)
    return told(f"openai {openai.__version__}", list(responses_calls()), server)


def sent_by_google() -> dict[str, Any]:
    server, calls = ModelServer.looping(say("Warm.")), google_calls()
    with server:
        client: Any = genai.Client(
            api_key=KEY, http_options=types.HttpOptions(base_url=server.url, api_version="v1beta")
        )
        for name, call in calls.items():
            if name == "streaming":
                list(client.models.generate_content_stream(**call))
            else:
                client.models.generate_content(**call)
        client.close()
    return told(f"google-genai {genai.__version__}", list(calls), server)


def told(sdk: str, names: list[str], server: ModelServer) -> dict[str, Any]:
    """What was sent, without what is of this machine and this SDK only."""
    shapes: dict[str, Any] = {}
    for name, heard in zip(names, server.requests, strict=True):
        headers = {
            key: value.replace(KEY, "***")
            for key, value in sorted(heard.headers.items())
            if key in KEPT and value != "*/*"
        }
        shapes[name] = {"path": heard.path, "headers": headers, "body": heard.body}
    return {"sdk": sdk, "conversations": shapes}


SENDERS = [
    ("openai", sent_by_openai),
    ("anthropic", sent_by_anthropic),
    ("openai-responses", sent_over_responses),
    ("google", sent_by_google),
]


@pytest.mark.parametrize(("provider", "sends"), SENDERS)
def test_the_recorded_shapes_are_what_the_sdk_sends(provider: str, sends: Callable[[], dict[str, Any]]) -> None:
    sent, file = sends(), SHAPES / f"{provider}.json"
    if os.environ.get("SHAPES") == "write":
        file.write_text(json.dumps(sent, indent=2, ensure_ascii=False) + "\n")
    assert json.loads(file.read_text()) == sent, f"the SDK sends other requests than {file.name} has: `make shapes`"


@pytest.mark.parametrize("provider", [provider for provider, _ in SENDERS])
def test_every_conversation_has_its_shape(provider: str, shape: Any, conversation: Any) -> None:
    recorded = shape(provider, conversation)
    assert KEY not in json.dumps(recorded)
    assert recorded["headers"]["content-type"] == "application/json"
