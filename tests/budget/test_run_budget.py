import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball import AmountError, ConfigError, Deadline, IterationBudget, TurnBudget, UnknownBudget
from flyball.testing import ManualClock


class TestSeed003:
    def test_the_factory_and_its_claims(self) -> None:
        budget = TurnBudget.create(timeout_s=60, max_steps=2, max_tool_calls=None, max_reflections=1)
        assert [budget.claim_step() for _ in range(3)] == [True, True, False]
        assert [budget.claim_tool_call() for _ in range(3)] == [True, True, False]
        assert [budget.claim_reflection() for _ in range(2)] == [True, False]

    def test_a_refused_claim_does_not_count(self) -> None:
        budget = TurnBudget.create(max_steps=1)
        for _ in range(5):
            budget.claim_step()
        assert budget.snapshot()["steps_used"] == 1

    def test_the_deadline_helpers(self) -> None:
        clock = ManualClock(now=1_000.0)
        budget = TurnBudget.create(timeout_s=60, clock=clock)
        assert (budget.remaining_s(), budget.is_expired()) == (60.0, False)
        assert budget.tool_deadline(cap_s=45) == 1_045.0
        assert budget.per_tool_remaining_s(45) == 45
        clock.move(40)
        assert budget.tool_deadline(cap_s=45) == 1_060.0
        assert budget.per_tool_remaining_s(45) == 20.0
        clock.move(18)
        assert budget.per_tool_remaining_s(45) == 5.0
        assert budget.per_tool_remaining_s(45, floor_s=0) == 2.0
        assert budget.per_tool_remaining_s(3) == 3
        clock.move(2)
        assert (budget.remaining_s(), budget.is_expired(), budget.per_tool_remaining_s(45, 0)) == (0.0, True, 0.0)

    @pytest.mark.parametrize("found", [-1, math.nan, "5"])
    def test_a_cap_that_is_none_is_refused(self, found: Any) -> None:
        with pytest.raises(ConfigError, match="cap_s") as caught:
            TurnBudget.create().per_tool_remaining_s(found)
        assert caught.value.found is found

    def test_the_snapshot_has_the_seeds_keys_and_the_context_ceiling(self) -> None:
        budget = TurnBudget.create(timeout_s=60, max_steps=6, max_reflections=4, clock=ManualClock())
        for claim in (budget.claim_step, budget.claim_step, budget.claim_tool_call):
            claim()
        snapshot = budget.snapshot()
        assert snapshot == {
            "remaining_s": 60.0,
            "expired": False,
            "steps_used": 2,
            "steps_max": 6,
            "tool_calls_used": 1,
            "tool_calls_max": 6,
            "reflections_used": 0,
            "reflections_max": 4,
            "context_tokens_max": 200_000,
        }
        snapshot["steps_used"] = 99
        assert budget.snapshot()["steps_used"] == 2

    @pytest.mark.parametrize("found", [0, -1, math.nan, True, "60", 0.0])
    def test_a_timeout_that_is_none_is_refused(self, found: Any) -> None:
        with pytest.raises(ConfigError) as caught:
            TurnBudget.create(timeout_s=found)
        assert caught.value.where.endswith("timeout_s")
        assert caught.value.found is found

    def test_a_timeout_of_none_is_no_deadline(self) -> None:
        budget = TurnBudget.create(timeout_s=None)
        assert (budget.remaining_s(), budget.is_expired()) == (math.inf, False)
        assert json.loads(json.dumps(budget.snapshot()))["remaining_s"] is None

    @pytest.mark.parametrize("argument", ["max_steps", "max_tool_calls", "max_reflections", "max_context_tokens"])
    def test_a_ceiling_that_is_none_is_refused(self, argument: str) -> None:
        arguments: dict[str, Any] = {argument: -1}
        with pytest.raises(ConfigError) as caught:
            TurnBudget.create(**arguments)
        assert caught.value.found == -1


def envelope(clock: ManualClock | None = None, **ceilings: int | None) -> TurnBudget:
    clock = clock or ManualClock()
    first = IterationBudget("agent_iterations", ceilings.pop("turns", 5))
    others = {name: IterationBudget(name, ceiling, beside=first) for name, ceiling in ceilings.items()}
    return TurnBudget({"turns": first, **others}, Deadline.after(100, clock))


