"""A run that paused goes on in place: nothing is done again, nothing is lost, and it goes on once."""

import copy
import pickle
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from threading import Barrier, Event, Thread
from typing import Any

import anyio
import pytest

from flyball import Agent, Limits, Result, tool
from flyball.agent.run import Run
from flyball.errors import ConfigError, ResumeError
from flyball.event import Event as RunEvent
from flyball.message import Message
from flyball.person import Question, Verdict, allow, deny
from flyball.progress import AskPerson, Notice, Order, Point, Progress
from flyball.request import Usage
from flyball.steadiness import Reflection
from flyball.store import MemoryStore
from flyball.testing import Line, ManualClock, ScriptedModel, call, say, together
from flyball.tools import ToolContext

LONG = 60.0
DELETE = call("delete", path="a")
TWO = together(DELETE, call("delete", path="b"))


class Desk:
    """An agent whose tools note what was really done, in its state too."""

    def __init__(self, *lines: Line, **options: Any) -> None:
        self.done: list[str] = []
        self.events: list[RunEvent] = []
        self.clock = ManualClock()
        self.model = ScriptedModel(
            *(lines or (call("look"), DELETE)), say("ok"), grace=say("I report."), reflection=say("Think.")
        )
        self.tools = [self.delete(), self.look()]
        sinks = [self.events.append, *options.pop("sinks", ())]
        self.agent = Agent(model=self.model, tools=self.tools, sinks=sinks, clock=self.clock, **options)

    def delete(self) -> Any:
        @tool(approve=True)
        def delete(path: str, ctx: ToolContext) -> str:
            ctx.state["deleted"] = [*ctx.state.get("deleted", []), path]
            return self.note(f"delete {path}")

        return delete

    def look(self) -> Any:
        @tool(effects="read")
        async def look(ctx: ToolContext, at: str = "it") -> str:
            ctx.state["looks"] = ctx.state.get("looks", 0) + 1
            return self.note(f"look {at}") * 20

        return look

    def note(self, text: str) -> str:
        self.clock.move(2)
        self.done.append(text)
        return text

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


def through(door: str, work: Callable[[], Any]) -> Any:
    async def bounded() -> Any:
        with anyio.fail_after(LONG):
            return await work()

    return anyio.run(bounded, backend=door)


@pytest.fixture
def resume(door: str, closed: Any) -> Callable[..., Result]:
    """`resume(agent, result, answers)` goes on through one of the doors."""

    def resume(agent: Agent, *given: Any) -> Result:
        if door == "sync":
            return closed(agent.resume(*given))
        return closed(through(door, partial(agent.aresume, *given)))

    return resume


def test_a_resumed_run_does_nothing_again(run: Any, resume: Any) -> None:
    desk = Desk(call("look"), together(call("look", at="2"), DELETE), call("look", at="3"))
    paused = run(desk.agent)
    assert (paused.stop, desk.done, len(desk.model.requests)) == ("paused", ["look it"], 2)
    result = resume(desk.agent, paused, {"call-101": True})
    assert (result.stop, result.text, result.questions) == ("completed", "ok", ())
    assert desk.done == ["look it", "look 2", "delete a", "look 3"]
    assert (result.run_id, result.requests, len(desk.model.requests)) == (paused.run_id, 4, 4)
    assert [outcome.status for outcome in result.tool_results] == ["done"] * 4


@pytest.mark.parametrize("begun", ["run", "start", "arun", "open"])
def test_a_run_begun_through_any_door_resumes_through_any_other(resume: Any, begun: str) -> None:
    desk = Desk()

    async def opened() -> Result:
        async with desk.agent.open("go") as run:
            return await run.aresult()

    begin: dict[str, Callable[[], Result]] = {
        "run": lambda: desk.agent.run("go"),
        "start": lambda: desk.agent.start("go").result(LONG),
        "arun": lambda: through("asyncio", lambda: desk.agent.arun("go")),
        "open": lambda: through("trio", opened),
    }
    assert resume(desk.agent, begin[begun](), {"call-100": True}).completed
    assert desk.done == ["look it", "delete a"]


