import copy
from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import Any

import pytest

from flyball.errors import ConfigError, MessageError
from flyball.message import Message, MessageType, Role, check_pairs
from flyball.wire import normalize, to_gemini

Row = tuple[str, str, str, dict[str, Any] | None]
Json = dict[str, Any]


def rows(messages: Iterable[Message]) -> list[Row]:
    return [(str(each.type), str(each.role), each.content, each.payload) for each in messages]


def call(call_id: str, arguments: object = "{}", name: str = "f") -> Json:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def use(call_id: str, arguments: Json, name: str = "f") -> Json:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def called(call_id: str, arguments: str | Json) -> Row:
    return "tool_call", "assistant", "", {"call_id": call_id, "name": "f", "arguments": arguments}


def answered(call_id: str, text: str, *, is_error: bool = False, name: str | None = None, **parts: object) -> Row:
    return "tool_result", "tool", text, {"call_id": call_id, "name": name, "is_error": is_error} | parts


TEXT, IMAGE_URL = {"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}
IMAGE = {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}}
DOCUMENT = {"type": "document", "source": {"type": "text", "data": "x"}}

ACCEPTED: list[tuple[str, object, list[Row]]] = [
    ("a text", "hello", [("text", "user", "hello", None)]),
    ("an empty text", "", [("text", "user", "", None)]),
    ("a system text", {"role": "system", "content": "s"}, [("text", "system", "s", None)]),
    ("a developer's text", {"role": "developer", "content": "s"}, [("text", "system", "s", None)]),
    ("a user's text", {"role": "user", "content": "u"}, [("text", "user", "u", None)]),
    ("an assistant's text", {"role": "assistant", "content": "a"}, [("text", "assistant", "a", None)]),
    ("further keys", {"role": "user", "content": "u", "name": "bob"}, [("text", "user", "u", None)]),
    ("any mapping", MappingProxyType({"role": "user", "content": "u"}), [("text", "user", "u", None)]),
    ("an assistant that says nothing", {"role": "assistant", "content": None}, [("text", "assistant", "", None)]),
    ("an assistant with no blocks", {"role": "assistant", "content": []}, [("text", "assistant", "", None)]),
    (
        "an assistant that refuses",
        {"role": "assistant", "content": None, "refusal": "no"},
        [("text", "assistant", "no", None)],
    ),
    (
        "calls alone",
        {"role": "assistant", "content": None, "tool_calls": [call("a", '{"x":  1}'), call("b", "oops")]},
        [called("a", '{"x":  1}'), called("b", "oops")],
    ),
    ("calls without content", {"role": "assistant", "tool_calls": [call("a")]}, [called("a", "{}")]),
    ("a call with a dict", {"role": "assistant", "tool_calls": [call("a", {"x": 1})]}, [called("a", {"x": 1})]),
    (
        "text and a call",
        {"role": "assistant", "content": "so", "tool_calls": [call("a")]},
        [("text", "assistant", "so", None), called("a", "{}")],
    ),
    (
        "parts and a call",
        {"role": "assistant", "content": [TEXT, TEXT], "tool_calls": [call("a")]},
        [("text", "assistant", "look", None), ("text", "assistant", "look", None), called("a", "{}")],
    ),
    ("no calls", {"role": "assistant", "content": "a", "tool_calls": []}, [("text", "assistant", "a", None)]),
    ("a tool's text", {"role": "tool", "tool_call_id": "a", "content": "1"}, [answered("a", "1")]),
    (
        "a named tool's text",
        {"role": "tool", "tool_call_id": "a", "name": "f", "content": ""},
        [answered("a", "", name="f")],
    ),
    (
        "a tool's parts",
        {"role": "tool", "tool_call_id": "a", "content": [TEXT, TEXT]},
        [answered("a", "look\nlook", parts=[TEXT, TEXT], shape="openai")],
    ),
    (
        "an image by URL",
        {"role": "user", "content": [TEXT, IMAGE_URL]},
        [("text", "user", "look", None), ("multimodal_part", "user", "", {"part": IMAGE_URL, "shape": "openai"})],
    ),
    (
        "blocks",
        {"role": "user", "content": [TEXT, IMAGE, DOCUMENT]},
        [
            ("text", "user", "look", None),
            ("multimodal_part", "user", "", {"part": IMAGE, "shape": "anthropic"}),
            ("multimodal_part", "user", "", {"part": DOCUMENT, "shape": "anthropic"}),
        ],
    ),
    (
        "blocks with a use",
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, TEXT, use("a", {"x": [1]})]},
        [
            (
                "multimodal_part",
                "assistant",
                "",
                {"part": {"type": "thinking", "thinking": "hm"}, "shape": "anthropic"},
            ),
            ("text", "assistant", "look", None),
            called("a", {"x": [1]}),
        ],
    ),
    (
        "results and a text",
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                {"type": "tool_result", "tool_use_id": "b", "content": [TEXT, IMAGE], "is_error": True},
                {"type": "tool_result", "tool_use_id": "c"},
                TEXT,
            ],
        },
        [
            answered("a", "1"),
            answered("b", "look", is_error=True, parts=[TEXT, IMAGE], shape="anthropic"),
            answered("c", ""),
            ("text", "user", "look", None),
        ],
    ),
]


