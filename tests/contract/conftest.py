"""Three doors lead to a run: asyncio, trio and the sync API. What is here is what only real drivers can show.

Cancellation, deadlines, threads, clocks, Ctrl-C, processes, handles, leaks, stores and leases: tests of these go
through every door (fixtures `run`, `watch`, `door`; `here` for the two event loops). If a test has several cases, they
take turns: each case and each door comes at least once. A test marked `every_door` has all pairs of them, as its cases
are different code for each driver. A test marked `one_door` needs a real driver, but not all three: each of its cases
goes through one door. What the loop decides is not tested here, but under the script driver, in tests/loop.
"""

import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator
from threading import Event as ThreadEvent
from typing import Any, Unpack, cast
from zlib import crc32

import anyio
import pytest

from flyball import Agent, Result
from flyball.agent.agent import RunOptions
from flyball.agent.run import Run
from flyball.event import Event
from flyball.message import MessageType

LONG = 60.0
PAIRS = {
    "run_started": "run_ended",
    "turn_started": "turn_ended",
    "model_requested": "model_replied",
    "grace_started": "grace_ended",
}

LOOPS = ("asyncio", "trio")
DOORS = ("sync", *LOOPS)

Watching = Callable[[Run, Event], object]
Here = Callable[[Callable[[], Awaitable[Any]]], Any]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "one_door: each case goes through one door, and the cases take turns")
    config.addinivalue_line("markers", "every_door: each case goes through every door")


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, object, object]:
    """Leave out the pairs of a case and a door that prove nothing new. Which ones depends on nothing but names."""
    made = yield
    if not isinstance(made, list):
        return made
    items = cast("list[object]", made)
    functions = [item for item in items if isinstance(item, pytest.Function)]
    pairs = [_case_and_door(item) for item in functions]
    cases = list(dict.fromkeys(case for case, _, _ in pairs))
    left_out = {
        id(item)
        for item, (case, door, doors) in zip(functions, pairs, strict=True)
        if doors and not _has_its_turn(item, cases.index(case), len(cases), doors.index(door), len(doors))
    }
    return [item for item in items if id(item) not in left_out]


def _case_and_door(item: pytest.Function) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """The other parameters of an item, its door, and all doors; no doors if it has none, or names its own."""
    given: dict[str, Any] = (getattr(item, "callspec", None) and item.callspec.params) or {}
    if any(mark.name == "parametrize" and "door" in mark.args[0] for mark in item.iter_markers()):
        return (), "", ()
    name, doors = ("door", DOORS) if "door" in given else ("here", LOOPS)
    if name not in given:
        return (), "", ()
    case = item.callspec.id.split("-")
    case.remove(str(given[name]))
    return tuple(case), str(given[name]), doors


def _has_its_turn(item: pytest.Function, case: int, cases: int, door: int, doors: int) -> bool:
    if item.get_closest_marker("every_door") is not None:
        return True
    turns = cases if item.get_closest_marker("one_door") is not None else max(cases, doors)
    start = crc32(item.originalname.encode())
    return any(turn % cases == case and (start + turn) % doors == door for turn in range(turns))


def through(backend: str, work: Callable[[], Awaitable[Any]]) -> Any:
    async def bounded() -> Any:
        with anyio.fail_after(LONG):
            return await work()

    return anyio.run(bounded, backend=backend)


def checked(result: Result) -> Result:
    """Every pair is closed, and there is one end."""
    events = list(result.events)
    kinds = Counter(event.kind for event in events)
    assert (kinds["run_ended"], events[-1].kind) == (1, "run_ended")
    for started, ended in PAIRS.items():
        assert kinds[started] == kinds[ended], f"{kinds[started]} {started}, {kinds[ended]} {ended}"
    started = Counter(str(event.to_dict()["call_id"]) for event in events if event.kind == "tool_started")
    ended = Counter(str(event.to_dict()["call_id"]) for event in events if event.kind == "tool_ended")
    assert started <= ended
    assert set(ended.values()) <= {1}
    numbers = [event.seq for event in events]
    assert numbers == sorted(set(numbers))
    own = [message for message in result.messages if message.run == result.run_id]  # others of its session had theirs
    asked = [str(m.payload["call_id"]) for m in own if m.type is MessageType.TOOL_CALL and m.payload]
    told = [str(m.payload["call_id"]) for m in own if m.type is MessageType.TOOL_RESULT and m.payload]
    assert asked == told == [outcome.call_id for outcome in result.tool_results]
    return result


@pytest.fixture
def closed() -> Callable[[Result], Result]:
    """Gives the result back, if everything in it that began has ended."""
    return checked


@pytest.fixture(params=LOOPS)
def here(request: pytest.FixtureRequest) -> Here:
    """Runs an async function in an event loop, for a bounded time."""
    return lambda work: through(request.param, work)


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> str:
    """The name of one of the three doors."""
    return request.param


@pytest.fixture
def run(door: str) -> Callable[..., Result]:
    """`run(agent, task, **options)` gives the result of a run through one of the doors."""

    def run(agent: Agent, task: Any = "go", **options: Unpack[RunOptions]) -> Result:
        if door == "sync":
            return checked(agent.start(task, **options).result(LONG))
        return checked(through(door, lambda: agent.arun(task, **options)))

    return run


@pytest.fixture
def watch(door: str) -> Callable[..., Result]:
    """`watch(agent, watching)` calls `watching(run, event)` for each event of a run, and gives the result."""

    def watch(agent: Agent, watching: Watching, **options: Unpack[RunOptions]) -> Result:
        if door == "sync":
            with agent.start("go", **options) as run:
                for event in run:
                    watching(run, event)
                return checked(run.result(LONG))

        async def opened() -> Result:
            async with agent.open("go", **options) as run:
                async for event in run:
                    watching(run, event)
                return await run.aresult()

        return checked(through(door, opened))

    return watch


@pytest.fixture
def release() -> Iterator[ThreadEvent]:
    """What hangs until the test is over waits for this."""
    event = ThreadEvent()
    yield event
    event.set()


@pytest.fixture(autouse=True)
def _told_what_nobody_raised(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a thread or an event loop could only complain about is a failure of the test."""
    complaints: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    yield
    assert complaints == []
