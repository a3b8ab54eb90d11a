from collections.abc import Callable, Generator, Sequence
from typing import Any

import anyio
import pytest

from flyball import Agent, ConfigError, Limits, Reserve, Result, Stop, TurnBudget, tool
from flyball.errors import ContextTooLong, Retryable
from flyball.event import Event, Header
from flyball.loop.effects import Act, Ask, Cancel, Extend, Steer, Wait
from flyball.outcome import Denied, Success, Timeout
from flyball.person import Verdict
from flyball.recorder import Recorder
from flyball.request import Reply, Request
from flyball.runtime import RunDriver
from flyball.testing import Line, ManualClock, ScriptDriver, ScriptedModel, call, call_json, fail, replay, say, together
from flyball.tools import ToolContext


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def aadd(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def broken() -> None:
    """Never works."""
    raise ValueError("no disk")


@tool(max_calls=1)
def once() -> str:
    """May be called once."""
    return "x" * 20_000


@tool
def count(by: int, ctx: ToolContext) -> str:
    """Count."""
    ctx.state["count"] = ctx.state.get("count", 0) + by
    return f"{ctx.idempotency_key}: {ctx.budgets['turns'].used} turns used"


@tool(effects="read")
def look(ctx: ToolContext) -> float:
    """Look."""
    return ctx.token.remaining_s()


@tool(approve=True)
def delete() -> str:
    """Delete."""
    return "deleted"


@tool
def report(ctx: ToolContext) -> None:
    """Report."""
    ctx.report("half")


@tool
async def areport(ctx: ToolContext) -> None:
    """Report."""
    ctx.report("half")


TOOLS = [add, aadd, areport, broken, once, count, delete, look, report]

SCRIPTS: dict[str, list[Line]] = {
    "an answer": [say("hello")],
    "calls, sync and async": [call("add", a=1, b=2), call("aadd", a=3, b=4), say("3 and 7")],
    "calls together": [together(call("add", a=1, b=2), call("aadd", a=3, b=4), call("broken")), say("done")],
    "mistakes": [call("ad", a=1), call("add", a="one", b=2), call_json("add", '{"a": '), say("I give up")],
    "state and context": [call("count", by=2), call("count", by=3), say("5")],
    "a large result, and a call too many": [call("once"), call("once"), say("done")],
    "a call that nobody approves": [call("delete"), say("nothing deleted")],
    "too many turns": [call("add", a=n, b=n) for n in range(6)],
    "too many tokens": [say("x", call("add", a=1, b=1)).using(None), say("y")],
    "a reply that is cut off": [say("half", call("add", a=1, b=1)).ending("length"), say("whole")],
    "a filter": [say("").ending("content_filter")],
    "an empty reply": [say(""), say("")],
    "a failure": [fail(ValueError("no model"))],
    "a context that is too long": [fail(ContextTooLong("200,001 tokens")), say("report")],
    "the end of the script": [call("add", a=1, b=1)],
}


def agent(lines: Sequence[Line], **more: Any) -> Agent:
    limits = Limits(turns=5, tool_calls=6, tokens=100_000)
    options: dict[str, Any] = {"limits": limits, "clock": ManualClock(), **more}
    return Agent(model=ScriptedModel(*lines), tools=TOOLS, instructions="Do it.", **options)


def driven(one: Agent, task: str = "Do it.", run_id: str = "run-1") -> tuple[Result, RunDriver]:
    plan = one.plan(task, run_id=run_id)
    header = Header(plan.run_id, plan.session_id, plan.started_at, plan.metadata)
    driver = RunDriver(plan, Recorder(header), clock=one.clock)
    return anyio.run(driver.drive), driver


class TestTheSameAsTheRealDriver:
    @pytest.mark.parametrize("name", SCRIPTS)
    def test_a_run_comes_to_the_same(self, name: str) -> None:
        real, _ = driven(agent(SCRIPTS[name]))
        scripted = ScriptDriver(agent(SCRIPTS[name])).run("Do it.", run_id="run-1")
        assert scripted == real
        assert scripted.to_dict() == real.to_dict()

    @pytest.mark.parametrize("name", SCRIPTS)
    def test_a_real_run_plays_again_from_its_answers(self, name: str) -> None:
        one = agent(SCRIPTS[name])
        real, driver = driven(one)
        assert isinstance(one.model, ScriptedModel)
        asked = len(one.model.requests)
        assert replay(one, one.plan("Do it.", run_id="run-1"), driver.answers) == real
        one.model.assert_asked(asked)

    @pytest.mark.parametrize("name", SCRIPTS)
    def test_a_scripted_run_plays_again_from_its_answers(self, name: str) -> None:
        script = ScriptDriver(agent(SCRIPTS[name]))
        result = script.run("Do it.", state={"count": 1})
        assert script.replay() == script.replay() == result

    def test_a_text_that_streams_comes_to_the_same(self) -> None:
        lines = [say("").streaming("I ", "add."), say("done").streaming("do", "ne")]
        seen: list[Event] = []
        real = agent(lines, sinks=[seen.append]).run("Do it.", run_id="r")
        heard, seen[:] = list(seen), []
        scripted = ScriptDriver(agent(lines, sinks=[seen.append])).run("Do it.", run_id="r")
        assert scripted == real
        assert seen == heard
        assert [event.kind for event in seen].count("delta") == 2

    @pytest.mark.parametrize("name", ["report", "areport"])
    @pytest.mark.parametrize("scripted", [False, True])
    def test_what_a_tool_tells_on_the_way_comes_before_its_end(self, name: str, scripted: bool) -> None:
        seen: list[Event] = []
        one = agent([call(name), say("done")], sinks=[seen.append])
        (ScriptDriver(one).run if scripted else one.run)("Do it.")
        told = [event.kind for event in seen if event.kind.startswith("tool_")]
        assert told == ["tool_started", "tool_reported", "tool_ended"]

    def test_a_reply_that_is_cut_keeps_the_same_text(self) -> None:
        lines = [say("").streaming("I ", "add", "ed.").after(1_000), say("report")]
        one = Agent(model=ScriptedModel(*lines), limits=Limits(seconds=60, reserve=Reserve(seconds=59.9)))
        real, scripted = one.run("Do it."), ScriptDriver(one).run("Do it.")
        assert real.stop == scripted.stop == "deadline"
        assert real.messages[1].content == scripted.messages[1].content == "I "
        assert real.text == scripted.text == "report"

    def test_a_retry_comes_to_the_same_but_for_the_time(self) -> None:
        one = agent([fail(Retryable("busy", after=0.01)), say("done")])
        real, scripted = one.run("Do it."), ScriptDriver(one).run("Do it.")
        assert [event.kind for event in real.events] == [event.kind for event in scripted.events]
        assert (real.budgets, real.usage, real.text) == (scripted.budgets, scripted.usage, scripted.text)

    @pytest.mark.parametrize("scripted", [False, True])
    def test_what_is_shared_with_other_runs_is_taken_and_refused(self, scripted: bool) -> None:
        shared = TurnBudget.create(timeout_s=60, max_steps=3, max_tool_calls=None, max_reflections=4)
        one = agent([call("add", a=n, b=n) for n in range(9)])
        run = ScriptDriver(one).run if scripted else one.run
        first, second = [run("Do it.", within=shared) for _ in range(2)]
        assert (first.stop, first.turns, second.turns) == ("budget", 3, 0)
        assert shared.budgets["turns"].used == 3


class TestTime:
    def test_a_line_takes_its_time(self) -> None:
        script = ScriptDriver(agent([say("x").after(12.5)]))
        assert script.run("Do it.").seconds == script.at == 12.5

    def test_a_tool_takes_its_time(self) -> None:
        result = ScriptDriver(agent([call("add", a=1, b=2), say("3")]), seconds={"add": 4}).run("Do it.")
        assert (result.seconds, result.tool_results[0].seconds) == (4, 4)

    def test_calls_side_by_side_take_the_time_of_the_longest(self) -> None:
        script = ScriptDriver(agent([together(*[call("look")] * 3), say("x")]), seconds={"look": 4})
        result = script.run("Do it.")
        assert result.seconds == 4
        assert [type(effect) for effect in script.effects].count(Act) == 1

    def test_only_so_many_are_under_way_at_a_time(self) -> None:
        limits = Limits(tool_calls=20)
        lines = [together(*[call("look")] * 9), say("x")]
        assert ScriptDriver(agent(lines, limits=limits), seconds={"look": 4}).run("Do it.").seconds == 8

    def test_a_tool_that_is_too_slow_times_out(self) -> None:
        result = ScriptDriver(agent([call("add", a=1, b=2), say("x")]), seconds={"add": 1_000}).run("Do it.")
        [outcome] = result.tool_results
        assert isinstance(outcome, Timeout)
        assert result.seconds == outcome.cap_s == 45

    def test_a_tool_sees_how_long_it_has(self) -> None:
        result = ScriptDriver(agent([call("look"), say("x")])).run("Do it.")
        assert isinstance(result.tool_results[0], Success)
        assert result.tool_results[0].value == 44.5

    def test_a_wait_passes_at_once(self) -> None:
        script = ScriptDriver(agent([fail(Retryable("busy", after=30)), say("done")]))
        assert script.run("Do it.").seconds == 30
        assert [type(effect) for effect in script.effects if isinstance(effect, Ask | Wait)] == [Ask, Wait, Ask]

    def test_the_run_ends_at_its_deadline(self) -> None:
        lines = [call("add", a=1, b=2).after(30), call("add", a=1, b=2).after(300), say("report").after(5)]
        result = ScriptDriver(agent(lines, limits=Limits(seconds=100))).run("Do it.")
        assert (result.stop, result.seconds, result.text) == ("deadline", 90, "report")


class TestPeople:
    def test_letters_come_in_with_the_answer_of_that_number(self) -> None:
        lines = [call("add", a=1, b=2), say("3")]
        result = ScriptDriver(agent(lines), signals={0: [Steer("Be brief.")]}).run("Do it.")
        assert [message.content for message in result.messages if message.role == "user"] == ["Do it.", "Be brief."]
        result = ScriptDriver(agent(lines), signals={1: [Cancel("me")]}).run("Do it.")
        assert (result.stop, result.stopped_by, len(result.tool_results)) == (Stop.CANCELLED, "me", 1)

    def test_a_run_can_be_extended(self) -> None:
        lines = [*[call("add", a=n, b=n) for n in range(6)], say("done")]
        result = ScriptDriver(agent(lines), signals={2: [Extend({"turns": 5})]}).run("Do it.")
        assert (result.stop, result.turns) == ("completed", 7)

    def test_a_person_answers_in_the_order_asked(self) -> None:
        script = ScriptDriver(
            agent([call("delete"), call("delete"), call("delete"), say("x")]),
            verdicts=[Verdict(True), Verdict(False, "never")],
        )
        first, second, third = script.run("Do it.").tool_results
        assert isinstance(first, Success)
        assert isinstance(second, Denied)
        assert second.message == "never"
        assert isinstance(third, Denied)


async def never(seconds: float) -> None:
    """Wait for somebody who does not come, without asking which event loop there is."""

    class Nobody:
        def __await__(self) -> Generator[None]:
            yield

    await Nobody()


class TestOtherModels:
    def test_a_model_that_does_not_wait_can_be_driven_too(self) -> None:
        class Plain:
            name, provider, price = "plain", None, None

            def ready(self) -> str | None:
                return None

            def ask(self, request: Request, tell: Callable[[str], None], /) -> Reply:
                tell(request.messages[-1].content)
                return Reply(request.messages[-1].content)

        class Async(Plain):
            async def ask(self, request: Request, tell: Callable[[str], None], /) -> Reply:  # pyright: ignore[reportIncompatibleMethodOverride]
                return Plain.ask(self, request, tell)

        texts = [ScriptDriver(Agent(model=model)).run("hello").text for model in (Plain(), Async())]
        assert texts == ["hello"] * 2

    @pytest.mark.parametrize(
        ("answer", "words"),
        [(never, "wait"), (str, "str")],
    )
    def test_a_model_that_waits_or_gives_no_reply_fails(self, answer: Callable[[float], Any], words: str) -> None:
        class Other:
            name, provider, price = "other", None, None

            def ready(self) -> str | None:
                return None

            def ask(self, request: Request, tell: object, /) -> Any:
                return answer(60.0)

        result = ScriptDriver(Agent(model=Other())).run("hello")
        assert result.error is not None
        assert words in result.error["message"]

    def test_an_async_tool_that_waits_fails(self) -> None:
        async def nap() -> None:
            """Sleep."""
            await never(60.0)

        one = Agent(model=ScriptedModel(call("nap"), say("x")), tools=[nap])
        [outcome] = ScriptDriver(one).run("hello").tool_results
        assert (outcome.status, outcome.ok) == ("failed", False)


def test_a_script_without_a_run_cannot_be_replayed() -> None:
    with pytest.raises(AssertionError, match="there is no run yet"):
        ScriptDriver(agent(SCRIPTS["calls together"])).replay()


def test_a_tool_cannot_take_less_than_no_time() -> None:
    with pytest.raises(ConfigError, match="add") as caught:
        ScriptDriver(agent([say("x")]), seconds={"add": -1})
    assert caught.value.found == -1


@pytest.mark.parametrize(
    ("options", "where", "found"),
    [
        ({"seconds": {"ad": 5}}, "script, seconds", "'ad'"),
        ({"signals": [Cancel()]}, "script, signals", "[Cancel"),
        ({"signals": {"first": [Cancel()]}}, "script, signals", "'first'"),
        ({"signals": {0: Cancel()}}, "script, signals", "Cancel"),
        ({"signals": {0: ["cancel"]}}, "script, signals", "['cancel']"),
        ({"verdicts": [True]}, "script, verdicts", "True"),
    ],
)
def test_a_script_of_what_could_never_happen_is_refused(options: dict[str, Any], where: str, found: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ScriptDriver(agent([say("x")]), **options)
    assert caught.value.where.startswith(where)
    assert repr(caught.value.found).startswith(found)
