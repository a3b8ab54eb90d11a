import copy
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flyball.errors import MessageError
from flyball.message import Message, MessageType, Orphan, Role, check_pairs, repair_pairs

BOUNDED = settings(max_examples=60)


def said(text: str, n: int = 0, *, at: float = 0.0, group: int | None = None, run: str = "r") -> Message:
    return Message(run, n, at, MessageType.TEXT, Role.USER, text, None, None, group)


def call(call_id: str, n: int = 0, *, group: int | None = None, run: str = "r", at: float = 0.0) -> Message:
    payload = {"call_id": call_id, "name": f"tool_{call_id}", "arguments": "{}"}
    return Message(run, n, at, MessageType.TOOL_CALL, Role.ASSISTANT, "", payload, None, group)


def result(call_id: str, n: int = 0, *, group: int | None = None, run: str = "r") -> Message:
    payload = {"call_id": call_id, "name": None, "is_error": False}
    return Message(run, n, 0.0, MessageType.TOOL_RESULT, Role.TOOL, "done", payload, None, group)


def kinds(messages: list[Message]) -> list[tuple[int, str, str]]:
    return [(orphan.index, orphan.call_id, orphan.kind) for orphan in check_pairs(messages)]


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        ([], []),
        ([said("x"), call("a"), result("a")], []),
        ([call("a"), call("b"), result("b"), result("a")], []),
        ([call("a"), result("a"), call("a"), result("a")], []),
        ([call("a"), said("x")], [(0, "a", "call_without_result")]),
        ([result("a"), call("a")], [(0, "a", "result_without_call"), (1, "a", "call_without_result")]),
        ([call("a"), result("a"), result("a")], [(2, "a", "second_result")]),
        ([call("a"), call("a"), result("a")], [(0, "a", "call_without_result")]),
    ],
)
def test_what_stands_alone_is_found(messages: list[Message], found: list[tuple[int, str, str]]) -> None:
    assert kinds(messages) == found


def test_an_orphan_tells_where_and_what() -> None:
    assert check_pairs([said("x"), call("a")]) == [Orphan(1, "a", "call_without_result")]


def test_a_call_that_has_no_id_cannot_be_paired() -> None:
    with pytest.raises(MessageError) as caught:
        check_pairs([said("x"), Message("r", 1, 0.0, MessageType.TOOL_CALL, Role.ASSISTANT)])
    assert (caught.value.index, caught.value.field, caught.value.found) == (1, "payload.call_id", None)


def test_an_unanswered_call_gets_a_result_that_says_so(snapshot: Callable[..., None]) -> None:
    added = repair_pairs([said("x", 8), call("a", 9, at=4.5), said("y", 2)])[2]
    snapshot(added.content)
    assert added == Message(
        "r",
        10,
        4.5,
        MessageType.TOOL_RESULT,
        Role.TOOL,
        added.content,
        {"call_id": "a", "name": "tool_a", "is_error": True},
        {"repaired": True},
    )


def shown(messages: list[Message]) -> str:
    marks = {MessageType.TOOL_CALL: "call", MessageType.TOOL_RESULT: "result"}
    return " ".join(
        f"{marks[message.type]}:{(message.payload or {})['call_id']}" if message.type in marks else message.content
        for message in messages
    )


@pytest.mark.parametrize(
    ("messages", "repaired"),
    [
        ([call("a"), call("b"), said("x")], "call:a call:b result:a result:b x"),
        ([call("a"), call("b"), result("b"), said("x")], "call:a call:b result:b result:a x"),
        ([call("a", group=0), said("t", group=0), result("z"), said("x")], "call:a t result:a x"),
        ([call("a", group=0), call("b", group=1)], "call:a result:a call:b result:b"),
        ([call("a"), result("a"), result("a"), said("x")], "call:a result:a x"),
        ([result("a"), said("x")], "x"),
        ([said("x"), call("a"), result("a")], "x call:a result:a"),
    ],
)
def test_pairs_are_closed_behind_their_batch(messages: list[Message], repaired: str) -> None:
    assert shown(repair_pairs(messages)) == repaired


def test_an_added_result_does_not_part_a_group() -> None:
    repaired = repair_pairs([call("a"), call("b"), result("a", 2, group=2), said("go on", 3, group=2)])
    assert [message.group for message in repaired] == [None, None, 2, 2, 2]
    assert shown(repaired) == "call:a call:b result:a result:b go on"


def test_new_numbers_follow_the_highest_of_their_own_run() -> None:
    repaired = repair_pairs([call("a", 5), call("b", 2, run="s"), said("x", 9)])
    assert [message.id for message in repaired] == ["r:5", "s:2", "r:10", "s:3", "r:9"]


makers = st.sampled_from([call, result, said])
groups = st.none() | st.integers(0, 2)


@st.composite
def loose_message(draw: st.DrawFn) -> Message:
    return draw(makers)(draw(st.sampled_from("abc")), draw(st.integers(0, 9)), group=draw(groups))


@BOUNDED
@given(st.lists(loose_message(), max_size=12))
def test_after_repair_no_pair_is_open_and_what_was_given_is_unchanged(messages: list[Message]) -> None:
    before, orphans = copy.deepcopy(messages), check_pairs(messages)
    repaired = repair_pairs(messages)
    assert messages == before
    assert check_pairs(repaired) == []
    assert repair_pairs(repaired) == repaired
    alone = {orphan.index for orphan in orphans if orphan.kind != "call_without_result"}
    kept = [message for index, message in enumerate(messages) if index not in alone]
    added = [message for message in repaired if message.metadata == {"repaired": True}]
    assert [message for message in repaired if message.metadata is None] == kept
    assert len(added) == len(orphans) - len(alone)
    assert not {message.id for message in added} & {message.id for message in messages}
    assert len({message.id for message in added}) == len(added)
