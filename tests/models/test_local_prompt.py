"""What a local model is told, what it may say, and how that is understood."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from flyball import tool
from flyball.models import local_prompt
from flyball.request import Call, Finish, Reply, Request, Usage
from flyball.wire import normalize

CALLED = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
TALK: list[Any] = [
    "What is 1 + 2?",
    {"role": "assistant", "content": None, "tool_calls": [CALLED]},
    {"role": "tool", "tool_call_id": "c1", "content": "3", "name": "add"},
    "Sure?",
]
POINT = {
    "type": "object",
    "properties": {"next": {"$ref": "#/$defs/Point"}, "zip": {"type": "string", "pattern": "^(?=x)y$"}},
    "$defs": {"Point": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Point"}}}},
}


@tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


def asked(*messages: Any, **rest: Any) -> Request:
    return Request(normalize(messages or ["What is 1 + 2?"], run="r"), **rest)


def with_tools(*messages: Any, **rest: Any) -> Request:
    return asked(*messages, tools=[add.definition()], **rest)


def said(text: str, finish: Finish = Finish.STOP) -> Reply:
    return Reply(text, (), Usage(5, 3), finish, "smollm2", "local")


def test_tools_are_told_in_words_behind_the_instructions() -> None:
    system = local_prompt.build_messages(with_tools(instructions="Be brief."))[0]
    assert system["role"] == "system"
    lines = str(system["content"]).splitlines()
    assert lines[0] == "Be brief."
    assert [line.split(" ")[1] for line in lines if line.startswith("- ")] == ["add", "respond"]
    assert "Add two numbers." in system["content"]


def test_without_instructions_and_tools_there_is_no_system_message() -> None:
    assert local_prompt.build_messages(asked()) == [{"role": "user", "content": "What is 1 + 2?"}]


def test_sides_take_turns_and_a_call_looks_as_the_model_writes_it() -> None:
    told = local_prompt.build_messages(with_tools(*TALK, notices=("Two turns are left.",)))[1:]
    assert told[:2] == [
        {"role": "user", "content": "What is 1 + 2?"},
        {"role": "assistant", "content": '{"name": "add", "arguments": {"a": 1}}'},
    ]
    [last] = told[2:]
    assert last["role"] == "user"
    result, *rest = str(last["content"]).splitlines()
    assert "add" in result
    assert "3" in result
    assert rest == ["Sure?", "Two turns are left."]


def test_calls_are_told_in_words_where_no_tool_is_offered(snapshot: Callable[..., None]) -> None:
    told = local_prompt.build_messages(asked(*TALK))
    assert [one["role"] for one in told] == ["user", "assistant", "user"]
    snapshot("\n".join(str(one["content"]) for one in told))


def test_images_are_named_and_left_out() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}
    talk = {"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]}
    question, left_out = str(local_prompt.build_messages(asked(talk))[0]["content"]).splitlines()
    assert question == "What is this?"
    assert "image_url" in left_out
    assert "cat.png" not in left_out


def test_a_request_without_tools_and_schema_leaves_the_reply_free() -> None:
    assert local_prompt.build_schema(asked()) is None


def test_a_request_with_tools_lets_the_model_call_one_or_respond() -> None:
    schema = local_prompt.build_schema(with_tools())
    assert schema is not None
    names = [one["properties"]["name"]["const"] for one in schema["anyOf"]]
    references = [one["properties"]["arguments"]["$ref"] for one in schema["anyOf"]]
    assert (names, references) == (["add", "respond"], ["#/$defs/0", "#/$defs/1"])
    assert schema["$defs"]["0"]["required"] == ["a"]
    assert schema["$defs"]["1"]["required"] == ["text"]


def test_a_tool_may_be_called_respond_too() -> None:
    definition = {**add.definition(), "name": "respond"}
    request = asked(tools=[definition])
    assert "- respond_ " in local_prompt.build_messages(request)[0]["content"]
    reply = local_prompt.parse_reply(request, said('{"name": "respond", "arguments": {"a": 1}}'))
    assert [call.name for call in reply.calls] == ["respond"]


def test_references_point_to_where_the_schema_is_now() -> None:
    schema = local_prompt.build_schema(asked(tools=[{"name": "walk", "description": "Walk.", "parameters": POINT}]))
    assert schema is not None
    moved = schema["$defs"]["0"]
    assert moved["properties"]["next"] == {"$ref": "#/$defs/0/$defs/Point"}
    assert moved["$defs"]["Point"]["properties"]["next"] == {"$ref": "#/$defs/0/$defs/Point"}


def test_what_would_break_the_whole_schema_is_left_out() -> None:
    schema = local_prompt.build_schema(
        asked(output_schema=POINT | {"$id": "x", "not": {"$ref": "https://example.com/x"}})
    )
    assert schema is not None
    assert schema["properties"]["zip"] == {"type": "string"}
    assert ("$id" in schema, schema["not"]) == (False, {})


def test_a_call_is_understood() -> None:
    reply = local_prompt.parse_reply(with_tools(), said('{"name": "add", "arguments": {"a": 1, "b": {"c": "}"}}}'))
    assert (reply.calls, reply.finish) == ((Call("", "add", '{"a": 1, "b": {"c": "}"}}'),), Finish.CALLS)
    assert (reply.text, reply.usage, reply.model, reply.provider) == ("", Usage(5, 3), "smollm2", "local")


def test_an_answer_is_understood() -> None:
    text = 'He said "3" \\ and\nleft: ü'
    answer = json.dumps({"name": "respond", "arguments": {"text": text}})
    reply = local_prompt.parse_reply(with_tools(), said(answer))
    assert (reply.text, reply.calls, reply.finish) == (text, (), Finish.STOP)


def test_an_answer_of_a_schema_is_its_json() -> None:
    request = with_tools(output_schema={"type": "array", "items": {"type": "integer"}})
    assert local_prompt.parse_reply(request, said('{"name": "respond", "arguments": [1, 2]}')).text == "[1, 2]"


@pytest.mark.parametrize(
    ("text", "calls", "words"),
    [
        ('{"name": "respond", "arguments": {"text": "The sum', (), "The sum"),
        ('{"name": "respond", "arguments": {"text": "The \\u00', (), "The \\u00"),
        ('{"name": "respond", "arg', (Call("", "unfinished", '{"name": "respond", "arg'),), ""),
        ('{"name": "respond", "arguments": {"te', (), ""),
        ('{"name": "add", "arguments": {"a": 1', (Call("", "add", '{"a": 1'),), ""),
        ('{"na', (Call("", "unfinished", '{"na'),), ""),
    ],
)
def test_what_was_cut_off_says_so_and_no_half_of_a_call_is_an_answer(
    text: str, calls: tuple[Call, ...], words: str
) -> None:
    reply = local_prompt.parse_reply(with_tools(), said(text, Finish.LENGTH))
    assert (reply.calls, reply.text, reply.finish) == (calls, words, Finish.LENGTH)


def test_plain_talk_of_a_model_that_could_not_be_held_to_the_schema_is_its_answer() -> None:
    assert local_prompt.parse_reply(with_tools(), said("It is 3.")).text == "It is 3."


def test_a_count_grows_with_what_is_told() -> None:
    requests = (asked(), asked(*TALK), with_tools(*TALK))
    counts = [local_prompt.count_tokens(local_prompt.build_messages(request)) for request in requests]
    assert counts == sorted(set(counts))
