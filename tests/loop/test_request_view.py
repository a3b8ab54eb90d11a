"""What requests show of a conversation that is too long: pairs stay whole, nothing grows, the newest stays."""

from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.loop.request_view import RequestView
from flyball.message import Message, MessageType, Role, check_pairs
from flyball.request import estimate_message_tokens


def said(n: int, role: Role, content: str) -> Message:
    return Message("r", n, 0.0, MessageType.TEXT, role, content)


def turn(n: int, sizes: list[int], text: str = "") -> list[Message]:
    """What the model says, what it asks for, and so many results of so many characters."""
    numbers = count(n)
    messages = [said(next(numbers), Role.ASSISTANT, text)] if text else []
    for index, _ in enumerate(sizes):
        payload = {"call_id": f"c{n}.{index}", "name": f"tool{index}", "arguments": '{"n": 1}'}
        messages.append(Message("r", next(numbers), 0.0, MessageType.TOOL_CALL, Role.ASSISTANT, "", payload))
    for index, size in enumerate(sizes):
        payload = {"call_id": f"c{n}.{index}", "name": f"tool{index}", "is_error": False}
        messages.append(Message("r", next(numbers), 0.0, MessageType.TOOL_RESULT, Role.TOOL, "x" * size, payload))
    return messages


def conversation(turns: list[list[int]], task: str = "Do it.") -> list[Message]:
    messages = [said(0, Role.USER, task)]
    for sizes in turns:
        messages += turn(len(messages), sizes, "" if sizes else "thinking")
    return messages


def shown(context: RequestView) -> list[str]:
    return [message.content for message in context.messages if message.type is not MessageType.TOOL_CALL]


SIZES = st.lists(st.lists(st.integers(0, 3_000), max_size=3), max_size=12)


def test_as_long_as_nothing_is_elided_the_history_itself_is_shown() -> None:
    history = conversation([[10], [10]])
    assert RequestView(history).messages is history


def test_the_oldest_results_become_one_line_each(snapshot: Callable[..., None]) -> None:
    history = conversation([[8_214], [3_000], [400], [500]])
    context = RequestView(history)
    context.shorten(6_000)
    first, elided, *rest = shown(context)
    assert (first, rest) == ("Do it.", ["x" * 3_000, "x" * 400, "x" * 500])
    snapshot(elided)
    assert len(history[2].content) == 8_214, "the whole stays"


def test_a_line_is_not_elided_again() -> None:
    context = RequestView(conversation([[8_214], [3_000], [4_000], [5_000], [500], [500]]))
    context.shorten(7_000)
    context.shorten(5_000)
    assert shown(context)[1].startswith("tool0: 8,214 ")


def test_much_at_a_time_so_that_the_beginning_changes_rarely() -> None:
    history = conversation([[1_000]] * 20)
    context = RequestView(history)
    changes = 0
    for n in range(100):
        new = turn(1_000 + 10 * n, [1_000])
        context.messages.extend(new)
        before = context.messages
        if context.tokens > 10_000:
            context.shorten(10_000)
        changes += context.messages is not before
        assert context.tokens <= 10_000
    assert 0 < changes <= 15


def test_where_lines_are_not_enough_the_oldest_turns_are_left_out_and_a_message_says_so() -> None:
    context = RequestView(conversation([[20]] * 60))
    context.shorten(1_000)
    assert context.tokens <= 1_000 * 3 // 4
    left_out = context.messages[1].content
    assert context.messages[0].content == "Do it."
    assert left_out.startswith("(")
    assert "tool0 (" in left_out
    assert check_pairs(context.messages) == []


def test_what_is_left_out_is_counted_on() -> None:
    context = RequestView(conversation([[20]] * 60))
    context.shorten(1_000)
    for n in range(40):
        context.messages.extend(turn(1_000 + n * 10, [20]))
    context.shorten(1_000)
    [told] = [message for message in context.messages if "tool0 (" in message.content]
    kept = sum(message.type is MessageType.TOOL_CALL for message in context.messages)
    assert f"tool0 ({100 - kept})" in told.content
    assert told.content.startswith(f"({2 * (100 - kept)} ")