class TestClaims:
    def test_a_claim_over_several_dimensions_is_all_or_nothing(self) -> None:
        run = envelope(turns=2, tokens=100, usd=10)
        assert run.claim(turns=1, tokens=80)
        assert not run.claim(turns=1, tokens=21, usd=11)
        assert {name: budget.used for name, budget in run.budgets.items()} == {"turns": 1, "tokens": 80, "usd": 0}
        assert [budget.held for budget in run.budgets.values()] == [0, 0, 0]

    def test_every_budget_that_refused_has_its_flag_in_the_order_of_first_refusal(
        self, snapshot: Callable[..., None]
    ) -> None:
        run = envelope(turns=1, tokens=10, usd=10)
        run.claim(tokens=11)
        run.claim(turns=2, tokens=11)
        run.refuse("seconds")
        assert run.flags == ("max_tokens_reached", "max_agent_iterations_reached", "max_seconds_reached")
        assert [refusal.budget for refusal in run.refusals] == ["tokens", "turns", "seconds"]
        snapshot(run.refusals[0].warning)

    def test_an_envelope_that_refused_nothing_has_no_flag(self) -> None:
        run = envelope()
        run.claim(turns=5)
        assert (run.flags, run.refusals) == ((), ())

    def test_every_dimension_that_refuses_one_claim_is_flagged(self) -> None:
        run = envelope(turns=1, tokens=10, usd=10)
        assert not run.claim(turns=1, tokens=11, usd=11)
        assert run.flags == ("max_tokens_reached", "max_usd_reached")

    def test_an_unknown_dimension_is_told_with_the_nearest(self) -> None:
        with pytest.raises(UnknownBudget) as caught:
            envelope(tokens=5).claim(turns=1, token=1)
        assert (caught.value.name, "tokens" in caught.value.known) == ("token", True)

    def test_a_wrong_amount_is_refused_and_changes_nothing(self) -> None:
        run = envelope(tokens=5)
        with pytest.raises(AmountError):
            run.claim(turns=1, tokens=0)
        assert [(budget.used, budget.held) for budget in run.budgets.values()] == [(0, 0), (0, 0)]

    def test_holds_over_several_dimensions_are_all_or_nothing_too(self) -> None:
        run = envelope(tokens=10, usd=10)
        assert run.try_hold(tokens=5, usd=11) is None
        assert run.flags == ("max_usd_reached",)
        holds = run.try_hold(tokens=5, usd=5)
        assert holds is not None
        assert [run.budgets[name].held for name in holds] == [5, 5]
        for hold in holds.values():
            hold.release()

    def test_calls_of_one_tool_have_their_own_ceiling(self) -> None:
        run = envelope(tool_calls=5)
        run.budgets["calls.search"] = IterationBudget("search_calls", 1, beside=run.budgets["turns"])
        assert [run.claim_tool_call("search"), run.claim_tool_call("search"), run.claim_tool_call("read")] == [
            True,
            False,
            True,
        ]
        assert run.budgets["tool_calls"].used == 2
        assert run.flags == ("max_search_calls_reached",)
        run.budgets["calls.None"] = IterationBudget("odd", 0, beside=run.budgets["turns"])
        assert run.claim_tool_call()


class TestTime:
    def test_work_ends_before_the_run_does(self) -> None:
        clock = ManualClock()
        turns = IterationBudget("turns", 1)
        run = TurnBudget({"turns": turns}, Deadline.after(100, clock), reserve_s=15.0)
        assert (run.work.remaining, run.hard.remaining, run.tool_deadline(200)) == (85.0, 100.0, 85.0)
        clock.move(85)
        assert (run.is_expired(), run.hard.expired) == (True, False)

    def test_waiting_for_a_person_is_not_work(self) -> None:
        clock = ManualClock()
        run = envelope(clock)
        clock.move(90)
        run.postpone(50, "approval")
        assert run.remaining_s() == 60.0
        assert [(move.seconds, move.reason) for move in run.postponements] == [(50, "approval")]

    def test_waiting_for_a_person_does_not_move_a_time_of_day(self) -> None:
        clock = ManualClock()
        turns = IterationBudget("turns", 1)
        run = TurnBudget({"turns": turns}, Deadline.after(100, clock), until=Deadline.after(120, clock))
        run.postpone(50, "approval")
        assert run.hard.remaining == 120.0

    @pytest.mark.parametrize("seconds", [-1, math.nan, "5"])
    def test_a_wrong_postponement_is_refused(self, seconds: Any) -> None:
        with pytest.raises(ConfigError):
            envelope().postpone(seconds, "approval")
        with pytest.raises(ConfigError):
            envelope().postpone(1, "")


amounts = st.dictionaries(st.sampled_from(["turns", "tokens", "usd"]), st.integers(1, 12), min_size=1)


@given(st.lists(amounts, max_size=12))
def test_a_claim_counts_everywhere_or_nowhere(claims: list[dict[str, int]]) -> None:
    run = envelope(turns=20, tokens=30, usd=25)
    for claim in claims:
        before = {name: budget.used for name, budget in run.budgets.items()}
        fits = all(budget.used + claim.get(name, 0) <= (budget.ceiling or 0) for name, budget in run.budgets.items())
        assert run.claim(**claim) == fits
        wanted = {name: used + (claim.get(name, 0) if fits else 0) for name, used in before.items()}
        assert {name: budget.used for name, budget in run.budgets.items()} == wanted
        assert all(budget.held == 0 for budget in run.budgets.values())
