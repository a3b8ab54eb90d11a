import math
import time
from threading import Condition

import pytest

from flyball.budget.deadline import SYSTEM


def test_the_systems_clock_is_the_systems() -> None:
    before = time.monotonic()
    assert before <= SYSTEM.now() <= time.monotonic()
    assert abs(SYSTEM.wall() - time.time()) < 60  # noqa: DTZ  (the wall clock itself is what is tested)


class Asked(Condition):
    """A condition that is notified at once, and remembers for how long it was waited."""

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds = timeout
        return True


@pytest.mark.parametrize(("seconds", "asked"), [(2.5, 2.5), (math.inf, 86_400.0), (1e12, 86_400.0)])
def test_a_wait_for_ever_is_a_day_at_a_time_because_locks_refuse_more(seconds: float, asked: float) -> None:
    condition = Asked()
    SYSTEM.wait(condition, seconds)
    assert condition.seconds == asked
