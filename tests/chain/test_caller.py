"""The caller: what its chain leaves at the moment that somebody asks."""

from contextvars import copy_context

import pytest

from flyball import IterationBudget, TurnBudget
from flyball.budget.deadline import Deadline
from flyball.chain.caller import Caller, Position, current, find_position, serving
from flyball.testing import ManualClock


def envelope(turns: int | None, **others: int) -> TurnBudget:
    budgets = {"turns": IterationBudget("chain_turns", turns)}
    for name, ceiling in others.items():
        budgets[name] = IterationBudget(f"chain_{name}", ceiling, beside=budgets["turns"])
    return TurnBudget(budgets, Deadline.after(None))


def test_a_caller_that_says_nothing_sets_no_limit() -> None:
    caller = Caller(root="r")
    assert (caller.left, caller.remaining_s) == ({}, float("inf"))
    assert Caller(root="r", envelope=envelope(None, tokens=5)).left == {"tokens": 5}


def test_what_is_used_or_held_is_not_left() -> None:
    shared = envelope(9, tokens=100)
    caller = Caller(root="r", envelope=shared)
    assert shared.claim(turns=2)
    with shared.budgets["tokens"].hold(30):
        assert caller.left == {"turns": 7, "tokens": 70}
    assert caller.left == {"turns": 7, "tokens": 100}


def test_what_was_lent_to_runs_with_another_envelope_is_not_left_either() -> None:
    caller, other = Caller(root="r", envelope=envelope(9)), envelope(9)
    caller.shared_envelopes.append(other)
    assert other.claim(turns=4)
    assert caller.left == {"turns": 5}


def test_the_time_of_a_caller_passes() -> None:
    clock = ManualClock()
    caller = Caller(root="r", deadline=Deadline.after(10, clock))
    clock.move(4)
    assert caller.remaining_s == pytest.approx(6)
    clock.move(40)
    assert caller.remaining_s == 0


def test_a_position_inside_a_run_keeps_who_has_called() -> None:
    caller, clock = Caller(root="r"), ManualClock()
    inside = Position(caller, "chain").for_call("run-1", envelope(3), 5.0, clock)
    assert (inside.caller, inside.chain, inside.run_id, inside.remaining_s) == (caller, "chain", "run-1", 5.0)
    clock.move(9)
    assert inside.remaining_s == 0


def test_runs_below_a_run_belong_to_it() -> None:
    below = Position().for_children("top").for_children("middle")
    assert (below.run_id, below.for_call("bottom", None, 5.0, ManualClock()).run_id) == ("top", "top")


def test_serving_ends_with_its_block_and_is_seen_in_copies_of_the_context() -> None:
    caller = Caller(root="r")
    with pytest.raises(RuntimeError), serving(caller):
        assert copy_context().run(current) is caller
        raise RuntimeError
    assert current() is None
    assert find_position().caller is None
