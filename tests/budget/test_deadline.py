import math
from dataclasses import FrozenInstanceError
from threading import Event, Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball import ConfigError, Deadline, DeadlineExceeded, DeadlineToken, TurnBudget
from flyball.testing import ManualClock


class TestDeadline:
    def test_a_deadline_counts_down_and_expires(self) -> None:
        clock = ManualClock(now=100.0)
        deadline = Deadline.after(5, clock)
        assert (deadline.at, deadline.remaining, deadline.expired) == (105.0, 5.0, False)
        clock.move(4.5)
        assert (deadline.remaining, deadline.expired) == (0.5, False)
        clock.move(0.5)
        assert (deadline.remaining, deadline.expired) == (0.0, True)
        clock.move(10)
        assert deadline.remaining == 0.0

    @pytest.mark.parametrize("seconds", [None, math.inf])
    def test_a_deadline_without_end_never_expires(self, seconds: float | None) -> None:
        clock = ManualClock()
        deadline = Deadline.after(seconds, clock)
        clock.move(1e12)
        assert (deadline.remaining, deadline.expired, deadline.at) == (math.inf, False, math.inf)

    def test_a_jump_of_the_wall_clock_has_no_effect(self) -> None:
        clock = ManualClock()
        deadline = Deadline.after(5, clock)
        clock.jump(3_600)
        assert deadline.remaining == 5.0
        clock.jump(-7_200)
        assert deadline.remaining == 5.0

    def test_within_is_the_nearer_of_the_two(self) -> None:
        clock = ManualClock()
        deadline = Deadline.after(10, clock)
        assert deadline.within(3).at == 3.0
        assert deadline.within(30) == deadline
        assert deadline.within(None) == deadline

    def test_a_deadline_is_frozen_and_postponing_gives_another(self) -> None:
        deadline = Deadline(10.0, ManualClock())
        assert deadline.postponed(5).at == 15.0
        with pytest.raises(FrozenInstanceError):
            deadline.at = 99.0  # pyright: ignore[reportAttributeAccessIssue]

    @pytest.mark.parametrize("found", [-1, math.nan, True, "5"])
    def test_a_deadline_of_nonsense_is_refused(self, found: Any) -> None:
        with pytest.raises(ConfigError) as caught:
            Deadline.after(found)
        assert caught.value.where == "deadline, seconds"
        assert caught.value.found is found
        with pytest.raises(ConfigError) as caught:
            Deadline(math.nan)
        assert (caught.value.where, caught.value.found) == ("deadline, at", math.nan)

    def test_a_deadline_after_an_overflowing_time_never_expires(self) -> None:
        assert Deadline.after(10**400).remaining == math.inf


class TestToken:
    def test_a_token_expires_with_the_work_or_after_its_cap(self) -> None:
        clock = ManualClock()
        envelope = TurnBudget.create(timeout_s=60, clock=clock)
        capped, whole = DeadlineToken.from_budget(envelope, cap_s=45), DeadlineToken.from_budget(envelope)
        assert (capped.remaining_s(), whole.remaining_s()) == (45.0, 60.0)
        clock.move(45)
        assert (capped.is_expired(), whole.is_expired()) == (True, False)
        clock.move(15)
        assert whole.is_expired()

    def test_a_cancel_is_seen_at_once(self) -> None:
        token = DeadlineToken(Deadline.after(60, ManualClock()))
        token.raise_if_expired()
        token.cancel()
        assert (token.is_expired(), token.remaining_s()) == (True, 0.0)
        with pytest.raises(DeadlineExceeded) as caught:
            token.raise_if_expired()
        assert caught.value.cancelled

    def test_the_loud_look_is_a_timeout_error_too(self) -> None:
        clock = ManualClock()
        token = DeadlineToken(Deadline.after(1, clock))
        clock.move(1)
        with pytest.raises(TimeoutError) as caught:
            token.raise_if_expired()
        assert isinstance(caught.value, DeadlineExceeded)
        assert not caught.value.cancelled

    def test_a_token_made_from_a_token_expires_with_it(self) -> None:
        clock = ManualClock()
        token = DeadlineToken(Deadline.after(60, clock))
        child, grandchild = token.within(90), token.within(30).within()
        assert (child.remaining_s(), grandchild.remaining_s()) == (60.0, 30.0)
        token.cancel()
        assert child.is_expired()
        assert grandchild.is_expired()
        assert grandchild.remaining_s() == 0.0
        with pytest.raises(DeadlineExceeded) as caught:
            grandchild.raise_if_expired()
        assert caught.value.cancelled

    def test_a_token_given_a_parent_by_hand_does_not_outlive_it(self) -> None:
        clock = ManualClock()
        token = DeadlineToken(Deadline.after(100, clock), DeadlineToken(Deadline.after(5, clock)))
        assert (token.remaining_s(), token.wait(50), clock.now()) == (5.0, True, 5.0)

    def test_a_long_line_of_tokens_is_no_trouble(self) -> None:
        first = token = DeadlineToken(Deadline.after(60))
        for _ in range(3_000):
            token = token.within()
        assert not token.is_expired()
        first.cancel()
        assert token.is_expired()

    def test_a_cancelled_token_does_not_take_its_parent_along(self) -> None:
        token = DeadlineToken(Deadline.after(60, ManualClock()))
        token.within(5).cancel()
        assert not token.is_expired()

    def test_a_wait_lasts_as_long_as_asked_or_until_it_expires(self) -> None:
        clock = ManualClock()
        token = DeadlineToken(Deadline.after(10, clock))
        assert token.wait(4) is False
        assert clock.now() == 4.0
        assert token.wait(99) is True
        assert clock.now() == 10.0

    @pytest.mark.parametrize("which", ["itself", "parent", "child"])
    def test_a_real_wait_returns_early_on_cancel_from_another_thread(self, which: str) -> None:
        parent = DeadlineToken(Deadline.after(3_600))
        token = parent if which == "itself" else parent.within()
        cancelled = token if which == "child" else parent
        waiting, answers = Event(), list[bool]()

        def work() -> None:
            waiting.set()
            answers.append(token.wait(3_600))

        worker = Thread(target=work, daemon=True)
        worker.start()
        assert waiting.wait(60)
        cancelled.cancel()
        worker.join(60)
        assert answers == [True]

    def test_a_wait_after_a_cancel_does_not_wait(self) -> None:
        clock = ManualClock()
        token = DeadlineToken(Deadline.after(10, clock))
        token.cancel()
        assert token.wait(5) is True
        assert clock.now() == 0.0

    @pytest.mark.parametrize("found", [-1, math.nan, True, "5"])
    def test_a_wait_of_nonsense_is_refused(self, found: Any) -> None:
        with pytest.raises(ConfigError) as caught:
            DeadlineToken(Deadline.after(10)).wait(found)
        assert caught.value.found is found


seconds = st.floats(0, 1e6)


@given(limit=seconds, cap=seconds, moves=st.lists(seconds, max_size=5))
def test_nothing_that_is_made_of_a_deadline_outlives_it(limit: float, cap: float, moves: list[float]) -> None:
    clock = ManualClock()
    deadline = Deadline.after(limit, clock)
    parts = [deadline.within(cap)]
    tokens = [DeadlineToken(deadline).within(cap)]
    for move in moves:
        clock.move(move)
        parts.append(parts[-1].within(cap))
        tokens.append(tokens[-1].within(cap))
        assert all(part.remaining <= deadline.remaining for part in parts)
        assert all(token.remaining_s() <= deadline.remaining for token in tokens)
        if deadline.expired:
            assert all(part.expired for part in parts)
            assert all(token.is_expired() for token in tokens)
