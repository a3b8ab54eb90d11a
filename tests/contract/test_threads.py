"""Runs through the sync door, from wherever a program calls it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any

import anyio
import pytest

from flyball import Agent, Limits, Result, tool
from flyball._internal.workers import LoopThread
from flyball.testing import ScriptedModel, call, say, together, until

LONG = 60.0


@tool
async def aadd(a: int, b: int) -> int:
    await anyio.sleep(0)
    return a + b


@tool
def add(a: int, b: int) -> int:
    return a + b


def adding(name: str = "aadd") -> Agent:
    model = ScriptedModel(call(name, a=1, b=2).after(0.001), call(name, a=3, b=4), say("7"))
    return Agent(model=model, tools=[add, aadd], limits=Limits(turns=5))


def test_a_sync_run_inside_a_running_loop_works_as_in_a_notebook(here: Any) -> None:
    async def work() -> Result:
        return adding().run("go")

    assert here(work).text == "7"


def test_many_threads_run_agents_at_once() -> None:
    agents = [adding("aadd"), adding("add")]

    def go(n: int) -> Result:
        return agents[n % 2].run("go")

    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(go, range(100)))
    assert {(result.text, result.stop, result.turns) for result in results} == {("7", "completed", 3)}
    assert len({result.run_id for result in results}) == 100


def test_many_threads_that_start_at_once_share_one_private_loop() -> None:
    def loops_of(private: LoopThread) -> set[asyncio.AbstractEventLoop]:
        together = Barrier(8)

        async def loop() -> asyncio.AbstractEventLoop:
            return asyncio.get_running_loop()

        def come(_: int) -> asyncio.AbstractEventLoop:
            together.wait(LONG)
            return private.run(loop, "x")

        with ThreadPoolExecutor(8) as pool:
            return set(pool.map(come, range(8)))

    for _ in range(20):
        loops = loops_of(LoopThread())
        for loop in loops:
            loop.call_soon_threadsafe(loop.stop)
            until(lambda loop=loop: not loop.is_running())
            loop.close()
        assert len(loops) == 1


def test_a_def_tool_runs_another_agent() -> None:
    inner = adding()

    @tool
    def delegate() -> str:
        return inner.run("go").text

    outer = Agent(model=ScriptedModel(call("delegate"), say("done")), tools=[delegate])
    result = outer.run("go")
    assert (result.text, result.tool_results[0].text) == ("done", "7")


@pytest.mark.parametrize("way", ["run", "result", "iterate"])
def test_a_sync_wait_on_the_private_loop_raises_at_once(way: str) -> None:
    model = ScriptedModel(say("7"))
    inner = Agent(model=model)

    @tool
    async def delegate() -> str:
        if way == "run":
            return inner.run("go").text
        run = inner.start("go")
        return run.result().text if way == "result" else str(list(run))

    outer = Agent(model=ScriptedModel(call("delegate"), say("done")), tools=[delegate])
    result = outer.start("go").result(LONG)
    assert result.text == "done"
    assert "agent.arun(...)" in result.tool_results[0].text
    if way == "run":
        model.assert_asked(0)  # who is refused has started nothing


def test_a_def_tool_runs_an_event_loop_of_its_own(run: Any) -> None:
    @tool
    def loop(backend: str) -> int:
        async def work() -> int:
            await anyio.sleep(0)
            return 7

        return anyio.run(work, backend=backend)

    model = ScriptedModel(call("loop", backend="asyncio"), call("loop", backend="trio"), say("done"))
    assert [outcome.text for outcome in run(Agent(model=model, tools=[loop])).tool_results] == ["7", "7"]


def test_an_async_tool_runs_another_agent_in_the_same_loop(run: Any) -> None:
    inner = adding("add")

    @tool
    async def delegate() -> str:
        return (await inner.arun("go")).text

    outer = Agent(model=ScriptedModel(call("delegate"), say("done")), tools=[delegate])
    assert run(outer).tool_results[0].text == "7"


def test_runs_of_the_private_loop_do_not_wait_for_each_other() -> None:
    release = Event()
    stuck = Agent(model=ScriptedModel(call("hang"), say("x")), tools=[tool(name="hang")(lambda: release.wait(LONG))])
    with stuck.start("go") as run:
        assert adding("add").run("go").text == "7"
        assert asyncio.run(adding("add").arun("go")).text == "7"
        assert not run.ended
        release.set()
        assert run.result(LONG).completed


def test_a_hundred_hung_calls_of_one_agent_leave_workers_to_the_tools_of_another() -> None:
    release = Event()

    @tool(timeout=0.01, effects="read")
    def hang(n: int) -> None:
        release.wait(LONG)

    lines = [together(*(call("hang", n=n + 10 * turn) for n in range(10))) for turn in range(11)]
    limits = Limits(turns=12, tool_calls=200, seconds=LONG)
    try:
        hung = Agent(model=ScriptedModel(*lines, say("over")), tools=[hang], limits=limits).run("go")
        statuses = [outcome.status.value for outcome in hung.tool_results]
        assert (statuses.count("timed_out"), statuses.count("denied"), hung.hung) == (100, 10, 100)
        assert [outcome.text for outcome in adding("add").run("go").tool_results] == ["3", "7"]
    finally:
        release.set()
