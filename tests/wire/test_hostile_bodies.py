"""Recorded bodies with a wrong value in each place: read, or refused in one way; what is read can be written again."""

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.errors import Retryable
from flyball.message import Message, MessageType, Role
from flyball.models import AnthropicModel, GeminiModel, OpenAIModel, ResponsesModel
from flyball.request import Reply, Request
from flyball.wire import WIRES, StreamReader, normalize

from .conftest import BODIES

Json = dict[str, Any]
Place = tuple[str | int, ...]
MISSING: Any = object()
WRONG: list[Any] = [
    None, True, 0, -1, 10**30, 1.5, "", "x", "\ud83d", [], [None], [[]], ["x"], {}, {"type": 7}, {"x": None}, MISSING,
]  # fmt: skip
EACH = 4
"""Wrong values for each place. They take turns, so that all of them stand in places of all kinds."""
KEYS = {"openai": "messages", "anthropic": "messages", "responses": "input", "gemini": "contents"}
MODELS = [
    OpenAIModel("gpt-5.5"),
    AnthropicModel("claude-opus-5"),
    ResponsesModel("gpt-5.5"),
    ResponsesModel("gpt-5.5", keeps_state=True),
    GeminiModel("gemini-3-pro"),
]


def list_places(value: Any, place: Place = ()) -> Iterator[Place]:
    inner: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType, reportUnknownVariableType]
    for key, part in inner:
        yield (*place, key)
        yield from list_places(part, (*place, key))


def put(body: Json, place: Place, value: Any) -> Json:
    body = copy.deepcopy(body)
    holder: Any = body
    for key in place[:-1]:
        holder = holder[key]
    if value is MISSING:
        del holder[place[-1]]
    else:
        holder[place[-1]] = copy.deepcopy(value)
    return body


def spoil(body: Json) -> Iterator[Json]:
    for number, place in enumerate(list_places(body)):
        for turn in range(EACH):
            yield put(body, place, WRONG[(number * EACH + turn) % len(WRONG)])


def list_messages(reply: Reply) -> list[Message]:
    """Return a reply as the messages of a run, with a result for each call."""
    parts = [Message("r", 0, 0.0, MessageType.MULTIMODAL_PART, Role.ASSISTANT, "", dict(part)) for part in reply.parts]
    texts = [Message("r", 0, 0.0, MessageType.TEXT, Role.ASSISTANT, reply.text)] if reply.text else []
    ids = [{"call_id": call.id or f"c{place}", "name": call.name or "x"} for place, call in enumerate(reply.calls)]
    calls = [
        Message("r", 0, 0.0, MessageType.TOOL_CALL, Role.ASSISTANT, "", {**named, "arguments": call.arguments})
        for named, call in zip(ids, reply.calls, strict=True)
    ]
    results = [
        Message("r", 0, 0.0, MessageType.TOOL_RESULT, Role.TOOL, "result", {**named, "is_error": False})
        for named in ids
    ]
    for message in (*parts, *texts, *calls):
        message.group = 1
    return [*normalize("Hello", run="r"), *parts, *texts, *calls, *results]


def check_reply(reply: Reply) -> None:
    """Check that a run can keep a reply, and send it to any model."""
    assert all(isinstance(text, str) for call in reply.calls for text in (call.id, call.name, call.arguments))
    messages = list_messages(reply)
    for message in messages:
        assert Message.from_dict(json.loads(json.dumps(message.to_dict()))) == message
    for model in MODELS:
        json.dumps(model.build_body(Request(messages)))


def test_a_request_with_a_wrong_value_is_read_and_can_be_changed(request_case: tuple[str, int]) -> None:
    name, number = request_case
    wire, key = WIRES[name], KEYS[name]
    for body in spoil(BODIES[name]["requests"][number]):
        before = copy.deepcopy(body)
        request = wire.parse_request(body, BODIES[name]["path"])
        assert wire.write_request(request) is body
        changed = replace(
            request, notices=("Hurry.",), tool_choice="none", max_output_tokens=50, instructions="Hm.", tools=()
        )
        json.dumps(wire.write_request(changed))
        items = list(body[key]) if isinstance(body.get(key), list) else []
        written = wire.write_request(replace(request, notices=("Hurry.",)))[key]
        assert written[: len(items[:-1])] == items[:-1]
        for other in WIRES.values():
            json.dumps(other.write_request(replace(request, source=None)))
        assert body == before


def test_a_reply_with_a_wrong_value_is_read_or_may_be_asked_for_again(reply_case: tuple[str, int]) -> None:
    name, number = reply_case
    wire = WIRES[name]
    for body in spoil(BODIES[name]["replies"][number]["body"]):
        wire.read_usage(body)
        wire.create_parser().find_error(body)
        try:
            reply = wire.parse_reply(body)
        except Retryable:
            continue
        check_reply(reply)


def test_a_stream_with_a_wrong_value_keeps_its_bytes(stream_case: tuple[str, int]) -> None:
    name, number = stream_case
    events = [json.loads(line[6:]) for line in BODIES[name]["streams"][number]["lines"] if line.startswith("data: {")]
    for place, event in enumerate(events):
        for wrong in spoil(event):
            reader = StreamReader(WIRES[name].create_parser())
            data = b"".join(encode(one) for one in (*events[:place], wrong, *events[place + 1 :]))
            assert b"".join(read.raw for read in (*reader.feed(data), *reader.close())) == data
            if reader.flaw is None and reader.error is None:
                check_reply(reader.parser.build_reply())


def encode(event: Json) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


@pytest.mark.parametrize("is_array", [False, True], ids=["events", "array"])
@given(data=st.data())
def test_a_stream_of_any_bytes_is_passed_on_as_it_came(wire_name: str, is_array: bool, data: st.DataObject) -> None:
    lines: list[str] = BODIES[wire_name]["streams"][0]["lines"]
    stream = bytearray("\n".join(lines).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(stream)))
        stream[start : start + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=12))
    reader = StreamReader(WIRES[wire_name].create_parser(), is_array=is_array)
    size = data.draw(st.integers(1, 300))
    events = [
        event for start in range(0, len(stream), size) for event in reader.feed(bytes(stream[start : start + size]))
    ]
    assert b"".join(event.raw for event in [*events, *reader.close()]) == bytes(stream)
    reader.parser.build_reply()
