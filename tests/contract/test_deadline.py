"""Nothing outlives its time, and what there was until then is kept."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from threading import Event, Thread, current_thread
from typing import Any

import anyio
import pytest

from flyball import Agent, IterationBudgetRegistry, Limits, Reserve, Result, tool
from flyball.event import Event as RunEvent
from flyball.models.model import Model, Tell
from flyball.outcome import Status, Timeout
from flyball.price import Price
from flyball.request import Call, Purpose, Reply, Request
from flyball.run import Run
from flyball.testing import ScriptedModel, call, say, together

LONG, SHORT = 60.0, 0.02
Running = Callable[..., Result]


@dataclass
class Plain:
    """A model of one function."""

    ask: Callable[[Request, Tell], Reply | Awaitable[Reply]]
    name: str = "plain"
    provider: str | None = None
    price: Price | None = None

    def ready(self) -> str | None:
        return None


@pytest.fixture
def release() -> Iterator[Event]:
    """What hangs until the test is over waits for this."""
    event = Event()
    yield event
    event.set()


def hasty(model: Model, *tools: Any, grace: bool = True, report_s: float = 30.0) -> Agent:
    """An agent with a tenth of a second for its work."""
    reserve = Reserve(seconds=report_s) if grace else Reserve()
    registry = IterationBudgetRegistry(settings={})
    registry.register("seconds", default=1, min=0.01, max=60, unit="seconds")
    seconds = 0.1 + (report_s if grace else 0)
    return Agent(
        model=model,
        tools=tools,
        limits=Limits(turns=9, seconds=seconds, reserve=reserve),
        registry=registry,
        grace=grace,
    )


class TestModels:
    @pytest.mark.parametrize("kind", ["async", "def"])
    def test_a_slow_model_is_cut_and_what_it_had_said_is_kept(self, run: Running, release: Event, kind: str) -> None:
        async def aask(request: Request, tell: Tell) -> Reply:
            tell("The answer ")
            tell("is")
            await anyio.sleep(LONG)
            return Reply("too late")

        def ask(request: Request, tell: Tell) -> Reply:
            tell("The answer ")
            tell("is")
            release.wait(LONG)
            return Reply("too late")

        model = Plain(aask if kind == "async" else ask)
        result = run(hasty(model, grace=False))
        assert (result.stop, result.text, result.finish) == ("deadline", "The answer is", "cut")
        assert (result.flags, result.requests) == (("max_seconds_reached",), 1)
        assert 0.1 <= result.seconds < LONG

    @pytest.mark.parametrize("kind", ["async", "def"])
    def test_what_was_cut_at_the_work_deadline_is_reported_on_from_the_reserve(
        self, run: Running, release: Event, kind: str
    ) -> None:
        async def aask(request: Request, tell: Tell) -> Reply:
            if request.purpose is Purpose.TURN:
                await anyio.sleep(LONG)
            return Reply("I was cut.")

        def ask(request: Request, tell: Tell) -> Reply:
            if request.purpose is Purpose.TURN:
                release.wait(LONG)
            return Reply("I was cut.")

        result = run(hasty(Plain(aask if kind == "async" else ask)))
        assert (result.stop, result.text, result.requests) == ("deadline", "I was cut.", 2)

    def test_a_model_that_answers_its_cut_is_still_asked_for_the_report(self, run: Running) -> None:
        async def ask(request: Request, tell: Tell) -> Reply:
            if request.purpose is Purpose.GRACE:
                await anyio.sleep(0)
                return Reply("I was cut.")
            try:
                await anyio.sleep(LONG)
            except BaseException:
                return Reply("", (), None)
            return Reply("too late")

        result = run(hasty(Plain(ask)))
        assert (result.stop, result.text) == ("deadline", "I was cut.")

    def test_a_report_that_hangs_is_made_without_the_model(self, run: Running) -> None:
        async def ask(request: Request, tell: Tell) -> Reply:
            await anyio.sleep(LONG)
            return Reply("too late")

        result = run(hasty(Plain(ask), report_s=0.4))
        assert result.stop == "deadline"
        assert "made from the record" in result.text


class TestTools:
    @pytest.mark.parametrize("together_with", [0, 2])
    def test_one_that_hangs_in_a_thread_is_given_up_and_the_result_says_so(
        self, run: Running, release: Event, together_with: int
    ) -> None:
        @tool(timeout=SHORT, effects="read")
        def hang() -> None:
            release.wait(LONG)

        @tool(effects="read")
        def work() -> str:
            return "worked"

        lines = together(call("hang"), *[call("work")] * together_with)
        result = run(Agent(model=ScriptedModel(lines, say("done")), tools=[hang, work]))
        first, *others = result.tool_results
        assert isinstance(first, Timeout)
        assert (first.hung, result.hung, result.stop) == (True, 1, "completed")
        assert [outcome.text for outcome in others] == ["worked"] * together_with

    @pytest.mark.parametrize("together_with", [0, 2])
    def test_one_that_ignores_its_cut_does_not_take_the_run_with_it(self, run: Running, together_with: int) -> None:
        @tool(timeout=SHORT, effects="read")
        async def stubborn() -> str:
            try:
                await anyio.sleep(LONG)
            except BaseException:
                return "partial"
            return "whole"

        @tool(effects="read")
        async def work() -> str:
            await anyio.sleep(0)
            return "worked"

        lines = together(call("stubborn"), *[call("work")] * together_with)
        model = ScriptedModel(lines, call("work").after(0.001), say("done").after(0.001))
        result = run(Agent(model=model, tools=[stubborn, work]))
        assert (result.stop, result.text) == ("completed", "done")
        assert [outcome.status for outcome in result.tool_results] == [
            Status.TIMED_OUT,
            *[Status.DONE] * (together_with + 1),
        ]

    @pytest.mark.parametrize("kind", ["async", "def"])
    def test_a_write_that_timed_out_is_not_tried_again(self, run: Running, release: Event, kind: str) -> None:
        def hang() -> None:
            release.wait(LONG)

        async def ahang() -> None:
            await anyio.sleep(LONG)

        write = tool(name="write", timeout=SHORT)(hang if kind == "def" else ahang)
        result = run(Agent(model=ScriptedModel(call("write"), call("write"), say("done")), tools=[write]))
        assert [outcome.status for outcome in result.tool_results] == [Status.TIMED_OUT, Status.DENIED]
        assert result.completed

    def test_the_end_of_work_ends_a_call_too(self, run: Running) -> None:
        @tool(timeout=None)
        async def wait() -> None:
            await anyio.sleep(LONG)

        result = run(hasty(ScriptedModel(call("wait"), grace=say("I waited.")), wait))
        assert (result.stop, result.text) == ("deadline", "I waited.")
        assert [outcome.status for outcome in result.tool_results] == [Status.TIMED_OUT]


class TestLateResults:
    def test_one_that_comes_while_the_run_goes_on_leaves_one_event_and_nothing_else(
        self, watch: Callable[..., Result], release: Event
    ) -> None:
        back = Event()

        @tool(timeout=SHORT)
        def slow() -> str:
            release.wait(LONG)
            return "too late"

        @tool(poll=True)
        async def let_it_come() -> None:
            release.set()

        def watching(run: Run, event: RunEvent) -> None:
            if event.kind == "late_result_dropped":
                back.set()

        async def ask(request: Request, tell: Tell) -> Reply:
            await anyio.sleep(0.001)
            if len(request.messages) == 1:
                return Reply("", (Call("1", "slow", ""),))
            return Reply("done") if back.is_set() else Reply("", (Call("1", "let_it_come", ""),))

        agent = Agent(model=Plain(ask), tools=[slow, let_it_come], limits=Limits(turns=500))
        result = watch(agent, watching)
        kinds = [event.kind for event in result.events]
        assert (result.stop, result.hung, kinds.count("late_result_dropped")) == ("completed", 0, 1)
        assert "too late" not in {outcome.text for outcome in result.tool_results}

    def test_one_that_comes_in_the_grace_turn_is_told_too(self, run: Running, release: Event) -> None:
        threads: list[Thread] = []

        @tool(timeout=SHORT)
        def slow() -> None:
            threads.append(current_thread())
            release.wait(LONG)

        async def ask(request: Request, tell: Tell) -> Reply:
            if request.purpose is Purpose.GRACE:
                release.set()
                while threads[0].is_alive():  # a worker that was given up ends when it has told what it came to
                    await anyio.sleep(0.001)
                await anyio.sleep(0.001)
            return await script.ask(request)

        script = ScriptedModel(call("slow"), grace=say("It hung."))
        result = run(Agent(model=Plain(ask), tools=[slow], limits=Limits(turns=1)))
        kinds = [event.kind for event in result.events]
        assert (result.text, result.hung, kinds.count("late_result_dropped")) == ("It hung.", 0, 1)

    def test_one_that_comes_after_the_end_changes_nothing(self, run: Running, release: Event) -> None:
        seen: list[Any] = []

        @tool(timeout=SHORT)
        def slow() -> None:
            release.wait(LONG)

        agent = Agent(model=ScriptedModel(call("slow"), say("done")), tools=[slow], sinks=[seen.append])
        result = run(agent)
        told = len(seen)
        release.set()
        assert run(Agent(model=ScriptedModel(say("another")))).completed
        assert (result.hung, len(seen), seen[-1].kind) == (1, told, "run_ended")
