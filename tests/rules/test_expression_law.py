"""What is true of all expressions: they mean what they mean in Python, and whatever is written does no harm."""

import builtins
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from flyball.errors import ConfigErrors, RuleError
from flyball.rules.compiler import Compiler, Source
from flyball.rules.expression import Condition, Expression
from flyball.rules.operations import FUNCTIONS
from flyball.rules.template import Template
from flyball.rules.view import View, to_plain
from flyball.rules.vocabulary import Vocabulary

DATA: dict[str, Any] = {
    "n": 7,
    "f": 2.5,
    "big": 2**62,
    "yes": True,
    "none": None,
    "word": "abc",
    "digits": "12",
    "numbers": [3, 1, 2],
    "mixed": [1, "a", None, [2]],
    "empty": [],
}
PYTHON: dict[str, Any] = {"__builtins__": {}, **{name: vars(builtins)[name] for name in FUNCTIONS}, **DATA}
WORDS = Vocabulary(DATA.keys() - {"none"})


def joined(pattern: str, *parts: SearchStrategy[str]) -> SearchStrategy[str]:
    """Texts with other texts in the places of a pattern."""
    return st.tuples(*parts).map(lambda texts: pattern.format(*texts))


def signed(parts: SearchStrategy[str], signs: list[str]) -> SearchStrategy[str]:
    return st.tuples(parts, st.sampled_from(signs), parts).map(lambda texts: "({} {} {})".format(*texts))


number = st.recursive(
    st.integers(-20, 20).map(str) | st.sampled_from(["n", "f", "big", "yes", "0.1", "1e3"]),
    lambda below: (
        signed(below, ["+", "-", "*", "/", "//", "%"])
        | joined("-{}", below)
        | joined("({} if {} else {})", below, below, below)
        | joined("round({}, {})", below, st.integers(-3, 3).map(str))
        | st.sampled_from(["abs", "int", "float", "round"]).flatmap(lambda name: joined(f"{name}({{}})", below))
        | st.sampled_from(["min", "max"]).flatmap(lambda name: joined(f"{name}({{}}, {{}})", below, below))
    ),
    max_leaves=6,
)
"""All that `*` and `%` are given, as with texts and lists they mean something else in Python."""
leaf = number | st.sampled_from([*DATA.keys() - {"none"}, "None", "True", "False", "''", "'b'", "'1.5'", "[]"])
FLAT = ["abs", "all", "any", "bool", "float", "int", "len", "max", "min", "round", "sorted", "str", "sum"]
anything = st.recursive(
    leaf,
    lambda below: (
        signed(below, ["+", "-", "/", "//", "<", "<=", ">", ">=", "==", "!=", "in", "not in", "and", "or"])
        | joined("({} < {} <= {})", below, below, below)
        | joined("(not {})", below)
        | joined("({} is None)", below)
        | joined("({} if {} else {})", below, below, below)
        | joined("[{}, {}]", below, below)
        | joined("{}[{}]", below, below)
        | joined("{}[{}:{}]", below, number, number)
        | st.sampled_from(FLAT).flatmap(lambda name: joined(f"{name}({{}})", below))
    ),
    max_leaves=8,
)


def ours(text: str) -> tuple[str, str]:
    try:
        return "value", repr(to_plain(Expression(Compiler(Source(text, "law"), WORDS)).compute(View(DATA))))
    except RuleError as error:
        return "error", error.reason


def pythons(text: str) -> tuple[str, str]:
    try:
        return "value", repr(eval(text, PYTHON))
    except (TypeError, ValueError, ArithmeticError, LookupError) as error:
        return "error", str(error)


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@settings(max_examples=200)
@given(anything)
def test_an_expression_has_the_value_that_it_has_in_python(text: str) -> None:
    found, expected = ours(text), pythons(text)
    if found[1] == "a number of more than 64 bits":
        return
    assert found[0] == expected[0], (found, expected)
    assert found[0] == "error" or found[1] == expected[1]


@given(number)
def test_a_number_that_grows_beyond_64_bits_on_the_way_is_refused(text: str) -> None:
    kind, found = ours(text)
    assert kind == "error" or not found.lstrip("-").isdigit() or abs(int(found)) < 2**63


PIECES = [
    *[
        "n",
        "word",
        "mixed",
        "len(",
        "round(",
        "x",
        ".x",
        ".__class__",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "{{",
        "}}",
        ",",
        ":",
    ],
    *[
        "1",
        "9" * 30,
        "'",
        '"',
        "'a'",
        "+",
        "-",
        "*",
        "**",
        "%",
        "//",
        "<<",
        "|",
        "|round",
        "|default(1)",
        "~",
        "@",
        "==",
    ],
    *[
        "=",
        ":=",
        "<",
        " in ",
        " is ",
        " not ",
        " and ",
        " or ",
        " if ",
        " else ",
        " for ",
        "lambda:",
        "\n",
        "\\",
        "#",
        "é",
    ],
    *["\x00", "\ud800", "...", "f'{n}'", "b''", "1j", "await ", "*n", "**n", ";"],
]
soup = st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text(max_size=30)


def outcome(text: str) -> tuple[bool, str | None]:
    try:
        verdict = Condition(text, WORDS).evaluate(View(DATA))
        return verdict.value, verdict.reason
    except ConfigErrors as mistakes:
        return False, str(mistakes)


def written(text: str) -> str | None:
    try:
        return Template(text, WORDS).render(View(DATA))
    except (ConfigErrors, RuleError) as error:
        return str(error)


@settings(max_examples=200)
@given(soup)
def test_whatever_is_written_is_refused_or_comes_to_an_end(text: str) -> None:
    value, reason = outcome(f"{text} 1")
    assert reason is None or (reason and not value)
    assert written(text) is not None
    assert written(f"{{{{ {text} }}}}") is not None
