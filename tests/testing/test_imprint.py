from dataclasses import replace
from typing import Any

import pytest

from flyball.message import Message, MessageType, Role
from flyball.request import Purpose, Request
from flyball.testing.imprint import Imprint

ADD = {"name": "add", "description": "Add.", "parameters": {"type": "object"}}
LOOK = {"name": "look", "description": "Look.", "parameters": {"type": "object"}}


def text(content: str, run: str = "run-number-1", n: int = 0) -> Message:
    return Message(run, n, float(n), MessageType.TEXT, Role.USER, content)


def called(arguments: Any) -> Message:
    payload = {"call_id": "c1", "name": "add", "arguments": arguments}
    return Message("run-number-1", 1, 1.0, MessageType.TOOL_CALL, Role.ASSISTANT, "", payload)


REQUEST = Request([text("Go."), called({"a": 1})], "Be brief.", (ADD, LOOK), notices=("Hurry.",), run_id="run-number-1")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"purpose": Purpose.GRACE}, "it is for a grace, recorded was one for a turn"),
        ({"instructions": "Be long."}, "the instructions are now 'Be long.'"),
        ({"instructions": None}, "the instructions are now None"),
        ({"output_schema": {"type": "object"}}, "the schema of the output is another"),
        ({"notices": ()}, "the notices are now ()"),
        ({"tools": (ADD,)}, "the tool look is missing"),
        ({"tools": (ADD, LOOK, {"name": "drop"})}, "the tool drop is new"),
        ({"tools": ({**ADD, "description": "?"}, LOOK)}, "the tool add is described otherwise"),
        ({"messages": [text("Go.")]}, "there are 1 messages, recorded were 2"),
        (
            {"messages": [*REQUEST.messages, text("More.")]},
            "message 3 is now a text by the user 'More.', recorded were 2 messages",
        ),
        (
            {"messages": [text("Go."), called({"a": 2})]},
            "message 2 is now a call of add {'a': 2}, recorded was a call of add of other words",
        ),
        (
            {"messages": [text("Go."), text("Stop.")]},
            "message 2 is now a text by the user 'Stop.', recorded was a call of add of other words",
        ),
    ],
)
def test_it_says_what_differs(change: dict[str, Any], told: str) -> None:
    assert Imprint.of(REQUEST).differences(replace(REQUEST, **change)) == [told]


def test_all_that_differs_is_told() -> None:
    other = replace(REQUEST, instructions="x", notices=("y",), tools=())
    assert len(Imprint.of(REQUEST).differences(other)) == 4


def test_what_is_left_the_time_and_the_names_of_runs_do_not_count() -> None:
    shown = text('{"artifact": "run-number-1:c1"}')
    other = text('{"artifact": "run-number-2:c1"}', run="run-number-2", n=7)
    first = replace(REQUEST, messages=[shown], max_output_tokens=100)
    assert Imprint.of(first).differences(Request([other], "Be brief.", (ADD, LOOK), notices=("Hurry.",))) != []
    second = replace(first, messages=[other], max_output_tokens=7, run_id="run-number-2")
    assert Imprint.of(first).differences(second) == []


def test_the_name_of_a_run_that_could_be_a_word_is_left_in_the_text() -> None:
    first, second = replace(REQUEST, run_id="Go"), replace(REQUEST, run_id="run-9999")
    assert Imprint.of(first) == Imprint.of(second)


def test_it_is_read_back_as_it_was_written() -> None:
    before = Imprint.of(replace(REQUEST, messages=[text("Go.")]))
    after = Imprint.of(REQUEST)
    written = after.to_dict(before)
    assert (written["messages_as_before"], len(written["messages"])) == (1, 1)
    assert Imprint.from_dict(written, before) == after
    assert Imprint.from_dict(before.to_dict(None), None) == before


def test_no_text_is_in_it() -> None:
    written = str(Imprint.of(REQUEST).to_dict(None))
    assert not [word for word in ("Go.", "brief", "Hurry", "Add.", "'a'") if word in written]
