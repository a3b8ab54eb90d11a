from typing import Any

import pytest

from flyball.errors import ConfigError, Mistakes, RuleError
from flyball.rules.template import MOST_WRITTEN, Template
from flyball.rules.view import View
from flyball.rules.vocabulary import Vocabulary

WORDS = Vocabulary({"context"}, ["context.turn.iteration_count", "context.state.*", "context.budget.turns.used"])
DATA: dict[str, Any] = {
    "context": {
        "turn": {"iteration_count": 8},
        "state": {"share": 0.7251, "none": None, "list": [1, "a"], "table": {"a": [1]}, "text": "abc", "yes": True},
    }
}


def text(template: str, **more: Any) -> str:
    return Template(template, WORDS, **more).text(View(DATA))


def value(template: str, **more: Any) -> object:
    return Template(template, WORDS, **more).value(View(DATA))


def problems(template: str) -> list[str]:
    with pytest.raises(Mistakes) as caught:
        Template(template, WORDS)
    return [str(error) for error in caught.value.errors]


def reason(template: str, **more: Any) -> str:
    with pytest.raises(RuleError) as caught:
        text(template, **more)
    return str(caught.value)


def test_the_sentence_of_the_seed_is_written() -> None:
    template = (
        "Iteration {{ context.turn.iteration_count }} of 10. Consider completing current task or breaking it down."
    )
    assert text(template) == "Iteration 8 of 10. Consider completing current task or breaking it down."


@pytest.mark.parametrize(
    "untouched", ["", "plain", "a } b { c }} d", "{x} {0.__class__} %s $HOME $(id) `id` {% x %} {# x #}", "\ud800\0"]
)
def test_what_is_not_in_braces_is_left_alone(untouched: str) -> None:
    assert text(untouched) == value(untouched) == untouched


@pytest.mark.parametrize(
    ("template", "written"),
    [
        ("{{ 1 }}{{ 2 }}", "12"),
        ("{{1}} {{\n2\n}}", "1 2"),
        ("{{ '}}' }}", "}}"),
        ('{{ "{{" }}{{ "it\'s" }}', "{{it's"),
        ("{{ 'a\\'}}' }}", "a'}}"),
        ("{{ context.state.list }} {{ context.state.table }}", "[1, 'a'] {'a': [1]}"),
        ("{{ context.state.yes }} {{ none }}", "True None"),
        ("{{ context.state.text[:2] + '…' }}", "ab…"),
    ],
)
def test_an_expression_is_filled_in_as_python_writes_its_value(template: str, written: str) -> None:
    assert text(template) == written


class TestWhole:
    @pytest.mark.parametrize(
        ("template", "expected"),
        [
            ("{{ context.turn.iteration_count }}", 8),
            ("{{ context.turn.iteration_count + 1 }}", 9),
            ("{{ context.state.yes }}", True),
            ("{{ context.state.none }}", None),
            ("{{ context.state.share | round(2) }}", 0.73),
            ("{{ context.state.list + [2] }}", [1, "a", 2]),
            ("{{ context.state.table }}", {"a": [1]}),
            ("{{ 'text' }}", "text"),
        ],
    )
    def test_a_template_that_is_one_expression_keeps_the_type(self, template: str, expected: object) -> None:
        found = value(template)
        assert (type(found), found) == (type(expected), expected)

    @pytest.mark.parametrize("template", [" {{ 1 }}", "{{ 1 }}\n", "{{ 1 }}{{ '' }}", "{{ '' }}{{ 1 }}"])
    def test_with_anything_beside_it_it_is_a_text(self, template: str) -> None:
        assert isinstance(value(template), str)

    def test_asked_for_its_text_it_gives_that(self) -> None:
        assert text("{{ context.turn.iteration_count }}") == "8"


