from threading import Condition

import pytest

from flyball.testing import ManualClock


def test_a_manual_clock_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(now=5.0, wall=100.0)
    assert (clock.now(), clock.now(), clock.wall()) == (5.0, 5.0, 100.0)
    clock.move(2.5)
    assert (clock.now(), clock.wall()) == (7.5, 102.5)


def test_waiting_moves_a_manual_clock() -> None:
    clock = ManualClock()
    with (condition := Condition()):
        clock.wait(condition, 3.0)
    assert clock.now() == 3.0


def test_a_jump_changes_the_date_and_lets_no_time_pass() -> None:
    clock = ManualClock(wall=100.0)
    clock.jump(-50.0)
    assert (clock.now(), clock.wall()) == (0.0, 50.0)


def test_nobody_waits_for_ever_and_a_wait_that_is_over_moves_nothing() -> None:
    clock = ManualClock()
    with (condition := Condition()):
        clock.wait(condition, -1.0)
        with pytest.raises(ValueError, match="wait"):
            clock.wait(condition, float("inf"))
    assert clock.now() == 0.0


def test_time_cannot_go_back() -> None:
    with pytest.raises(ValueError, match="-1"):
        ManualClock().move(-1)
