"""What a journal and events have of a turn that is not over, whatever the moment at which its process was killed."""

from typing import Any

from flyball.history.unfinished import read_unstored_messages
from flyball.loop.effects import Answer
from flyball.message import Message, MessageType, Role
from flyball.outcome import Success
from flyball.request import Call, Reply
from flyball.runtime.history import JOURNAL_CODEC
from flyball.store import Kind, Row

TASK = Message("run", 0, 0.0, MessageType.TEXT, Role.USER, "Dig.")
REPLY = Row(0, Kind.ANSWER, JOURNAL_CODEC.dumps(Answer(Reply("Deeper.", (Call("c", "dig", {"key": "secret"}),)), 0.0)))
DONE = Success(call_id="c-1", tool="dig", content="a hole")
OUTCOME, BATCH = (
    Row(1, Kind.OUTCOME, JOURNAL_CODEC.dumps(["c-1", DONE])),
    Row(1, Kind.ANSWER, JOURNAL_CODEC.dumps(Answer([DONE], 0.1))),
)
KEPT = Row(2, Kind.ANSWER, JOURNAL_CODEC.dumps(Answer(None, 0.1)))
STARTED = {"event": "tool_started", "call_id": "c-1", "tool": "dig", "arguments": {"key": "***"}}


def said(messages: list[Message]) -> list[tuple[str, str, Any]]:
    return [(one.type.value, one.content, (one.payload or {}).get("arguments")) for one in messages]


TEXT, CALL, RESULT = ("text", "Deeper.", None), ("tool_call", "", {"key": "***"}), ("tool_result", "a hole", None)


def test_each_thing_comes_once_and_as_soon_as_it_is_known() -> None:
    assert said(read_unstored_messages([], [], [TASK])) == []
    assert said(read_unstored_messages([REPLY], [], [TASK])) == [TEXT]
    assert said(read_unstored_messages([REPLY], [STARTED], [TASK])) == [TEXT, CALL]
    assert said(read_unstored_messages([REPLY, OUTCOME], [STARTED], [TASK])) == [TEXT, CALL, RESULT]
    assert said(read_unstored_messages([REPLY, OUTCOME, BATCH], [STARTED], [TASK])) == [TEXT, CALL, RESULT]


def test_what_is_kept_already_does_not_come_again() -> None:
    rest = read_unstored_messages([REPLY, OUTCOME, BATCH], [STARTED], [TASK])
    assert [message.id for message in rest] == ["run:1", "run:2", "run:3"]
    assert read_unstored_messages([REPLY, OUTCOME, BATCH], [STARTED], [TASK, *rest]) == []
    assert read_unstored_messages([REPLY, OUTCOME, BATCH, KEPT], [STARTED], [TASK, *rest]) == []
