"""Sources of tools: opened with a run, in its time, and closed with it, however it ends."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from flyball import Agent, ConfigError, Limits, Result, run_conversation, tool
from flyball.errors import SourceError
from flyball.person import deny
from flyball.testing import ScriptDriver, ScriptedModel, call, say, until
from flyball.tools import Tool, ToolSource

LONG = 60.0
Door = Callable[[Agent], Result]


@tool
def subtract(a: int, b: int) -> int:
    """Take one number from another."""
    return a - b


class Shop:
    """A source that counts how often it is open, and behaves as it is told."""

    def __init__(self, *tools: Any, name: str = "the shop") -> None:
        self.name = name
        self.tools = [Tool.of(one) for one in tools]
        self.opened = self.closed = self.left_in_peace = 0
        self.enter: Callable[[], Any] = anyio.lowlevel.checkpoint
        self.leave: Callable[[], Any] = anyio.lowlevel.checkpoint

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Sequence[Tool]]:
        self.opened += 1
        try:
            await self.enter()
            yield self.tools
        finally:
            try:
                await self.leave()
                self.left_in_peace += 1
            finally:
                self.closed += 1


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def broken() -> None:
    raise RuntimeError("no more bread")


@pytest.fixture(params=["sync", "asyncio", "trio"])
def run(request: pytest.FixtureRequest, through: Callable[[str], Door]) -> Door:
    return through(request.param)


def adding() -> ScriptedModel:
    return ScriptedModel(call("add", a=1, b=2), say("3"))


class TestARunWithSources:
    def test_offers_their_tools_beside_its_own_and_closes_them_once(self, run: Door) -> None:
        shop, model = Shop(add), adding()
        result = run(Agent(model=model, tools=[subtract, shop]))
        assert (result.stop, [outcome.text for outcome in result.tool_results]) == ("completed", ["3"])
        assert (shop.opened, shop.closed) == (1, 1)
        model.assert_offered("subtract", "add")

    def test_opens_them_anew_for_each_run(self) -> None:
        shop = Shop(add)
        agent = Agent(
            model=ScriptedModel(call("add", a=1, b=2), say("3"), call("add", a=1, b=2), say("3")), tools=[shop]
        )
        assert [agent.run("go").stop, agent.run("go").stop] == ["completed", "completed"]
        assert (shop.opened, shop.closed) == (2, 2)

    def test_may_be_a_conversation(self) -> None:
        shop = Shop(add)
        result = run_conversation("go", [subtract, shop], adding())
        assert (result.stop, result.tool_results[0].text, shop.closed) == ("completed", "3", 1)

    def test_opens_several_side_by_side(self, run: Door) -> None:
        waiting: list[anyio.Event] = []

        async def wait_for_the_other() -> None:
            waiting.append(anyio.Event())
            if len(waiting) == 2:
                for event in waiting:
                    event.set()
            await waiting[-1].wait()
            await waiting[0].wait()

        shops = [Shop(add, name="one"), Shop(subtract, name="two")]
        for shop in shops:
            shop.enter = wait_for_the_other
        assert run(Agent(model=adding(), tools=shops)).stop == "completed"
        assert [shop.closed for shop in shops] == [1, 1]

    def test_pays_for_the_opening_with_its_own_time(self, run: Door) -> None:
        shop = Shop(add)
        shop.enter = lambda: anyio.sleep(0.2)
        result = run(Agent(model=adding(), tools=[shop]))
        first = result.events[0].to_dict()
        assert first["event"] == "run_started"
        assert first["at"] >= 0.2
        assert result.seconds >= 0.2


class TestASourceThatCannotBeOpened:
    def test_fails_the_run_before_the_model_is_asked(self, run: Door) -> None:
        shop, other, model = Shop(add), Shop(subtract, name="other"), adding()
        shop.enter = broken
        result = run(Agent(model=model, tools=[other, shop]))
        assert (result.stop, result.requests, model.requests) == ("failed", 0, [])
        assert result.error == {"code": "exception", "kind": "RuntimeError", "message": "no more bread"}
        assert "no more bread" in result.explain()
        assert (shop.closed, other.closed) == (1, other.opened)

    def test_has_no_longer_than_the_run_has_for_its_work(self, through: Callable[[str], Door]) -> None:
        shop = Shop(add)
        shop.enter = anyio.sleep_forever
        result = through("asyncio")(Agent(model=adding(), tools=[shop], limits=Limits(seconds=1)))
        assert (result.stop, result.requests, shop.closed) == ("failed", 0, 1)
        assert result.error is not None
        assert result.error["code"] == "source_failed"
        assert result.error["message"].startswith("the shop: ")
        assert "0.85 s" in result.error["message"]

    def test_is_not_even_tried_where_the_time_is_over(self, run: Door) -> None:
        shop = Shop(add)
        over = datetime.now(UTC) - timedelta(seconds=1)
        result = run(Agent(model=adding(), tools=[shop], limits=Limits(until=over)))
        assert (result.stop, shop.opened) == ("deadline", 0)

    def test_is_told_by_the_name_that_two_tools_share(self, run: Door) -> None:
        result = run(Agent(model=adding(), tools=[add, Shop(add)]))
        assert result.stop == "failed"
        assert result.error is not None
        assert result.error["code"] == "usage_error"
        assert all(word in result.error["message"] for word in ("add", "the shop"))

    def test_is_told_by_a_rule_for_a_tool_that_nobody_offers(self) -> None:
        agent = Agent(model=adding(), tools=[Shop(add)], tool_rules=[{"tool": "ad", "require_prior_tool": "add"}])
        result = agent.run("go")
        assert (result.stop, result.requests) == ("failed", 0)
        assert result.error is not None
        assert result.error["code"] == "config_invalid"
        assert all(word in result.error["message"] for word in ("'ad'", "add"))


class TestARunThatIsCancelled:
    def test_while_it_opens_ends_as_cancelled_and_closes_what_was_open(self) -> None:
        shop, ready = Shop(add), Shop(subtract, name="ready")
        shop.enter = anyio.sleep_forever

        async def wait_for_the_other() -> None:
            while not shop.closed:
                await anyio.sleep(0.001)

        ready.leave = wait_for_the_other
        run = Agent(model=adding(), tools=[ready, shop]).start("go")
        until(lambda: shop.opened == 1)
        assert run.cancel()
        result = run.result(LONG)
        assert (result.stop, result.stopped_by) == ("cancelled", "caller")
        assert (shop.closed, ready.closed, ready.left_in_peace) == (1, 1, 1)

    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    @pytest.mark.parametrize("opening", [True, False])
    def test_with_its_task_closes_its_sources_first(self, backend: str, opening: bool) -> None:
        shop, began = Shop(add), list[anyio.Event]()

        async def wait() -> None:
            began[0].set()
            await anyio.sleep_forever()

        if opening:
            shop.enter = wait
        else:
            shop.tools = [Tool(wait, name="add")]
        shop.leave = lambda: anyio.sleep(0.01)
        agent = Agent(model=ScriptedModel(call("add"), say("3")), tools=[shop])

        async def cancelled() -> None:
            began.append(anyio.Event())
            with anyio.fail_after(LONG):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(agent.arun, "go")
                    await began[0].wait()
                    tasks.cancel_scope.cancel()
                assert (shop.closed, shop.left_in_peace) == (1, not opening)

        anyio.run(cancelled, backend=backend)

    def test_again_and_again_by_asyncio_itself_still_closes_them(self) -> None:
        shop, began = Shop(add), asyncio.Event()
        shop.leave = lambda: anyio.sleep(0.05)

        async def wait() -> None:
            began.set()
            await anyio.sleep_forever()

        shop.tools = [Tool(wait, name="wait")]
        agent = Agent(model=ScriptedModel(call("wait"), say("x")), tools=[shop])

        async def cancelled() -> None:
            task = asyncio.create_task(agent.arun("go"))
            await asyncio.wait_for(began.wait(), LONG)
            while not task.done():
                task.cancel()
                await asyncio.sleep(0.005)
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancelled())
        assert (shop.closed, shop.left_in_peace) == (1, 1)

    def test_is_closed_when_the_handle_is_left(self) -> None:
        shop = Shop(add)
        with Agent(model=ScriptedModel(say("x").after(60)), tools=[shop]).start("go") as run:
            next(iter(run))
        assert shop.closed == 1


class TestASourceThatGoesWrong:
    def test_while_another_is_opened_does_not_hide_the_other(self, run: Door) -> None:
        class Gone:
            name = "gone"

            @asynccontextmanager
            async def open(self) -> AsyncGenerator[Sequence[Tool]]:
                with anyio.CancelScope() as scope:
                    scope.cancel()  # it breaks as soon as anybody waits in it
                    yield [subtract]

        shop = Shop(add)
        shop.enter = lambda: anyio.sleep(0.05)
        result = run(Agent(model=adding(), tools=[Gone(), shop]))
        assert [outcome.text for outcome in result.tool_results] == ["3"]

    def test_is_cut_when_it_takes_too_long_to_close(self, run: Door, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("flyball.runtime.tool_sources._CLOSING_S", 0.1)
        shop = Shop(add)
        shop.leave = anyio.sleep_forever
        assert run(Agent(model=adding(), tools=[shop])).stop == "completed"
        assert (shop.closed, shop.left_in_peace) == (1, 0)

    def test_when_it_closes_changes_no_result(self, run: Door) -> None:
        shop = Shop(add)
        shop.leave = broken
        assert run(Agent(model=adding(), tools=[shop])).stop == "completed"

    def test_with_an_error_of_a_hook_lets_that_through_as_it_is(self, run: Door) -> None:
        def hook(*_: object) -> tuple[()]:
            raise KeyError("hook")

        shop = Shop(add)
        result = run(Agent(model=adding(), tools=[shop], hooks=[hook]))
        assert result.error is not None
        assert (result.stop, result.error["kind"], shop.closed) == ("failed", "KeyError", 1)


class TestAPausedRun:
    def agent(self, shop: ToolSource) -> Agent:
        model = ScriptedModel(call("add", a=1, b=2), say("done"))
        return Agent(model=model, tools=[shop])

    def test_closes_its_sources_and_opens_them_again(self) -> None:
        shop = Shop(tool(approve=True)(add))
        agent = self.agent(shop)
        paused = agent.run("go")
        assert (paused.stop, shop.opened, shop.closed) == ("paused", 1, 1)
        shop.enter = lambda: anyio.sleep(0.2)
        result = agent.resume(paused, {paused.questions[0].id: True})
        assert (result.stop, [outcome.text for outcome in result.tool_results]) == ("completed", ["3"])
        assert result.seconds >= paused.seconds + 0.2
        assert (shop.opened, shop.closed) == (2, 2)

    def test_stays_paused_where_a_source_cannot_be_opened_again(self) -> None:
        shop = Shop(tool(approve=True)(add))
        agent = self.agent(shop)
        paused = agent.run("go")
        shop.enter = broken
        with pytest.raises(RuntimeError, match="no more bread"):
            agent.resume(paused, {paused.questions[0].id: True})
        shop.enter = anyio.lowlevel.checkpoint
        assert agent.resume(paused, {paused.questions[0].id: deny("no")}).stop == "completed"

    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    def test_a_paused_run_cancelled_while_it_opens_its_sources_again_closes_them(self, backend: str) -> None:
        shop = Shop(tool(approve=True)(add))
        agent = self.agent(shop)

        async def cancelled() -> None:
            paused = await agent.arun("go")
            opening = anyio.Event()

            async def wait() -> None:
                opening.set()
                await anyio.sleep_forever()

            shop.enter = wait
            with anyio.fail_after(LONG):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(agent.aresume, paused, {paused.questions[0].id: True})
                    await opening.wait()
                    tasks.cancel_scope.cancel()

        anyio.run(cancelled, backend=backend)
        assert (shop.opened, shop.closed) == (2, 2)

    def test_a_paused_run_of_another_agent_is_refused(self) -> None:
        shop = Shop(tool(approve=True)(add))
        agent = self.agent(shop)
        paused = agent.run("go")
        answers = {paused.questions[0].id: True}
        with pytest.raises(ConfigError, match=paused.run_id):
            self.agent(shop).resume(paused, answers)
        assert (shop.opened, shop.closed) == (1, 1), "nothing is opened for it"
        assert agent.resume(paused, answers).stop == "completed"


class TestAnAgentWithSources:
    def test_says_what_is_known_of_it(self) -> None:
        agent = Agent(model=adding(), tools=[subtract, Shop(add)], name="clerk")
        assert repr(agent) == "<Agent clerk: scripted, 1 tool and those of 1 source>"
        plan = agent.plan("go")
        assert plan.spec.tools.names == ("subtract",)
        assert [source.name for source in plan.spec.tools.sources] == ["the shop"]
        assert agent.worst_case().turns == 90

    def test_cannot_be_driven_by_a_script(self) -> None:
        shop = Shop(add)
        with pytest.raises(ConfigError, match="sources"):
            ScriptDriver(Agent(model=adding(), tools=[shop]))
        assert shop.opened == 0

    def test_can_be_told_a_source_error(self) -> None:
        async def refuse() -> None:
            raise SourceError("the shop", "it is Sunday")

        shop = Shop(add)
        shop.enter = refuse
        error = Agent(model=adding(), tools=[shop]).run("go").error
        assert error == {"code": "source_failed", "kind": "SourceError", "message": "the shop: it is Sunday"}
