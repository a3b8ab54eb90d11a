"""What the tests of the wires share: both wires, both ways of replying, every log line captured; and conversations in
neutral form, with the shapes in which the official SDKs send them.

A test that takes `conversation` runs once for each; `shape("openai", conversation)` is what the SDK of that provider
sends for it: path, headers (the key masked) and body. `make shapes` records them anew.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from flyball.models import AnthropicModel, GeminiModel, OpenAIModel, ResponsesModel
from flyball.models.http import HttpModel
from flyball.models.options import HttpOptions
from flyball.request import Request
from flyball.testing import ModelServer
from flyball.wire import normalize

WIRE_NAMES = ("openai", "anthropic", "openai-responses", "google")
KINDS: dict[str, type[HttpModel]] = {
    "openai": OpenAIModel,
    "anthropic": AnthropicModel,
    "openai-responses": ResponsesModel,
    "google": GeminiModel,
}


def make_model(wire: str, server: ModelServer, **options: Any) -> HttpModel:
    """Return a model of a wire that asks a server."""
    base = f"{server.url}/v1" if wire.startswith("openai") else server.url
    return KINDS[wire](f"{wire}-test", url=base, **options)


SHAPES = Path(__file__).parent / "shapes"

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WEATHER: dict[str, Any] = {
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "Its name."}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
NOW: dict[str, Any] = {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}}
ANSWER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "number"}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Conversation:
    """One request, and what the user of a model wants of it; it is not streamed unless that says so."""

    name: str
    request: Request
    options: HttpOptions = field(default_factory=HttpOptions)


def asked(*messages: Any, **rest: Any) -> Request:
    return Request(normalize(messages or ["How warm is it in Köln?"], run="shapes"), **rest)


def called(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def a_call_and_its_result() -> Request:
    return asked(
        "How warm is it in Köln?",
        {"role": "assistant", "content": None, "tool_calls": [called("call_1", "weather", '{"city": "Köln"}')]},
        {"role": "tool", "tool_call_id": "call_1", "content": "17 °C"},
        tools=[WEATHER],
    )


def parallel_calls_of_which_one_failed() -> Request:
    calls = [called("call_1", "weather", '{"city": "Köln"}'), called("call_2", "now", "{}")]
    results = [
        {"type": "tool_result", "tool_use_id": "call_1", "content": "17 °C"},
        {"type": "tool_result", "tool_use_id": "call_2", "content": "the clock has stopped", "is_error": True},
    ]
    return asked(
        "How warm is it in Köln, and how late?",
        {"role": "assistant", "content": "I will look.", "tool_calls": calls},
        {"role": "user", "content": results},
        tools=[WEATHER, NOW],
    )


def an_image(part: dict[str, Any]) -> Request:
    return asked({"role": "user", "content": [{"type": "text", "text": "What is this?"}, part]})


def conversations() -> list[Conversation]:
    inline = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    linked = {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}
    offered = asked(tools=[WEATHER, NOW])
    return [
        Conversation("text", asked("Hello.", {"role": "assistant", "content": "Hello!"}, "How are you?")),
        Conversation("system", asked(instructions="Be brief.")),
        Conversation("tools", offered),
        Conversation("call_and_result", a_call_and_its_result()),
        Conversation("parallel_calls", parallel_calls_of_which_one_failed()),
        Conversation("image_inline", an_image(inline)),
        Conversation("image_linked", an_image(linked)),
        Conversation("choice_auto", offered, {"tool_choice": "auto"}),
        Conversation("choice_required", offered, {"tool_choice": "required"}),
        Conversation("choice_none", offered, {"tool_choice": "none"}),
        Conversation("choice_one", offered, {"tool_choice": "weather"}),
        Conversation("one_call_at_a_time", offered, {"parallel_calls": False}),
        Conversation("output_schema", asked(output_schema=ANSWER)),
        Conversation("max_tokens", asked(max_output_tokens=300)),
        Conversation("streaming", asked(), {"stream": True}),
        Conversation("extra", asked(), {"headers": {"x-team": "blue"}, "body": {"service_tier": "auto", "odd": [3]}}),
    ]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "conversation" in metafunc.fixturenames:
        metafunc.parametrize("conversation", conversations(), ids=lambda one: one.name)


@pytest.fixture(scope="session")
def shape() -> Callable[[str, Conversation], dict[str, Any]]:
    """What the SDK of a provider sends for a conversation, as it was recorded."""
    recorded = {path.stem: json.loads(path.read_text()) for path in SHAPES.glob("*.json")}
    return lambda provider, conversation: recorded[provider]["conversations"][conversation.name]


@pytest.fixture
def kinds() -> dict[str, type[HttpModel]]:
    """Class of the models of each wire."""
    return KINDS


@pytest.fixture(autouse=True)
def _all_logs(caplog: pytest.LogCaptureFixture) -> None:  # pyright: ignore[reportUnusedFunction]
    caplog.set_level(logging.DEBUG)


@pytest.fixture(params=WIRE_NAMES)
def wire(request: pytest.FixtureRequest) -> str:
    """Each wire."""
    return request.param


@pytest.fixture(params=[True, False], ids=["streamed", "whole"])
def stream(request: pytest.FixtureRequest) -> bool:
    """Each way in which a reply may come."""
    return request.param


@pytest.fixture
def made(wire: str, key: str) -> Callable[..., HttpModel]:
    """Makes the model of a wire that asks a server."""

    def make(server: ModelServer, **options: Any) -> HttpModel:
        options.setdefault("key", key)
        return make_model(wire, server, **options)

    return make
