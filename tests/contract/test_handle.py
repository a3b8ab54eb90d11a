"""The handle of a run: watched, waited for, left early, and used at the wrong door."""

import asyncio
from collections.abc import AsyncIterator, Callable
from threading import Event, Thread, current_thread
from typing import Any

import anyio
import pytest

from flyball import Agent, ConfigError, Limits, Result, tool
from flyball.agent.run import Run
from flyball.event import Delta
from flyball.event import Event as RunEvent
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
    def test_a_watched_run_gives_every_event_and_streams_its_text(self, watch: Callable[..., Result]) -> None:
        seen: list[RunEvent] = []

        def watching(run: Run, event: RunEvent) -> None:
            seen.append(event)

        result = watch(adding(), watching)
        numbered = [event for event in seen if not isinstance(event, Delta)]
        assert [event.to_dict() for event in numbered] == [event.to_dict() for event in result.events]
        assert [event.seq for event in numbered] == list(range(len(numbered)))
        assert [event.seq for event in seen if isinstance(event, Delta)] == [-1, -2, -3]
        pieces = [event.text for event in seen if isinstance(event, Delta)]
        assert (pieces, result.text, seen[-1].kind) == (["It ", "is ", "3."], "It is 3.", "run_ended")

    def test_a_watched_run_gives_events_while_it_is_in_progress(self, watch: Callable[..., Result]) -> None:
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

    def test_a_watcher_that_stops_does_not_disturb_the_others(self, here: Any) -> None:
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
    def test_waiting_for_a_result_with_a_timeout_leaves_the_run_alone(self) -> None:
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

    @pytest.mark.one_door
    def test_a_run_id_given_by_the_caller_is_in_every_event(self, watch: Callable[..., Result]) -> None:
        names: list[tuple[str, str]] = []

        def watching(run: Run, event: RunEvent) -> None:
            names.append((run.run_id, event.header.run_id))

        result = watch(adding(), watching, run_id="mine", session="s", metadata={"job": 1})
        assert set(names) == {("mine", "mine")}
        assert (result.run_id, result.session_id, result.metadata) == ("mine", "s", {"job": 1})


class TestLeaving:
    def test_leaving_a_block_early_cancels_the_run(self, closed: Any) -> None:
        with waiting().start("go") as run:
            assert not run.ended
        result = closed(run.result(LONG))
        assert (run.ended, result.stop, result.stopped_by) == (True, "cancelled", "left")

    def test_leaving_an_async_block_early_cancels_the_run(self, here: Any, closed: Any) -> None:
        async def work() -> Run:
            async with waiting().open("go") as run:
                await anyio.sleep(0)
            return run

        async def result() -> Result:
            return await (await work()).aresult()

        given = closed(here(result))
        assert (given.stop, given.stopped_by) == ("cancelled", "left")

    def test_leaving_a_block_after_the_end_changes_nothing(self) -> None:
        with adding().start("go") as run:
            assert run.result(LONG).completed
        assert run.result(LONG).completed

    @pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
    def test_an_exception_in_a_block_is_raised_unchanged_and_cancels_the_run(self, error: type[BaseException]) -> None:
        with pytest.raises(error, match=r"^mine$"), waiting().start("go") as run:
            raise error("mine")
        assert run.result(LONG).stop == "cancelled"

    def test_an_exception_in_an_async_block_is_raised_unchanged_and_ends_the_run(self, here: Any) -> None:
        async def work() -> Run:
            runs: list[Run] = []
            with pytest.raises(ZeroDivisionError, match=r"^mine$"):
                async with waiting().open("go") as run:
                    runs.append(run)
                    await anyio.sleep(0)
                    raise ZeroDivisionError("mine")
            return runs[0]

        assert here(work).ended

    def test_a_hung_tool_does_not_keep_the_caller_in_the_block(self) -> None:
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
    @pytest.mark.one_door
    def test_an_open_run_has_no_sync_methods(self, here: Any, snapshot: Any) -> None:
        async def work() -> None:
            run = adding().open("go")
            sync: dict[str, Any] = {"result": run.result, "for": lambda: next(iter(run)), "with": run.__enter__}
            for name, wrong in sync.items():
                with pytest.raises(ConfigError) as refused:
                    wrong()
                snapshot(refused.value, name)
            with pytest.raises(ConfigError) as refused:
                await run.aresult()
            snapshot(refused.value, "not entered")
            async with run:
                with pytest.raises(ConfigError):
                    run.result()
                assert (await run.aresult()).completed
            with pytest.raises(ConfigError) as refused:
                await run.__aenter__()
            snapshot(refused.value, "entered twice")

        here(work)

    @pytest.mark.one_door
    def test_a_started_run_has_no_async_methods(self, here: Any) -> None:
        async def kinds(run: AsyncIterator[RunEvent]) -> None:
            async for _ in run:
                pass

        async def work() -> None:
            run = adding().start("go")
            for wrong in (run.aresult, lambda: kinds(aiter(run)), run.__aenter__):
                with pytest.raises(ConfigError):
                    await wrong()
            assert run.result(LONG).completed

        here(work)

    @pytest.mark.parametrize("options", [{"withn": 1}, {"timeout": 5}])
    def test_an_unknown_run_option_is_refused_before_anything_begins(self, options: dict[str, Any]) -> None:
        model = ScriptedModel(say("x"))
        agent = Agent(model=model)
        for wrong in (agent.run, agent.start, agent.open):
            with pytest.raises(ConfigError) as refused:
                wrong("go", **options)
            assert refused.value.where == "run, options"
        with pytest.raises(ConfigError) as refused:
            asyncio.run(agent.arun("go", **options))
        assert refused.value.where == "run, options"
        model.assert_asked(0)