@pytest.mark.one_door
def test_a_resumed_run_goes_on_with_its_counts_state_and_time(run: Any, resume: Any) -> None:
    lines = [call("look").using(Usage(20, 10)), DELETE.using(Usage(30, 10)), call("look", at="2").using(Usage(40, 10))]
    desk = Desk(*lines, limits=Limits(turns=9, tool_calls=9, tokens=100_000))
    paused = run(desk.agent, state={"looks": 5}, metadata={"job": 7}, session="s")
    assert (paused.turns, paused.seconds, paused.state) == (2, 2, {"looks": 6})
    desk.clock.move(10_000)
    result = resume(desk.agent, paused, {"call-100": allow()})
    assert (result.turns, result.seconds, result.session_id, result.metadata) == (4, 6, "s", {"job": 7})
    assert result.state == {"looks": 7, "deleted": ["a"]}
    assert (paused.usage.total, result.usage.total) == (70, 70 + 50 + 15)
    used = {name: result.budgets[name].used for name in ("turns", "tool_calls", "tokens")}
    assert used == {"turns": 4, "tool_calls": 3, "tokens": result.usage.total}
    assert paused.state == {"looks": 6}


@pytest.mark.one_door
def test_a_resumed_run_goes_on_with_its_events_and_repeats_none(run: Any, resume: Any) -> None:
    desk = Desk()
    paused = run(desk.agent)
    assert desk.kinds[-1] == "run_ended"
    before = len(desk.events)
    result = resume(desk.agent, paused, {"call-100": deny()})
    heard = desk.kinds[before:]
    assert heard[:2] == ["person_answered", "tool_ended"]
    assert not {"run_started", "tool_started", "asked_person"} & set(heard)
    assert desk.events[before:] == list(result.events)[-len(heard) :]
    kinds = [event.kind for event in result.events]
    assert [kinds.count(kind) for kind in ("run_started", "asked_person", "person_answered", "run_ended")] == [1] * 4


@pytest.mark.one_door
def test_a_resumed_run_still_counts_the_sink_errors_of_before(run: Any, resume: Any) -> None:
    def broken(_: RunEvent) -> None:
        raise ValueError("x")

    desk = Desk(sinks=[broken])
    paused = run(desk.agent)
    assert paused.sink_errors == len(paused.events)
    assert resume(desk.agent, paused, {"call-100": True}).sink_errors > paused.sink_errors


@pytest.mark.one_door
@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ({"call-7": True}, "call-7"),
        ({"call-100": "yes"}, "yes"),
        ({"call-100": None}, None),
        ({"call-100": Verdict(True, amount=-1)}, Verdict(True, amount=-1)),
        ([], []),
    ],
    ids=str,
)
def test_a_mistake_in_the_answers_leaves_the_run_paused(run: Any, resume: Any, answers: Any, found: object) -> None:
    desk = Desk()
    paused = run(desk.agent)
    with pytest.raises(ConfigError) as refused:
        resume(desk.agent, paused, answers)
    assert refused.value.found == found
    with pytest.raises(ConfigError):
        resume(Desk().agent, paused, {"call-100": True})
    assert resume(desk.agent, paused, {"call-100": True}).completed
    assert desk.done == ["look it", "delete a"]


@pytest.mark.one_door
def test_a_result_that_is_not_paused_cannot_resume(run: Any, resume: Any, snapshot: Any) -> None:
    desk = Desk(call("look"))
    with pytest.raises(ConfigError) as completed:
        resume(desk.agent, run(desk.agent), {})
    with pytest.raises(ConfigError) as no_result:
        resume(desk.agent, "a text", {})
    snapshot(f"{completed.value}\n{no_result.value}")


@pytest.mark.one_door
@pytest.mark.parametrize("way", ["pickle", "deepcopy"])
def test_a_copy_of_a_paused_result_cannot_resume_and_the_original_can(run: Any, resume: Any, way: str) -> None:
    desk = Desk()
    paused = run(desk.agent)
    twin = copy.deepcopy(paused) if way == "deepcopy" else pickle.loads(pickle.dumps(paused))
    assert (twin.stop, twin.questions, list(twin.events)) == (paused.stop, paused.questions, list(paused.events))
    with pytest.raises(ConfigError):
        resume(desk.agent, twin, {"call-100": True})
    assert resume(desk.agent, paused, {"call-100": True}).completed


@pytest.mark.one_door
def test_a_paused_run_resumes_once(run: Any, resume: Any) -> None:
    desk = Desk()
    paused = run(desk.agent)
    assert resume(desk.agent, paused, {"call-100": True}).completed
    with pytest.raises(ConfigError):
        resume(desk.agent, paused, {"call-100": True})
    assert desk.done == ["look it", "delete a"]


def test_resuming_in_a_cancelled_task_ends_the_run_as_cancelled(here: Any) -> None:
    desk = Desk()

    async def work() -> None:
        paused = await desk.agent.arun("go")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await desk.agent.aresume(paused, {"call-100": True})

    here(work)
    assert (desk.done, desk.events[-1].to_dict()["stop"]) == (["look it"], "cancelled")


