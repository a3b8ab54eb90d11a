"""The grace turn: exactly one more request, without tools, from what was set aside; and the reason stays."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from flyball import Agent, Limits, tool
from flyball.budget.limits import Reserve
from flyball.budget.price import TokenPrice
from flyball.errors import ContextTooLong, ModelError, Retryable
from flyball.event import GraceEnded, GraceStarted, ModelReplied
from flyball.loop.effects import Append, Ask, TimeUp
from flyball.message import Role, check_pairs
from flyball.outcome import Denied, Reason
from flyball.request import Purpose, Request, Usage, estimate_request_tokens
from flyball.result import Result
from flyball.testing import Line, ScriptDriver, ScriptedModel, assert_honest, call, fail, say


@tool(timeout=None, poll=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(poll=True)
def essay(words: int) -> str:
    """Write much."""
    return "word " * words


SUM = call("add", a=1, b=2)

ENDS: dict[str, tuple[Limits, dict[str, Any], str]] = {
    "turns": (Limits(turns=2), {}, "budget"),
    "tool calls": (Limits(tool_calls=2), {}, "budget"),
    "tokens": (Limits(tokens=6_000), {}, "budget"),
    "context": (Limits(context_tokens=600), {}, "budget"),
    "money": (Limits(usd=0.04), {}, "budget"),
    "seconds": (Limits(seconds=100), {"seconds": {"add": 30.0}}, "deadline"),
    "time of day": (Limits(), {"signals": {3: [TimeUp()]}}, "deadline"),
}


def driver(end: str, grace: Line | None = None, *, offered: bool = True) -> ScriptDriver:
    limits, driving, _ = ENDS[end]
    line = SUM.using(Usage(1_000, 200)) if end in ("tokens", "money") else SUM.using(Usage(200, 5))
    model = ScriptedModel.looping(line, grace=grace or say("I added."), price=TokenPrice(input=1, output=10))
    return ScriptDriver(Agent(model=model, tools=[add], limits=limits, grace=offered), **driving)


def reports(script: ScriptDriver) -> list[Request]:
    asked = [effect.request for effect in script.effects if isinstance(effect, Ask)]
    return [request for request in asked if request.purpose is Purpose.GRACE]


def kinds(result: Result) -> list[str]:
    return [event.kind for event in result.events]


@pytest.mark.parametrize("end", ENDS)
class TestEveryLimit:
    def test_leads_to_exactly_one_more_request_and_keeps_its_reason(self, end: str) -> None:
        script = driver(end)
        result = assert_honest(script.run("Go."))
        assert (result.stop, result.completed, result.text) == (ENDS[end][2], False, "I added.")
        assert len(reports(script)) == 1
        assert result.to_dict()["status"] == "budget_exceeded"
        assert kinds(result)[-1] == "run_ended"

    def test_a_report_is_asked_for_without_tools_in_a_message_of_the_users(
        self, end: str, snapshot: Callable[..., None]
    ) -> None:
        script = driver(end)
        result = script.run("Go.")
        [request] = reports(script)
        last = request.messages[-1]
        assert (list(request.tools), last.role) == ([], Role.USER)
        snapshot(last.content)
        assert result.warning is not None
        assert result.warning in last.content

    def test_sends_only_whole_pairs(self, end: str) -> None:
        script = driver(end)
        script.run("Go.")
        for effect in script.effects:
            if isinstance(effect, Ask):
                assert check_pairs(effect.request.messages) == []

    def test_keeps_the_question_and_the_report_in_the_transcript(self, end: str) -> None:
        script = driver(end)
        result = script.run("Go.")
        kept = [message for effect in script.effects if isinstance(effect, Append) for message in effect.messages]
        assert kept == list(result.messages)
        assert [message.role for message in kept[-2:]] == [Role.USER, Role.ASSISTANT]
        assert [message.n for message in kept] == list(range(len(kept)))

    def test_does_not_count_as_a_turn(self, end: str) -> None:
        result = driver(end).run("Go.")
        assert result.turns == result.requests - 1

    @pytest.mark.parametrize(
        "line",
        [
            say(""),
            say("  \n"),
            fail(ModelError("gone")),
            fail(Retryable("busy")),
            fail(ContextTooLong("no")),
            say("Bad.").ending("content_filter"),
            SUM,
        ],
        ids=["empty", "blank", "failed", "busy", "context", "filtered", "only a call"],
    )
    def test_ends_in_a_report_from_the_record_where_the_model_gives_none(self, end: str, line: Line) -> None:
        result = assert_honest(driver(end, grace=line).run("Go."))
        assert (result.stop, len(reports_of(result))) == (ENDS[end][2], 1)
        assert result.warning is not None
        assert result.warning in result.text
        assert [event.reported for event in result.events if isinstance(event, GraceEnded)] == [False]

    @pytest.mark.parametrize("asked", [1, 3])
    def test_denies_calls_that_the_report_asks_for(self, end: str, asked: int) -> None:
        result = assert_honest(driver(end, grace=say("Adding.", *[SUM] * asked)).run("Go."))
        denied = result.tool_results[-asked:]
        assert [type(outcome) for outcome in denied] == [Denied] * asked
        assert {outcome.reason for outcome in denied if isinstance(outcome, Denied)} == {Reason.BUDGET}
        assert (result.text, result.stop) == ("Adding.", ENDS[end][2])
        assert check_pairs(result.messages) == []

    def test_asks_nothing_more_with_grace_off(self, end: str) -> None:
        script = driver(end, offered=False)
        result = assert_honest(script.run("Go."))
        assert (result.stop, reports(script)) == (ENDS[end][2], [])
        assert "grace_started" not in kinds(result)
        assert result.warning is not None


def reports_of(result: Result) -> Sequence[Any]:
    return [event for event in result.events if isinstance(event, GraceStarted)]


class TestReserve:
    def test_work_cannot_spend_the_reserve_of_tokens(self) -> None:
        model = ScriptedModel.looping(SUM.using(Usage(300, 100)), grace=say("R.").using(Usage(300, 100)))
        result = assert_honest(ScriptDriver(Agent(model=model, tools=[add], limits=Limits(tokens=5_000))).run("Go."))
        replies = [event for event in result.events if isinstance(event, ModelReplied) and event.purpose == "turn"]
        work = sum(event.input_tokens + event.output_tokens for event in replies)
        assert work <= 4_000
        assert result.text == "R."

    @pytest.mark.parametrize("tokens", [0, 100, 400, 1_000, 3_000])
    def test_a_reserve_of_ones_own_is_what_is_left_for_the_report(self, tokens: int) -> None:
        model = ScriptedModel.looping(SUM.using(None), grace=say("R."))
        limits = Limits(tokens=8_000, reserve=Reserve(tokens=tokens))
        script = ScriptDriver(Agent(model=model, tools=[add], limits=limits))
        result = assert_honest(script.run("Go."))
        [first, *_] = [effect.request for effect in script.effects if isinstance(effect, Ask)]
        assert first.max_output_tokens is not None
        assert estimate_request_tokens(first) + first.max_output_tokens <= 8_000 - tokens
        for request in reports(script):
            assert request.max_output_tokens is not None
            assert estimate_request_tokens(request) + request.max_output_tokens <= tokens
        assert (result.text == "R.") is bool(reports(script)) is (tokens >= 400)

    def test_the_report_may_take_the_seconds_set_aside_but_not_more(self) -> None:
        def text(after: float) -> str:
            model = ScriptedModel.looping(SUM, grace=say("A long report.").after(after))
            agent = Agent(model=model, tools=[add], limits=Limits(seconds=100))
            script = ScriptDriver(agent, seconds={"add": 90})
            result = assert_honest(script.run("Go."))
            assert (result.stop, result.seconds <= 100) == ("deadline", True)
            [effect] = [one for one in script.effects if isinstance(one, Ask) and one.request.purpose is Purpose.GRACE]
            assert effect.deadline == 100
            return result.text

        assert text(14.9) == "A long report."
        assert text(20.0).startswith("A long \n\nThe report was cut off.")

    def test_work_sees_the_deadline_less_the_reserve(self) -> None:
        model = ScriptedModel.looping(SUM, grace=say("R."))
        script = ScriptDriver(Agent(model=model, tools=[add], limits=Limits(seconds=100)), seconds={"add": 30})
        script.run("Go.")
        works = [one for one in script.effects if isinstance(one, Ask) and one.request.purpose is Purpose.TURN]
        assert {one.deadline for one in works} == {85.0}

    def test_without_grace_nothing_is_set_aside(self) -> None:
        model = ScriptedModel.looping(SUM)
        agent = Agent(model=model, tools=[add], limits=Limits(seconds=100), grace=False)
        assert assert_honest(ScriptDriver(agent, seconds={"add": 30}).run("Go.")).seconds == 100

    def test_no_report_is_asked_for_when_all_the_time_is_over(self) -> None:
        model = ScriptedModel(SUM, grace=say("never"))
        limits = Limits(seconds=100, reserve=Reserve(seconds=0))
        script = ScriptDriver(Agent(model=model, tools=[add], limits=limits), seconds={"add": 200})
        result = assert_honest(script.run("Go."))
        assert (result.stop, reports(script)) == ("deadline", [])
        assert result.warning is not None
        assert result.text.startswith(result.warning)

    def test_a_report_in_time_pays_with_the_money_set_aside(self) -> None:
        script = driver("money", grace=say("R.").using(Usage(500, 50)))
        result = assert_honest(script.run("Go."))
        assert result.text == "R."
        assert result.budgets["usd"].used <= 40_000_000


class TestFitted:
    @pytest.mark.parametrize("turns", [1, 8])
    @pytest.mark.parametrize("words", [5, 60, 500])
    @pytest.mark.parametrize("reserve", [60, 250, 600, 1_500, 4_000])
    @pytest.mark.parametrize("calls", [1, 3])
    def test_a_long_history_fits_into_a_small_reserve(self, turns: int, words: int, reserve: int, calls: int) -> None:
        line = say("Next.", *[call("essay", words=words)] * calls).using(Usage(50, 10))
        model = ScriptedModel(*[line] * turns, grace=say("I wrote.").using(None))
        limits = Limits(turns=turns, tokens=40_000, reserve=Reserve(tokens=reserve))
        script = ScriptDriver(Agent(model=model, tools=[essay], limits=limits, instructions="Write."))
        result = assert_honest(script.run("Write much, please."))
        assert result.stop == "budget"
        assert result.text
        for request in reports(script):
            assert check_pairs(request.messages) == []
            assert "Write much, please." in [message.content for message in request.messages]
            assert request.messages[-1].role is Role.USER
            assert request.max_output_tokens is not None
            assert request.max_output_tokens >= 32

    def test_the_context_limit_bounds_the_report_too(self) -> None:
        line = call("essay", words=4_000).using(None)
        model = ScriptedModel.looping(line, grace=say("I wrote."))
        script = ScriptDriver(Agent(model=model, tools=[essay], limits=Limits(context_tokens=2_000)))
        result = assert_honest(script.run("Write."))
        [request] = reports(script)
        assert estimate_request_tokens(request) <= 2_000
        assert (result.stop, result.flags) == ("budget", ("max_context_tokens_reached",))

    @pytest.mark.parametrize("limits", [Limits(turns=2), Limits(turns=2, tokens=1_000_000, usd=9)])
    def test_a_task_that_fits_the_model_is_in_the_report_s_request_although_its_upper_estimate_is_too_long(
        self, limits: Limits
    ) -> None:
        task = "The governor keeps the engine at its speed, whatever the load is. " * 300  # 4,500 tokens
        line = call("essay", words=30).using(Usage(4_800, 20))
        model = ScriptedModel.looping(line, grace=say("I wrote."), price=TokenPrice(input=1, output=10))
        agent = Agent(model=model, tools=[essay], limits=replace(limits, context_tokens=8_000))
        script = ScriptDriver(agent)
        result = assert_honest(script.run(task))
        [request] = reports(script)
        assert (result.text, result.turns, len(request.messages)) == ("I wrote.", 2, 6)
        assert estimate_request_tokens(request) > 12_000
        assert request.max_output_tokens is None or request.max_output_tokens > 500

    def test_money_bounds_the_report_and_not_only_whether_there_is_one(self) -> None:
        line = call("essay", words=2_000).using(Usage(10_000, 500))
        model = ScriptedModel.looping(line, grace=say("I wrote."), price=TokenPrice(input=1, output=10))
        script = ScriptDriver(Agent(model=model, tools=[essay], limits=Limits(usd=0.1)))
        result = assert_honest(script.run("Write."))
        [request] = reports(script)
        assert (result.text, result.flags) == ("I wrote.", ("max_cost_usd_reached",))
        assert request.max_output_tokens is not None
        left = 100_000_000 - 15_000_000 * result.turns
        assert estimate_request_tokens(request) * 1_000 + request.max_output_tokens * 10_000 <= left
        assert len(request.messages) < len(result.messages) - 2

    @pytest.mark.parametrize("turns", [1, 3, 9])
    def test_a_task_behind_an_old_conversation_is_the_one_that_stays(self, turns: int) -> None:
        old = [{"role": "user", "content": "old " * 300}, {"role": "assistant", "content": "said " * 300}]
        model = ScriptedModel.looping(call("essay", words=300), grace=say("R."))
        agent = Agent(model=model, tools=[essay], limits=Limits(turns=turns, context_tokens=2_500))
        script = ScriptDriver(agent)
        assert_honest(script.run([*old, {"role": "user", "content": "The new task."}]))
        [request] = reports(script)
        assert "The new task." in [message.content for message in request.messages]
