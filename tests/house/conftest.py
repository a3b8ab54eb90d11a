"""A comparison of times, for the tests with hostile input."""

import gc
from collections.abc import Callable
from contextlib import suppress
from time import thread_time
from typing import Any

import pytest

from flyball.errors import FlyballError

SIZE = 2**18
SMALL = 2**16
MAX_RATIO = 100
"""Code that needs the square of the size exceeds this by far: 65,536 steps of a nanosecond, squared, are 4 seconds."""
FLOOR_S = 0.005
"""Shorter times count as this, so that noise decides nothing."""
HOPELESS_S = 5
"""Input that takes longer is not read a second time."""

Read = Callable[[Any], object]
Make = Callable[[int], Any]
Compare = Callable[[Read, Make, Make], None]


def seconds(read: Read, given: Any) -> float:
    """Return the CPU seconds that reading takes. A refusal is an answer, too.

    The garbage collector is off meanwhile: in a process that has run a thousand tests it takes longer than the reading.
    """
    gc.disable()
    began = thread_time()
    try:
        with suppress(FlyballError, ValueError):
            read(given)
    finally:
        gc.enable()
    return max(thread_time() - began, FLOOR_S)


def compare(read: Read, hostile: Make, benign: Make, max_ratio: int) -> None:
    """Fail where hostile input takes much longer than benign input of the same size, three times in a row.

    Both are read at a quarter of the size first. Code that needs the square of the size fails there, within seconds.
    """
    for size in (SMALL, SIZE):
        fast = seconds(read, benign(size))
        slow = min_until(max_ratio * fast, lambda size=size: seconds(read, hostile(size)))
        assert slow <= max_ratio * fast, f"{slow:.3f} s, but {fast:.3f} s for benign input of size {size:,}"


def min_until(enough: float, measure: Callable[[], float]) -> float:
    """Measure until a time is small enough, at most three times, and return the smallest."""
    times = [measure()]
    while min(times) > enough and len(times) < 3 and times[0] < HOPELESS_S:
        times.append(measure())
    return min(times)


@pytest.fixture
def assert_as_fast() -> Compare:
    """Fails where the first input takes 100 times as long as the second."""
    return lambda read, hostile, benign: compare(read, hostile, benign, MAX_RATIO)


@pytest.fixture
def assert_linear() -> Compare:
    """The same, for what is linear but dear: pydantic makes an object of each mistake, and none of a number."""
    return lambda read, hostile, benign: compare(read, hostile, benign, 10 * MAX_RATIO)
