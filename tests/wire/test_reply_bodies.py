"""Replies and streams of each wire: read whole, cut at every byte, written and read back."""

import json
import re
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.budget.usage import Usage
from flyball.request import Call, Finish, Reply
from flyball.wire import WIRES, ErrorReply, ReplyDraft, StreamReader
from flyball.wire.stream import ArrayReader

Case = tuple[str, int]


def check(reply: Reply, expected: Any) -> None:
    assert reply.text == expected["text"]
    assert [[call.id, call.name, call.arguments] for call in reply.calls] == expected["calls"]
    assert reply.finish == expected["finish"]
    assert reply.usage == (None if expected["usage"] is None else Usage(*expected["usage"]))


def test_a_whole_reply_is_read(bodies: Any, reply_case: Case) -> None:
    name, place = reply_case
    expected = bodies[name]["replies"][place]
    check(WIRES[name].parse_reply(expected["body"]), expected)
    assert WIRES[name].read_usage(expected["body"]) == (expected["usage"] and Usage(*expected["usage"]))


def stream_of(bodies: Any, case: Case, end: str = "\n") -> bytes:
    return (end.join(bodies[case[0]]["streams"][case[1]]["lines"]) + end).encode()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_stream_is_read_however_it_is_cut(bodies: Any, stream_case: Case, end: str) -> None:
    data, expected = stream_of(bodies, stream_case, end), bodies[stream_case[0]]["streams"][stream_case[1]]
    for cut in range(len(data) + 1):
        reader = StreamReader(WIRES[stream_case[0]].create_parser())
        events = [*reader.feed(data[:cut]), *reader.feed(data[cut:]), *reader.close()]
        assert b"".join(event.raw for event in events) == data
        check(reader.parser.build_reply(), expected)
        assert (reader.flaw, reader.error) == (None, None)


def test_a_stream_may_come_byte_by_byte(bodies: Any, stream_case: Case) -> None:
    data, expected = stream_of(bodies, stream_case), bodies[stream_case[0]]["streams"][stream_case[1]]
    reader = StreamReader(WIRES[stream_case[0]].create_parser())
    events = [event for place in range(len(data)) for event in reader.feed(data[place : place + 1])]
    assert b"".join(event.raw for event in events) == data
    assert reader.close() == []
    check(reader.parser.build_reply(), expected)


def test_gemini_may_stream_one_array(bodies: Any) -> None:
    expected = bodies["gemini"]["streams"][0]
    items = [line[6:] for line in expected["lines"] if line]
    data = ("[" + ",\r\n".join(items) + "\n]").encode()
    for size in (1, 5, len(data)):
        reader = StreamReader(WIRES["gemini"].create_parser(), is_array=True)
        events = [event for place in range(0, len(data), size) for event in reader.feed(data[place : place + size])]
        assert b"".join(event.raw for event in [*events, *reader.close()]) == data
        assert sum(event.json is not None for event in events) == len(items)
        check(reader.parser.build_reply(), expected)


@given(
    items=st.lists(
        st.recursive(st.text('"\\\\{}[], \nü'), lambda inner: st.lists(inner) | st.dictionaries(st.text("{["), inner))
    ),
    sizes=st.lists(st.integers(1, 20), min_size=1),
)
def test_an_array_is_split_into_its_items(items: list[Any], sizes: list[int]) -> None:
    items = [{"item": item} for item in items]
    data = json.dumps(items, ensure_ascii=False, indent=1).encode()
    reader, events, start = ArrayReader(), list[Any](), 0
    for size in cycle(sizes):
        events += reader.feed(data[start : start + size])
        start += size
        if start >= len(data):
            break
    events += reader.close()
    assert b"".join(event.raw for event in events) == data
    assert [json.loads(event.data) for event in events if event.data] == items


REPLIES = [
    Reply("Grüß dich.", usage=Usage(9, 8, 4, 2, 0)),
    Reply("", (Call("c1", "weather", '{"city": "Köln"}'), Call("c2", "now", "{}")), Usage(5, 6), Finish.CALLS),
    Reply("I look.", (Call("c1", "weather", '{"city": "Köln"}'),), Usage(5, 6), Finish.CALLS),
    Reply("Once upon", usage=Usage(1, 2), finish=Finish.LENGTH),
    Reply("x", finish=Finish.STOP),
]


