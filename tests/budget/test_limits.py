import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball import ConfigError, IterationBudgetRegistry, Limits, Reserve, TokenPrice
from flyball.budget.limits import RunKind
from flyball.testing import ManualClock


def registry(**settings: object) -> IterationBudgetRegistry:
    return IterationBudgetRegistry(settings=settings)


class TestOpening:
    def test_what_is_left_out_is_a_setting_or_the_default(self) -> None:
        with Limits(turns=7).open(registry(max_retries=2)) as envelope:
            ceilings = {name: budget.ceiling for name, budget in envelope.budgets.items()}
        assert ceilings == {
            "turns": 7,
            "tool_calls": None,
            "reflections": 4,
            "nudges": 3,
            "retries": 2,
            "tokens": None,
            "usd": None,
            "children": 16,
            "depth": 2,
        }
        assert envelope.context_tokens == 200_000
        assert envelope.hard.remaining == pytest.approx(3_600, abs=60)

    def test_each_kind_of_run_has_its_own_turns_and_time(self) -> None:
        def opened(kind: RunKind) -> tuple[str, int | None, float]:
            with Limits().open(registry(), kind=kind, clock=ManualClock()) as envelope:
                turns = envelope.budgets["turns"]
                return turns.name, turns.ceiling, envelope.hard.remaining

        assert opened(RunKind.AGENT) == ("agent_iterations", 90, 3_600.0)
        assert opened(RunKind.CONVERSATION) == ("conversation_turns", 25, 3_600.0)
        assert opened(RunKind.CHILD) == ("child_iterations", 50, 600.0)

    def test_all_budgets_share_one_lock(self) -> None:
        with Limits(calls={"search": 3}).open(registry()) as envelope:
            assert len({id(budget.lock) for budget in envelope.budgets.values()}) == 1
            assert envelope.budgets["calls.search"].ceiling == 3

    def test_numbers_are_clamped_and_explained(self, snapshot: Callable[..., None]) -> None:
        limits = Limits(turns=10_000, usd=1.5)
        with limits.open(registry()) as envelope:
            assert envelope.budgets["turns"].ceiling == 500
            assert envelope.budgets["usd"].ceiling == 1_500_000_000
        explained = limits.explain(registry())
        assert (explained["turns"].value, explained["turns"].is_clamped) == (500, True)
        snapshot(explained["turns"])
        assert set(explained) == {*envelope.budgets, "context_tokens", "seconds", "report_tokens", "report_seconds"}

    def test_a_setting_that_had_to_be_clamped_is_logged_also_for_time(self, caplog: pytest.LogCaptureFixture) -> None:
        with Limits().open(registry(max_seconds=10**6)):
            assert len(caplog.messages) == 1

    def test_no_ceiling_is_refused_where_there_is_a_highest(self) -> None:
        with pytest.raises(ConfigError) as caught:
            Limits(turns=None).open(registry())
        assert (caught.value.where, caught.value.found) == ("budget 'agent_iterations', ceiling", None)
        with Limits(context_tokens=None, tokens=None).open(registry()) as envelope:
            assert (envelope.context_tokens, envelope.budgets["tokens"].ceiling) == (None, None)

    @pytest.mark.parametrize(
        ("limits", "where", "found"),
        [
            (lambda: Limits(calls={"search": -1}), "'search'", -1),
            (lambda: Limits(calls=None), "limits, calls", None),  # pyright: ignore[reportArgumentType]
            (lambda: Limits(tool_seconds=3), "limits, tool_seconds", 3),  # pyright: ignore[reportArgumentType]
            (lambda: Limits(reserve=0.2), "limits, reserve", 0.2),  # pyright: ignore[reportArgumentType]
            (lambda: Limits(tool_seconds={"search": 0}), "'search'", 0),
            (lambda: Limits(until=datetime(2030, 1, 1)), "limits, until", datetime(2030, 1, 1)),
        ],
    )
    def test_limits_of_nonsense_are_refused_where_they_are_written(self, limits: Any, where: str, found: Any) -> None:
        with pytest.raises(ConfigError) as caught:
            limits()
        assert where in caught.value.where
        assert caught.value.found == found