@pytest.mark.one_door
def test_a_paused_run_that_many_threads_resume_at_once_resumes_once(run: Any) -> None:
    desk, together_now, came = Desk(), Barrier(8), list[object]()
    paused = run(desk.agent)

    def one() -> None:
        together_now.wait(LONG)
        try:
            came.append(desk.agent.resume(paused, {"call-100": True}).stop)
        except ConfigError as error:
            came.append(error)

    threads = [Thread(target=one, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert (came.count("completed"), len(came), desk.done) == (1, 8, ["look it", "delete a"])


@pytest.mark.one_door
def test_a_run_resumed_without_an_answer_pauses_again_with_the_same_question(run: Any, resume: Any) -> None:
    desk = Desk(DELETE, call("delete", path="b"))
    first = run(desk.agent)
    second = resume(desk.agent, first)
    assert (second.stop, second.questions) == ("paused", first.questions)
    third = resume(desk.agent, second, {"call-0": True})
    assert (third.stop, [question.id for question in third.questions]) == ("paused", ["call-100"])
    assert resume(desk.agent, third, {"call-100": False}).completed
    assert (desk.done, len(desk.model.requests)) == (["delete a"], 3)


@pytest.mark.one_door
def test_a_resumed_run_does_not_ask_its_approver_again(run: Any, resume: Any) -> None:
    asked: list[str] = []

    def second_only(question: Question) -> bool | None:
        asked.append(question.id)
        return None if question.id == "call-0" else True

    desk = Desk(TWO, approver=second_only)
    paused = run(desk.agent)
    assert [question.id for question in paused.questions] == ["call-0"]
    assert resume(desk.agent, paused, {"call-0": True}).completed
    assert (asked, desk.done) == (["call-0", "call-1"], ["delete a", "delete b"])


@pytest.mark.one_door
def test_a_resumed_run_claims_from_shared_budgets_once(run: Any, resume: Any) -> None:
    desk = Desk(limits=Limits(tokens=50_000), max_output_tokens=100)
    with Limits(turns=9, tool_calls=9, tokens=100_000).open() as shared:
        free_before = shared.budgets["tokens"].available
        paused = run(desk.agent, within=shared)
        at_pause = {name: shared.budgets[name].used for name in ("turns", "tool_calls", "tokens")}
        assert at_pause == {"turns": 2, "tool_calls": 1, "tokens": paused.usage.total}
        result = resume(desk.agent, paused, {"call-100": True})
        used = {name: shared.budgets[name].used for name in ("turns", "tool_calls", "tokens")}
        free = shared.budgets["tokens"].available
    assert used == {"turns": 3, "tool_calls": 2, "tokens": result.usage.total}
    assert free == free_before - result.usage.total


@pytest.mark.one_door
@pytest.mark.parametrize("moment", ["asked_person", "person_answered", "turn_ended"])
def test_a_signal_that_came_in_while_a_run_paused_is_heard_when_it_resumes(run: Any, resume: Any, moment: str) -> None:
    runs, begun, reached = list[Run](), Event(), list[bool]()

    def interfere(event: RunEvent) -> None:
        if event.kind == "tool_started":
            begun.wait(LONG)
        if event.kind == moment and "asked_person" in desk.kinds and not reached:
            reached.extend((runs[0].steer("Be careful."), runs[0].extend(turns=3)))

    desk = Desk(sinks=[interfere], limits=Limits(turns=5))
    runs.append(desk.agent.start("go"))
    begun.set()
    paused = runs[0].result(LONG)
    assert (paused.stop, reached) == ("paused", [True, True])
    result = resume(desk.agent, paused, {"call-100": True})
    assert [message.content for message in result.messages].count("Be careful.") == 1
    assert result.budgets["turns"].ceiling == 8
    desk.model.assert_saw("Be careful.")


@pytest.mark.one_door
def test_a_resumed_run_does_not_repeat_reflections_and_summaries(run: Any, resume: Any) -> None:
    summed: list[int] = []

    async def compact(messages: Sequence[Message]) -> str:
        summed.append(len(messages))
        return "It looked."

    lines = [call("look", at="x" * 60 + str(n)).using(Usage(900 * (n + 1), 10)) for n in range(8)]
    limits = Limits(context_tokens=4_000)
    desk = Desk(*lines, DELETE, limits=limits, reflection=Reflection(every=3), compact=compact)
    paused = run(desk.agent)
    asked, sums = len(desk.model.requests), list(summed)
    assert (paused.stop, len(paused.reflections), bool(sums)) == ("paused", 2, True)
    result = resume(desk.agent, paused, {"call-800": True})
    assert (result.stop, summed) == ("completed", sums)
    assert len(desk.model.requests) == result.requests
    assert desk.done == [f"look {'x' * 60}{n}" for n in range(8)] + ["delete a"]
    assert result.requests == asked + 2


@pytest.mark.one_door
def test_a_run_whose_hook_raises_at_replay_is_refused_and_can_still_resume(run: Any, resume: Any) -> None:
    moods: list[str] = []

    def moody(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
        if moods and point is Point.TURN_ENDED:
            raise ValueError(moods[0])
        return ()

    desk = Desk(hooks=[moody])
    paused = run(desk.agent)
    heard = len(desk.events)
    moods.append("not today")
    with pytest.raises(ConfigError) as refused:
        resume(desk.agent, paused, {"call-100": True})
    assert "not today" in str(refused.value)
    assert (desk.done, len(desk.events)) == (["look it"], heard)
    moods.clear()
    assert resume(desk.agent, paused, {"call-100": True}).completed
    assert desk.done == ["look it", "delete a"]


@pytest.mark.one_door
def test_a_stored_run_that_ends_at_replay_is_refused_and_can_still_resume(run: Any, resume: Any) -> None:
    moods: list[str] = []

    def moody(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
        if moods and point is Point.TURN_ENDED:
            raise ValueError(moods[0])
        return ()

    desk = Desk(hooks=[moody], store=MemoryStore())
    paused = run(desk.agent)
    moods.append("not today")
    with pytest.raises(ResumeError):
        resume(desk.agent, paused, {"call-100": True})
    moods.clear()
    assert resume(desk.agent, paused, {"call-100": True}).completed
    assert desk.done == ["look it", "delete a"]


@pytest.mark.one_door
def test_a_run_whose_request_has_another_notice_at_replay_is_refused_and_can_still_resume(
    run: Any, resume: Any
) -> None:
    notices: list[str] = []

    def advise(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
        return [Notice(text) for text in notices] if point is Point.TURN_STARTED else ()

    desk = Desk(hooks=[advise])
    paused = run(desk.agent)
    notices.append("Hurry.")
    with pytest.raises(ConfigError, match="the run wants Ask"):
        resume(desk.agent, paused, {"call-100": True})
    notices.clear()
    assert resume(desk.agent, paused, {"call-100": True}).completed
    assert desk.done == ["look it", "delete a"]


@pytest.mark.one_door
def test_a_run_that_a_hook_pauses_resumes_and_may_pause_again(run: Any, resume: Any) -> None:
    def ask(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
        return [AskPerson(f"Turn {progress.turn}?")] if point is Point.TURN_STARTED else ()

    model = ScriptedModel(say("ok"))
    agent = Agent(model=model, hooks=[ask])
    paused = run(agent)
    again = resume(agent, paused)
    assert [(one.stop, one.questions) for one in (paused, again)] == [("paused", paused.questions)] * 2
    assert resume(agent, again, {again.questions[0].id: True}).completed
    assert len(model.requests) == 1


@pytest.mark.one_door
def test_a_run_that_would_ask_something_else_at_replay_is_refused_and_can_still_resume(run: Any, resume: Any) -> None:
    first, made = ["a"], list[str]()

    @tool(approve=lambda arguments: arguments["path"] in first)
    def delete(path: str) -> None:
        made.append(path)

    agent = Agent(model=ScriptedModel(TWO, say("ok")), tools=[delete])
    paused = run(agent)
    first[:] = ["b"]
    with pytest.raises(ConfigError):
        resume(agent, paused, {"call-0": True})
    first[:] = ["a"]
    assert resume(agent, paused, {"call-0": deny()}).completed
    assert made == ["b"]


@pytest.mark.one_door
def test_a_resumed_run_whose_time_of_day_has_passed_ends_at_its_deadline(run: Any, resume: Any) -> None:
    clock = ManualClock(wall=1_000_000.0)
    model = ScriptedModel(DELETE, say("ok"), grace=say("I report."))
    desk = Desk()
    limits = Limits(until=datetime.fromtimestamp(1_000_100, UTC))
    agent = Agent(model=model, tools=desk.tools, clock=clock, limits=limits)
    paused = run(agent)
    clock.move(200)
    result = resume(agent, paused, {"call-0": True})
    assert (paused.stop, result.stop, desk.done) == ("paused", "deadline", [])
