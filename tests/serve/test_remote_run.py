"""The runner of a remote run, without a service."""

import math
from typing import Any

import anyio

from flyball import Deadline, IterationBudget, IterationBudgetRegistry, Limits, TurnBudget
from flyball.chain import Caller, Chain, serving
from flyball.event import Event
from flyball.loop.child_task import ChildTask, Mode
from flyball.loop.effects import Cancel
from flyball.recorder import Recorder
from flyball.result import Result, Stop
from flyball.serve import remote_agent
from flyball.serve.remote_run import RemoteRunner
from flyball.testing import ManualClock, assert_honest


def runner(ask: Any, clock: ManualClock, *sinks: Any, within: TurnBudget | None = None) -> RemoteRunner:
    far = remote_agent("http://127.0.0.1:1", name="far", limits=Limits(turns=4, usd=0.5, seconds=100))
    edge = far.as_child(Mode.INDEPENDENT, IterationBudgetRegistry(settings={}))
    task = ChildTask(spec=edge, goal="Go.", run_id="here", parent_run_id="above", level=1)
    plan = task.build_plan(60.0, clock.wall())
    return RemoteRunner(ask, task, plan, Recorder(plan.header, sinks), clock, within)


def event(kind: str = "run_started", run_id: str = "there", above: str | None = None, **told: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"event": kind, "seq": 1, "time": "2031-01-31T12:00:00+00:00", "at": 1.0, "turn": 1}
    ids: dict[str, Any] = {"run_id": run_id, "parent_run_id": above, "session_id": None, "metadata": {}}
    own: dict[str, Any] = {"limits": {}, "agent": "far"} if kind == "run_started" else {}
    return {**row, **ids, **own, **told}


def test_the_service_is_told_the_limits_and_the_time_less_what_its_answer_takes() -> None:
    bodies: list[Any] = []

    async def ask(body: Any, position: Any, hear: Any, _: Any) -> Any:
        bodies.append((body, position))
        return Result(stop=Stop.COMPLETED, text="Hi.").to_dict()

    assert anyio.run(runner(ask, ManualClock()).drive).text == "Hi."
    [(body, position)] = bodies
    assert (body["message"], position.run_id, position.remaining_s) == ("Go.", "above", 59.5)
    assert body["limits"] == {"turns": 4, "usd": 0.5, "seconds": 59.0}


def test_what_is_heard_counts_as_progress_whatever_it_is() -> None:
    clock, idle = ManualClock(), list[float]()

    async def ask(body: Any, position: Any, hear: Any, _: Any) -> Any:
        for told in (event(), {"event": "a_later_event"}, event(seq="x"), event(metadata=None)):
            clock.move(10)
            idle.append(one.idle_s)
            hear(told)
            idle.append(one.idle_s)
        return {"stop": "completed"}

    one = runner(ask, clock)
    anyio.run(one.drive)
    assert idle == [10.0, 0.0] * 4


def test_what_is_heard_reaches_those_who_watch_and_what_they_raise_is_counted() -> None:
    seen: list[Event] = []

    def broken(event: Event) -> None:
        raise ValueError("no")

    async def ask(body: Any, position: Any, hear: Any, _: Any) -> Any:
        hear(event())
        hear(event("turn_started"))
        hear({"event": "nonsense"})
        raise OSError("cut")

    result = anyio.run(runner(ask, ManualClock(), seen.append, broken).drive)
    told = [(one.kind, one.header.run_id, one.header.parent_run_id) for one in seen]
    assert told == [
        ("run_started", "here", "above"),
        ("run_started", "there", "here"),
        ("turn_started", "there", "here"),
        ("run_ended", "there", "here"),
        ("run_ended", "here", "above"),
    ]
    assert (result.stop, result.sink_errors) == ("failed", 5)
    assert_honest(result)


def test_what_a_chain_leaves_and_was_lent_goes_along_whole() -> None:
    left = {"turns": IterationBudget("chain_turns", 1)}
    envelope = TurnBudget({**left, "usd": IterationBudget("chain_usd", None, beside=left["turns"])}, Deadline(math.inf))
    caller = Caller(root="r", depth=1, ceiling=5, envelope=envelope)
    here, there = (Chain(name=name, host="here", settings={}) for name in "ab")
    callers: list[Any] = []

    async def ask(body: Any, position: Any, hear: Any, _: Any) -> Any:
        callers.append(there.check(here.headers_at(position)))
        return {"stop": "completed"}

    with serving(caller, here):
        anyio.run(runner(ask, ManualClock(), within=envelope).drive)
    [heard] = callers
    assert (heard.depth, heard.left["turns"]) == (2, 1)


def test_a_cancel_before_it_begins_asks_nobody() -> None:
    async def ask(body: Any, position: Any, hear: Any, _: Any) -> Any:
        raise AssertionError("nobody is asked")

    one = runner(ask, ManualClock())
    assert one.signals.send(Cancel("me"))
    result = anyio.run(one.drive)
    assert (result.stop, result.stopped_by) == ("cancelled", "me")
    assert not one.signals.send(Cancel("me")), "it is over"


def test_a_task_that_is_cancelled_closes_it_first() -> None:
    ones: list[RemoteRunner] = []

    async def ask(body: Any, position: Any, hear: Any, _: Any) -> Any:
        await anyio.sleep_forever()

    async def cut() -> None:
        ones.append(runner(ask, ManualClock()))
        with anyio.move_on_after(0.01):
            await ones[0].drive()

    anyio.run(cut)
    [one] = ones
    assert one.result is not None
    assert (one.result.stop, one.result.stopped_by) == ("cancelled", "parent")
    assert {name: budget.used for name, budget in one.result.budgets.items()} == {
        "turns": 4,
        "usd": 500_000_000,
        "children": 0,
    }
    assert_honest(one.result)
