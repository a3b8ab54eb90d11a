"""A person who is asked while a run goes on: nobody else waits for the answer, and what is not a clear yes means no."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from threading import Event, get_ident
from time import monotonic, sleep
from typing import Any

import anyio
import pytest

from flyball import Agent, Limits, Result, tool
from flyball.agent.run import Run
from flyball.event import Event as RunEvent
from flyball.person import About, Question, Verdict, allow, deny, edit, extend
from flyball.runtime.approval import ApprovalCaller, Person
from flyball.testing import Line, ManualClock, ScriptedModel, call, say, together

LONG, SHORT = 60.0, 0.05
Running = Callable[..., Result]
DELETE = call("delete", path="a")


class Desk:
    """An agent whose tools note what was really done."""

    def __init__(self, *lines: Line, **options: Any) -> None:
        self.done: list[str] = []
        self.events: list[RunEvent] = []
        self.model = ScriptedModel(*(lines or (DELETE,)), say("ok"), grace=say("I report."))
        tools = [self.delete(), self.look()]
        self.agent = Agent(model=self.model, tools=tools, sinks=[self.events.append], **options)

    def delete(self) -> Any:
        @tool(approve=True)
        async def delete(path: str) -> str:
            self.done.append(f"delete {path}")
            return f"deleted {path}"

        return delete

    def look(self) -> Any:
        @tool(effects="read")
        def look(at: str = "it") -> str:
            self.done.append(f"look {at}")
            return f"seen {at}"

        return look

    async def asked(self) -> None:
        while "asked_person" not in [event.kind for event in self.events]:
            await anyio.sleep(0.001)
        await anyio.sleep(0.002)


def ways(say_it: Callable[[Question], Any]) -> dict[str, Any]:
    """The same approver in all the shapes that one may have."""

    async def awaited(question: Question) -> Any:
        await anyio.sleep(0)
        return say_it(question)

    class Object:
        async def __call__(self, question: Question) -> Any:
            return await awaited(question)

    return {"def": say_it, "async": awaited, "object": Object()}


WAYS = ["def", "async", "object"]


def path_of(question: Question) -> str:
    return str((question.arguments or {})["path"])


class Thinking:
    """A person who takes so long that nobody waits for the end of it; released at the end of a test."""

    def __init__(self, way: str = "def") -> None:
        self.release = Event()
        self.asked: Any = self._sleep if way == "async" else self._block

    async def _sleep(self, question: Question) -> bool:
        await anyio.sleep(LONG)
        return True

    def _block(self, question: Question) -> bool:
        return self.release.wait(LONG)


@pytest.fixture
def thinking() -> Iterator[Callable[[str], Thinking]]:
    people: list[Thinking] = []

    def one(way: str) -> Thinking:
        people.append(Thinking(way))
        return people[-1]

    yield one
    for person in people:
        person.release.set()


@pytest.mark.parametrize("way", WAYS)
def test_an_approver_of_any_shape_is_obeyed(run: Running, way: str) -> None:
    said = {"a": True, "b": allow("Yes."), "c": False, "d": deny("Keep it."), "e": edit(path="f")}
    desk = Desk(*[call("delete", path=path) for path in said], approver=ways(lambda asked: said[path_of(asked)])[way])
    result = run(desk.agent)
    assert (result.stop, desk.done) == ("completed", ["delete a", "delete b", "delete f"])
    assert [outcome.status for outcome in result.tool_results] == ["done", "done", "denied", "denied", "done"]
    assert "Keep it." in result.tool_results[3].text


@pytest.mark.one_door
@pytest.mark.parametrize("way", WAYS)
def test_an_approver_that_answers_none_pauses_the_run(run: Running, way: str) -> None:
    desk = Desk(approver=ways(lambda _: None)[way])
    result = run(desk.agent)
    assert (result.stop, desk.done) == ("paused", [])
    assert [question.id for question in result.questions] == ["call-0"]


async def never_awaited() -> bool:
    return True


UNCLEAR: dict[str, Callable[[], Any]] = {
    "a text": lambda: "yes",
    "a number": lambda: 1,
    "a coroutine": never_awaited,
    "a verdict of a text": lambda: Verdict("yes"),  # pyright: ignore[reportArgumentType]
    "arguments as a text": lambda: Verdict(True, arguments='{"path": "b"}'),  # pyright: ignore[reportArgumentType]
}


@pytest.mark.one_door
@pytest.mark.parametrize("way", WAYS)
def test_an_unclear_answer_of_an_approver_means_no(run: Running, way: str) -> None:
    calls = [call("delete", path=path) for path in UNCLEAR]
    desk = Desk(*calls, approver=ways(lambda asked: UNCLEAR[path_of(asked)]())[way])
    result = run(desk.agent)
    assert (result.stop, desk.done) == ("completed", [])
    assert [outcome.status for outcome in result.tool_results] == ["denied"] * len(UNCLEAR)


ERRORS = {"a": ValueError("x"), "b": SystemExit(3), "c": asyncio.CancelledError("own")}


@pytest.mark.parametrize("way", WAYS)
def test_an_approver_that_raises_means_no(run: Running, way: str) -> None:
    def raising(asked: Question) -> bool:
        raise ERRORS[path_of(asked)]

    desk = Desk(*[call("delete", path=path) for path in ERRORS], approver=ways(raising)[way])
    result = run(desk.agent)
    assert (result.stop, desk.done) == ("completed", [])
    for outcome, error in zip(result.tool_results, ERRORS.values(), strict=True):
        assert (outcome.status, type(error).__name__ in outcome.text) == ("denied", True)


@pytest.mark.parametrize("way", ["def", "async"])
def test_an_approver_that_does_not_answer_in_time_means_no(run: Running, thinking: Any, way: str) -> None:
    desk = Desk(approver=thinking(way).asked, approver_seconds=SHORT)
    result = run(desk.agent)
    assert (result.stop, desk.done) == ("completed", [])
    assert result.tool_results[0].status == "denied"


@pytest.mark.one_door
@pytest.mark.parametrize("way", WAYS)
def test_waiting_for_an_approver_takes_none_of_the_runs_time(run: Running, way: str) -> None:
    clock = ManualClock()

    def slow(_: Question) -> bool:
        clock.move(10_000)
        return True

    desk = Desk(call("look"), together(DELETE, call("delete", path="b")), approver=ways(slow)[way], clock=clock)
    limited = Desk(DELETE, approver=ways(slow)[way], clock=clock, limits=Limits(seconds=5))
    result = run(desk.agent)
    assert (result.stop, result.seconds, len(desk.done)) == ("completed", 0, 3)
    assert (run(limited.agent).stop, limited.done) == ("completed", ["delete a"])


def test_waiting_for_an_approver_takes_none_of_the_runs_time_by_the_system_clock(run: Running) -> None:
    def slow(_: Question) -> bool:
        Event().wait(0.2)
        return True

    began = monotonic()
    result = run(Desk(approver=slow).agent)
    assert result.completed
    assert monotonic() - began - result.seconds >= 0.19


@pytest.mark.one_door
def test_a_call_after_a_slow_approval_still_has_its_timeout(run: Running) -> None:
    @tool(approve=True, timeout=SHORT)
    async def hang() -> None:
        await anyio.sleep(LONG)

    def slow(_: Question) -> bool:
        Event().wait(SHORT * 2)
        return True

    agent = Agent(model=ScriptedModel(call("hang"), say("ok")), tools=[hang], approver=slow)
    assert [outcome.status for outcome in run(agent).tool_results] == ["timed_out"]


@pytest.mark.one_door
@pytest.mark.parametrize("way", ["def", "async"])
def test_a_time_of_day_limit_ends_a_run_that_waits_for_an_approver(run: Running, thinking: Any, way: str) -> None:
    until = datetime.now(UTC) + timedelta(seconds=0.3)
    desk = Desk(approver=thinking(way).asked, limits=Limits(until=until), approver_seconds=None)
    result = run(desk.agent)
    assert (result.stop, desk.done) == ("deadline", [])


def test_a_blocking_approver_does_not_block_other_runs_of_the_loop(here: Any) -> None:
    release, threads = Event(), set[int]()

    def blocking(_: Question) -> bool:
        threads.add(get_ident())
        return release.wait(LONG)

    desk = Desk(approver=blocking)

    async def work() -> Result:
        results: list[Result] = []

        async def wait() -> None:
            results.append(await desk.agent.arun("go"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await desk.asked()
            assert (await Desk(call("look")).agent.arun("go")).completed
            assert not results
            release.set()
        return results[0]

    assert here(work).completed
    assert get_ident() not in threads


def test_forty_blocking_approvers_leave_workers_for_tools_and_models(thinking: Any) -> None:
    person = thinking("def")
    desk = Desk(approver=person.asked)
    runs = [desk.agent.start("go") for _ in range(40)]
    try:
        while [event.kind for event in desk.events].count("asked_person") < len(runs):
            Event().wait(0.001)
        other = Desk(call("look"))
        assert other.agent.start("go").result(LONG).completed
        assert other.done == ["look it"]
    finally:
        person.release.set()
    assert {run.result(LONG).stop for run in runs} == {"completed"}
    assert desk.done == ["delete a"] * 40


@pytest.mark.every_door
@pytest.mark.parametrize("way", ["def", "async"])
def test_a_cancel_while_an_approver_is_asked_ends_the_run_without_the_call(watch: Any, thinking: Any, way: str) -> None:
    desk = Desk(together(call("look"), DELETE), approver=thinking(way).asked, approver_seconds=None)

    def cancel(run: Run, event: RunEvent) -> None:
        if event.kind == "asked_person":
            run.cancel("me")

    result = watch(desk.agent, cancel)
    assert (result.stop, result.stopped_by, desk.done, result.questions) == ("cancelled", "me", [], ())
    assert result.pause is None


@pytest.mark.parametrize("way", ["def", "async"])
def test_a_cancelled_task_closes_a_run_that_asks_an_approver(here: Any, thinking: Any, way: str) -> None:
    desk = Desk(approver=thinking(way).asked)

    async def work() -> bool:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(desk.agent.arun, "go")
                await desk.asked()
                scope.cancel()
        return scope.cancelled_caught

    assert here(work)
    assert (desk.done, desk.events[-1].to_dict()["stop"]) == ([], "cancelled")
    assert [event.kind for event in desk.events].count("run_ended") == 1


def test_an_approver_that_hangs_does_not_keep_a_process_from_exiting() -> None:
    program = """
