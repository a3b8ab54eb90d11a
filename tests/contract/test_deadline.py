"""Nothing outlives its time, and what there was until then is kept."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from threading import Event, Thread, current_thread
from typing import Any

import anyio
import pytest

from flyball import Agent, IterationBudgetRegistry, Limits, Reserve, Result, tool
from flyball.agent.run import Run
from flyball.budget.price import Price
from flyball.event import Event as RunEvent
from flyball.models.model import Model, OnText
from flyball.outcome import Status, Timeout
from flyball.request import Call, Purpose, Reply, Request
from flyball.testing import ScriptedModel, call, say, together

LONG, SHORT = 60.0, 0.02
Running = Callable[..., Result]


@dataclass
class Plain:
    """A model of one function."""

    ask: Callable[[Request, OnText], Reply | Awaitable[Reply]]
    name: str = "plain"
    provider: str | None = None
    price: Price | None = None

    def ready(self) -> str | None:
        return None


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
    @pytest.mark.every_door
    @pytest.mark.parametrize("kind", ["async", "def"])
    def test_a_model_that_is_slow_is_cut_at_the_deadline_and_its_text_is_kept(
        self, run: Running, release: Event, kind: str
    ) -> None:
        async def aask(request: Request, tell: OnText) -> Reply:
            tell("The answer ")
            tell("is")
            await anyio.sleep(LONG)
            return Reply("too late")

        def ask(request: Request, tell: OnText) -> Reply:
            tell("The answer ")
            tell("is")
            release.wait(LONG)
            return Reply("too late")

        model = Plain(aask if kind == "async" else ask)
        result = run(hasty(model, grace=False))
        assert (result.stop, result.text, result.finish) == ("deadline", "The answer is", "cut")
        assert (result.flags, result.requests) == (("max_seconds_reached",), 1)
        assert 0.1 <= result.seconds < LONG

    @pytest.mark.one_door
    @pytest.mark.parametrize("kind", ["async", "def"])
    def test_a_model_cut_at_the_work_deadline_reports_within_the_reserve(
        self, run: Running, release: Event, kind: str
    ) -> None:
        async def aask(request: Request, tell: OnText) -> Reply:
            if request.purpose is Purpose.TURN:
                await anyio.sleep(LONG)
            return Reply("I was cut.")

        def ask(request: Request, tell: OnText) -> Reply:
            if request.purpose is Purpose.TURN:
                release.wait(LONG)
            return Reply("I was cut.")

        result = run(hasty(Plain(aask if kind == "async" else ask)))
        assert (result.stop, result.text, result.requests) == ("deadline", "I was cut.", 2)

    def test_a_model_that_swallows_its_cancellation_is_still_asked_for_the_report(self, run: Running) -> None:
        async def ask(request: Request, tell: OnText) -> Reply:
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

    def test_a_model_whose_report_hangs_is_replaced_by_a_report_from_the_record(self, run: Running) -> None:
        async def ask(request: Request, tell: OnText) -> Reply:
            await anyio.sleep(LONG)
            return Reply("too late")

        result = run(hasty(Plain(ask), report_s=0.4))
        assert (result.stop, result.requests) == ("deadline", 2)
        assert result.text not in ("", "too late")


class TestTools:
    def test_a_tool_that_hangs_in_a_thread_is_given_up_and_counted_as_hung(self, run: Running, release: Event) -> None:
        @tool(timeout=SHORT, effects="read", poll=True)
        def hang() -> None:
            release.wait(LONG)

        @tool(effects="read")
        def work() -> str:
            return "worked"

        lines = call("hang"), together(call("hang"), call("work"), call("work")), say("done")
        result = run(Agent(model=ScriptedModel(*lines), tools=[hang, work]))
        alone, beside, *others = result.tool_results
        for one in (alone, beside):
            assert isinstance(one, Timeout)
            assert one.hung
        assert (result.hung, result.stop) == (2, "completed")
        assert [outcome.text for outcome in others] == ["worked", "worked"]

    def test_a_tool_that_swallows_its_cancellation_times_out_and_the_run_goes_on(self, run: Running) -> None:
        @tool(timeout=SHORT, effects="read", poll=True)
        async def stubborn() -> str:
            try:
                await anyio.sleep(LONG)
            except BaseException:
                return "partial"
            return "whole"

        @tool(effects="read", poll=True)
        async def work() -> str:
            await anyio.sleep(0)
            return "worked"

        beside = together(call("stubborn"), call("work"), call("work"))
        lines = call("stubborn"), call("work").after(0.001), beside, call("work").after(0.001), say("done").after(0.001)
        result = run(Agent(model=ScriptedModel(*lines), tools=[stubborn, work]))
        assert (result.stop, result.text) == ("completed", "done")
        late, done = Status.TIMED_OUT, Status.DONE
        assert [outcome.status for outcome in result.tool_results] == [late, done, late, done, done, done]

    def test_a_tool_without_timeout_is_cut_at_the_work_deadline(self, run: Running) -> None:
        @tool(timeout=None)
        async def wait() -> None:
            await anyio.sleep(LONG)

        result = run(hasty(ScriptedModel(call("wait"), grace=say("I waited.")), wait))
        assert (result.stop, result.text) == ("deadline", "I waited.")
        assert [outcome.status for outcome in result.tool_results] == [Status.TIMED_OUT]


class TestLateResults:
    def test_a_late_result_in_a_running_run_leaves_one_event_and_nothing_else(
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

        async def ask(request: Request, tell: OnText) -> Reply:
            await anyio.sleep(0.001)
            if len(request.messages) == 1:
                return Reply("", (Call("1", "slow", ""),))
            return Reply("done") if back.is_set() else Reply("", (Call("1", "let_it_come", ""),))

        agent = Agent(model=Plain(ask), tools=[slow, let_it_come], limits=Limits(turns=500))
        result = watch(agent, watching)
        kinds = [event.kind for event in result.events]
        assert (result.stop, result.hung, kinds.count("late_result_dropped")) == ("completed", 0, 1)
        assert "too late" not in {outcome.text for outcome in result.tool_results}

    @pytest.mark.one_door
    def test_a_late_result_in_the_grace_turn_is_reported_as_dropped(self, run: Running, release: Event) -> None:
        threads: list[Thread] = []

        @tool(timeout=SHORT)
        def slow() -> None:
            threads.append(current_thread())
            release.wait(LONG)

        async def ask(request: Request, tell: OnText) -> Reply:
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

    @pytest.mark.one_door
    def test_a_late_result_after_the_end_changes_nothing(self, run: Running, release: Event) -> None:
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
