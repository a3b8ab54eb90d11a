import math
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from flyball.clock import SYSTEM
from flyball.drive.pace import Pace
from flyball.testing import ManualClock

LONG, SHORT = 60.0, 0.01


@pytest.fixture(params=["asyncio", "trio"])
def here(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[Any]]], Any]:
    return lambda work: anyio.run(work, backend=request.param)


def test_it_starts_with_the_run_and_goes_by_its_clock() -> None:
    clock = ManualClock(now=5.0)
    pace = Pace(clock)
    clock.move(2.5)
    assert (pace.now(), pace.wall()) == (2.5, clock.wall())


@pytest.mark.parametrize("before", [[], [math.inf], [LONG], [LONG, math.inf]])
def test_what_takes_too_long_is_cut_whatever_the_one_before_could_take(here: Any, before: list[float]) -> None:
    async def work() -> bool:
        pace = Pace(SYSTEM)
        with anyio.CancelScope() as scope:
            pace.enter(scope)
            for seconds in (*before, SHORT):
                pace.allow(pace.now() + seconds)
            await anyio.sleep(LONG)
        pace.leave()
        return scope.cancelled_caught

    assert here(work)


@pytest.mark.parametrize("seconds", [LONG, math.inf])
def test_what_may_take_longer_is_not_cut_when_the_time_of_the_one_before_comes(here: Any, seconds: float) -> None:
    async def work() -> bool:
        pace = Pace(SYSTEM)
        with anyio.CancelScope() as scope:
            pace.enter(scope)
            pace.allow(pace.now() + SHORT)
            pace.allow(pace.now() + seconds)
            await anyio.sleep(SHORT * 3)
        pace.leave()
        return scope.cancel_called

    assert not here(work)


def test_who_has_left_is_not_cut_any_more(here: Any) -> None:
    async def work() -> bool:
        pace = Pace(SYSTEM)
        with anyio.CancelScope() as scope:
            pace.enter(scope)
            pace.allow(pace.now() + LONG)
            pace.leave()
            await anyio.sleep(SHORT)
        return scope.cancel_called

    assert not here(work)
