import math
from collections.abc import Callable
from typing import Any

import pytest

from flyball import ConfigError, Usage
from flyball.errors import Retryable
from flyball.request import Call, Finish, Reply
from flyball.testing import Line, call, call_json, fail, say, together


def test_a_line_of_text_is_a_reply_that_ended_by_itself() -> None:
    assert say("hello").build_reply(0) == Reply("hello", (), Usage(10, 5), Finish.STOP, "scripted", "flyball")


def test_a_call_has_its_arguments_and_a_number() -> None:
    reply = call("add", a=1, name="x").build_reply(300)
    assert reply.calls == (Call("call-300", "add", {"a": 1, "name": "x"}),)
    assert reply.finish is Finish.CALLS


def test_arguments_may_be_what_no_tool_can_read() -> None:
    assert call_json("add", '{"a": ').build_reply(0).calls == (Call("call-0", "add", '{"a": '),)


def test_calls_together_come_in_one_reply_with_their_texts() -> None:
    reply = together(say("I add."), call("add", a=1), say("And look.", call("look"))).build_reply(7)
    assert reply.text == "I add. And look."
    assert [(one.id, one.name) for one in reply.calls] == [("call-7", "add"), ("call-8", "look")]


def test_a_text_may_come_with_calls() -> None:
    reply = say("I add twice.", call("add", a=1), call("add", a=2)).build_reply(0)
    assert (reply.text, len(reply.calls)) == ("I add twice.", 2)


def test_a_line_that_fails_raises_its_error() -> None:
    error = Retryable("busy", after=3)
    with pytest.raises(Retryable) as caught:
        fail(error).build_reply(0)
    assert caught.value is error


def test_a_line_can_say_what_it_used_why_it_ended_and_when() -> None:
    line = say("x").using(Usage(1, 2)).ending("length").after(3)
    assert (line.usage, line.finish, line.after_s) == (Usage(1, 2), Finish.LENGTH, 3.0)
    assert line.build_reply(0).finish is Finish.LENGTH
    assert say("x").using(None).build_reply(0).usage is None


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (say("hello"), []),
        (say("hello").streaming("hel", "lo"), [(0, "hel"), (0, "lo")]),
        (say("hello").after(8), [(0, "he"), (8, "llo")]),
        (say("").streaming("a", "b", "c").after(8), [(0, "a"), (4, "b"), (8, "c")]),
        (say("").streaming("a").after(8), [(0, "a")]),
        (say("hello").after(math.inf), [(0, "he"), (math.inf, "llo")]),
        (call("add").after(8), []),
    ],
)
def test_a_text_that_takes_time_comes_piece_by_piece(line: Line, told: list[tuple[float, str]]) -> None:
    assert line.schedule_pieces() == told


def test_streaming_sets_the_text() -> None:
    assert say("other").streaming("a", "b").build_reply(0).text == "ab"


@pytest.mark.parametrize(
    ("wrong", "where", "found"),
    [
        (lambda: say(3), "script, say", "3"),  # pyright: ignore[reportArgumentType]
        (lambda: say("x", "add"), "script", "'add'"),  # pyright: ignore[reportArgumentType]
        (lambda: call(""), "script, call", "''"),
        (lambda: together(call("a"), fail(ValueError())), "script", "Line("),
        (lambda: say("x", call("a").after(2)), "script", "Line("),
        (lambda: fail("busy"), "script, fail", "'busy'"),  # pyright: ignore[reportArgumentType]
        (lambda: fail(Retryable), "script, fail", "<class"),  # pyright: ignore[reportArgumentType]
        (lambda: say("x").after(-1), "script, after", "-1"),
        (lambda: say("x").using({"input": 1}), "script, using", "{'input': 1}"),  # pyright: ignore[reportArgumentType]
        (lambda: say("x").ending("stopped"), "script, ending", "'stopped'"),
    ],
)
def test_a_wrong_line_is_refused_where_it_is_written(wrong: Callable[[], Any], where: str, found: str) -> None:
    with pytest.raises(ConfigError) as caught:
        wrong()
    assert caught.value.code == "config_invalid"
    assert caught.value.where.startswith(where)
    assert repr(caught.value.found).startswith(found)


def test_texts_of_errors_in_lines_are_as_stored(snapshot: Callable[..., None]) -> None:
    with pytest.raises(ConfigError) as unknown:
        say("x").ending("stopped")
    snapshot(unknown.value, "ending")
    with pytest.raises(ConfigError) as misplaced:
        say("x", "add")  # pyright: ignore[reportArgumentType]
    snapshot(misplaced.value, "part")
