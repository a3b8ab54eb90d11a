"""After many runs nothing is left behind: no thread, no task, no timer, nothing set aside."""

import asyncio
import gc
import threading
import weakref
from threading import Event

import anyio
import pytest
import trio

from flyball import Agent, Limits, Result, tool
from flyball.agent.run import Run
from flyball.testing import ScriptedModel, call, say, together, until

LONG = 60.0


@tool(effects="read")
def add(a: int, b: int) -> int:
    return a + b


@tool(effects="read", timeout=0.005)
async def slow() -> None:
    await anyio.sleep(LONG)


def busy() -> Agent:
    model = ScriptedModel(
        call("add", a=1, b=2), together(call("add", a=1, b=2), call("slow")), call("slow"), say("done")
    )
    return Agent(model=model, tools=[add, slow], limits=Limits(turns=9, tokens=100_000))


def stuck() -> Agent:
    return Agent(model=ScriptedModel(say("x").after(LONG)), limits=Limits(tokens=100_000))


def live_timers(loop: asyncio.AbstractEventLoop) -> int:
    scheduled: list[asyncio.TimerHandle] = getattr(loop, "_scheduled", [])
    return sum(not handle.cancelled() for handle in scheduled)


def test_asyncio_has_no_tasks_and_timers_left_after_many_runs() -> None:
    async def work() -> tuple[int, int]:
        for _ in range(20):
            assert (await busy().arun("go")).completed
            async with busy().open("go") as run:
                async for _ in run:
                    break
            task = asyncio.create_task(stuck().arun("go"))
            await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(stuck().arun("go"), 0.001)
        await asyncio.sleep(0)
        return len(asyncio.all_tasks()), live_timers(asyncio.get_running_loop())

    assert asyncio.run(work()) == (1, 0)


def test_trio_has_no_tasks_left_after_many_runs() -> None:
    async def work() -> int:
        before = trio.lowlevel.current_statistics().tasks_living
        for _ in range(20):
            assert (await busy().arun("go")).completed
            with trio.move_on_after(0.001):
                await stuck().arun("go")
            async with busy().open("go") as run:
                async for _ in run:
                    break
        return trio.lowlevel.current_statistics().tasks_living - before

    assert trio.run(work) == 0


def test_the_private_loop_has_no_tasks_and_timers_left_after_many_runs() -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    @tool
    async def look() -> None:
        loops.append(asyncio.get_running_loop())

    Agent(model=ScriptedModel(call("look"), say("x")), tools=[look]).run("go")
    for _ in range(20):
        assert busy().run("go").completed
        with stuck().start("go"):
            pass
    [loop] = loops
    until(lambda: not asyncio.all_tasks(loop))
    until(lambda: live_timers(loop) == 0)


def test_worker_threads_are_reused_and_given_up_threads_end(release: Event) -> None:
    threads: list[threading.Thread] = []

    @tool(timeout=0.005, effects="read")
    def hang() -> None:
        threads.append(threading.current_thread())
        release.wait(LONG)

    busy().run("go")
    before = threading.active_count()
    for _ in range(20):
        busy().run("go")
    assert threading.active_count() <= before + 1
    hanging = Agent(model=ScriptedModel(together(*[call("hang")] * 5), say("done")), tools=[hang])
    assert hanging.run("go").hung == 5
    release.set()
    until(lambda: len(threads) == 5 and not any(thread.is_alive() for thread in threads))


def test_an_ended_run_is_freed_without_the_garbage_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        agent, gone = busy(), list[weakref.ref[Run]]()
        for _ in range(3):
            run = agent.start("go")
            assert run.result(LONG).completed
            gone.append(weakref.ref(run))
            del run
        until(lambda: all(ref() is None for ref in gone), seconds=10)
    finally:
        gc.enable()


def test_no_tokens_are_held_after_a_run_ended() -> None:
    results: list[Result] = [busy().run("go") for _ in range(5)]
    with stuck().start("go") as run:
        pass
    results.append(run.result(LONG))
    for result in results:
        tokens = result.budgets["tokens"]
        assert tokens.held == 0
