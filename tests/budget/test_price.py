"""What tokens cost is exact, and what they can cost at most is never less."""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball import ConfigError, TokenPrice, Usage
from flyball.budget.price import Price, Tier, compute_max_request_cost, compute_max_total_cost

DOLLARS = st.floats(0, 100) | st.sampled_from([0.0, 0.05, 0.1, 0.25, 1e-12, 3.0, 3.75])
MAYBE = st.none() | DOLLARS
COUNTS = st.integers(0, 10**6)


@st.composite
def prices(draw: st.DrawFn) -> TokenPrice:
    starts = sorted(draw(st.sets(st.integers(0, 10**6), max_size=3)))
    tiers = [
        Tier(above=start, input=draw(DOLLARS), output=draw(DOLLARS), cached=draw(MAYBE), written=draw(MAYBE))
        for start in starts
    ]
    return TokenPrice(draw(DOLLARS), draw(DOLLARS), draw(MAYBE), draw(MAYBE), tuple(tiers))


@st.composite
def usages(draw: st.DrawFn, input: int = 10**6, output: int = 10**6) -> Usage:
    """A request of up to so many tokens, split in any way."""
    given_tokens, made = draw(st.integers(0, input)), draw(st.integers(0, output))
    cached = draw(st.integers(0, given_tokens))
    written = draw(st.integers(0, given_tokens - cached))
    return Usage(given_tokens, made, cached, draw(st.integers(0, made)), written)


@dataclass
class Foreign:
    """A price that is not ours, which can only be asked."""

    price: TokenPrice
    reasoning: int = 0

    def cost(self, usage: Usage) -> int:
        return self.price.cost(usage) + usage.reasoning * self.reasoning


def test_dollars_for_a_million_tokens_become_billionths_for_each() -> None:
    price = TokenPrice(input=3.0, output=15.0, cached=0.3, written=3.75)
    assert price.cost(Usage(1_000_000, 0)) == 3_000_000_000
    assert price.cost(Usage(0, 1_000_000)) == 15_000_000_000
    assert price.cost(Usage(1_000_000, 0, cached=1_000_000)) == 300_000_000
    assert price.cost(Usage(1_000_000, 0, written=1_000_000)) == 3_750_000_000
    assert price.cost(Usage(100, 0, cached=60, written=30)) == 10 * 3_000 + 60 * 300 + 30 * 3_750
    assert TokenPrice(input=3.0, output=15.0).cost(Usage(10, 0, cached=4, written=6)) == 30_000


@pytest.mark.parametrize("dollars", [0.0001, 1e-12, 5e-324])
def test_what_is_not_whole_is_rounded_up(dollars: float) -> None:
    assert TokenPrice(input=dollars, output=0).cost(Usage(1)) == 1
    assert TokenPrice(input=dollars, output=0).cost(Usage()) == 0


def test_above_a_tier_all_tokens_cost_what_it_says() -> None:
    price = TokenPrice(5, 25, tiers=(Tier(above=200_000, input=10, output=37.5, cached=1),))
    assert price.cost(Usage(200_000, 10)) == 200_000 * 5_000 + 10 * 25_000
    assert price.cost(Usage(200_001, 10)) == 200_001 * 10_000 + 10 * 37_500
    assert price.cost(Usage(200_001, 0, cached=200_001)) == 200_001 * 1_000
    assert price.max_cost(200_001, 0) == 200_001 * 10_000


@pytest.mark.parametrize("found", [-1, True, "3", float("nan"), None])
@pytest.mark.parametrize("field", ["input", "output", "cached", "written"])
def test_a_price_that_is_none_is_refused(found: Any, field: str) -> None:
    given_prices: dict[str, Any] = {"input": 1, "output": 1, field: found}
    if found is None and field in ("cached", "written"):
        assert TokenPrice(**given_prices).cost(Usage(1, 0, cached=1)) == 1_000
        return
    with pytest.raises(ConfigError) as caught:
        TokenPrice(**given_prices)
    assert caught.value.where == f"price, {field}"
    assert caught.value.found is found
    with pytest.raises(ConfigError) as caught:
        TokenPrice(1, 1, tiers=(Tier(above=5, **given_prices),))
    assert caught.value.where == f"price, tiers[0], {field}"


@pytest.mark.parametrize("starts", [(5, 5), (6, 5)])
def test_tiers_that_do_not_follow_each_other_are_refused(starts: tuple[int, int]) -> None:
    tiers = tuple(Tier(above=start, input=1, output=1) for start in starts)
    with pytest.raises(ConfigError) as caught:
        TokenPrice(1, 1, tiers=tiers)
    assert caught.value.where == "price, tiers"


@given(prices(), usages())
def test_a_cost_is_the_exact_sum_rounded_up(price: TokenPrice, usage: Usage) -> None:
    row: TokenPrice | Tier = [price, *[tier for tier in price.tiers if usage.input > tier.above]][-1]
    each = {
        "input": (usage.input - usage.cached - usage.written, row.input),
        "cached": (usage.cached, row.input if row.cached is None else row.cached),
        "written": (usage.written, row.input if row.written is None else row.written),
        "output": (usage.output, row.output),
    }
    assert price.cost(usage) == ceil(sum(tokens * Fraction(str(dollars)) * 1_000 for tokens, dollars in each.values()))


@given(st.data(), prices(), COUNTS, COUNTS)
def test_no_request_of_up_to_so_many_tokens_costs_more_than_the_worst(
    data: st.DataObject, price: TokenPrice, input: int, output: int
) -> None:
    usage = data.draw(usages(input, output))
    assert price.cost(usage) <= compute_max_request_cost(price, input, output)


@given(st.data(), DOLLARS, DOLLARS, MAYBE, MAYBE, COUNTS, COUNTS)
def test_the_worst_of_a_price_that_is_not_ours_is_found_at_its_corners(
    data: st.DataObject, dear: float, made: float, cached: float | None, written: float | None, input: int, output: int
) -> None:
    foreign = Foreign(TokenPrice(dear, made, cached, written), reasoning=7)
    assert foreign.cost(data.draw(usages(input, output))) <= compute_max_request_cost(foreign, input, output)


@given(st.data(), prices(), st.integers(0, 10**5), st.integers(1, 5), st.booleans())
def test_no_way_to_use_so_many_tokens_costs_more_than_the_most(
    data: st.DataObject, price: TokenPrice, tokens: int, requests: int, is_ours: bool
) -> None:
    asked: Price = price if is_ours or price.tiers else Foreign(price)  # of which more tokens never cost less
    left, cost = tokens, 0
    for _ in range(min(requests, tokens)):
        input = data.draw(st.integers(0, left))
        usage = data.draw(usages(input, left - input))
        left -= usage.total
        cost += price.cost(usage)
    assert cost <= compute_max_total_cost(asked, tokens, requests)
    assert cost <= compute_max_total_cost(asked, tokens)


@given(prices())
def test_a_price_is_read_back_as_it_was_written(price: TokenPrice) -> None:
    assert TokenPrice.from_dict(price.to_dict()) == price
    assert TokenPrice.from_dict({"input": 1.0, "output": 2.0, "cached": None}) == TokenPrice(1.0, 2.0)
