import dis
import threading
from types import CodeType
from typing import Any

import pytest

from flyball.errors import ConfigError, Mistakes
from flyball.rules.compiler import Compiler
from flyball.rules.expression import Condition, Verdict
from flyball.rules.source import MOST_CHARACTERS, Source
from flyball.rules.view import View
from flyball.rules.vocabulary import Helper, Vocabulary


def anything(view: View, *arguments: object) -> object:
    return arguments


HELPERS = {
    "tool_completed": Helper(anything),
    "budget": Helper(anything, choices=("turns", "tokens"), fields=("used", "ratio")),
    "odd": Helper(anything, takes=2),
}
FIELDS = (
    "context.turn.iteration_count",
    "context.turn.max_iterations",
    "context.budget.*.used",
    "context.history.tools",
    "context.state.*",
    "context.result.success",
)
WORDS = Vocabulary({"context"}, FIELDS, HELPERS)


def verdict(text: str) -> Verdict:
    return Condition(text, WORDS).evaluate(View({}))


def problems(text: str, words: Vocabulary = WORDS) -> list[str]:
    with pytest.raises(Mistakes) as caught:
        Condition(text, words)
    return [str(error).removeprefix("condition, ") for error in caught.value.errors]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("contxt.turn", "column 1: found 'contxt'; expected context"),
        ("1 + context.trun.x", "column 5: found 'context.trun.x'; expected context.turn"),
        ("context.turn.iteration_cuont > 7",
         "column 1: found 'context.turn.iteration_cuont'; expected context.turn.iteration_count"),
        ("context['turn'].max_iteration", "column 1: found \"context['turn'].max_iteration\"; "
         "expected context.turn.max_iterations"),
        ("context.zzz", "column 1: found 'context.zzz'; expected context.budget or context.history or "
         "context.result or context.state or context.turn"),
        ("context.budget.x.usde", "column 1: found 'context.budget.x.usde'; expected context.budget.x.used"),
        ("context.result.success.x", "column 1: found 'context.result.success.x'; "
         "expected context.result.success, which has no fields"),
        ("budget('trns')", "column 8: found 'trns'; expected turns"),
        ("budget('turns').usd", "column 1: found 'usd'; expected used"),
        ("tool_complete('x')", "column 1: found 'tool_complete'; expected tool_completed"),
        ("lenn('x')", "column 1: found 'lenn'; expected len"),
        ("len", "column 1: found 'len'; expected a call: len(…)"),
        ("tool_completed", "column 1: found 'tool_completed'; expected a call: tool_completed(…)"),
        ("len()", "column 1: found 'len()'; expected 1 argument"),
        ("round(1, 2, 3)", "column 1: found 'round(1, 2, 3)'; expected 1 to 2 arguments"),
        ("sum([[1]], [])", "column 1: found 'sum([[1]], [])'; expected 1 argument"),
        ("odd(1)", "column 1: found 'odd(1)'; expected 2 arguments"),
        ("max([1], key=1)", "column 14: found '1'; expected an argument without key="),
        ("len(*[1])", "column 5: found '*[1]'; expected an expression without *"),
        ("len(**context)", "column 7: found 'context'; expected an argument without **"),
        ("1 is 1", "column 6: found '1'; expected none behind is, or == in place of is"),
        ("b'a'", "column 1: found \"b'a'\"; expected a number, a text, true, false or none"),
        ("9223372036854775808", "column 1: found '9223372036854775808'; expected a number of at most 64 bits"),
        ("2 ** 3", "column 1: found '2 ** 3'; expected an expression without **"),
        ("1 & 2", "column 1: found '1 & 2'; expected an expression without & (and is spelt out)"),
        ("context.__class__", "column 1: found 'context.__class__'; "
         "expected a field whose name does not begin with __"),
        ("context.state.__class__.x", "column 1: found 'context.state.__class__'; "
         "expected a field whose name does not begin with __"),
        ("1) or (2", "column 1: found '1) or (2'; expected one expression"),
        ("1, 2", "column 1: found '1, 2'; expected one expression"),
        ("# nothing", "column 1: found '# nothing'; expected one expression"),
        ("1 +", "column 4: found '1 +'; expected an expression in Python's syntax: invalid syntax"),
        ("é + é.x", "column 1: found 'é'; expected abs"),
        ("'é' + maxx", "column 7: found 'maxx'; expected max"),
        ("1 and\n 'é' + maxx", "line 2, column 8: found 'maxx'; expected max"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_column_and_what_would_be_right(text: str, told: str) -> None:
    assert problems(text)[0].startswith(told)


def test_all_mistakes_of_an_expression_are_told_together() -> None:
    text = "context.trun.x > 1 and lenn(y) or [1 << 2, 3j][f'{1}'] if context.turn.max_iterations else (lambda: 1)"
    assert [told.partition(": ")[2] for told in problems(text)] == [
        "found 'context.trun.x'; expected context.turn",
        "found 'lenn'; expected len",
        "found '1 << 2'; expected an expression without <<",
        "found '3j'; expected a number, a text, true, false or none",
        "found \"f'{1}'\"; expected an expression without an f-string",
        "found 'lambda: 1'; expected an expression without lambda",
    ]


def test_the_place_is_named_as_the_caller_names_it() -> None:
    with pytest.raises(Mistakes, match=r"^condition\.expression, column 1: found 'x'; expected "):
        Condition("x", WORDS, "condition.expression")


@pytest.mark.parametrize("text", ["", "  ", None, 3, True])
def test_what_says_nothing_is_refused(text: Any) -> None:
    with pytest.raises(ConfigError, match=r"^condition: found .*; expected a text that is not empty$"):
        Condition(text, WORDS)


def test_a_long_wide_or_deep_expression_is_refused() -> None:
    assert verdict("'" + "a" * (MOST_CHARACTERS - 2) + "'") == Verdict(True)
    assert verdict("+".join(["1"] * 29)) == verdict("[" + "1," * 290 + "]") == Verdict(True)
    [long] = problems("'" + "a" * (MOST_CHARACTERS - 1) + "'")
    assert long.endswith("expected an expression of at most 2,000 characters")
    for text in ("+".join(["1"] * 31), "[" + "1," * 300 + "]", "[" * 31 + "]" * 31, "-" * 1_999 + "1"):
        [told] = problems(text)
        assert told.endswith("expected an expression of at most 300 parts, 30 in each other")


def test_the_code_has_no_attributes_and_knows_no_names_but_ours() -> None:
    text = (
        "context.state.a[0].b['c'][1:] + [len(context.turn), -1] if budget('turns').used in ('x', none) "
        "and not context['state'].d < 2 * 3 <= 4 or odd(1, min(2, 3) % 2) is not none else str(1 // 2 / 3 - 4)"
    )
    code: CodeType = Compiler(Source(text, "code"), WORDS).compiled().__code__  # pyright: ignore[reportFunctionMemberAccess]
    names = {".", "[]", "[:]", "+", "-", "*", "/", "//", "%", "len", "min", "str", "budget", "odd"}
    assert set(code.co_names) == names
    steps = {step.opname for step in dis.get_instructions(code)}
    assert {
        step for step in steps if any(word in step for word in ("ATTR", "METHOD", "IMPORT", "STORE", "BUILD_MAP"))
    } == set()


def test_what_cannot_be_reached_by_name_is_not_there() -> None:
    assert WORDS.namespace["__builtins__"] == {}


def test_a_small_stack_is_enough_for_the_deepest_text() -> None:
    told: list[list[str]] = []
    texts = [
        "-" * 1_999 + "1",
        "not " * 499 + "1",
        "(" * 190 + "1" + ")" * 190 + "~",
        "[" * 190 + "]" * 190,
        "lambda:" * 280 + "1",
    ]
    before = threading.stack_size(1024 * 1024)
    try:
        thread = threading.Thread(target=lambda: told.extend(problems(text) for text in texts))
        thread.start()
        thread.join(60)
    finally:
        threading.stack_size(before)
    assert [len(found) for found in told] == [1] * len(texts)
