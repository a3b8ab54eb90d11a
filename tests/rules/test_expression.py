from collections.abc import Callable
from typing import Any

import pytest

from flyball.errors import RuleError
from flyball.rules.compiler import Compiler, Source
from flyball.rules.expression import Condition, ConditionResult, Expression
from flyball.rules.view import MAX_INT, MAX_ITEMS, Lazy, View, to_plain
from flyball.rules.vocabulary import Helper, Vocabulary


def failing(view: View) -> object:
    raise KeyError("no such budget")


def budget(view: View, name: str) -> object:
    table: Any = view["context.budget"]
    return table[name]


def tool_completed(view: View, name: str) -> bool:
    tools: Any = view["context.history.tools"]
    return name in tools


def odd(view: View, one: int, two: int) -> object:
    return {one, two}


HELPERS = {
    "tool_completed": Helper(tool_completed),
    "budget": Helper(budget, choices=("turns", "tokens"), fields=("used", "ratio")),
    "failing": Helper(failing, argument_count=0),
    "odd": Helper(odd, argument_count=2),
}
FIELDS = (
    "context.turn.iteration_count",
    "context.turn.max_iterations",
    "context.budget.*.used",
    "context.history.tools",
    "context.history.messages",
    "context.state.*",
    "context.result.success",
)
WORDS = Vocabulary({"context", "params"}, FIELDS, HELPERS)
LONG = "a" * MAX_ITEMS
DATA: dict[str, Any] = {
    "context": {
        "turn": {"iteration_count": 8, "max_iterations": 10},
        "budget": {"turns": {"used": 8, "ratio": 0.8}},
        "history": {
            "tools": ["search", "read", "read"],
            "messages": [{"role": "user"}, {"role": "assistant", "words": ("a", "b")}],
        },
        "state": {
            "name": "Ann",
            "zero": 0,
            "none": None,
            "a.b": 1,
            "großes": 2,
            "long": LONG,
            "longer": LONG + "a",
            "list": [0] * MAX_ITEMS,
            "nested": {"a": {"b": [1, 2, {"c": 3}]}},
            "large": MAX_INT,
        },
    },
    "params": {"threshold": 0.7},
}


def value(text: str) -> object:
    return to_plain(Expression(Compiler(Source(text, "expression"), WORDS)).compute(View(DATA)))


def verdict(text: str) -> ConditionResult:
    return Condition(text, WORDS).evaluate(View(DATA))


