"""Regular expressions that are matched without backtracking find what `re` finds."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.tools.pattern import Pattern, PatternError, compiled

EXPRESSIONS = [
    "", "^$", "a", "^a", "a$", r"\Aab\Z", "a.c", "[^ab0-9]", r"[\w.-]+@", r"\d{2}", r"\s?b", r"\bab\b", r"a\Bb",
    "a{2,3}b?$", "(a|b)*c", "^[a-z]+(-[a-z]+)*$", "(a*)*b", "(|a)+b", "(?:a{2}){2}", "(?:){3}a", "()*a", "a*?b",
    "(?=a)a(?!b)", "(?<=a)b", "(?<!a)b", "^(?=.*a)(?=.*b).{3,}$", "(?:a|(?=b))*b$",
    r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$",
]  # fmt: skip


def nothing(_: int) -> None:
    """Count no steps."""


@pytest.mark.parametrize("expression", EXPRESSIONS)
@given(text=st.text("ab.-@1 _\nC", max_size=9))
def test_a_pattern_finds_what_re_finds(expression: str, text: str) -> None:
    assert compiled(expression).found_in(text, nothing) is bool(re.search(expression, text))


@pytest.mark.parametrize("expression", ["(", r"(a)\1", "(?i)a", "(?i:a)", "a++", "(?>a)", r"\p{L}", "(a{999}){999}"])
def test_an_expression_that_cannot_be_followed_is_refused(expression: str) -> None:
    with pytest.raises(PatternError):
        Pattern(expression)


def test_an_expression_that_is_too_long_is_refused() -> None:
    with pytest.raises(PatternError, match="the maximum is 10,000"):
        Pattern("a" * 10_001)


def test_a_match_ends_where_its_steps_are_spent() -> None:
    def spend(states: int) -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        Pattern("a").found_in("b", spend)
