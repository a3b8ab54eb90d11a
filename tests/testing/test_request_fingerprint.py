from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from flyball.message import Message, MessageType, Role
from flyball.request import Purpose, Request
from flyball.testing.cassette import RequestFingerprint

ADD = {"name": "add", "description": "Add.", "parameters": {"type": "object"}}
LOOK = {"name": "look", "description": "Look.", "parameters": {"type": "object"}}


def text(content: str, run: str = "run-number-1", n: int = 0) -> Message:
    return Message(run, n, float(n), MessageType.TEXT, Role.USER, content)


def called(arguments: Any) -> Message:
    payload = {"call_id": "c1", "name": "add", "arguments": arguments}
    return Message("run-number-1", 1, 1.0, MessageType.TOOL_CALL, Role.ASSISTANT, "", payload)


REQUEST = Request([text("Go."), called({"a": 1})], "Be brief.", (ADD, LOOK), notices=("Hurry.",), run_id="run-number-1")


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"purpose": Purpose.GRACE}, "grace"),
        ({"instructions": "Be long."}, "'Be long.'"),
        ({"instructions": None}, "None"),
        ({"output_schema": {"type": "object"}}, ""),
        ({"notices": ()}, "()"),
        ({"tools": (ADD,)}, "look"),
        ({"tools": (ADD, LOOK, {"name": "drop"})}, "drop"),
        ({"tools": ({**ADD, "description": "?"}, LOOK)}, "add"),
        ({"messages": [text("Go.")]}, "1"),
        ({"messages": [*REQUEST.messages, text("More.")]}, "'More.'"),
        ({"messages": [text("Go."), called({"a": 2})]}, "{'a': 2}"),
        ({"messages": [text("Go."), text("Stop.")]}, "'Stop.'"),
    ],
)
def test_an_imprint_says_what_differs_in_a_request(
    change: dict[str, Any], fact: str, snapshot: Callable[..., None]
) -> None:
    [told] = RequestFingerprint.from_request(REQUEST).find_differences(replace(REQUEST, **change))
    assert fact in told
    snapshot(told)


def test_all_that_differs_is_told() -> None:
    other = replace(REQUEST, instructions="x", notices=("y",), tools=())
    assert len(RequestFingerprint.from_request(REQUEST).find_differences(other)) == 4


def test_what_is_left_the_time_and_the_names_of_runs_do_not_count() -> None:
    shown = text('{"artifact": "run-number-1:c1"}')
    other = text('{"artifact": "run-number-2:c1"}', run="run-number-2", n=7)
    first = replace(REQUEST, messages=[shown], max_output_tokens=100)
    assert (
        RequestFingerprint.from_request(first).find_differences(
            Request([other], "Be brief.", (ADD, LOOK), notices=("Hurry.",))
        )
        != []
    )
    second = replace(first, messages=[other], max_output_tokens=7, run_id="run-number-2")
    assert RequestFingerprint.from_request(first).find_differences(second) == []


def test_the_name_of_a_run_that_could_be_a_word_is_left_in_the_text() -> None:
    first, second = replace(REQUEST, run_id="Go"), replace(REQUEST, run_id="run-9999")
    assert RequestFingerprint.from_request(first) == RequestFingerprint.from_request(second)


def test_a_fingerprint_is_read_back_as_it_was_written() -> None:
    before = RequestFingerprint.from_request(replace(REQUEST, messages=[text("Go.")]))
    after = RequestFingerprint.from_request(REQUEST)
    written = after.to_dict(before)
    assert (written["messages_as_before"], len(written["messages"])) == (1, 1)
    assert RequestFingerprint.from_dict(written, before) == after
    assert RequestFingerprint.from_dict(before.to_dict(None), None) == before


def test_no_text_is_in_it() -> None:
    written = str(RequestFingerprint.from_request(REQUEST).to_dict(None))
    assert not [word for word in ("Go.", "brief", "Hurry", "Add.", "'a'") if word in written]