def failure(text: str) -> RuleError:
    with pytest.raises(RuleError) as caught:
        value(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("context.turn.iteration_count > 7", True),
        ("context.turn.iteration_count >= 9", False),
        ("context.turn.iteration_count % 5 == 0 and context.turn.iteration_count > 0", False),
        ("True", True),
        ("true and not false", True),
        ("none == None", True),
        ("context.turn.iteration_count / context.turn.max_iterations > params.threshold", True),
        ("budget('turns').ratio > 0.7", True),
        ("tool_completed('read') and not tool_completed('write')", True),
        ("context.state.name", True),
        ("context.state.zero", False),
        ("context.history.tools", True),
        ("context.state", True),
    ],
)
def test_a_condition_is_true_or_false(text: str, expected: bool) -> None:
    assert verdict(text) == ConditionResult(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3 - 4 / 2", 5.0),
        ("7 // 2 + 7 % 4 + -1 + +2", 7),
        ("'a' + \"b\" 'c'", "abc"),
        ("[1] + [2, [3]]", [1, 2, [3]]),
        ("(1, 2)", [1, 2]),
        ("()", []),
        ("1 < 2 <= 2 != 3", True),
        ("1 < 2 > 5", False),
        ("'read' in context.history.tools and 'x' not in context.history.tools", True),
        ("'nn' in context.state.name", True),
        ("'turn' in context and 'result' not in context", True),
        ("'yes' if context.state.zero else 'no'", "no"),
        ("context.state.zero or 'else'", "else"),
        ("context.state.name and 3", 3),
        ("context.state.none is none and context.state.zero is not None", True),
        ("context.history.tools[0] + context.history.tools[-1]", "searchread"),
        ("context.history.tools[1:]", ["read", "read"]),
        ("context.state.name[::-1]", "nnA"),
        ("context.state.name[1]", "n"),
        ("context.history.messages[1].words[0]", "a"),
        ("context.history.messages[0]", {"role": "user"}),
        ("context['turn']['iteration_count']", 8),
        ("context.state['a.b'] + context.state['großes'] + context.state.großes", 5),
        ("context.state.nested.a['b'][2].c", 3),
        ("context.state[context.state.none or 'name']", "Ann"),
        ("budget('turns')", {"used": 8, "ratio": 0.8}),
        ("len('abc') + len([1]) + len(context.turn)", 6),
        ("[min(2, 1), max([1, 2]), abs(-1), round(1.5), round(1.25, 1), round(15, -1)]", [1, 2, 1, 2, 1.2, 20]),
        ("[int('12'), int(1.9), float('1.5'), bool([])]", [12, 1, 1.5, False]),
        ("str(1.0) + str([1, 'a']) + str(context.turn)", "1.0[1, 'a']{'iteration_count': 8, 'max_iterations': 10}"),
        ("[sum([1, 2.5]), any([0, 1]), all([0, 1]), sorted('ba'), sorted(context.turn)[0]]",
         [3.5, True, False, ["a", "b"], "iteration_count"]),
        ("context.turn == context.turn and context.turn != context.budget", True),
        ("context.history.messages[0] in context.history.messages", True),
        ("\n  1 +  # one\n  1\n", 2),
        ("9223372036854775807 - 1 + 1", MAX_INT),
        ("-9223372036854775807", -MAX_INT),
        ("1e999 > 1", True),
        ("'\\d' '\\x41' r'\\d'", "\\dA\\d"),
        ("u'a'", "a"),
        ("1_000", 1000),
        ("0x1F", 31),
    ],
)  # fmt: skip
def test_an_expression_means_what_it_means_in_python(text: str, expected: object) -> None:
    found = value(text)
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(
    ("text", "words", "fact"),
    [
        ("context.result.success", "context.result.success", "'result'"),
        ("not context.result.success", "context.result.success", "'result'"),
        ("context.state.gone or true", "context.state.gone", "'gone'"),
        ("params.other > 1", "params.other", "'other'"),
        ("context.state['no such'] > 1", "context.state['no such']", "'no such'"),
        ("context.state['a.c'] > 1", "context.state['a.c']", "'a.c'"),
        ("context.state.name.first", "context.state.name.first", "'first'"),
        ("context.state.none.x", "context.state.none.x", "'x'"),
        ("context.state[1]", "context.state[1]", ""),
        ("context.state[1:]", "context.state[1:]", ""),
        ("budget('tokens').ratio > 1", "budget('tokens')", "'tokens'"),
        ("context.history.messages[0].words", "context.history.messages[0].words", "'words'"),
        ("context.history.tools[7] == 1", "context.history.tools[7]", "list index out of range"),
        ("context.state.nested.a.b['x']", "context.state.nested.a.b['x']", "'x'"),
        ("1 + (2 / context.state.zero)", "2 / context.state.zero", "division by zero"),
        ("'a' * 3", "'a' * 3", "*"),
        ("3 * [1]", "3 * [1]", "*"),
        ("'%s' % 3", "'%s' % 3", "%"),
        ("context % 3", "context % 3", "%"),
        ("9223372036854775807 + 1", "9223372036854775807 + 1", "64"),
        ("-9223372036854775807 - 1", "-9223372036854775807 - 1", "64"),
        ("context.state.large * 2 > 1", "context.state.large * 2", "64"),
        ("sum([context.state.large, 1])", "sum([context.state.large, 1])", "64"),
        ("int('9223372036854775808')", "int('9223372036854775808')", "64"),
        ("int(1e300)", "int(1e300)", "64"),
        ("round(1e300)", "round(1e300)", "64"),
        ("int(context.state.long)", "int(context.state.long)", "100"),
        ("float(context.state.long)", "float(context.state.long)", "100"),
        ("round(5, -100000000)", "round(5, -100000000)", "-15"),
        ("round('a')", "round('a')", ""),
        ("context.state.long + 'a'", "context.state.long + 'a'", f"{MAX_ITEMS:,}"),
        ("context.state.list + [1]", "context.state.list + [1]", f"{MAX_ITEMS:,}"),
        ("sorted(context.state.longer)", "sorted(context.state.longer)", f"{MAX_ITEMS:,}"),
        ("str(context.state.longer)", "str(context.state.longer)", f"{MAX_ITEMS:,}"),
        ("str([context.state.long])", "str([context.state.long])", f"{MAX_ITEMS:,}"),
        ("failing()", "failing()", "KeyError('no such budget')"),
        ("odd(1, 2)", "odd(1, 2)", "set"),
        ("1 +\n  1 / 0", "1 / 0", "division by zero"),
    ],
)  # fmt: skip
def test_an_expression_that_fails_is_false_and_names_its_words_and_why(text: str, words: str, fact: str) -> None:
    found, failed = verdict(text), failure(text)
    assert not found.value
    assert (failed.code, failed.words, found.reason) == ("rule_failed", words, str(failed))
    assert fact in failed.reason