@pytest.mark.parametrize("reply", REPLIES, ids=range(len(REPLIES)))
@pytest.mark.parametrize("thinking", ["", "Hm. Let me think."])
def test_a_reply_that_is_written_is_read_back(wire_name: str, reply: Reply, thinking: str) -> None:
    wire = WIRES[wire_name]
    draft = ReplyDraft(reply, model="m", thinking=thinking)
    whole = wire.parse_reply(json.loads(json.dumps(wire.write_reply(draft))))
    reader = StreamReader(wire.create_parser())
    for event in wire.iter_events(draft):
        reader.feed(event.encode())
    assert (reader.close(), reader.flaw, reader.error) == ([], None, None)
    for read in (whole, reader.parser.build_reply()):
        assert (read.text, read.calls, read.usage, read.finish) == (
            reply.text, reply.calls, reply.usage, reply.finish
        )  # fmt: skip
        assert read.model == "m"


def test_a_refusal_and_a_filter_are_told_apart(wire_name: str) -> None:
    wire = WIRES[wire_name]
    for finish in (Finish.REFUSAL, Finish.CONTENT_FILTER):
        draft = ReplyDraft(Reply("No.", finish=finish))
        reader = StreamReader(wire.create_parser())
        for event in wire.iter_events(draft):
            reader.feed(event.encode())
        found = {wire.parse_reply(wire.write_reply(draft)).finish, reader.parser.build_reply().finish}
        told_apart = (
            {finish} if wire_name in ("openai", "responses") else {Finish.CONTENT_FILTER, Finish.REFUSAL} & found
        )
        assert found == told_apart


def test_an_error_in_a_stream_is_found_and_not_read_as_a_reply(wire_name: str) -> None:
    wire = WIRES[wire_name]
    event = wire.build_error_event(ErrorReply(529, "Overloaded"))
    reader = StreamReader(wire.create_parser())
    events = reader.feed(event.encode())
    assert "Overloaded" in json.dumps(reader.error)
    assert events[0].json is not None
    assert reader.parser.finish is None
    assert wire.create_parser().find_error(wire.build_error(ErrorReply(400, "Bad"))) is not None


@pytest.mark.parametrize("is_array", [False, True], ids=["events", "array"])
@pytest.mark.parametrize("endless", [b"x", b"data: {}\n", b"data: [", b'{"a": [', b'["'])
def test_an_event_without_end_is_passed_on_and_not_kept(wire_name: str, is_array: bool, endless: bytes) -> None:
    reader = StreamReader(WIRES[wire_name].create_parser(), is_array=is_array, max_event_bytes=1_000)
    passed = 0
    for fed in range(1, 1_200):
        passed += sum(len(event.raw) for event in reader.feed(endless))
        assert fed * len(endless) - passed <= 1_000
    assert passed + sum(len(event.raw) for event in reader.close()) == 1_199 * len(endless)
    assert reader.flaw is not None


def test_events_that_are_not_understood_are_passed_on_and_noted(wire_name: str) -> None:
    reader = StreamReader(WIRES[wire_name].create_parser())
    data = b"data: {broken\n\ndata: 7\n\n: comment\n\nid: 3\n\ndata: [DONE]\n\n"
    assert b"".join(event.raw for event in reader.feed(data)) == data
    assert reader.flaw == "an event is not complete JSON"


KEYS = st.sampled_from(
    re.split(
        r"\s+",
        """type index output_index item delta id name call_id arguments content parts text choices message usage
        candidates functionCall args response output finish_reason finishReason usageMetadata content_block tool_calls
        function input_tokens promptTokenCount status summary thought thoughtSignature promptFeedback blockReason""",
    )
)
KINDS = st.sampled_from(
    re.split(
        r"\s+",
        """response.created response.output_item.added response.output_item.done response.output_text.delta message
        response.function_call_arguments.delta response.completed message_start content_block_start function_call error
        content_block_delta content_block_stop message_delta message_stop tool_use text reasoning""",
    )
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(KEYS, JSON | KINDS, max_size=6), max_size=6), st.sampled_from(sorted(WIRES)))
def test_a_reader_survives_every_event(events: list[dict[str, Any]], name: str) -> None:
    reader = StreamReader(WIRES[name].create_parser())
    data = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    assert b"".join(event.raw for event in reader.feed(data)) == data
    reader.parser.build_reply()
