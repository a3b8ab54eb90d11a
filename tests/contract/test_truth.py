"""Who steers, extends or cancels a run is told the truth about whether that still reached it."""

import random
from collections.abc import Callable
from itertools import product
from threading import Barrier, Event, Thread
from typing import Any

import anyio
import pytest

from flyball import Agent, Limits, Result, tool
from flyball.agent.run import Run
from flyball.event import Event as RunEvent
from flyball.progress import Order, Point, Progress
from flyball.testing import ScriptedModel, call, say

LONG = 60.0
RACES = 60


@tool
async def touch() -> None: ...


ENDS: dict[str, Callable[[], Agent]] = {
    "completed": lambda: Agent(model=ScriptedModel(call("touch"), say("done")), tools=[touch]),
    "budget": lambda: Agent(
        model=ScriptedModel.looping(call("touch"), grace=say("I touched.")), tools=[touch], limits=Limits(turns=2)
    ),
    "budget without grace": lambda: Agent(
        model=ScriptedModel.looping(call("touch")), tools=[touch], limits=Limits(turns=2), grace=False
    ),
    "failed": lambda: Agent(model=ScriptedModel(call("touch")), tools=[touch]),
    "halted": lambda: Agent(model=ScriptedModel(call("touch"), say("x")), tools=[touch], single_turn=True),
}


def race(agent: Agent, meddle: Callable[[Run], bool], seed: int) -> tuple[bool, Result]:
    """Start a run and meddle with it from another thread, somewhere near its end."""
    at, told, ready = random.Random(seed).randrange(1, 400), list[bool](), Barrier(2)

    def meddling(run: Run) -> None:
        ready.wait(LONG)
        for _ in range(at):
            pass
        told.append(meddle(run))

    handles: list[Run] = []
    thread = Thread(target=lambda: meddling(handles[0]))
    handles.append(agent.start("go"))
    thread.start()
    ready.wait(LONG)
    result = handles[0].result(LONG)
    thread.join(LONG)
    return told[0], result


def test_an_accepted_cancel_is_the_reason_of_the_end() -> None:
    for end, seed in product(ENDS, range(RACES)):
        told, result = race(ENDS[end](), lambda run: run.cancel("test"), seed)
        assert told == (result.stop == "cancelled"), (end, seed, told, result.stop)


def test_an_accepted_message_is_in_the_conversation() -> None:
    for end, seed in product(ENDS, range(RACES)):
        told, result = race(ENDS[end](), lambda run: run.steer("Only the tests."), seed)
        assert told == ("Only the tests." in [message.content for message in result.messages]), (end, seed, told)
        assert told == ("steered" in [event.kind for event in result.events]), (end, seed, told)


def test_an_accepted_extension_is_in_the_events() -> None:
    for end, seed in product(ENDS, range(RACES)):
        told, result = race(ENDS[end](), lambda run: run.extend(turns=1, seconds=1), seed)
        kinds = [event.kind for event in result.events]
        assert told == ("extended" in kinds) == ("postponed" in kinds), (end, seed, told)


def test_a_sink_that_steers_is_told_whether_it_was_heard(here: Any, closed: Any) -> None:
    for end, kind in product(ENDS, ["tool_started", "grace_started", "grace_ended", "run_ended"]):
        told, result = steered_at(kind, ENDS[end](), here)
        said = [message.content for message in closed(result).messages]
        assert [text for text in said if text.startswith("Again")] == told, (end, kind)


def steered_at(kind: str, agent: Agent, here: Any) -> tuple[list[str], Result]:
    """Run an agent whose sink steers at some event up to three times; the messages that were taken."""
    told, handles = list[str](), list[Run]()

    def sink(event: RunEvent) -> None:
        if event.kind == kind and len(told) < 3 and handles[0].steer(f"Again {len(told)}."):
            told.append(f"Again {len(told)}.")

    watched = Agent(
        model=agent.model,
        tools=[touch],
        sinks=[sink],
        limits=agent.limits,
        grace=agent.grace,
        single_turn=agent.single_turn,
    )

    async def work() -> Result:
        handles.append(watched.open("go"))
        async with handles[0] as run:
            return await run.aresult()

    return told, here(work)


@pytest.mark.one_door
def test_a_hook_at_the_end_cannot_steer_extend_or_cancel(here: Any) -> None:
    handles, told = list[Run](), list[bool]()

    def hook(point: Point, progress: Progress, about: object = None, /) -> tuple[Order, ...]:
        if point is Point.RUN_ENDED:
            run = handles[0]
            told.extend((run.steer("x"), run.extend(turns=1), run.cancel()))
        return ()

    async def work() -> Result:
        handles.append(Agent(model=ScriptedModel(say("done")), hooks=[hook]).open("go"))
        async with handles[0] as run:
            return await run.aresult()

    assert (here(work).stop, told) == ("completed", [False, False, False])


@pytest.mark.one_door
def test_an_extended_and_steered_run_goes_on_and_its_model_sees_the_message(here: Any) -> None:
    began, model = Event(), ScriptedModel.looping(call("hold"), grace=say("x"))

    @tool
    async def hold() -> None:
        began.set()
        while not meddled:
            await anyio.sleep(0.001)

    meddled: list[bool] = []

    async def work() -> Result:
        async with Agent(model=model, tools=[hold], limits=Limits(turns=1)).open("go") as run:
            while not began.is_set():
                await anyio.sleep(0.001)
            told = [run.extend(turns=2), run.steer("Only the tests.")]
            meddled.extend(told)
            return await run.aresult()

    result = here(work)
    assert (meddled, result.turns, result.budgets["turns"].ceiling) == ([True, True], 3, 3)
    kinds = [message.type.value for message in result.messages]
    said = [message.content for message in result.messages]
    assert kinds[: said.index("Only the tests.")] == ["text", "tool_call", "tool_result"]
    model.assert_saw("Only the tests.")


def test_an_ended_run_cannot_be_steered_extended_or_cancelled() -> None:
    run = Agent(model=ScriptedModel(say("done"))).start("go")
    assert run.result(LONG).completed
    assert (run.ended, run.steer("x"), run.extend(turns=1), run.cancel()) == (True, False, False, False)