import threading
from flyball import Agent, tool
from flyball.testing import ScriptedModel, call, say
@tool(approve=True)
def delete() -> None: print("deleted")
def hang(question): threading.Event().wait()
agent = Agent(model=ScriptedModel(call("delete"), say("ok")), tools=[delete], approver=hang, approver_seconds=0.05)
print(agent.run("go").stop)
run = agent.start("go")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LONG, check=True)
    assert (ended.stdout, ended.stderr) == ("completed\n", "")


@pytest.mark.one_door
def test_an_approver_is_asked_for_more_when_a_limit_is_met(run: Running) -> None:
    asked: list[str] = []

    def more(question: Question) -> Verdict:
        asked.append(question.id)
        return extend(2)

    lines = [call("look", at=str(n)) for n in range(4)]
    desk = Desk(*lines, approver=more, on_exhausted="ask", limits=Limits(turns=1))
    result = run(desk.agent)
    assert (result.stop, result.turns, asked) == ("completed", 5, ["turns-1", "turns-3"])


async def swallow_the_cancel(question: Question) -> bool:
    try:
        await anyio.sleep(LONG)
    except BaseException:  # as in a retry loop that catches too much
        return True
    return True


async def block_past_the_deadline(question: Question) -> bool:
    sleep(3 * SHORT)
    return True


@pytest.mark.every_door
@pytest.mark.parametrize("approver", [swallow_the_cancel, block_past_the_deadline])
def test_a_yes_of_an_async_approver_after_its_time_counts_as_no(run: Running, approver: Any) -> None:
    desk = Desk(approver=approver, approver_seconds=SHORT)
    result = run(desk.agent)
    assert (desk.done, result.stop) == ([], "completed")
    assert "did not answer within" in result.tool_results[0].text


def test_a_yes_of_a_def_approver_counts_by_its_own_time_though_the_event_loop_notices_it_late() -> None:
    async def work() -> Verdict:
        caller = ApprovalCaller(Person(lambda question: sleep(2 * SHORT) or True, SHORT))

        async def block() -> None:
            await asyncio.sleep(SHORT / 2)
            sleep(4 * SHORT)

        blocking = asyncio.create_task(block())
        verdict = await caller.decide(Question("1", "May it?", About.CALL, "delete", {}))
        await blocking
        return verdict

    assert asyncio.run(work()).approved is False