@pytest.mark.parametrize(("name", "item", "expected"), ACCEPTED, ids=[row[0] for row in ACCEPTED])
def test_every_known_shape_is_read(name: str, item: Any, expected: list[Row]) -> None:
    made = normalize([item], run="r", start=3, at=1.5)
    assert rows(made) == expected
    assert [message.n for message in made] == list(range(3, 3 + len(expected)))
    assert {(message.run, message.created_at) for message in made} == {("r", 1.5)}
    assert {message.group for message in made} == {3 if len(expected) > 1 else None}
    assert [message.checked() for message in made] == made


def user(content: object) -> Json:
    return {"role": "user", "content": content}


def assistant(content: object, **more: object) -> Json:
    return {"role": "assistant", "content": content, **more}


def tool(content: object, **more: object) -> Json:
    return {"role": "tool", "tool_call_id": "a", "content": content, **more}


def calls(**change: object) -> Json:
    return assistant(None, tool_calls=[call("a") | change])


def function(**change: object) -> Json:
    return calls(function={"name": "f", "arguments": "{}"} | change)


REFUSED: list[tuple[object, str]] = [
    (None, "message"),
    (3, "message"),
    (b"hello", "message"),
    (["hello"], "message"),
    (object(), "message"),
    ({}, "role"),
    ({"content": "x"}, "role"),
    ({"role": "function", "content": "x"}, "role"),
    ({"role": ["user"], "content": "x"}, "role"),
    ({"role": "user"}, "content"),
    ({"role": "assistant"}, "content"),
    ({1: "x", "role": "user", "content": "x"}, "message"),
    (user(None), "content"),
    (user([]), "content"),
    (user({"type": "text", "text": "x"}), "content"),
    (user(3), "content"),
    (user(["x"]), "content[0]"),
    (user([TEXT, {"text": "x"}]), "content[1].type"),
    (user([{"type": 3}]), "content[0].type"),
    (user([{"type": "text"}]), "content[0].text"),
    (user([object()]), "content[0]"),
    (user([{"type": "image", "source": {"data": b"x"}}]), "content[0].source.data"),
    (user([{"type": "image", "size": float("nan")}]), "content[0].size"),
    (user([use("a", {})]), "content[0].type"),
    (user("x") | {"tool_calls": [call("a")]}, "tool_calls"),
    (user("x") | {"tool_call_id": "a"}, "tool_call_id"),
    (assistant([use("", {})]), "content[0].id"),
    (assistant([use("a", {}, name="")]), "content[0].name"),
    (assistant([TEXT, use("a", {}) | {"input": "{}"}]), "content[1].input"),
    (assistant([{"type": "tool_result", "tool_use_id": "a"}]), "content[0].type"),
    (user([{"type": "tool_result"}]), "content[0].tool_use_id"),
    (user([{"type": "tool_result", "tool_use_id": "a", "content": 3}]), "content[0].content"),
    (user([{"type": "tool_result", "tool_use_id": "a", "content": ["x"]}]), "content[0].content[0]"),
    (user([{"type": "tool_result", "tool_use_id": "a", "is_error": 1}]), "content[0].is_error"),
    (assistant(None, tool_calls={"id": "a"}), "tool_calls"),
    (assistant(None, tool_calls=["a"]), "tool_calls[0]"),
    (assistant(None, function_call={"name": "f"}), "function_call"),
    (calls(id=None), "tool_calls[0].id"),
    (calls(type="other"), "tool_calls[0].type"),
    (calls(function="f"), "tool_calls[0].function"),
    (function(name=""), "tool_calls[0].function.name"),
    (function(arguments=None), "tool_calls[0].function.arguments"),
    ({"role": "tool", "content": "x"}, "tool_call_id"),
    (tool(None), "content"),
    (tool([{"type": "text", "text": 3}]), "content[0].text"),
    (tool("x", name=3), "name"),
    ({"schema": "other"}, "schema"),
    (Message("r", 0, 0.0, MessageType.TEXT, Role.USER, "x", {"a": {1}}), "payload.a"),
    (Message("r", 0, 0.0, MessageType.TOOL_CALL, Role.ASSISTANT), "payload.call_id"),
]


@pytest.mark.parametrize(("item", "field"), REFUSED)
def test_a_message_of_another_shape_is_refused_with_its_place(item: Any, field: str) -> None:
    with pytest.raises(MessageError) as caught:
        normalize(["first", "second", item], run="r")
    assert (caught.value.code, caught.value.index, caught.value.field) == ("message_invalid", 2, field)
    assert f"messages[2].{field}" in str(caught.value)


