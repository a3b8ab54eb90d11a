"""The calls of one turn: claims for each, an outcome for each, in the order asked."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from flyball import Agent, Limits, tool
from flyball.loop.effects import Act, Cancel, Decide, Extend, LeaseLost, TimeUp
from flyball.message import MessageType
from flyball.outcome import Cancelled, Denied, Failure, Outcome, Success, Timeout
from flyball.person import Verdict
from flyball.progress import Order, Point, Progress, Veto
from flyball.request import Call, Finish, Reply
from flyball.result import Result
from flyball.testing import Line, ScriptDriver, ScriptedModel, assert_honest, call, call_json, say, together
from flyball.tools import Tool


@tool(effects="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def write(text: str) -> str:
    """Write."""
    return text


@tool(effects="read", timeout=5)
def slow(n: int = 0) -> int:
    """Take long."""
    return n


@tool
def broken() -> None:
    """Fail."""
    raise ValueError("out of order")


SUM = call("add", a=1, b=2)


class Raw(Line):
    """A line whose calls have the ids a test gives them."""

    def __init__(self, *ids: str, name: str = "add", arguments: str = '{"a": 1, "b": 2}') -> None:
        super().__init__(calls=tuple((name, arguments) for _ in ids), text=" ".join(ids))

    def build_reply(self, first_id: int, model: str = "scripted", provider: str | None = None) -> Reply:
        ids = self.text.split(" ")
        calls = tuple(Call(one, *given) for one, given in zip(ids, self.calls, strict=True))
        return Reply("", calls, self.usage, Finish.CALLS)


def run(*lines: Line, limits: Limits | None = None, hooks: Sequence[Any] = (), **options: Any) -> Result:
    model = ScriptedModel(*lines, grace=say("Reported."))
    agent = Agent(
        model=model, tools=[add, write, slow, broken], limits=limits or Limits(), hooks=hooks, max_output_tokens=50
    )
    return assert_honest(ScriptDriver(agent, **options).run("Go."))


def statuses(result: Result) -> list[str]:
    return [
        outcome.reason.value if isinstance(outcome, Denied) else outcome.status.value for outcome in result.tool_results
    ]


class TestClaims:
    @pytest.mark.parametrize("left", [0, 1, 2, 4, 5])
    @pytest.mark.parametrize("name", ["add", "write"])
    def test_calls_are_claimed_one_by_one_and_what_is_left_is_used(self, left: int, name: str) -> None:
        arguments = {"a": 1, "b": 2} if name == "add" else {"text": "x"}
        result = run(together(*[call(name, **arguments)] * 5), say("ok"), limits=Limits(tool_calls=left))
        assert statuses(result) == ["done"] * left + ["budget"] * (5 - left)
        assert result.budgets["tool_calls"].used == left

    def test_the_model_is_told_the_reason_and_goes_on(self) -> None:
        result = run(together(*[SUM] * 5), say("ok"), limits=Limits(tool_calls=2))
        told = [message.content for message in result.messages if message.type is MessageType.TOOL_RESULT]
        assert told[:2] == ["3", "3"]
        assert ["(budget)" in text for text in told[2:]] == [True] * 3
        assert (result.stop, result.flags, result.turns) == ("completed", ("max_tool_calls_reached",), 2)

    @pytest.mark.parametrize("asked", [1, 2, 5])
    def test_a_batch_that_is_denied_whole_leads_to_grace_at_once(self, asked: int) -> None:
        result = run(SUM, together(*[SUM] * asked), say("never said"), limits=Limits(tool_calls=1))
        assert (result.stop, result.text, result.flags) == ("budget", "Reported.", ("max_tool_calls_reached",))
        assert (result.turns, result.requests) == (2, 3)
        assert "(1)" in str(result.warning)

    def test_a_batch_of_which_one_call_is_denied_for_another_reason_leads_to_no_grace(self) -> None:
        result = run(together(SUM, call("unknown")), say("ok"), limits=Limits(tool_calls=0))
        assert (result.stop, statuses(result)) == ("completed", ["budget", "unknown"])

    def test_the_limit_of_one_tool_denies_only_that_tool(self) -> None:
        batch = together(SUM, SUM, call("write", text="x"))
        result = run(batch, SUM, say("ok"), limits=Limits(calls={"add": 1}))
        assert statuses(result) == ["done", "budget", "done", "budget"]
        assert (result.stop, result.flags) == ("completed", ("max_calls_of_add_reached",))

    def test_after_more_calls_are_allowed_the_limit_of_one_tool_ends_nothing(self) -> None:
        result = run(
            together(SUM, SUM),
            SUM,
            say("ok"),
            limits=Limits(tool_calls=1, calls={"add": 1}),
            signals={1: [Extend({"tool_calls": 5})]},
        )
        assert (result.stop, statuses(result)) == ("completed", ["done", "budget", "budget"])

    def test_calls_that_cannot_be_read_cost_nothing(self) -> None:
        result = run(together(call("unknown"), call("add", a=1), SUM), say("ok"), limits=Limits(tool_calls=1))
        assert statuses(result) == ["unknown", "validation", "done"]
        assert result.flags == ()

    def test_the_most_calls_that_a_tool_allows_hold_too(self) -> None:
        once = Tool(lambda: 1, name="once", max_calls=1)
        model = ScriptedModel(together(call("once"), call("once")), say("ok"))
        result = assert_honest(ScriptDriver(Agent(model=model, tools=[once])).run("Go."))
        assert statuses(result) == ["done", "budget"]


class TestOutcomes:
    def test_outcomes_come_in_the_order_asked_whatever_each_came_to(self) -> None:
        batch = together(call("broken"), SUM, call("unknown"), call("write", text="x"), call("slow"), SUM)
        result = run(batch, say("ok"), seconds={"slow": 10})
        kinds: list[type[Outcome]] = [Failure, Success, Denied, Success, Timeout, Success]
        assert [type(outcome) for outcome in result.tool_results] == kinds
        assert [outcome.call_id for outcome in result.tool_results] == [f"call-{n}" for n in range(6)]

    def test_reads_stand_side_by_side_and_a_write_is_a_barrier(self) -> None:
        model = ScriptedModel(together(SUM, SUM, call("write", text="x"), SUM), say("ok"))
        script = ScriptDriver(Agent(model=model, tools=[add, write]))
        assert_honest(script.run("Go."))
        groups = [[act.call.name for act in effect.acts] for effect in script.effects if isinstance(effect, Act)]
        assert groups == [["add", "add"], ["write"], ["add"]]

    def test_a_failure_tells_the_model_its_kind_and_words(self) -> None:
        result = run(call("broken"), say("ok"))
        assert result.messages[2].content == "ValueError: out of order"
        assert (result.messages[2].payload or {})["is_error"] is True

    def test_a_tool_that_timed_out_and_writes_is_blocked(self) -> None:
        result = run(call("write", text="x"), call("write", text="x"), say("ok"), seconds={"write": 60})
        assert statuses(result) == ["timed_out", "blocked"]

    def test_a_call_does_not_outlive_the_time_for_work(self) -> None:
        limits = Limits(seconds=100, tool_seconds={"slow": 4})
        result = run(together(call("slow"), call("slow")), say("ok"), limits=limits, seconds={"slow": 50})
        assert (statuses(result), result.seconds) == (["timed_out"] * 2, 4.0)

    def test_results_of_one_batch_are_one_group(self) -> None:
        result = run(say("Adding.", SUM, SUM), say("ok"))
        assert [message.group for message in result.messages] == [None, 1, 1, 1, 4, 4, None]

    def test_a_lone_call_has_no_group(self) -> None:
        assert [message.group for message in run(SUM, say("ok")).messages] == [None] * 4


class TestIds:
    @pytest.mark.parametrize(
        "ids",
        [("",), ("", ""), ("a", "a"), ("a", "a", "a"), ("a", "", "a", ""), ("a-2", "a", "a"), ("call-1", "", "")],
    )
    def test_every_call_gets_an_id_of_its_own_and_a_result_that_finds_it(self, ids: tuple[str, ...]) -> None:
        result = run(Raw(*ids), say("ok"))
        own = [outcome.call_id for outcome in result.tool_results]
        assert len(set(own)) == len(ids)
        assert all(own)
        assert (statuses(result), result.stop) == (["done"] * len(ids), "completed")

    def test_ids_that_begin_anew_in_every_reply_are_told_apart(self) -> None:
        result = run(Raw("0", "1"), Raw("0", "1"), Raw("0"), say("ok"))
        assert len({outcome.call_id for outcome in result.tool_results}) == 5

    def test_an_id_of_its_own_is_kept(self) -> None:
        assert [outcome.call_id for outcome in run(Raw("x7"), say("ok")).tool_results] == ["x7"]


class TestMistakes:
    @pytest.mark.parametrize(
        ("line", "words"),
        [
            (call("ad", a=1, b=2), "add"),
            (Raw("x", name=""), "''"),
            (call("add", a=1), "b"),
            (call("add", a=1, b=2, c=3), "c"),
            (call_json("add", "{'a': 1}"), "JSON"),
            (call_json("add", ""), "a"),
            (call_json("add", "null"), "a"),
            (call_json("add", '"text"'), ""),
        ],
    )
    def test_the_model_is_told_what_is_wrong_and_may_ask_again(self, line: Line, words: str) -> None:
        result = run(line, SUM, say("3"))
        assert words in result.tool_results[0].text
        assert (result.stop, result.text, result.turns) == ("completed", "3", 3)

    @pytest.mark.parametrize("finish", list(Finish))
    @pytest.mark.parametrize("calls", [1, 3])
    def test_calls_are_made_only_if_the_reply_came_to_its_end(self, finish: Finish, calls: int) -> None:
        result = run(together(*[SUM] * calls).ending(finish), say("ok"))
        ran = finish in (Finish.STOP, Finish.CALLS)
        assert [outcome.ok for outcome in result.tool_results] == [ran] * calls
        assert result.budgets["tool_calls"].used == (calls if ran else 0)

    def test_a_reply_cut_at_its_greatest_length_is_told_so(self, snapshot: Callable[..., None]) -> None:
        result = run(say("I will", SUM).ending("length"), say("ok"))
        assert not result.tool_results[0].ok
        snapshot(result.tool_results[0].text)
        assert (result.stop, result.turns) == ("completed", 2)


class TestVetoes:
    def test_a_veto_denies_the_call_and_the_run_goes_on(self) -> None:
        def hook(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
            veto = point is Point.TOOL_CALLED and isinstance(about, Call) and about.name == "write"
            return [Veto("Not on Sundays.")] if veto else ()

        result = run(together(SUM, call("write", text="x")), say("ok"), hooks=[hook], limits=Limits(tool_calls=1))
        assert statuses(result) == ["done", "rule"]
        assert result.tool_results[1].text.endswith("(rule): Not on Sundays.")
        assert (result.stop, result.flags) == ("completed", ())

    @pytest.mark.parametrize("point", [Point.TURN_STARTED, Point.TOOL_ENDED, Point.RUN_STARTED])
    def test_a_veto_counts_where_a_call_is_asked_for_only(self, point: Point) -> None:
        def hook(where: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
            return [Veto("No.")] if where is point else ()

        assert statuses(run(SUM, say("ok"), hooks=[hook])) == ["done"]


class TestApproval:
    @staticmethod
    def result(*verdicts: Verdict) -> Result:
        careful = Tool(lambda: "done", name="careful", approve=True)
        model = ScriptedModel(together(call("careful"), call("careful")), say("ok"))
        return assert_honest(ScriptDriver(Agent(model=model, tools=[careful]), verdicts=verdicts).run("Go."))

    def test_a_call_is_made_when_a_person_agrees(self) -> None:
        assert statuses(self.result(Verdict(True), Verdict(True))) == ["done", "done"]

    def test_a_call_without_approval_is_denied_with_the_persons_words(self) -> None:
        result = self.result(Verdict(False, "Too dear."), Verdict(True))
        assert statuses(result) == ["approval", "done"]
        assert "Too dear." in result.tool_results[0].text

    def test_the_run_pauses_where_there_is_nobody_to_ask_and_nothing_is_counted(self) -> None:
        result = self.result()
        assert (result.stop, [question.id for question in result.questions]) == ("paused", ["call-0", "call-1"])
        assert (statuses(result), result.budgets["tool_calls"].used) == (["approval"] * 2, 0)

    def test_a_call_is_not_made_when_the_run_is_cancelled_while_a_person_thinks(self) -> None:
        made: list[int] = []
        careful = Tool(lambda: made.append(1), name="careful", approve=True)
        agent = Agent(model=ScriptedModel(call("careful")), tools=[careful])
        result = assert_honest(ScriptDriver(agent, verdicts=[Verdict(True)], signals={1: [Cancel()]}).run("Go."))
        assert (result.stop, statuses(result), made) == ("cancelled", ["cancelled"], [])

    def test_the_question_names_the_call(self) -> None:
        careful = Tool(lambda: "done", name="careful", approve=True)
        script = ScriptDriver(Agent(model=ScriptedModel(call("careful"), say("ok")), tools=[careful]))
        script.run("Go.")
        [asked] = [effect for effect in script.effects if isinstance(effect, Decide)]
        assert asked.question.id == "call-0"
        assert "careful" in asked.question.text


class TestInterruptedBatch:
    @pytest.mark.parametrize(("letter", "stop"), [(Cancel(), "cancelled"), (LeaseLost(), "contended")])
    def test_what_has_not_begun_when_the_run_is_called_off_is_cancelled(self, letter: Any, stop: str) -> None:
        result = run(together(*[call("write", text="x")] * 3), signals={1: [letter]})
        assert [type(outcome) for outcome in result.tool_results] == [Success, Cancelled, Cancelled]
        assert (result.stop, result.budgets["tool_calls"].used) == (stop, 1)

    def test_what_has_not_begun_when_the_time_is_up_is_denied(self) -> None:
        result = run(together(*[call("write", text="x")] * 3), signals={1: [TimeUp()]})
        assert statuses(result) == ["done", "deadline", "deadline"]
        assert (result.stop, result.flags, result.text) == ("deadline", ("max_seconds_reached",), "Reported.")

    def test_what_has_not_begun_when_the_time_for_work_is_over_is_denied(self) -> None:
        patient = Tool(lambda: 1, name="patient", timeout=None, retry_on_timeout=True)
        model = ScriptedModel(together(*[call("patient")] * 3), grace=say("Reported."))
        agent = Agent(model=model, tools=[patient], limits=Limits(seconds=100))
        result = assert_honest(ScriptDriver(agent, seconds={"patient": 50}).run("Go."))
        assert statuses(result) == ["done", "timed_out", "deadline"]
        assert (result.stop, result.seconds) == ("deadline", 85.0)