def test_what_the_user_said_in_between_stays() -> None:
    history = conversation([[2_000]] * 5)
    history.insert(5, said(99, Role.USER, "Only the tests."))
    context = RequestView(history)
    context.shorten(400)
    assert [message.content for message in context.messages if message.role is Role.USER][-1] == "Only the tests."


def test_a_summary_stands_in_the_place_of_what_is_old_and_the_next_takes_it_in(
    snapshot: Callable[..., None],
) -> None:
    context = RequestView(conversation([[2_000]] * 6))
    assert context.summarize("Six files were read.")
    snapshot(context.messages[1].content)
    assert len(context.messages) == 2 + 4
    context.messages.extend(turn(100, [2_000]))
    assert context.old_messages[0].content.endswith("Six files were read.")
    assert context.summarize("Seven.")
    assert "tool0 (5)" in context.messages[1].content
    assert sum("tool0 (" in message.content for message in context.messages) == 1
    assert check_pairs(context.messages) == []


def test_a_summary_stays_where_more_is_left_out_without_one() -> None:
    context = RequestView(conversation([[2_000]] * 6))
    context.summarize("Six files were read.")
    for n in range(60):
        context.messages.extend(turn(100 + n * 10, [20]))
    context.shorten(1_500)
    assert "Six files were read." in context.messages[1].content
    assert sum("tool0 (" in message.content for message in context.messages) == 1


def test_a_summary_that_is_longer_than_what_it_sums_up_is_not_taken() -> None:
    history = conversation([[10]] * 6)
    context = RequestView(history)
    assert not context.summarize("blah " * 1_000)
    assert context.messages is history


def test_a_call_whose_result_comes_much_later_is_not_torn_from_it() -> None:
    history = conversation([[500], [500], [500]])
    late = history.pop(2)
    history.append(late)
    context = RequestView(history)
    context.shorten(100)
    assert check_pairs(context.messages) == []


def test_a_call_id_that_is_used_again_is_another_call() -> None:
    history = conversation([[4_000]] * 6)
    for message in history[1:]:
        assert message.payload is not None
        message.payload["call_id"] = "call_0"
    context = RequestView(history)
    context.shorten(6_000)
    assert context.tokens <= 6_000
    assert check_pairs(context.messages) == []


def test_a_summary_is_not_thrown_away_where_all_fits() -> None:
    context = RequestView(conversation([[3_400]] * 6))
    assert context.summarize("Six files were read.")
    context.shorten(4_000)
    assert context.messages[1].content.endswith("Six files were read.")


def test_a_summary_for_which_there_is_no_room_goes_last() -> None:
    context = RequestView(conversation([[2_000]] * 4))
    assert context.summarize("word " * 200)
    context.shorten(1_500)
    assert context.tokens <= 1_500
    assert not [message for message in context.messages if "word" in message.content]


@pytest.mark.parametrize("history", [[], [said(0, Role.USER, "Do it.")], [said(0, Role.ASSISTANT, "Hello.")]])
def test_what_cannot_be_shortened_stays(history: list[Message]) -> None:
    context = RequestView(history)
    context.shorten(0)
    assert context.messages is history


@given(SIZES, st.integers(0, 6_000))
def test_shortening_keeps_pairs_the_task_and_the_newest_turn_and_never_grows(sizes: list[list[int]], room: int) -> None:
    history = conversation(sizes)
    context = RequestView(history)
    before = context.tokens
    context.shorten(room)
    assert context.tokens <= before
    assert check_pairs(context.messages) == []
    assert context.messages[0] is history[0]
    newest = history[-len(turn(0, sizes[-1], "" if sizes[-1] else "x")) :] if sizes else []
    assert not newest or context.messages[-len(newest) :] == newest
    assert sum(map(estimate_message_tokens, history)) == before, "the history is as it was"


@given(SIZES, st.integers(0, 6_000))
def test_shortening_again_never_shows_more(sizes: list[list[int]], room: int) -> None:
    context = RequestView(conversation(sizes))
    context.shorten(room)
    once = context.tokens
    context.shorten(room)
    assert context.tokens <= once
    assert check_pairs(context.messages) == []