def test_texts_of_refused_messages_are_as_stored(snapshot: Callable[..., None]) -> None:
    wrong: list[Any] = [3, {}, {"role": "user"}, user(["x"]), user([use("a", {})]), calls(id=None), {"schema": "other"}]
    told: list[str] = []
    for item in wrong:
        with pytest.raises(MessageError) as caught:
            normalize([item], run="r")
        told.append(str(caught.value))
    snapshot("\n".join(told))


@pytest.mark.parametrize("messages", [None, 3, b"hello", user("x"), Message("r", 0, 0.0, MessageType.TEXT, Role.USER)])
def test_one_thing_that_is_no_text_is_no_conversation(messages: Any) -> None:
    with pytest.raises(MessageError) as caught:
        normalize(messages, run="r")
    assert (caught.value.index, caught.value.field) == (0, "messages")


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"run": ""}, "run"),
        ({"run": "r", "start": -1}, "start"),
        ({"run": "r", "at": -1.0}, "at"),
        ({"run": "r", "at": float("nan")}, "at"),
    ],
)
def test_ids_and_times_that_cannot_be_are_refused(change: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        normalize("x", **change)
    assert caught.value.where == where


def test_a_single_text_is_a_conversation() -> None:
    assert rows(normalize("hello", run="r")) == [("text", "user", "hello", None)]
    assert normalize([], run="r") == []


def test_any_iterable_is_read_once() -> None:
    assert [message.id for message in normalize((text for text in "ab"), run="r")] == ["r:0", "r:1"]


def test_envelopes_keep_what_they_are_and_only_new_messages_are_numbered() -> None:
    old = Message("before", 7, 2.5, MessageType.FINAL_RESULT, Role.ASSISTANT, "42", {"a": 1}, {"b": 2}, 6)
    made = normalize(["x", old, old.to_dict(), assistant("y", tool_calls=[call("a")]), "z"], run="r", start=5, at=9.0)
    assert [message.id for message in made] == ["r:5", "before:7", "before:7", "r:6", "r:7", "r:8"]
    assert [message.group for message in made] == [None, 6, 6, 6, 6, None]
    assert made[1] == made[2] == old
    assert made[1] is not old


@pytest.mark.parametrize("kind", ["input_required", "approval_required", "final_result", "error", "delta"])
def test_what_only_an_envelope_can_say_is_kept(kind: str) -> None:
    message = Message("r", 0, 0.0, MessageType(kind), Role.ASSISTANT, "?", {"code": "x"})
    assert normalize([message, message.to_dict()], run="s") == [message, message]


def test_nothing_that_was_given_is_changed_or_shared() -> None:
    envelope = Message("r", 0, 0.0, MessageType.ERROR, Role.USER, "", {"deep": [1]}, {"deep": [1]})
    given: list[Any] = [row[1] for row in ACCEPTED if not isinstance(row[1], MappingProxyType)] + [envelope]
    before = copy.deepcopy(given)
    made = normalize(given, run="r")
    assert given == before
    for message in made:
        for part in (message.payload, message.metadata):
            spoil(part)
    assert given == before


def spoil(value: object) -> None:
    """Change everything in a value that can be changed."""
    match value:
        case dict():
            inner: list[Any] = list(value.values())  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
            value.clear()
        case list():
            inner = list(value)  # pyright: ignore[reportUnknownArgumentType]
            value.clear()
        case _:
            return
    for each in inner:
        spoil(each)


def test_new_numbers_start_behind_those_that_the_run_has_here_already() -> None:
    old = normalize(["a", "b"], run="r")
    assert [message.id for message in normalize([*old, "c", old[0].to_dict(), "d"], run="r")] == [
        "r:0",
        "r:1",
        "r:2",
        "r:0",
        "r:3",
    ]
    assert [message.id for message in normalize([*old, "c"], run="s")] == ["r:0", "r:1", "s:0"]


def test_a_result_of_gemini_without_an_id_belongs_to_the_first_open_call_of_its_tool() -> None:
    calls: list[Json] = [{"id": "f1", "name": "add"}, {"name": "add"}, {"id": "f3", "name": "now"}]
    results: list[Json] = [{"name": "now"}, {"name": "add", "id": "f1"}, {"name": "add"}]
    contents: list[Json] = [
        {"role": "model", "parts": [{"functionCall": {**call, "args": {}}} for call in calls]},
        {"role": "user", "parts": [{"functionResponse": {**result, "response": {}}} for result in results]},
    ]
    messages = normalize(contents, run="r")
    assert [(message.payload or {})["call_id"] for message in messages] == [
        "f1",
        "call-0-1",
        "f3",
        "f3",
        "f1",
        "call-0-1",
    ]
    assert check_pairs(messages) == []
    assert to_gemini(messages) == (None, contents)
