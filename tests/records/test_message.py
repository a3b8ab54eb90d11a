import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flyball.errors import MessageError
from flyball.message import MAX_DEPTH, Message, MessageType, Role, copy_json

BOUNDED = settings(max_examples=60)
words = st.text(max_size=8)
names = st.text(min_size=1, max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
dicts = st.dictionaries(words, values, max_size=3)
parts = dicts.map(lambda part: part | {"type": "image"})
payloads: dict[MessageType, st.SearchStrategy[dict[str, Any] | None]] = {
    MessageType.TOOL_CALL: st.fixed_dictionaries({"call_id": names, "name": names, "arguments": words | dicts}),
    MessageType.TOOL_RESULT: st.fixed_dictionaries(
        {"call_id": names, "name": st.none() | words, "is_error": st.booleans()}, optional={"parts": st.lists(parts)}
    ),
    MessageType.MULTIMODAL_PART: st.fixed_dictionaries(
        {"part": parts, "shape": st.sampled_from(["openai", "anthropic"])}
    ),
}


@st.composite
def any_message(draw: st.DrawFn) -> Message:
    kind = draw(st.sampled_from(MessageType))
    return Message(
        run=draw(names),
        n=draw(st.integers(0, 10**18 - 1)),
        created_at=draw(st.floats(0, 253_402_300_799)),
        type=kind,
        role=draw(st.sampled_from(Role)),
        content=draw(words),
        payload=draw(payloads.get(kind, st.none() | dicts)),
        metadata=draw(st.none() | dicts),
        group=draw(st.none() | st.integers(0, 99)),
    )


@BOUNDED
@given(any_message())
def test_a_message_survives_json(message: Message) -> None:
    assert Message.from_dict(json.loads(json.dumps(message.to_dict(), allow_nan=False))) == message


@BOUNDED
@given(st.floats(0, 4e9))
def test_every_moment_comes_back_to_the_last_bit_and_others_can_read_it(at: float) -> None:
    written = said("x", at=at).to_dict()["created_at"]
    assert Message.from_dict(said("x", at=at).to_dict()).created_at == at
    assert datetime.fromisoformat(written).timestamp() == pytest.approx(at, abs=2e-6)


@BOUNDED
@given(values)
def test_a_copy_in_json_types_is_equal_and_is_json(value: object) -> None:
    assert copy_json(0, "value", value) == value == json.loads(json.dumps(copy_json(0, "value", value)))


def said(text: str, n: int = 0, *, at: float = 0.0, group: int | None = None, run: str = "r") -> Message:
    return Message(run, n, at, MessageType.TEXT, Role.USER, text, None, None, group)


def call(call_id: str, n: int = 0, *, group: int | None = None, run: str = "r", at: float = 0.0) -> Message:
    payload = {"call_id": call_id, "name": f"tool_{call_id}", "arguments": "{}"}
    return Message(run, n, at, MessageType.TOOL_CALL, Role.ASSISTANT, "", payload, None, group)


def result(call_id: str, n: int = 0, *, group: int | None = None, run: str = "r") -> Message:
    payload = {"call_id": call_id, "name": None, "is_error": False}
    return Message(run, n, 0.0, MessageType.TOOL_RESULT, Role.TOOL, "done", payload, None, group)


def test_the_written_form_has_these_keys_and_values() -> None:
    message = Message("a:b", 7, 1_700_000_000.25, MessageType.ERROR, Role.SYSTEM, "lost", {"code": "e"}, None, 6)
    assert message.to_dict() == {
        "schema": "flyball.message",
        "version": 1,
        "id": "a:b:7",
        "created_at": "2023-11-14T22:13:20.25Z",
        "type": "error",
        "role": "system",
        "content": "lost",
        "payload": {"code": "e"},
        "metadata": None,
        "group": 6,
    }
    assert Message.from_dict(message.to_dict()) == message


def test_the_types_and_roles_are_a_closed_set() -> None:
    kinds = "text tool_call tool_result input_required approval_required final_result error delta multimodal_part"
    assert " ".join(MessageType) == kinds
    assert " ".join(Role) == "system user assistant tool"


def test_keys_that_may_be_missing_are_none() -> None:
    data = {key: value for key, value in GOOD.items() if key not in {"payload", "metadata", "group"}}
    assert Message.from_dict(data) == said("hello")


def test_empty_and_none_are_told_apart() -> None:
    empty = Message("r", 0, 0.0, MessageType.TEXT, Role.USER, "", {}, {})
    assert Message.from_dict(empty.to_dict()) == empty != said("")


def test_nothing_is_shared_with_the_written_form_or_the_checked_copy() -> None:
    message = Message("r", 0, 0.0, MessageType.ERROR, Role.USER, "", {"seen": [1]}, {"tags": ["a"]})
    written, checked = message.to_dict(), message.checked()
    read = Message.from_dict(written)
    for payload in (written["payload"], checked.payload, read.payload):
        assert payload is not None
        payload["seen"].append(2)
    written["metadata"]["tags"].clear()
    assert (message.payload, message.metadata) == ({"seen": [1]}, {"tags": ["a"]})
    assert read.metadata == {"tags": ["a"]}


def test_a_message_carries_no_dict_of_its_own() -> None:
    with pytest.raises(AttributeError):
        said("x").note = "y"  # pyright: ignore[reportAttributeAccessIssue]


GOOD: dict[str, Any] = said("hello").to_dict()
CALL: dict[str, Any] = call("a").to_dict()
RESULT: dict[str, Any] = result("a").to_dict()
PART: dict[str, Any] = GOOD | {"type": "multimodal_part"}
INF = float("inf")


REFUSED: list[tuple[dict[str, Any], str, str]] = [  # data, the field that is wrong, and a fact that is told
    (GOOD | {"schema": "other.message"}, "schema", "'flyball.message'"),
    (GOOD | {"version": 2}, "version", "1"),
    (GOOD | {"version": True}, "version", "1"),
    (GOOD | {"version": "1"}, "version", "1"),
    (GOOD | {"id": "r"}, "id", ""),
    (GOOD | {"id": ":1"}, "id", ""),
    (GOOD | {"id": "r:01"}, "id", ""),
    (GOOD | {"id": "r:-1"}, "id", ""),
    (GOOD | {"id": "r:٣"}, "id", ""),
    (GOOD | {"id": "r:" + "9" * 5_000}, "id", ""),
    (GOOD | {"id": 3}, "id", ""),
    (GOOD | {"created_at": 0.5}, "created_at", "2031-01-31T12:00:00.5Z"),
    (GOOD | {"created_at": "2031-02-30T12:00:00Z"}, "created_at", ""),
    (GOOD | {"created_at": "2031-01-31T12:00:00+02:00"}, "created_at", ""),
    (GOOD | {"created_at": "1931-01-31T12:00:00Z"}, "created_at", ""),
    (GOOD | {"type": "txt"}, "type", "text, tool_call, tool_result"),
    (GOOD | {"type": ["text"]}, "type", "text"),
    (GOOD | {"role": "developer"}, "role", "system, user, assistant, tool"),
    (GOOD | {"content": None}, "content", ""),
    (GOOD | {"payload": []}, "payload", "None"),
    (GOOD | {"metadata": "x"}, "metadata", "None"),
    (GOOD | {"metadata": {"a": [{"b": INF}]}}, "metadata.a[0].b", "JSON"),
    (GOOD | {"payload": {"a": {3: 4}}}, "payload.a", ""),
    (GOOD | {"payload": {"a": object()}}, "payload.a", "model_dump()"),
    (GOOD | {"group": -1}, "group", "18"),
    (GOOD | {"group": True}, "group", ""),
    (GOOD | {"contents": "x"}, "contents", "content"),
    (CALL | {"payload": None}, "payload.call_id", ""),
    (CALL | {"payload": {"call_id": "", "name": "f", "arguments": {}}}, "payload.call_id", ""),
    (CALL | {"payload": {"call_id": "a", "name": 3, "arguments": {}}}, "payload.name", ""),
    (
        CALL | {"payload": {"call_id": "a", "name": "f", "arguments": []}},
        "payload.arguments",
        "JSON",
    ),
    (RESULT | {"payload": {"call_id": "a", "name": 1}}, "payload.name", "None"),
    (RESULT | {"payload": {"call_id": "a", "is_error": "no"}}, "payload.is_error", ""),
    (RESULT | {"payload": {"call_id": "a", "parts": ["x"]}}, "payload.parts", ""),
    (PART | {"payload": {"part": {}, "shape": "openai"}}, "payload.part", ""),
    (PART | {"payload": {"part": {"type": "x"}, "shape": "o"}}, "payload.shape", "anthropic"),
]


@pytest.mark.parametrize(("data", "field", "fact"), REFUSED)
def test_a_dict_that_no_message_wrote_is_refused(data: dict[str, Any], field: str, fact: str) -> None:
    with pytest.raises(MessageError) as caught:
        Message.from_dict(data, index=5)
    assert (caught.value.index, caught.value.field) == (5, field)
    assert fact in caught.value.expected


@pytest.mark.parametrize("missing", ["schema", "version", "id", "created_at", "type", "role", "content"])
def test_a_dict_that_lacks_a_key_is_refused(missing: str) -> None:
    with pytest.raises(MessageError) as caught:
        Message.from_dict({key: value for key, value in GOOD.items() if key != missing}, 2)
    assert (caught.value.index, caught.value.field, caught.value.found) == (2, missing, None)


@pytest.mark.parametrize("value", [None, 3, "text", [GOOD]])
def test_something_else_than_a_dict_is_refused(value: Any) -> None:
    with pytest.raises(MessageError) as caught:
        Message.from_dict(value, 1)
    assert (caught.value.index, caught.value.field, caught.value.found) == (1, "message", value)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"run": ""}, "run"),
        ({"n": -1}, "n"),
        ({"created_at": float("nan")}, "created_at"),
        ({"created_at": -0.5}, "created_at"),
        ({"created_at": 1e12}, "created_at"),
        ({"content": 3}, "content"),
    ],
)
def test_a_message_that_was_built_wrong_does_not_pass_the_check(change: dict[str, Any], field: str) -> None:
    message = said("x")
    for name, value in change.items():
        setattr(message, name, value)
    with pytest.raises(MessageError) as caught:
        message.checked(3)
    assert (caught.value.index, caught.value.field) == (3, field)


def test_a_message_that_cannot_be_json_is_not_written() -> None:
    with pytest.raises(MessageError) as caught:
        Message("r", 4, 0.0, MessageType.TEXT, Role.USER, "", {"a": object()}).to_dict()
    assert (caught.value.index, caught.value.field) == (4, "payload.a")
    with pytest.raises(MessageError) as caught:
        said("x", 4, at=-1.0).to_dict()
    assert (caught.value.index, caught.value.field, caught.value.found) == (4, "created_at", -1.0)


def test_a_value_that_contains_itself_is_refused_and_the_error_can_be_shown() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(MessageError, match=str(MAX_DEPTH)):
        copy_json(0, "x", endless)
