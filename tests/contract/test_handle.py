"""The handle of a run: watched, waited for, left early, and used at the wrong door."""

import asyncio
from collections.abc import AsyncIterator, Callable
from threading import Event, Thread, current_thread
from typing import Any

import anyio
import pytest

from flyball import Agent, ConfigError, Limits, Result, tool
from flyball.event import Delta
from flyball.event import Event as RunEvent
from flyball.run import Run
from flyball.testing import ScriptedModel, call, say

LONG = 60.0


@tool
def add(a: int, b: int) -> int:
    return a + b


def adding() -> Agent:
    model = ScriptedModel(call("add", a=1, b=2), say("").streaming("It ", "is ", "3."))
    return Agent(model=model, tools=[add], limits=Limits(turns=5))


def waiting(release: Event | None = None) -> Agent:
    if release is None:
        return Agent(model=ScriptedModel(say("").streaming("too late").after(LONG)))
    hang = tool(name="hang")(lambda: release.wait(LONG))
    return Agent(model=ScriptedModel(call("hang"), say("done")), tools=[hang])


class TestWatching:
    def test_every_event_comes_as_it_happens_with_the_text_as_it_streams(self, watch: Callable[..., Result]) -> None:
        seen: list[RunEvent] = []

        def watching(run: Run, event: RunEvent) -> None:
            seen.append(event)

        result = watch(adding(), watching)
        numbered = [event for event in seen if not isinstance(event, Delta)]
        assert [event.to_dict() for event in numbered] == [event.to_dict() for event in result.events]
        assert [event.seq for event in numbered] == list(range(len(numbered)))
        pieces = [event.text for event in seen if isinstance(event, Delta)]
        assert (pieces, result.text, seen[-1].kind) == (["It ", "is ", "3."], "It is 3.", "run_ended")

    def test_events_come_while_the_run_goes_on(self, watch: Callable[..., Result]) -> None:
        release, states = Event(), list[bool]()

        def watching(run: Run, event: RunEvent) -> None:
            if event.kind == "tool_started":
                states.append(run.ended)
                release.set()

        assert watch(waiting(release), watching).completed
        assert states == [False]

    def test_a_started_run_can_be_watched_again_and_by_many_and_after_its_end(self) -> None:
        release, seen = Event(), dict[str, list[str]]()
        run = waiting(release).start("go")

        def watch() -> None:
            seen[current_thread().name] = [event.kind for event in run]

        threads = [Thread(target=watch) for _ in range(3)]
        for thread in threads:
            thread.start()
        for event in run:
            if event.kind == "tool_started":
                break
        assert not run.ended  # who stops watching does not stop the run
        release.set()
        for thread in threads:
            thread.join(LONG)
        kinds = [event.kind for event in run.result(LONG).events]
        assert list(seen.values()) == [kinds] * 3
        assert [event.kind for event in run] == [event.kind for event in run] == kinds

    def test_an_open_run_can_be_watched_again_and_by_many_and_after_its_end(self, here: Any) -> None:
        seen: list[list[str]] = []

        async def kinds(run: Run) -> None:
            seen.append([event.kind async for event in run])

        async def work() -> Result:
            async with adding().open("go") as run, anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(kinds, run)
                await run.aresult()
            await kinds(run)
            return await run.aresult()

        result = here(work)
        kept = [event.kind for event in result.events]
        assert [[kind for kind in one if kind != "delta"] for one in seen] == [kept] * 4

    def test_who_stops_watching_does_not_disturb_the_others(self, here: Any) -> None:
        async def work() -> tuple[list[str], Result]:
            async with adding().open("go") as run:
                with anyio.move_on_after(0):
                    async for _ in run:
                        await anyio.sleep(0)
                async for _ in run:
                    break
                return [event.kind async for event in run], await run.aresult()

        kinds, result = here(work)
        assert kinds[-1] == "run_ended"
        assert result.completed