class TestFilters:
    @pytest.mark.parametrize(
        ("template", "written"),
        [
            ("{{ context.state.share | percent }}", "73%"),
            ("{{ context.state.share | percent(1) }}", "72.5%"),
            ("{{ 8 / 10 | percent }}", "80%"),
            ("{{ 2 | percent }}", "200%"),
            ("{{ context.state.share | round }}", "1"),
            ("{{ context.state.share | round(2) }}", "0.73"),
            ("{{ context.state.share * 100 | round(1) }}", "72.5"),
            ("{{ context.state.missing | default('?') }}", "?"),
            ("{{ context.state.none | default('?') }}", "?"),
            ("{{ context.state.text | default('?') }}", "abc"),
            ("{{ 0 | default('?') }}{{ '' | default('?') }}{{ false | default('?') }}", "0False"),
            ("{{ 1 / 0 | default('?') }}", "?"),
            ("{{ context.state.missing / 2 | percent | default('?') }}", "?"),
            ("{{ context.state.missing | default(0.5) | percent }}", "50%"),
            ("{{ context.state.missing | default(context.turn.iteration_count) }}", "8"),
            ("{{ context.state.text | default(context.state.missing) }}", "abc"),
            ("{{ context.state.missing | default(context.state.missing) | default(1) }}", "1"),
            ("{{ (context.state.missing > 1) | default(false) }}", "False"),
        ],
    )
    def test_a_filter_works_on_all_that_stands_before_it(self, template: str, written: str) -> None:
        assert text(template) == written

    @pytest.mark.parametrize(
        ("template", "told"),
        [
            ("{{ 'a' | percent }}", "a text is no number (in 'a' | percent)"),
            ("{{ context.state.none | round }}", "none is no number (in context.state.none | round)"),
            ("{{ 1 | percent(-1) }}", "digits are a whole number from 0 to 15 (in 1 | percent(-1))"),
            ("{{ 1 | round(16) }}", "digits are a whole number from -15 to 15 (in 1 | round(16))"),
            ("{{ 1 | round(true) }}", "digits are a whole number from -15 to 15 (in 1 | round(true))"),
            (
                "{{ context.state.gone | default(context.state.lost) }}",
                "context.state has no field 'lost' (in context.state.lost)",
            ),
        ],
    )
    def test_one_that_cannot_work_tells_why(self, template: str, told: str) -> None:
        assert reason(template) == told

    @pytest.mark.parametrize(
        ("template", "told"),
        [
            ("{{ 1 | rond }}", "column 8: found 'rond'; expected the filter round"),
            ("{{ 1 | upper }}", "column 8: found 'upper'; expected the filter default or percent or round"),
            ("{{ 1 | len }}", "column 8: found 'len'; expected the filter default or percent or round"),
            ("{{ 1 | 2 }}", "column 8: found '2'; expected a filter: default, percent, round"),
            ("{{ 1 | round(1, 2) }}", "column 8: found 'round(1, 2)'; expected 0 to 1 argument"),
            ("{{ 1 | default }}", "column 8: found 'default'; expected 1 argument"),
            ("{{ 1 | default(other=1) }}", "column 22: found '1'; expected an argument without other="),
            ("{{ 1 | round(x) }}", "column 14: found 'x'; expected abs or all"),
            ("{{ [1 | round] }}", "column 5: found '1 | round'; expected an expression without |"),
            ("{{ percent(1) }}", "column 4: found 'percent'; expected abs or all"),
        ],
    )
    def test_one_that_is_written_wrong_is_told_with_its_column(self, template: str, told: str) -> None:
        assert problems(template)[0].startswith(f"template, {told}")


def test_a_missing_field_is_told_and_not_written() -> None:
    assert (
        reason("Used {{ context.budget.turns.used }}.")
        == "context has no field 'budget' (in context.budget.turns.used)"
    )
    with pytest.raises(RuleError, match="has no field 'gone'"):
        value("{{ context.state.gone }}")


def test_all_mistakes_are_told_together_each_with_its_place() -> None:
    assert problems("A {{ contxt.x }}\nB {{ 1 + }} {{ context.turn.iteration_cont }}\n{{ ~1 }} {{ 'c") == [
        "template, line 1, column 6: found 'contxt'; expected context",
        "template, line 2, column 10: found '1 +'; expected an expression in Python's syntax: invalid syntax",
        "template, line 2, column 16: found 'context.turn.iteration_cont'; expected context.turn.iteration_count",
        "template, line 3, column 4: found '~1'; expected an expression without ~",
        'template, line 3, column 10: found "{{ \'c"; expected }} within 2,000 characters',
    ]


def test_the_place_is_named_as_the_caller_names_it() -> None:
    with pytest.raises(Mistakes, match=r"^action\.message, column 8: found 'é'; expected"):
        Template("ü… {{  é }}", WORDS, "action.message")


@pytest.mark.parametrize("template", ["{{", "{{ 1", "{{ 1 }", "{{ '}}'", "a {{ " + "1" * 2_001 + "}}"])
def test_braces_that_stay_open_are_a_mistake(template: str) -> None:
    [told] = problems(template)
    assert told.endswith("expected }} within 2,000 characters")


@pytest.mark.parametrize("template", ["{{}}", "{{ }}", "{{ 1, 2 }}", "{{ 1) + (2 }}"])
def test_what_is_not_one_expression_is_a_mistake(template: str) -> None:
    [told] = problems(template)
    assert told.endswith("expected one expression")


class TestLength:
    def test_a_long_template_is_refused(self) -> None:
        assert text("a" * MOST_WRITTEN) == "a" * MOST_WRITTEN
        [told] = problems("a" * (MOST_WRITTEN + 1))
        assert told.endswith(f"expected at most {MOST_WRITTEN:,} characters")

    def test_what_grows_too_long_is_told(self) -> None:
        assert text("{{ 'abcd' }}{{ 'abcdef' }}", most=10) == "abcdabcdef"
        assert reason("{{ 'abcd' }}.{{ 'abcdef' }}", most=10) == "the text has more than 10 characters"
        assert reason("{{ 'abcdefghijk' }}", most=10) == "a text of more than 10 characters"
        assert reason("{{ [context.state.text] }}", most=6) == "a text of more than 6 characters"
        assert text("{{ [context.state.text] }}", most=7) == "['abc']"

    def test_a_whole_value_has_the_same_bound(self) -> None:
        for template in ("{{ 'abcdefghijk' }}", "{{ ['abcde', 'fghij'] }}"):
            with pytest.raises(RuleError, match="more than 10 characters and items"):
                value(template, most=10)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^action\.message: found 3; expected a str$"):
        Template(3, WORDS, "action.message")  # pyright: ignore[reportArgumentType]
