from typing import Any

import pytest

from flyball.errors import ConfigError, ConfigErrors
from flyball.rules.expression import Condition, ConditionResult
from flyball.rules.view import View
from flyball.rules.vocabulary import Helper, Vocabulary


def one(view: View) -> int:
    return 1


def expected(text: str, words: Vocabulary) -> str:
    with pytest.raises(ConfigErrors) as caught:
        Condition(text, words)
    return caught.value.expected


def test_without_fields_any_field_goes() -> None:
    condition = Condition("context.anything.goes", Vocabulary({"context"}))
    assert condition.evaluate(View({"context": {"anything": {"goes": True}}})).value


def test_a_star_is_any_field_and_whatever_is_below_it() -> None:
    words = Vocabulary((), ["context.state.*", "context.budget.*.used"])
    Condition("context.state.a.b.c and context.state and context.budget.x.used", words)
    assert expected("context.budget.x.y", words) == "context.budget.x.used"


def test_a_field_behind_an_index_is_not_known_before() -> None:
    condition = Condition("context.tools[0].whatever", Vocabulary((), ["context.tools"]))
    assert condition.evaluate(View({"context": {"tools": [{"whatever": 1}]}})).value


@pytest.mark.parametrize(
    "words",
    [
        lambda: Vocabulary({"len"}),
        lambda: Vocabulary({"true"}),
        lambda: Vocabulary(("context",), helpers={"context": Helper(one)}),
        lambda: Vocabulary((), ["context.x"], {"context": Helper(one)}),
        lambda: Vocabulary((), helpers={"len": Helper(one)}),
    ],
)
def test_a_name_that_is_taken_already_is_refused(words: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        words()
    assert caught.value.where == "vocabulary"


def test_helpers_may_be_called_as_our_code_calls_its_own_things() -> None:
    names = ["view", "the_view", "add", "default", "percent", "field_of"]
    words = Vocabulary((), helpers={name: Helper(one, 0) for name in names})
    assert Condition(" + ".join(f"{name}()" for name in names) + " == 6", words).evaluate(View({})) == ConditionResult(
        True
    )
