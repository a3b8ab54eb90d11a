"""A whole run: its end, its one reason, its result and its record; the content of seed 002's smoke tests."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from flyball import Agent, Limits, tool
from flyball.errors import ModelError, RunStopped
from flyball.event import Event
from flyball.loop.effects import Cancel, LeaseLost, TimeUp
from flyball.message import Message, MessageType, Role
from flyball.progress import Continue, Decision, Halt, Order, Point, Progress, Unfinished
from flyball.request import Finish, Usage
from flyball.result import Result, Stop
from flyball.testing import Line, ScriptDriver, ScriptedModel, assert_honest, call, fail, say, together


@tool(timeout=None)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


SUM = call("add", a=1, b=2)


def unfinished(progress: Progress) -> Decision:
    return Unfinished(("a file",))


def halt(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
    return [Halt("rule", "Enough.")] if point is Point.TURN_ENDED else ()


def broken(progress: Progress) -> bool:
    raise ValueError("odd")


STOPS: dict[Stop, tuple[tuple[Line, ...], dict[str, Any], dict[str, Any]]] = {
    Stop.CONTENDED: ((SUM, say("3")), {}, {"signals": {1: [LeaseLost()]}}),
    Stop.CANCELLED: ((SUM, say("3")), {}, {"signals": {1: [Cancel("me")]}}),
    Stop.FAILED: ((SUM, fail(ModelError("gone"))), {}, {}),
    Stop.DEADLINE: ((SUM, SUM), {"limits": Limits(seconds=100)}, {"seconds": {"add": 80.0}}),
    Stop.BUDGET: ((SUM, SUM), {"limits": Limits(turns=2)}, {}),
    Stop.HALTED: ((SUM, say("3")), {"hooks": [halt]}, {}),
    Stop.UNFINISHED: ((SUM, say("3")), {"completion": unfinished}, {}),
    Stop.COMPLETED: ((SUM, say("3")), {}, {}),
}
STATUS = {
    Stop.CONTENDED: "transcript_lock_contention",
    Stop.CANCELLED: "interrupted",
    Stop.FAILED: "error",
    Stop.DEADLINE: "budget_exceeded",
    Stop.BUDGET: "budget_exceeded",
    Stop.HALTED: "incomplete",
    Stop.UNFINISHED: "incomplete",
    Stop.COMPLETED: "completed",
}


def ended(stop: Stop, **more: Any) -> Result:
    lines, options, driving = STOPS[stop]
    model = ScriptedModel(*lines, grace=say("Reported."))
    return assert_honest(ScriptDriver(Agent(model=model, tools=[add], **options, **more), **driving).run("Go."))


def run(*lines: Line, **options: Any) -> Result:
    driving = {name: options.pop(name) for name in ("signals", "seconds") if name in options}
    agent = Agent(model=ScriptedModel(*lines, grace=say("Reported.")), tools=[add], **options)
    return assert_honest(ScriptDriver(agent, **driving).run("Go."))


@pytest.mark.parametrize("stop", STOPS)
class TestEveryEnd:
    def test_has_its_one_reason_and_status(self, stop: Stop) -> None:
        result = ended(stop)
        assert (result.stop, result.completed) == (stop, stop is Stop.COMPLETED)
        assert result.to_dict()["status"] == STATUS[stop]

    def test_numbers_its_events_without_a_gap(self, stop: Stop) -> None:
        events = ended(stop).events
        assert [event.seq for event in events] == list(range(len(events)))
        assert {event.header.run_id for event in events} == {events[0].header.run_id}

    def test_tells_a_sink_the_same_events(self, stop: Stop) -> None:
        heard: list[Event] = []
        result = ended(stop, sinks=[heard.append])
        assert [event.to_dict() for event in heard] == [event.to_dict() for event in result.events]

    def test_has_a_record_in_json(self, stop: Stop) -> None:
        record = ended(stop).to_dict()
        assert json.loads(json.dumps(record, allow_nan=False)) == record
        assert set(record) >= {
            *["messages", "final_content", "turn_count", "completed", "status", "last_tool_calls"],
            *["tool_execution_results", "usage", "request_metadata", "max_turns_reached", "warning", "error"],
        }

    def test_keeps_what_was_done(self, stop: Stop) -> None:
        result = ended(stop)
        assert [outcome.ok for outcome in result.tool_results if outcome.call_id == "call-0"] == [True]
        assert result.messages[2].content == "3"

    def test_is_explained_in_plain_words(self, stop: Stop) -> None:
        result = ended(stop)
        assert result.explain().endswith(".")
        if stop is Stop.COMPLETED:
            result.raise_for_stop()
        else:
            with pytest.raises(RunStopped) as raised:
                result.raise_for_stop()
            assert raised.value.result is result

    def test_carries_what_the_caller_gave(self, stop: Stop) -> None:
        lines, options, driving = STOPS[stop]
        agent = Agent(model=ScriptedModel(*lines, grace=say("R.")), tools=[add], metadata={"mode": "chat"}, **options)
        given: dict[str, Any] = {"run_id": "r1", "session": "s1", "metadata": {"job": 7}, "state": {"k": 1}}
        result = ScriptDriver(agent, **driving).run("Go.", **given)
        assert (result.run_id, result.session_id, dict(result.metadata)) == ("r1", "s1", {"mode": "chat", "job": 7})
        assert {event.header.session_id for event in result.events} == {"s1"}
        assert result.state == {"k": 1}


class TestPrecedence:
    @pytest.mark.parametrize(
        ("options", "stop"),
        [
            ({"signals": {1: [Cancel(), LeaseLost(), TimeUp()]}, "hooks": [halt]}, Stop.CONTENDED),
            ({"signals": {1: [Cancel(), TimeUp()]}, "hooks": [halt], "should_continue": broken}, Stop.CANCELLED),
            ({"signals": {1: [TimeUp()]}, "hooks": [halt]}, Stop.DEADLINE),
            ({"signals": {1: [TimeUp()]}, "limits": Limits(turns=1)}, Stop.DEADLINE),
            ({"signals": {1: [TimeUp()]}, "single_turn": True}, Stop.DEADLINE),
            ({"hooks": [halt], "limits": Limits(tool_calls=0)}, Stop.BUDGET),
            ({"should_continue": broken, "hooks": [halt]}, Stop.HALTED),
            ({"should_continue": broken}, Stop.FAILED),
            ({"single_turn": True, "should_continue": broken}, Stop.HALTED),
        ],
    )
    def test_where_several_reasons_hold_the_first_is_the_one(self, options: dict[str, Any], stop: Stop) -> None:
        assert run(SUM, SUM, say("3"), **options).stop is stop

    def test_flags_come_in_the_order_of_first_refusal(self) -> None:
        def more(progress: Progress) -> Decision:
            return Continue("More.")

        lines = [together(SUM, SUM), say("a"), say(""), say("b"), SUM]
        result = run(*lines, limits=Limits(tool_calls=1, retries=0, nudges=1), completion=more)
        assert result.flags == ("max_tool_calls_reached", "max_retries_reached", "max_nudges_reached")
        assert result.stop == "unfinished"

    def test_a_completed_run_may_carry_flags(self) -> None:
        result = run(together(SUM, SUM), say("3"), limits=Limits(tool_calls=1))
        assert (result.stop, result.flags, result.warning) == ("completed", ("max_tool_calls_reached",), None)


class TestSmoke:
    """Seed 002's three, by content."""

    def test_content_usage_tool_results_and_events_come_back_normalised(self) -> None:
        lines = [say("I will add.", SUM).using(Usage(100, 20, 50, 5)), say("It is 3.").using(Usage(130, 10))]
        record = run(*lines, metadata={"agent_slug": "adder"}).to_dict()
        assert (record["final_content"], record["turn_count"], record["completed"]) == ("It is 3.", 2, True)
        own = {"input": 230, "output": 30, "cached": 50, "reasoning": 5, "written": 0}
        assert own.items() <= record["usage"].items()
        assert record["last_tool_calls"] == []
        [result] = record["tool_execution_results"]
        assert (result["tool"], result["status"], result["ok"], result["text"]) == ("add", "done", True, "3")
        assert [one["message_count"] for one in record["request_metadata"]] == [1, 4]
        assert {event["metadata"]["agent_slug"] for event in record["events"]} == {"adder"}
        requested = [event for event in record["events"] if event["event"] == "model_requested"]
        assert [(event["turn"], event["model"], event["provider"]) for event in requested] == [
            (1, "scripted", "flyball"),
            (2, "scripted", "flyball"),
        ]

    def test_a_run_ends_by_itself_and_a_budget_is_told_as_before(self) -> None:
        natural, spent = ended(Stop.COMPLETED).to_dict(), ended(Stop.BUDGET).to_dict()
        assert (natural["max_turns_reached"], natural["warning"], natural["error"]) == (False, None, None)
        assert (spent["max_turns_reached"], spent["completed"]) == (True, False)
        assert "(2)" in spent["warning"]
        assert ended(Stop.DEADLINE).to_dict()["max_turns_reached"] is False

    def test_messages_are_envelopes_that_can_be_read_back(self) -> None:
        result = run(say("I will add.", SUM, SUM), say("It is 3."))
        record = result.to_dict()
        assert [Message.from_dict(one) for one in record["messages"]] == list(result.messages)
        assert [(message.type, message.role) for message in result.messages] == [
            (MessageType.TEXT, Role.USER),
            (MessageType.TEXT, Role.ASSISTANT),
            *[(MessageType.TOOL_CALL, Role.ASSISTANT)] * 2,
            *[(MessageType.TOOL_RESULT, Role.TOOL)] * 2,
            (MessageType.TEXT, Role.ASSISTANT),
        ]
        assert [message.n for message in result.messages] == list(range(7))

    @pytest.mark.parametrize(
        "task",
        [
            "Go.",
            ["Go."],
            {"role": "user", "content": "Go."},
            [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go."}],
            [{"role": "user", "content": [{"type": "text", "text": "Go."}]}],
        ],
    )
    def test_a_task_may_have_any_shape(self, task: Any) -> None:
        model = ScriptedModel(say("Done."))
        result = assert_honest(ScriptDriver(Agent(model=model)).run(task))
        assert model.requests[0].messages[-1].content == "Go."
        assert result.text == "Done."


class TestResult:
    def test_last_calls_are_those_of_the_last_turn(self) -> None:
        assert [one.name for one in ended(Stop.HALTED).last_calls] == ["add"]
        assert list(ended(Stop.COMPLETED).last_calls) == []

    @pytest.mark.parametrize("finish", [Finish.STOP, Finish.LENGTH, Finish.CONTENT_FILTER, Finish.CUT])
    def test_the_result_tells_why_the_last_reply_ended(self, finish: Finish) -> None:
        assert run(say("x").ending(finish)).finish == finish.value

    def test_text_is_what_the_model_said_last_also_where_that_came_with_calls(self) -> None:
        assert run(say("Adding.", SUM), single_turn=True).text == "Adding."
        assert run(say("Adding.", SUM), fail(ModelError("gone"))).text == "Adding."

    def test_seconds_are_the_runs_own(self) -> None:
        result = run(SUM.after(2), say("3").after(0.5), seconds={"add": 1.25})
        assert result.seconds == 3.75
        assert result.events[-1].at == 3.75

    @pytest.mark.parametrize("kept", [1, 5, 12])
    def test_only_the_newest_events_are_kept_and_the_end_is_among_them(self, kept: int) -> None:
        result = run(*[SUM] * 9, say("3"), events_kept=kept)
        assert len(result.events) <= kept
        assert result.events[-1].kind == "run_ended"
        assert result.events[-1].seq == len(result.events) + result.events_dropped - 1

    def test_turns_and_requests_are_facts(self) -> None:
        for stop in STOPS:
            result = ended(stop)
            assert 1 <= result.turns <= result.requests
