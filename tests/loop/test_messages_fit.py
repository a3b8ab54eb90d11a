"""Fitting a conversation into so many tokens: the task, a line for each call, the newest messages, whole pairs."""

from collections.abc import Callable
from fnmatch import fnmatch

import pytest

from flyball.loop.request_view import fit_messages, format_outcome
from flyball.message import Message, MessageType, Role, check_pairs
from flyball.outcome import Denied, Failure, Outcome, Reason, Success
from flyball.request import estimate_message_tokens

ENDLESS = 10**9


class Talk:
    """A conversation that a test writes down."""

    def __init__(self, task: str = "The task.") -> None:
        self.messages: list[Message] = []
        self.outcomes: list[Outcome] = []
        self.say(Role.USER, task)

    def add(self, kind: MessageType, role: Role, text: str, payload: dict[str, str] | None, group: int | None) -> None:
        n = len(self.messages)
        self.messages.append(Message("r", n, 0.0, kind, role, text, dict(payload) if payload else None, None, group))

    def say(self, role: Role, text: str) -> None:
        self.add(MessageType.TEXT, role, text, None, None)

    def turn(self, calls: int, text: str = "", *, grouped: bool = True) -> None:
        """One reply with so many calls, and their results."""
        first = len(self.messages)
        ids = [f"c{first}-{n}" for n in range(calls)]
        for one in ids:
            payload = {"call_id": one, "name": "read", "arguments": "{}"}
            self.add(MessageType.TOOL_CALL, Role.ASSISTANT, "", payload, first if grouped and calls > 1 else None)
        results = len(self.messages)
        for one in ids:
            payload = {"call_id": one, "name": "read"}
            self.add(MessageType.TOOL_RESULT, Role.TOOL, text, payload, results if grouped and calls > 1 else None)
            self.outcomes.append(Success(call_id=one, tool="read", content=text))

    @property
    def size(self) -> int:
        return sum(map(estimate_message_tokens, self.messages))

    def fitted(self, room: int) -> list[Message] | None:
        return fit_messages(self.messages, self.outcomes, room, said, 1)


def said(text: str) -> Message:
    return Message("r", 999, 0.0, MessageType.TEXT, Role.USER, text)


def long_talk(*, grouped: bool = True) -> Talk:
    talk = Talk()
    for n in range(12):
        talk.turn(1 + n % 3, f"result {n} " * (1 + 5 * (n % 4)), grouped=grouped)
    return talk


def test_what_fits_whole_is_left_whole() -> None:
    talk = long_talk()
    assert talk.fitted(ENDLESS) == talk.fitted(talk.size) == talk.messages


def test_where_not_even_the_task_fits_there_is_nothing() -> None:
    talk = Talk("x" * 1_000)
    talk.turn(1, "y")
    assert talk.fitted(100) is None


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("room", range(30, 1_300, 40))
def test_every_room_gives_the_task_whole_pairs_and_no_more_than_the_room(room: int, grouped: bool) -> None:
    talk = long_talk(grouped=grouped)
    messages = talk.fitted(room)
    assert messages is not None
    assert messages[0].content == "The task."
    assert check_pairs(messages) == []
    assert sum(map(estimate_message_tokens, messages)) <= room
    kept = [message for message in messages if message.n != 999]
    assert [message.n for message in kept] == sorted({message.n for message in kept})


@pytest.mark.parametrize("room", [200, 400, 800])
def test_the_newest_messages_are_kept(room: int) -> None:
    talk = long_talk()
    messages = talk.fitted(room)
    assert messages is not None
    newest = [message for message in messages[1:] if message.n != 999]
    assert newest == talk.messages[len(talk.messages) - len(newest) :]


def test_what_is_left_out_is_told_in_a_line_for_each_call(snapshot: Callable[..., None]) -> None:
    talk = Talk()
    for n in range(5):
        talk.turn(1, f"page {n} " + "word " * 200)
    messages = talk.fitted(1_500)
    assert messages is not None
    [lines] = [message.content for message in messages if message.n == 999]
    snapshot(lines.splitlines()[0])
    assert [f"- read: done: page {n}" in lines for n in range(5)] == [True] * 5


def test_where_not_all_lines_fit_the_newest_are_told() -> None:
    talk = Talk()
    for n in range(40):
        talk.turn(1, f"page {n} " + "word " * 200)
    messages = talk.fitted(700)
    assert messages is not None
    [lines] = [message.content for message in messages if message.n == 999]
    assert "page 39" in lines
    assert "page 0 " not in lines
    assert "40" in lines.splitlines()[0]


def test_a_group_is_kept_whole_or_left_out() -> None:
    talk = Talk()
    talk.turn(4, "word " * 20)
    talk.outcomes.clear()
    whole = talk.size
    for room in range(40, whole):
        messages = talk.fitted(room)
        assert messages is not None
        kept = [message for message in messages[1:] if message.n != 999]
        assert kept in ([], talk.messages[1:])


@pytest.mark.parametrize("room", [150, 300, 500, 900])
def test_the_task_of_an_older_conversation_gives_way_to_the_new_one(room: int) -> None:
    talk = Talk("An old question.")
    talk.say(Role.ASSISTANT, "An old answer. " * 20)
    talk.say(Role.USER, "The new task.")
    task = len(talk.messages)
    for _ in range(6):
        talk.turn(2, "word " * 40)
    messages = fit_messages(talk.messages, talk.outcomes, room, said, task)
    assert messages is not None
    assert "The new task." in [message.content for message in messages]
    assert check_pairs(messages) == []
    kept = [message.n for message in messages if message.n != 999]
    assert kept == sorted(set(kept))
    assert sum(map(estimate_message_tokens, messages)) <= room


def test_a_conversation_without_a_user_fits_too() -> None:
    talk = Talk()
    talk.messages[0] = Message("r", 0, 0.0, MessageType.TEXT, Role.SYSTEM, "Rules.")
    talk.turn(1, "word " * 400)
    talk.turn(1, "short")
    messages = talk.fitted(120)
    assert messages is not None
    assert check_pairs(messages) == []


class TestLine:
    @pytest.mark.parametrize(
        ("outcome", "line"),
        [
            (Success(call_id="1", tool="read", content="a\n b"), "- read: done: a b"),
            (Failure(call_id="1", tool="read", kind="OSError", error="gone"), "- read: failed: OSError: gone"),
            (
                Denied(call_id="1", tool="read", reason=Reason.BUDGET, message="none left"),
                "- read: denied: * (budget): none left",
            ),
        ],
    )
    def test_the_line_of_a_call_names_the_tool_its_end_and_what_it_gave(self, outcome: Outcome, line: str) -> None:
        assert fnmatch(format_outcome(outcome), line)

    def test_the_line_of_a_call_is_one_and_short_whatever_the_call_gave(self) -> None:
        line = format_outcome(Success(call_id="1", tool="read", content="many\nlines\n" * 10_000))
        assert "\n" not in line
        assert len(line) < 250


def test_a_result_that_a_hook_replaced_is_listed_as_the_model_read_it() -> None:
    talk = long_talk()
    for outcome in talk.outcomes:
        assert isinstance(outcome, Success)
        outcome.content = f"hidden from the model, {outcome.call_id}"
    fitted = talk.fitted(talk.size // 2)
    assert fitted is not None
    assert any("read: done: result" in message.content for message in fitted)
    assert not any("hidden" in message.content for message in fitted)