def test_a_part_that_need_not_be_worked_out_may_be_missing() -> None:
    assert verdict("true or context.state.gone") == ConditionResult(True)


def test_reasons_of_expressions_are_as_stored(snapshot: Callable[..., None]) -> None:
    texts = ["context.state.gone", "context.state.name.first", "context.state[1:]", "'a' * 3", "int(1e300)"]
    texts += ["int(context.state.long)", "round(5, 16)", "round('a')", "context.state.long + 'a'", "failing()"]
    texts += ["context.state.list + [1]", "str([context.state.long])", "odd(1, 2)", "1 / 0"]
    snapshot("\n".join(str(verdict(text).reason) for text in texts))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 // 0 > 1", "1 // 0"),
        ("1.5 % 0 > 1", "1.5 % 0"),
        ("true and context.state.name > 1", "context.state.name > 1"),
        ("not 1 in 2", "1 in 2"),
        ("1 < 'a' < 2", "1 < 'a' < 2"),
        ("'a' + 1 == 'a1'", "'a' + 1"),
        ("[1] +\n  1", "[1] + 1"),
        ("-'a'", "-'a'"),
        ("context - 1", "context - 1"),
        ("sum(['a']) == 'a'", "sum(['a'])"),
        ("sorted([1, 'a'])[0]", "sorted([1, 'a'])"),
        ("max([])", "max([])"),
        ("1 + len(5)", "len(5)"),
        ("int('x')", "int('x')"),
        ("int(1e999)", "int(1e999)"),
        ("'abc'['a']", "'abc'['a']"),
        ("[1][::0]", "[1][::0]"),
    ],
)
def test_an_expression_that_python_refuses_is_false_and_names_the_words(text: str, words: str) -> None:
    assert not verdict(text).value
    assert failure(text).words == words


def test_data_may_be_longer_than_what_an_expression_makes() -> None:
    assert value("len(context.state.longer) > 100000 and 'b' not in context.state.longer") is True
    assert value("context.state.longer[:3]") == "aaa"


def test_the_reason_of_a_helper_names_the_field_that_it_misses() -> None:
    def missing(view: View) -> object:
        return view["context.history.nothing"]

    condition = Condition("missing()", Vocabulary({"context"}, helpers={"missing": Helper(missing, 0)}))
    found = condition.evaluate(View(DATA))
    assert not found.value
    assert "'nothing'" in str(found.reason)
    assert "missing()" in str(found.reason)


def test_a_condition_asks_only_for_what_it_needs() -> None:
    def compute() -> object:
        raise AssertionError("nobody needs it")

    view = View({"context": {"turn": {"iteration_count": 8}, "history": Lazy(compute)}})
    assert Condition("context.turn.iteration_count > 7 or context.history.tools", WORDS).evaluate(
        view
    ) == ConditionResult(True)
    assert list(view) == ["context", "context.turn", "context.turn.iteration_count"]


def test_the_value_of_an_expression_is_raised_where_there_is_none() -> None:
    with pytest.raises(RuleError) as caught:
        value("1 + context.state.zero / 0")
    assert (caught.value.reason, caught.value.words) == ("division by zero", "context.state.zero / 0")


def test_a_long_expression_does_not_bury_the_reason() -> None:
    reason = verdict("[" + "'abcdefgh', " * 40 + "] + 1").reason
    assert reason is not None
    assert len(reason) < 200


def test_an_interrupt_is_not_a_reason() -> None:
    def interrupted(view: View) -> object:
        raise KeyboardInterrupt

    condition = Condition("stop()", Vocabulary((), helpers={"stop": Helper(interrupted, 0)}))
    with pytest.raises(KeyboardInterrupt):
        condition.evaluate(View({}))
