"""A comparison of times, for the tests with hostile input."""

from collections.abc import Callable
from contextlib import suppress
from time import thread_time
from typing import Any

import pytest

from flyball.errors import FlyballError

SIZE = 2**20
MOST_TIMES = 40
FLOOR_S = 0.005
"""Shorter times are taken for this, so that noise decides nothing."""
ENOUGH_S = 0.5
"""Input that takes longer is not read a second time."""

Read = Callable[[Any], object]
Make = Callable[[int], Any]
Compare = Callable[[Read, Make, Make], None]


def seconds(read: Read, given: Any) -> float:
    """Return the CPU seconds that reading takes, the best of three. A refusal is an answer, too."""
    best = float("inf")
    for _ in range(3):
        began = thread_time()
        with suppress(FlyballError, ValueError):
            read(given)
        best = min(best, thread_time() - began)
        if best > ENOUGH_S:
            break
    return max(best, FLOOR_S)


def compare(read: Read, hostile: Make, benign: Make, most_times: int) -> None:
    """Fail where hostile input takes much longer than benign input of the same size.

    Both are read at a sixteenth of the size first. Code that needs the square of the size fails there, within seconds.
    """
    for size in (SIZE // 16, SIZE):
        slow, fast = seconds(read, hostile(size)), seconds(read, benign(size))
        assert slow <= most_times * fast, f"{slow:.3f} s, but {fast:.3f} s for benign input of size {size:,}"


@pytest.fixture
def assert_as_fast() -> Compare:
    """Fails where the first input takes 40 times as long as the second."""
    return lambda read, hostile, benign: compare(read, hostile, benign, MOST_TIMES)


@pytest.fixture
def assert_linear() -> Compare:
    """The same, for what is linear but dear: pydantic makes an object of each mistake, and none of a number."""
    return lambda read, hostile, benign: compare(read, hostile, benign, 10 * MOST_TIMES)
