import dis
import threading
from collections.abc import Callable
from types import CodeType
from typing import Any

import pytest

from flyball.errors import ConfigError, ConfigErrors
from flyball.rules.compiler import MAX_CHARACTERS, Compiler, Source
from flyball.rules.expression import Condition, ConditionResult
from flyball.rules.view import View
from flyball.rules.vocabulary import Helper, Vocabulary


def anything(view: View, *arguments: object) -> object:
    return arguments


HELPERS = {
    "tool_completed": Helper(anything),
    "budget": Helper(anything, choices=("turns", "tokens"), fields=("used", "ratio")),
    "odd": Helper(anything, argument_count=2),
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


def verdict(text: str) -> ConditionResult:
    return Condition(text, WORDS).evaluate(View({}))


def mistakes(text: str) -> tuple[ConfigError, ...]:
    with pytest.raises(ConfigErrors) as caught:
        Condition(text, WORDS)
    return caught.value.errors


@pytest.mark.parametrize(
    ("text", "place", "found", "right"),
    [
        ("contxt.turn", "column 1", "contxt", "context"),
        ("1 + context.trun.x", "column 5", "context.trun.x", "context.turn"),
        ("context.turn.iteration_cuont > 7", "column 1", "context.turn.iteration_cuont",
         "context.turn.iteration_count"),
        ("context['turn'].max_iteration", "column 1", "context['turn'].max_iteration", "context.turn.max_iterations"),
        ("context.zzz", "column 1", "context.zzz", "context.turn"),
        ("context.zzz", "column 1", "context.zzz", "context.budget"),
        ("context.budget.x.usde", "column 1", "context.budget.x.usde", "context.budget.x.used"),
        ("context.result.success.x", "column 1", "context.result.success.x", "context.result.success"),
        ("budget('trns')", "column 8", "trns", "turns"),
        ("budget('turns').usd", "column 1", "usd", "used"),
        ("tool_complete('x')", "column 1", "tool_complete", "tool_completed"),
        ("lenn('x')", "column 1", "lenn", "len"),
        ("len", "column 1", "len", "len(…)"),
        ("tool_completed", "column 1", "tool_completed", "tool_completed(…)"),
        ("len()", "column 1", "len()", "1"),
        ("round(1, 2, 3)", "column 1", "round(1, 2, 3)", "2"),
        ("sum([[1]], [])", "column 1", "sum([[1]], [])", "1"),
        ("odd(1)", "column 1", "odd(1)", "2"),
        ("max([1], key=1)", "column 14", "1", "key="),
        ("len(*[1])", "column 5", "*[1]", "*"),
        ("len(**context)", "column 7", "context", "**"),
        ("1 is 1", "column 6", "1", "=="),
        ("b'a'", "column 1", "b'a'", ""),
        ("9223372036854775808", "column 1", "9223372036854775808", "64"),
        ("2 ** 3", "column 1", "2 ** 3", "**"),
        ("1 & 2", "column 1", "1 & 2", "and"),
        ("context.__class__", "column 1", "context.__class__", "__"),
        ("context.state.__class__.x", "column 1", "context.state.__class__", "__"),
        ("1) or (2", "column 1", "1) or (2", ""),
        ("1, 2", "column 1", "1, 2", ""),
        ("# nothing", "column 1", "# nothing", ""),
        ("1 +", "column 4", "1 +", ""),
        ("é + é.x", "column 1", "é", "abs"),
        ("'é' + maxx", "column 7", "maxx", "max"),
        ("1 and\n 'é' + maxx", "line 2, column 8", "maxx", "max"),
    ],
)  # fmt: skip
def test_a_mistake_in_an_expression_names_its_column_and_what_would_be_right(
    text: str, place: str, found: str, right: str
) -> None:
    first = mistakes(text)[0]
    assert (first.code, first.where, first.found) == ("config_invalid", f"condition, {place}", found)
    assert right in first.expected


def test_all_mistakes_of_an_expression_are_told_together(snapshot: Callable[..., None]) -> None:
    text = "context.trun.x > 1 and lenn(y) or [1 << 2, 3j][f'{1}'] if context.turn.max_iterations else (lambda: 1)"
    found = mistakes(text)
    assert [one.found for one in found] == ["context.trun.x", "lenn", "1 << 2", "3j", "f'{1}'", "lambda: 1"]
    snapshot("\n".join(map(str, found)))


def test_texts_of_mistakes_in_expressions_are_as_stored(snapshot: Callable[..., None]) -> None:
    texts = ["context.zzz", "context.result.success.x", "len", "round(1, 2, 3)", "max([1], key=1)", "1 is 1", "1 & 2"]
    texts += ["9223372036854775808", "context.__class__", "1, 2", "1 +", "'" + "a" * 2_000 + "'", "[" * 31 + "]" * 31]
    snapshot("\n".join(str(mistakes(text)[0]) for text in texts))


def test_a_mistake_in_an_expression_is_placed_where_the_caller_says() -> None:
    with pytest.raises(ConfigErrors) as caught:
        Condition("x", WORDS, "condition.expression")
    assert (caught.value.where, caught.value.found) == ("condition.expression, column 1", "x")


@pytest.mark.parametrize("text", ["", "  ", None, 3, True])
def test_an_expression_that_is_empty_or_no_text_is_refused(text: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Condition(text, WORDS)
    assert (caught.value.where, caught.value.found) == ("condition", text)


def test_a_long_wide_or_deep_expression_is_refused() -> None:
    assert verdict("'" + "a" * (MAX_CHARACTERS - 2) + "'") == ConditionResult(True)
    assert verdict("+".join(["1"] * 29)) == verdict("[" + "1," * 290 + "]") == ConditionResult(True)
    [long] = mistakes("'" + "a" * (MAX_CHARACTERS - 1) + "'")
    assert f"{MAX_CHARACTERS:,}" in long.expected
    for text in ("+".join(["1"] * 31), "[" + "1," * 300 + "]", "[" * 31 + "]" * 31, "-" * 1_999 + "1"):
        [told] = mistakes(text)
        assert "300" in told.expected


def test_compiled_code_has_no_attributes_and_knows_no_names_but_ours() -> None:
    text = (
        "context.state.a[0].b['c'][1:] + [len(context.turn), -1] if budget('turns').used in ('x', none) "
        "and not context['state'].d < 2 * 3 <= 4 or odd(1, min(2, 3) % 2) is not none else str(1 // 2 / 3 - 4)"
    )
    code: CodeType = Compiler(Source(text, "code"), WORDS).build_function().__code__  # pyright: ignore[reportFunctionMemberAccess]
    names = {".", "[]", "[:]", "+", "-", "*", "/", "//", "%", "len", "min", "str", "budget", "odd"}
    assert set(code.co_names) == names
    steps = {step.opname for step in dis.get_instructions(code)}
    assert {
        step for step in steps if any(word in step for word in ("ATTR", "METHOD", "IMPORT", "STORE", "BUILD_MAP"))
    } == set()


def test_compiled_code_has_no_builtins() -> None:
    assert WORDS.namespace["__builtins__"] == {}


def test_the_deepest_expression_is_refused_on_a_small_stack() -> None:
    told: list[tuple[ConfigError, ...]] = []
    texts = [
        "-" * 1_999 + "1",
        "not " * 499 + "1",
        "(" * 190 + "1" + ")" * 190 + "~",
        "[" * 190 + "]" * 190,
        "lambda:" * 280 + "1",
    ]
    before = threading.stack_size(1024 * 1024)
    try:
        thread = threading.Thread(target=lambda: told.extend(mistakes(text) for text in texts))
        thread.start()
        thread.join(60)
    finally:
        threading.stack_size(before)
    assert [len(found) for found in told] == [1] * len(texts)
