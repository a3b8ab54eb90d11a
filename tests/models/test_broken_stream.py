"""Streams that are cut, reset, halved or stopped anywhere: the reply is whole, or there is an error that says so."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import given, settings
from hypothesis import strategies as st

from flyball.errors import ModelError, Retryable
from flyball.models import AnthropicModel, GeminiModel, OpenAIModel, ResponsesModel, Timeouts
from flyball.models.http import HttpModel
from flyball.request import Finish, Request, Usage
from flyball.testing import ModelServer, call, say, sent, status
from flyball.wire import normalize

HELLO = Request(normalize("Hello", run="r"))
USED = Usage(input=70, output=30)
WHOLE = say("", call("add", a=1, b=2), call("look", at="✓")).streaming("It ", "is ", "lông").using(USED)
WIRES: dict[str, type[HttpModel]] = {
    "openai": OpenAIModel,
    "anthropic": AnthropicModel,
    "openai-responses": ResponsesModel,
    "google": GeminiModel,
}
PATIENCE = Timeouts(connect=60, first=60, between=60)


@pytest.fixture(scope="module")
def portal() -> Iterator[BlockingPortal]:
    """One event loop for all examples."""
    with start_blocking_portal() as portal:
        yield portal


def model_of(wire: str, server: ModelServer, patience: Timeouts = PATIENCE) -> HttpModel:
    base = f"{server.url}/v1" if wire.startswith("openai") else server.url
    return WIRES[wire]("m", url=base, patience=patience)


async def asked(model: HttpModel, told: Callable[[str], None] | None = None) -> Any:
    try:
        with anyio.fail_after(60):
            return await model.ask(HELLO, told)
    except ModelError as error:
        return error


@pytest.mark.parametrize("wire", WIRES)
@settings(max_examples=60)
@given(
    fault=st.sampled_from(["cut", "reset"]),
    at=st.integers(0, 2_600),
    split=st.lists(st.integers(1, 200), min_size=1, max_size=4),
    crlf=st.booleans(),
    gzip=st.booleans(),
)
def test_wherever_it_breaks_the_reply_is_whole_or_an_error_says_so(
    portal: BlockingPortal, wire: str, fault: Any, at: int, split: list[int], crlf: bool, gzip: bool
) -> None:
    told: list[str] = []
    line = sent(WHOLE, fault, bytes=at, split=split, crlf=crlf, gzip=gzip)
    with ModelServer(line) as server:
        found = portal.call(asked, model_of(wire, server), told.append)
    assert "It is lông".startswith("".join(told))
    if isinstance(found, ModelError):
        assert isinstance(found, Retryable)
        assert found.began or not told
        return
    assert (found.text, found.finish, len(found.calls)) == ("It is lông", Finish.CALLS, 2)
    assert found.calls[0].arguments.replace(" ", "") == '{"a":1,"b":2}'
    assert found.usage in (None, USED)


@pytest.mark.parametrize("wire", WIRES)
@settings(max_examples=15)
@given(events=st.integers(0, 20), fault=st.sampled_from(["error", "half"]))
def test_an_error_or_half_an_event_in_the_middle_is_no_reply(
    portal: BlockingPortal, wire: str, events: int, fault: Any
) -> None:
    with ModelServer(sent(WHOLE, fault, events=events)) as server:
        found = portal.call(asked, model_of(wire, server))
    assert isinstance(found, ModelError) or (found.text, len(found.calls)) == ("It is lông", 2)


JUNK: list[Any] = [
    {"choices": "none"},
    {"choices": [7]},
    {"choices": [{"delta": "text"}]},
    {"choices": [{"delta": {"content": 7}}]},
    {"choices": [{"delta": {"tool_calls": {}}}]},
    {"choices": [{"delta": {"tool_calls": ["x"]}}]},
    {"choices": [{"delta": {"tool_calls": [{"function": []}]}}]},
    {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": 7}]}}]},
    {"type": "message_start", "message": "x"},
    {"type": "message_start", "message": {"usage": 3}},
    {"type": "content_block_start", "index": 0, "content_block": 7},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": 3}},
    {"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta", "text": 5}},
    {"type": "content_block_delta", "index": [], "delta": {"type": "text_delta", "text": "a"}},
    {"type": "message_delta", "delta": []},
    {"type": "response.output_item.added", "output_index": "x", "item": {"type": "function_call", "call_id": "c"}},
    {"type": "response.output_item.done", "output_index": 0, "item": 7},
    {"type": "response.output_text.delta", "output_index": 0, "delta": 7},
    {"type": "response.function_call_arguments.delta", "output_index": -1, "delta": "x"},
    {"type": "response.completed", "response": []},
    {"type": "response.completed", "response": {"status": "failed"}},
    {"candidates": {}},
    {"candidates": [7]},
    {"candidates": [{"content": []}]},
    {"candidates": [{"content": {"parts": [7]}}]},
    {"candidates": [{"content": {"parts": [{"text": 7}]}}]},
    {"candidates": [{"content": {"parts": [{"functionCall": "x"}]}}]},
    {"candidates": [{"content": {"parts": [{"functionCall": {"name": 7}}]}}]},
    {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]},
    {"promptFeedback": 7},
    {"type": "from_the_future"},
    {},
    [],
    "text",
    None,
    {"usage": {"prompt_tokens": -3}},
    {"error": {"message": "no"}},
    {"error": "no"},
]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("wire", WIRES)
def test_what_breaks_the_rules_of_the_wire_is_an_error_that_may_pass(
    portal: BlockingPortal, wire: str, stream: bool
) -> None:
    def answer(junk: Any) -> Any:
        said = json.dumps(junk)
        body = f"data: {said}\n\ndata: [DONE]\n\n" if stream else said
        return status(200, body=body, headers={"content-type": "text/event-stream" if stream else "application/json"})

    with ModelServer(*map(answer, JUNK)) as server:
        model = model_of(wire, server)
        found = [portal.call(asked, model) for _ in JUNK]
    wrong = [(junk, error) for junk, error in zip(JUNK, found, strict=True) if not isinstance(error, ModelError)]
    assert wrong == []
    final = [junk for junk, error in zip(JUNK, found, strict=True) if not isinstance(error, Retryable)]
    assert final == [{"error": {"message": "no"}}, {"error": "no"}]


def test_what_was_used_is_not_told_before_the_end() -> None:
    used = {"input_tokens": 10, "output_tokens": 1}
    end: dict[str, Any] = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    for last, usage in ((end, None), (end | {"usage": {"output_tokens": 900}}, Usage(input=10, output=900))):
        ear = AnthropicModel("m").create_parser()
        ear.parse_event({"type": "message_start", "message": {"usage": used}})
        ear.parse_event(last)
        assert ear.build_reply().usage == usage


SPOKEN = st.sampled_from(
    re.findall(
        r"[\w.]+",
        """choices delta message content tool_calls index id function name arguments finish_reason usage prompt_tokens
        completion_tokens type message_start content_block_start content_block content_block_delta text_delta text
        tool_use input input_json_delta partial_json thinking thinking_delta content_block_stop message_delta
        stop_reason input_tokens output_tokens message_stop stop candidates parts functionCall args finishReason
        usageMetadata promptTokenCount thought thoughtSignature promptFeedback blockReason item output_index response
        output status call_id function_call response.completed response.output_item.done
        response.output_text.delta response.output_item.added reasoning summary delta""",
    )
)
PLAIN = SPOKEN | st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False)
EVENTS = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SPOKEN, inner, max_size=5), max_leaves=12
)


@pytest.mark.parametrize("kind", WIRES.values())
@given(events=st.lists(st.dictionaries(SPOKEN, EVENTS, max_size=4), max_size=4), whole=st.booleans())
def test_whatever_is_heard_makes_a_reply_or_an_error_of_a_model(
    kind: type[HttpModel], events: list[dict[str, Any]], whole: bool
) -> None:
    ear = kind("m", url="http://127.0.0.1:9/v1").create_parser()
    with suppress(Retryable):
        for event in events:
            (ear.parse_reply if whole else ear.parse_event)(event)
    reply = ear.build_reply()
    assert isinstance(reply.text, str)
    assert all(isinstance(one.arguments, str) and isinstance(one.name, str) for one in reply.calls)
