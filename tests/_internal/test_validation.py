import math
from collections.abc import Callable
from typing import Any

import pytest

from flyball._internal import validation
from flyball.errors import AmountError, ConfigError
from flyball.unit import Unit

ODD: list[Any] = [True, "3", math.nan, None, [], object()]


def refuses(value: object) -> Callable[[ConfigError], bool]:
    return lambda error: error.where == "here" and error.found is value


@pytest.mark.parametrize("value", [*ODD, 1.0, -1])
def test_a_whole_number_is_an_int_and_nothing_else(value: Any) -> None:
    with pytest.raises(ConfigError, check=refuses(value)):
        validation.check_int("here", value)
    assert validation.check_int("here", 0) == 0
    assert validation.check_optional_int("here", None) is None


def test_an_amount_is_at_least_one_unless_told_otherwise() -> None:
    assert validation.check_amount("x", 1) == 1
    assert validation.check_amount("x", 0, min_value=0) == 0
    with pytest.raises(AmountError) as caught:
        validation.check_amount("x", 0)
    assert (caught.value.budget, caught.value.found, caught.value.least) == ("x", 0, 1)


@pytest.mark.parametrize("value", [*ODD, -0.5, math.inf])
def test_an_amount_of_a_unit_is_a_number_of_at_least_zero(value: Any) -> None:
    with pytest.raises(ConfigError, check=refuses(value)):
        validation.parse_amount("here", value, Unit.USD)
    assert validation.parse_amount("here", 0.5, Unit.USD) == 500_000_000


@pytest.mark.parametrize("value", ["", " ", None, 3])
def test_a_text_says_something(value: Any) -> None:
    with pytest.raises(ConfigError, check=refuses(value)):
        validation.check_text("here", value)
    assert validation.check_text("here", "x") == "x"


def test_a_member_may_be_given_by_its_word() -> None:
    assert validation.parse_enum("here", "usd", Unit) is Unit.USD
    assert validation.parse_enum("here", Unit.USD, Unit) is Unit.USD
    with pytest.raises(ConfigError, match="count, usd, seconds", check=refuses("USD")):
        validation.parse_enum("here", "USD", Unit)


@pytest.mark.parametrize("value", [True, "3", math.nan, [], -1, -math.inf])
def test_a_duration_is_a_number_of_seconds_or_forever(value: Any) -> None:
    with pytest.raises(ConfigError, check=refuses(value)):
        validation.parse_duration("here", value)
    with pytest.raises(ConfigError, check=refuses(value)):
        validation.parse_timeout("here", value)
    assert (
        validation.parse_duration("here", None),
        validation.parse_duration("here", 0),
        validation.parse_timeout("here", 1),
    ) == (
        math.inf,
        0.0,
        1.0,
    )
    with pytest.raises(ConfigError, check=refuses(0)):
        validation.parse_timeout("here", 0)
