import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball import Unit


@pytest.mark.parametrize(
    ("unit", "written", "inner", "shown"),
    [
        (Unit.COUNT, 40, 40, "40"),
        (Unit.COUNT, "200_000", 200_000, "200,000"),
        (Unit.COUNT, " -5 ", -5, "-5"),
        (Unit.USD, 4.3, 4_300_000_000, "$4.30"),
        (Unit.USD, "4.30", 4_300_000_000, "$4.30"),
        (Unit.USD, 0.1 + 0.2, 300_000_000, "$0.30"),
        (Unit.USD, Decimal("0.000000001"), 1, "$0.000000001"),
        (Unit.USD, "0.0000000007", 1, "$0.000000001"),
        (Unit.USD, 1_234, 1_234_000_000_000, "$1,234.00"),
        (Unit.SECONDS, 90, 90.0, "90 s"),
        (Unit.SECONDS, "0.5", 0.5, "0.5 s"),
        (Unit.SECONDS, 86_400, 86_400.0, "86,400 s"),
    ],
)
def test_what_a_person_writes_is_read_and_shown(unit: Unit, written: Any, inner: float, shown: str) -> None:
    amount = unit.parse(written)
    assert (amount, type(amount)) == (inner, type(inner))
    assert unit.show(amount) == shown


@pytest.mark.parametrize("unit", Unit)
@pytest.mark.parametrize(
    "found", [True, None, "", "forty", "none", "1e", [], {}, math.nan, math.inf, "nan", "inf", "1e400", "1e900000"]
)
def test_what_is_no_amount_is_refused_with_what_was_expected(unit: Unit, found: Any) -> None:
    with pytest.raises(ValueError, match=unit.expected):
        unit.parse(found)


@pytest.mark.parametrize("found", [40.0, "40.0", "4.5", Decimal(4)])
def test_a_count_is_a_whole_number(found: Any) -> None:
    with pytest.raises(ValueError, match=Unit.COUNT.expected):
        Unit.COUNT.parse(found)


@pytest.mark.parametrize("unit", Unit)
def test_no_ceiling_has_a_name(unit: Unit) -> None:
    assert unit.show(None) == unit.show(math.inf) == "no ceiling"
    assert unit.outer(None) is None


@given(st.integers(0, 10**15))
def test_money_is_never_lost_between_inside_and_outside(nanodollars: int) -> None:
    shown = Unit.USD.show(nanodollars)
    assert Unit.USD.parse(shown.removeprefix("$").replace(",", "")) == nanodollars
    assert Unit.USD.parse(Unit.USD.outer(nanodollars)) == pytest.approx(nanodollars, rel=1e-15)


@given(st.integers(-(10**12), 10**12))
def test_a_count_comes_back_as_it_was(count: int) -> None:
    assert Unit.COUNT.parse(Unit.COUNT.show(count).replace(",", "")) == Unit.COUNT.outer(count) == count
