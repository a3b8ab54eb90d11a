from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball import ConfigError, TokenPrice
from flyball.price import most

counts = st.integers(0, 10**7)
prices = st.builds(TokenPrice, st.floats(0, 100), st.floats(0, 100), st.none() | st.floats(0, 100))


def test_dollars_for_a_million_tokens_become_billionths_for_each() -> None:
    price = TokenPrice(input=3.0, output=15.0, cached=0.3)
    assert price.cost(1_000_000, 0) == 3_000_000_000
    assert price.cost(0, 1_000_000) == 15_000_000_000
    assert price.cost(1_000_000, 0, cached=1_000_000) == 300_000_000
    assert TokenPrice(input=3.0, output=15.0).cost(10, 0, cached=10) == 30_000


def test_what_is_not_whole_is_rounded_up() -> None:
    assert TokenPrice(input=0.0001, output=0).cost(1, 0) == 1


@pytest.mark.parametrize("found", [-1, True, "3", float("nan"), None])
def test_a_price_that_is_none_is_refused(found: Any) -> None:
    with pytest.raises(ConfigError, match="price, input: found"):
        TokenPrice(input=found, output=1)


@given(prices, counts, counts)
def test_no_part_costs_more_than_the_most_nor_than_the_whole(price: TokenPrice, given_tokens: int, made: int) -> None:
    whole = price.cost(given_tokens, made)
    assert whole <= price.cost(given_tokens, 0) + price.cost(0, made)
    assert whole <= most(price, given_tokens + made) + 1
    assert price.cost(given_tokens, made) <= price.cost(given_tokens, made + 1)
