"""The estimate of a request's tokens is never under what the shapes have that we send."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.message import Message, MessageType, Role
from flyball.request import (
    MAX_IMAGE_TOKENS,
    MESSAGE_OVERHEAD_TOKENS,
    Call,
    Reply,
    Request,
    estimate_message_tokens,
    estimate_reply_tokens,
    estimate_request_tokens,
    estimate_tokens,
    estimate_tools_tokens,
)

PIXEL = "iVBORw0KGgoAAAANSUhEUgAA" * 100_000


def said(content: str = "", payload: dict[str, Any] | None = None, kind: MessageType = MessageType.TEXT) -> Message:
    return Message("r", 0, 0.0, kind, Role.USER, content, payload)


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("[0, 1, 1, 0, 1, 0, 0, 1]" * 10, 231),
        ("-1," * 100, 201),
        ("b1946ac9-2492-d234-7c62-35b4d2611184 " * 10, 221),
        ("aGVsbG8gd29ybGQKaXQgaXMgYSBuaWNlIGRheQ==" * 10, 260),
        ("\U00012000\U000120ab" * 50, 400),
        ("The engine has a governor, and the governor has two balls. " * 10, 131),
    ],
    ids=["numbers", "signs", "ids", "base64", "cuneiform", "English"],
)
def test_the_estimate_of_tokens_is_above_what_o200k_and_cl100k_count(text: str, counted: int) -> None:
    """Counted once, with the tokenizers of OpenAI's models: the larger of the two."""
    assert counted <= estimate_tokens(text) <= len(text.encode()) + 1


@given(st.text())
def test_a_text_without_small_letters_has_a_token_for_each_byte(text: str) -> None:
    plain = "".join(letter for letter in text if not "a" <= letter <= "z")
    assert estimate_tokens(plain) == len(plain.encode("utf-8", "replace")) + 1


@given(st.text(), st.text())
def test_parts_are_never_less_than_the_whole(one: str, other: str) -> None:
    assert estimate_tokens(one) + estimate_tokens(other) >= estimate_tokens(one + other)
    assert estimate_tokens(one + other) >= estimate_tokens(one)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
        {"type": "input_image", "image_url": "https://example.org/a.png"},
    ],
    ids=["openai", "anthropic", "responses"],
)
def test_an_image_counts_as_one_whatever_its_bytes(part: dict[str, Any]) -> None:
    whole = MAX_IMAGE_TOKENS + MESSAGE_OVERHEAD_TOKENS + 1
    assert estimate_message_tokens(said("", {"part": part, "shape": "openai"}, MessageType.MULTIMODAL_PART)) == whole
    result = {"call_id": "c", "name": "look", "parts": [part, part], "shape": "anthropic"}
    assert estimate_message_tokens(said("", result, MessageType.TOOL_RESULT)) == whole + MAX_IMAGE_TOKENS


def test_what_is_no_image_counts_by_its_bytes() -> None:
    part = {"type": "file", "file": {"file_data": "QUFB" * 1_000}}
    assert estimate_message_tokens(said("", {"part": part}, MessageType.MULTIMODAL_PART)) >= 4_000


def test_a_call_counts_with_its_name_and_arguments() -> None:
    name, arguments = "read_the_whole_file_at_once", {"path": "/A/B", "n": 17}
    for given_arguments in (arguments, json.dumps(arguments)):
        payload = {"call_id": "c", "name": name, "arguments": given_arguments}
        counted = estimate_message_tokens(said("", payload, MessageType.TOOL_CALL))
        assert counted == MESSAGE_OVERHEAD_TOKENS + 1 + estimate_tokens(name) + estimate_tokens(json.dumps(arguments))
        assert estimate_reply_tokens(
            Reply("Hi.", (Call("c", name, given_arguments),))
        ) == counted - 1 + estimate_tokens("Hi.")


def test_a_request_counts_all_that_is_in_it() -> None:
    tools, schema = [{"name": "add", "description": "Add.", "parameters": {"type": "object"}}], {"type": "integer"}
    bare = Request([said("Go.")])
    assert estimate_request_tokens(bare) == estimate_tokens("") + estimate_message_tokens(said("Go."))
    whole = Request([said("Go.")], "Be brief.", tools, output_schema=schema, notices=("Hurry.",))
    told = estimate_tokens("Be brief.") + estimate_tokens("Hurry.") + estimate_tools_tokens(tools, schema, None)
    assert estimate_request_tokens(whole) == told + estimate_message_tokens(said("Go."))


def test_what_a_provider_adds_where_there_are_tools_counts_too() -> None:
    tools = [{"name": "add", "description": "Add.", "parameters": {"type": "object"}}]
    assert estimate_tools_tokens(tools, None, "anthropic") - estimate_tools_tokens(tools, None, "openai") >= 530
    assert estimate_tools_tokens([], None, "anthropic") == 0
