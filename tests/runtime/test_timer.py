import math
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from flyball.budget.deadline import SYSTEM
from flyball.runtime.timer import RunTimer
from flyball.testing import ManualClock

LONG, SHORT = 60.0, 0.01


@pytest.fixture(params=["asyncio", "trio"])
def here(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[Any]]], Any]:
    return lambda work: anyio.run(work, backend=request.param)


def test_a_pace_starts_with_the_run_and_goes_by_its_clock() -> None:
    clock = ManualClock(now=5.0)
    pace = RunTimer(clock)
    clock.move(2.5)
    assert (pace.now(), pace.wall()) == (2.5, clock.wall())


@pytest.mark.parametrize("before", [[], [math.inf], [LONG], [LONG, math.inf]])
def test_what_takes_too_long_is_cut_whatever_the_one_before_could_take(here: Any, before: list[float]) -> None:
    async def work() -> bool:
        pace = RunTimer(SYSTEM)
        with anyio.CancelScope() as scope:
            pace.enter(scope)
            for seconds in (*before, SHORT):
                pace.set_deadline(pace.now() + seconds)
            await anyio.sleep(LONG)
        pace.leave()
        return scope.cancelled_caught

    assert here(work)


@pytest.mark.parametrize("seconds", [LONG, math.inf])
def test_what_may_take_longer_is_not_cut_when_the_time_of_the_one_before_comes(here: Any, seconds: float) -> None:
    async def work() -> bool:
        pace = RunTimer(SYSTEM)
        with anyio.CancelScope() as scope:
            pace.enter(scope)
            pace.set_deadline(pace.now() + SHORT)
            pace.set_deadline(pace.now() + seconds)
            await anyio.sleep(SHORT * 3)
        pace.leave()
        return scope.cancel_called

    assert not here(work)


def test_who_has_left_is_not_cut_any_more(here: Any) -> None:
    async def work() -> bool:
        pace = RunTimer(SYSTEM)
        with anyio.CancelScope() as scope:
            pace.enter(scope)
            pace.set_deadline(pace.now() + LONG)
            pace.leave()
            await anyio.sleep(SHORT)
        return scope.cancel_called

    assert not here(work)


def test_a_deadline_that_has_cut_one_scope_cuts_the_next_too(here: Any) -> None:
    async def work() -> bool:
        pace, deadline = RunTimer(SYSTEM), SHORT * 2
        with anyio.CancelScope() as first:
            pace.enter(first)
            pace.set_deadline(deadline)
        with anyio.move_on_after(LONG) as bound, anyio.CancelScope() as scope:
            pace.enter(scope)
            pace.set_deadline(deadline)
            await anyio.sleep(LONG * 2)
        pace.leave()
        return scope.cancelled_caught and not bound.cancelled_caught

    assert here(work)


def test_while_it_stands_no_time_passes_and_nothing_is_cut(here: Any) -> None:
    async def work() -> tuple[float, bool, bool]:
        pace, stood, standing_cut = RunTimer(SYSTEM), -1.0, True
        with anyio.CancelScope() as scope:
            pace.enter(scope)
            pace.set_deadline(pace.now() + SHORT)
            pace.set_deadline(math.inf)
            pace.pause()
            began = pace.now()
            await anyio.sleep(SHORT * 5)
            stood, standing_cut = pace.now() - began, scope.cancel_called
            pace.resume()
            pace.set_deadline(pace.now() + SHORT)
            await anyio.sleep(LONG)
        pace.leave()
        return stood, standing_cut, scope.cancelled_caught

    assert here(work) == (0.0, False, True)


@pytest.mark.parametrize("begins_at", [0.0, 500.0])
def test_what_comes_after_a_wait_has_its_whole_time(here: Any, begins_at: float) -> None:
    async def work() -> bool:
        pace = RunTimer(SYSTEM)
        pace.set_elapsed(begins_at)
        with anyio.CancelScope() as scope:
            pace.enter(scope)
            pace.set_deadline(pace.now() + LONG)
            for _ in range(3):
                pace.pause()
                await anyio.sleep(SHORT * 2)
                pace.resume()
            pace.set_deadline(pace.now() + LONG)
            await anyio.sleep(SHORT)
        pace.leave()
        return scope.cancel_called or not begins_at <= pace.now() < begins_at + LONG

    assert not here(work)


def test_a_pause_by_a_clock_that_stands_still_is_no_time_of_the_run(here: Any) -> None:
    async def work() -> bool:
        pace, due = RunTimer(ManualClock()), 0.0
        with anyio.CancelScope() as scope:
            pace.enter(scope)
            pace.pause()
            await anyio.sleep(SHORT * 20)
            pace.resume()
            due = anyio.current_time() + SHORT * 20
            pace.set_deadline(pace.now() + SHORT * 20)
            await anyio.sleep(SHORT)
        pace.leave()
        return scope.cancel_called and anyio.current_time() < due

    assert not here(work)