class TestWaiting:
    def test_a_wait_that_is_over_leaves_the_run_alone(self) -> None:
        release = Event()
        run = waiting(release).start("go")
        with pytest.raises(TimeoutError):
            run.result(0.01)
        assert not run.ended
        release.set()
        assert run.result(LONG) is run.result()
        assert run.result().completed
        assert run.ended

    def test_a_result_can_be_waited_for_by_many_and_after_the_block(self, here: Any) -> None:
        results: list[Result] = []

        async def work() -> None:
            async with adding().open("go") as run, anyio.create_task_group() as tasks:

                async def keep() -> None:
                    results.append(await run.aresult())

                tasks.start_soon(keep)
                tasks.start_soon(keep)
                await keep()
            results.append(await run.aresult())

        here(work)
        assert len(results) == 4
        assert all(result is results[0] for result in results)

    def test_every_run_has_a_name_that_its_events_have_too(self, watch: Callable[..., Result]) -> None:
        names: list[tuple[str, str]] = []

        def watching(run: Run, event: RunEvent) -> None:
            names.append((run.run_id, event.header.run_id))

        result = watch(adding(), watching, run_id="mine", session="s", metadata={"job": 1})
        assert set(names) == {("mine", "mine")}
        assert (result.run_id, result.session_id, result.metadata) == ("mine", "s", {"job": 1})


class TestLeaving:
    def test_leaving_a_block_early_cancels(self, closed: Any) -> None:
        with waiting().start("go") as run:
            assert not run.ended
        result = closed(run.result(LONG))
        assert (run.ended, result.stop, result.stopped_by) == (True, "cancelled", "left")

    def test_leaving_an_async_block_early_cancels(self, here: Any, closed: Any) -> None:
        async def work() -> Run:
            async with waiting().open("go") as run:
                await anyio.sleep(0)
            return run

        async def result() -> Result:
            return await (await work()).aresult()

        given = closed(here(result))
        assert (given.stop, given.stopped_by) == ("cancelled", "left")

    def test_leaving_after_the_end_changes_nothing(self) -> None:
        with adding().start("go") as run:
            assert run.result(LONG).completed
        assert run.result(LONG).completed

    @pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
    def test_what_a_block_raises_is_raised_as_itself(self, error: type[BaseException]) -> None:
        with pytest.raises(error, match=r"^mine$"), waiting().start("go") as run:
            raise error("mine")
        assert run.result(LONG).stop == "cancelled"

    def test_what_an_async_block_raises_is_raised_as_itself(self, here: Any) -> None:
        async def work() -> Run:
            runs: list[Run] = []
            with pytest.raises(ZeroDivisionError, match=r"^mine$"):
                async with waiting().open("go") as run:
                    runs.append(run)
                    await anyio.sleep(0)
                    raise ZeroDivisionError("mine")
            return runs[0]

        assert here(work).ended

    def test_a_hung_tool_does_not_keep_anybody_in_the_block(self) -> None:
        release = Event()
        try:
            with waiting(release).start("go") as run:
                for event in run:
                    if event.kind == "tool_started":
                        break
            assert run.result(LONG).stop == "cancelled"
        finally:
            release.set()


class TestTheWrongDoor:
    def test_an_open_run_has_no_sync_methods(self, here: Any) -> None:
        async def work() -> None:
            run = adding().open("go")
            for wrong in (run.result, lambda: next(iter(run)), run.__enter__):
                with pytest.raises(ConfigError, match="sync call on a run that was opened in an event loop"):
                    wrong()
            with pytest.raises(ConfigError, match="not open here"):
                await run.aresult()
            async with run:
                with pytest.raises(ConfigError, match="aresult"):
                    run.result()
                assert (await run.aresult()).completed
            with pytest.raises(ConfigError, match="a run that has begun"):
                await run.__aenter__()

        here(work)

    def test_a_started_run_has_no_async_methods(self, here: Any) -> None:
        async def kinds(run: AsyncIterator[RunEvent]) -> None:
            async for _ in run:
                pass

        async def work() -> None:
            run = adding().start("go")
            with pytest.raises(ConfigError, match="not open here"):
                await run.aresult()
            with pytest.raises(ConfigError, match="not open here"):
                await kinds(aiter(run))
            with pytest.raises(ConfigError, match="a run that has begun"):
                await run.__aenter__()
            assert run.result(LONG).completed

        here(work)

    @pytest.mark.parametrize("options", [{"withn": 1}, {"timeout": 5}])
    def test_an_unknown_option_is_refused_before_anything_begins(self, options: dict[str, Any]) -> None:
        model = ScriptedModel(say("x"))
        agent = Agent(model=model)
        for wrong in (agent.run, agent.start, agent.open):
            with pytest.raises(ConfigError, match="run, options"):
                wrong("go", **options)
        with pytest.raises(ConfigError, match="run, options"):
            asyncio.run(agent.arun("go", **options))
        model.assert_asked(0)
