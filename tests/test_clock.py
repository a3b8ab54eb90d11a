import time
from threading import Condition

from flyball.clock import SYSTEM


def test_the_systems_clock_is_the_systems() -> None:
    before = time.monotonic()
    assert before <= SYSTEM.now() <= time.monotonic()
    assert abs(SYSTEM.wall() - time.time()) < 60  # noqa: DTZ  (the wall clock itself is what is tested)


def test_a_wait_ends_when_it_should_even_if_it_was_meant_to_last_for_ever() -> None:
    condition = Condition()
    with condition:
        SYSTEM.wait(condition, 0.001)
        began = SYSTEM.now()
    assert SYSTEM.now() >= began