class TestReserve:
    @pytest.mark.parametrize(
        ("limits", "work", "kept"),
        [
            (Limits(tokens=100), 80, 20),
            (Limits(tokens=99), 80, 19),
            (Limits(tokens=4), 4, 0),
            (Limits(tokens=1_000_000), 998_000, 2_000),
            (Limits(tokens=100, reserve=Reserve(tokens=30)), 70, 30),
            (Limits(tokens=100, reserve=Reserve(tokens=0)), 100, 0),
        ],
    )
    def test_a_reserve_of_tokens_is_kept_from_work_until_it_is_opened(
        self, limits: Limits, work: int, kept: int
    ) -> None:
        with limits.open(registry()) as envelope:
            tokens = envelope.budgets["tokens"]
            assert (tokens.remaining, envelope.reserve.get("tokens", 0)) == (work, kept)
            assert not tokens.consume(work + 1)
            assert tokens.consume(work)
            envelope.open_reserve()
            assert (tokens.remaining, envelope.reserve) == (kept, {})

    @pytest.mark.parametrize(
        ("seconds", "work"), [(1, 0.85), (60, 51.0), (133, 113.05), (3_600, 3_580.0), (86_400, 86_380.0)]
    )
    def test_a_reserve_of_time_ends_the_work_before_the_run(self, seconds: int, work: float) -> None:
        with Limits(seconds=seconds).open(registry(), clock=ManualClock()) as envelope:
            assert (envelope.work.remaining, envelope.hard.remaining) == (pytest.approx(work), seconds)

    def test_a_reserve_of_money_is_a_tenth_of_the_limit(self) -> None:
        with Limits(usd=2.0).open(registry()) as envelope:
            assert envelope.reserve["usd"] == 200_000_000

    def test_there_is_no_reserve_without_a_ceiling_or_without_grace(self) -> None:
        with Limits().open(registry()) as envelope:
            assert envelope.reserve == {}
        with Limits(tokens=100, usd=1, seconds=60).open(registry(), grace=False, clock=ManualClock()) as envelope:
            assert (envelope.reserve, envelope.work.remaining) == ({}, 60.0)

    @pytest.mark.parametrize(
        ("limits", "where", "found", "fact"),
        [
            (Limits(tokens=500, reserve=Reserve(tokens=600)), "tokens", 600, "500"),
            (Limits(tokens=500, reserve=Reserve(tokens=500)), "tokens", 500, "500"),
            (Limits(seconds=10, reserve=Reserve(seconds=10.5)), "seconds", 10.5, "10 s"),
            (Limits(usd=1, reserve=Reserve(usd=2)), "usd", 2, "$1.00"),
            (Limits(reserve=Reserve(tokens=5)), "tokens", 5, ""),
            (Limits(tokens=500, reserve=Reserve(tokens=-1)), "tokens", -1, ""),
            (Limits(tokens=500, reserve=Reserve(tokens="5")), "tokens", "5", ""),  # pyright: ignore[reportArgumentType]
        ],
    )
    def test_a_reserve_that_does_not_fit_is_refused_in_numbers(
        self, limits: Limits, where: str, found: object, fact: str
    ) -> None:
        with pytest.raises(ConfigError) as caught:
            limits.open(registry())
        assert caught.value.where.endswith(f"reserve.{where}")
        assert caught.value.found == found
        assert fact in caught.value.expected


def test_a_tool_of_any_name_has_its_own_flag() -> None:
    with Limits(calls={"tool": 0}).open(registry()) as envelope:
        assert not envelope.claim_tool_call("tool")
        assert envelope.flags == ("max_calls_of_tool_reached",)


def test_the_warning_tells_the_seconds_that_were_given(snapshot: Callable[..., None]) -> None:
    with Limits(seconds=60).open(registry()) as envelope:
        snapshot(envelope.refuse("seconds").warning)


def test_a_tool_may_have_seconds_of_its_own() -> None:
    with Limits(seconds=100, tool_seconds={"search": 7}).open(registry(), clock=ManualClock()) as envelope:
        moments = [envelope.tool_deadline(45, tool) for tool in ("search", "read", None)]
    assert moments == [7.0, 45.0, 45.0]


class TestUntil:
    def test_a_time_of_day_ends_the_run_too(self) -> None:
        clock = ManualClock(wall=datetime(2030, 1, 1, 12, tzinfo=UTC).timestamp())
        noon_plus = datetime(2030, 1, 1, 13, 1, tzinfo=timezone(timedelta(hours=1)))
        with Limits(seconds=600, until=noon_plus).open(registry(), clock=clock) as envelope:
            assert (envelope.hard.remaining, envelope.work.remaining) == (60.0, 51.0)
            envelope.postpone(1_000, "approval")
            assert envelope.hard.remaining == 60.0

    def test_a_time_of_day_that_is_past_leaves_no_time(self) -> None:
        with Limits(until=datetime(2000, 1, 1, tzinfo=UTC)).open(registry()) as envelope:
            assert envelope.is_expired()


class TestWorstCase:
    def test_the_worst_case_is_told_in_a_sentence(self, snapshot: Callable[..., None]) -> None:
        worst = Limits(tokens=500_000, usd=4.30).worst_case(registry=registry(), kind=RunKind.CONVERSATION)
        assert (worst.tokens, worst.cost) == (500_000, 4_300_000_000)
        snapshot(worst)

    def test_a_price_bounds_what_tokens_can_cost(self) -> None:
        price = TokenPrice(input=3, output=15)
        assert Limits(tokens=1_000_000).worst_case(price, registry()).cost == 15_000_000_000
        assert Limits(tokens=1_000_000, usd=2).worst_case(price, registry()).cost == 2_000_000_000

    def test_the_worst_case_without_ceilings_is_said_to_have_none(self, snapshot: Callable[..., None]) -> None:
        worst = Limits().worst_case(TokenPrice(input=3, output=15), registry())
        assert (worst.tokens, worst.cost) == (None, None)
        snapshot(worst)


@given(
    tokens=st.integers(0, 10**6),
    seconds=st.floats(1, 86_400),
    claims=st.lists(st.integers(1, 10**6), max_size=8),
)
def test_work_never_spends_the_reserve(tokens: int, seconds: float, claims: list[int]) -> None:
    clock = ManualClock()
    with Limits(tokens=tokens, seconds=seconds).open(registry(), clock=clock) as envelope:
        kept = envelope.reserve.get("tokens", 0)
        assert kept == min(2_000, tokens // 5)
        for claim in claims:
            envelope.claim(tokens=claim)
        assert envelope.budgets["tokens"].used <= tokens - kept
        assert envelope.hard.remaining - envelope.work.remaining == pytest.approx(min(20, seconds * 0.15))
        envelope.open_reserve()
        assert envelope.budgets["tokens"].remaining >= kept
        assert math.isfinite(envelope.work.at)
