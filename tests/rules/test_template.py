from collections.abc import Callable
from typing import Any

import pytest

from flyball.errors import ConfigError, ConfigErrors, RuleError
from flyball.rules.template import MAX_TEMPLATE_CHARACTERS, Template
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
    return Template(template, WORDS, **more).render(View(DATA))


def value(template: str, **more: Any) -> object:
    return Template(template, WORDS, **more).render_value(View(DATA))


def mistakes(template: str) -> tuple[ConfigError, ...]:
    with pytest.raises(ConfigErrors) as caught:
        Template(template, WORDS)
    return caught.value.errors


def failure(template: str, **more: Any) -> RuleError:
    with pytest.raises(RuleError) as caught:
        text(template, **more)
    return caught.value


def test_the_sentence_of_the_seed_is_written() -> None:
    template = (
        "Iteration {{ context.turn.iteration_count }} of 10. Consider completing current task or breaking it down."
    )
    assert text(template) == "Iteration 8 of 10. Consider completing current task or breaking it down."


@pytest.mark.parametrize(
    "untouched", ["", "plain", "a } b { c }} d", "{x} {0.__class__} %s $HOME $(id) `id` { % } { # }", "\ud800\0"]
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
        ("template", "words", "fact"),
        [
            ("{{ 'a' | percent }}", "'a' | percent", ""),
            ("{{ context.state.none | round }}", "context.state.none | round", "none"),
            ("{{ 1 | percent(-1) }}", "1 | percent(-1)", "15"),
            ("{{ 1 | round(16) }}", "1 | round(16)", "-15"),
            ("{{ 1 | round(true) }}", "1 | round(true)", "-15"),
            ("{{ context.state.gone | default(context.state.lost) }}", "context.state.lost", "'lost'"),
        ],
    )
    def test_a_filter_that_cannot_work_names_its_words_and_why(self, template: str, words: str, fact: str) -> None:
        told = failure(template)
        assert (told.code, told.words) == ("rule_failed", words)
        assert fact in told.reason

    @pytest.mark.parametrize(
        ("template", "place", "found", "right"),
        [
            ("{{ 1 | rond }}", "column 8", "rond", "round"),
            ("{{ 1 | title }}", "column 8", "title", "percent"),
            ("{{ 1 | len }}", "column 8", "len", "percent"),
            ("{{ 1 | 2 }}", "column 8", "2", "percent"),
            ("{{ 1 | round(1, 2) }}", "column 8", "round(1, 2)", "1"),
            ("{{ 1 | default }}", "column 8", "default", "1"),
            ("{{ 1 | default(other=1) }}", "column 22", "1", "other="),
            ("{{ 1 | round(x) }}", "column 14", "x", "abs"),
            ("{{ [1 | round] }}", "column 5", "1 | round", "|"),
            ("{{ percent(1) }}", "column 4", "percent", "abs"),
        ],
    )
    def test_a_filter_that_is_written_wrong_is_named_with_its_column(
        self, template: str, place: str, found: str, right: str
    ) -> None:
        first = mistakes(template)[0]
        assert (first.where, first.found) == (f"template, {place}", found)
        assert right in first.expected


def test_a_missing_field_is_an_error_and_not_written_into_the_text() -> None:
    told = failure("Used {{ context.budget.turns.used }}.")
    assert told.words == "context.budget.turns.used"
    assert "'budget'" in told.reason
    with pytest.raises(RuleError, match="'gone'"):
        value("{{ context.state.gone }}")


def test_all_mistakes_of_a_template_are_told_together_each_with_its_place(snapshot: Callable[..., None]) -> None:
    told = mistakes("A {{ contxt.x }}\nB {{ 1 + }} {{ context.turn.iteration_cont }}\n{{ ~1 }} {{ 'c")
    assert [(one.where, one.found) for one in told] == [
        ("template, line 1, column 6", "contxt"),
        ("template, line 2, column 10", "1 +"),
        ("template, line 2, column 16", "context.turn.iteration_cont"),
        ("template, line 3, column 4", "~1"),
        ("template, line 3, column 10", "{{ 'c"),
    ]
    snapshot("\n".join(map(str, told)))


def test_texts_of_errors_in_templates_are_as_stored(snapshot: Callable[..., None]) -> None:
    wrong = ["{{ 1 | rond }}", "{{ 1 | title }}", "{{ 1 | 2 }}", "{{ 1 | default }}", "{{ 1", "{{ }}"]
    snapshot("\n".join(str(mistakes(template)[0]) for template in wrong), "mistakes")
    failing = ["{{ 'a' | percent }}", "{{ 1 | round(16) }}", "{{ context.state.lost }}"]
    snapshot("\n".join(str(failure(template)) for template in failing), "failures")


def test_a_mistake_in_a_template_is_placed_where_the_caller_says() -> None:
    with pytest.raises(ConfigErrors) as caught:
        Template("ü… {{  é }}", WORDS, "action.message")
    assert (caught.value.where, caught.value.found) == ("action.message, column 8", "é")


@pytest.mark.parametrize(
    ("template", "written"),
    [
        ("{{ 85.7 | int }}", "85"),
        ("{{ '3.9' | int }}", "3"),
        ("{{ ' 12 ' | int }}", "12"),
        ("{{ 'many' | int }}", "0"),
        ("{{ none | int(7) }}", "7"),
        ("{{ true | int }}", "1"),
        ("{{ 1e400 | int(5) }}", "5"),
        ("{{ 'four' | length }}", "4"),
        ("{{ context.state.list | length }}", "2"),
        ("{{ context.state.table | length }}", "1"),
        ("{{ 'Straße' | upper }}", "STRASSE"),
        ("{{ 'ABC' | lower | length }}", "3"),
        ("{{ (0.835 * 100) | round | int }}%", "84%"),
    ],
)
def test_filters_of_vlt_bridge_write_what_jinja_does(template: str, written: str) -> None:
    assert text(template) == written


@pytest.mark.parametrize(
    "template",
    ["{{ [1] | int }}", "{{ 5 | length }}", "{{ none | upper }}", "{{ [] | lower }}", "{{ '9' * 1 | int }}",
     "{{ '" + "9" * 200 + "' | int(x) }}"],
)  # fmt: skip
def test_a_filter_of_a_value_of_another_type_is_an_error(template: str) -> None:
    with pytest.raises((RuleError, ConfigErrors)):
        text(template)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("context.state.get('list', 0)", [1, "a"]),
        ("context.state.get('lost', 3)", 3),
        ("context.state.get('lost')", None),
        ("context.state.has('list')", True),
        ("context.state.has('lost')", False),
        ("context.state.has(5)", False),
        ("context.state.table.get('a')[0]", 1),
        ("'list' in context.state.keys()", True),
    ],
)
def test_tables_have_the_methods_get_has_and_keys(expression: str, expected: object) -> None:
    assert value(f"{{{{ {expression} }}}}") == expected


@pytest.mark.parametrize(
    "expression",
    ["context.state.pop('x')", "context.state.get()", "context.state.get(1, 2, 3)", "context.state.get(k='x')",
     "context.turn.iteration_count.get('x')", "context.state.keys(1)", "context.state.__len__()"],
)  # fmt: skip
def test_any_other_method_or_argument_is_a_mistake(expression: str) -> None:
    assert mistakes(f"{{{{ {expression} }}}}")


def test_a_method_of_a_list_is_an_error() -> None:
    assert "has no keys" in failure("{{ context.state.list.get(0) }}").reason


@pytest.mark.parametrize("tag", ["{% if x %}", "{%- endif %}", "{# note #}", "{%", "{% '{{ 1 }}'"])
def test_a_statement_or_comment_of_jinja_is_a_mistake(tag: str) -> None:
    first = mistakes(f"ab {tag}")[0]
    assert (first.where, str(first.found)[:2]) == ("template, column 4", tag[:2])
    assert text("{{ '{%' }}") == "{%"


@pytest.mark.parametrize("template", ["{{", "{{ 1", "{{ 1 }", "{{ '}}'", "a {{ " + "1" * 2_001 + "}}"])
def test_braces_that_stay_open_are_a_mistake(template: str) -> None:
    [told] = mistakes(template)
    assert "}}" in told.expected


@pytest.mark.parametrize("template", ["{{}}", "{{ }}", "{{ 1, 2 }}", "{{ 1) + (2 }}"])
def test_braces_without_exactly_one_expression_are_a_mistake(template: str) -> None:
    [told] = mistakes(template)
    assert told.where == "template, column 3"
    assert told.found == template[2:-2].strip()


class TestLength:
    def test_a_long_template_is_refused(self) -> None:
        assert text("a" * MAX_TEMPLATE_CHARACTERS) == "a" * MAX_TEMPLATE_CHARACTERS
        [told] = mistakes("a" * (MAX_TEMPLATE_CHARACTERS + 1))
        assert f"{MAX_TEMPLATE_CHARACTERS:,}" in told.expected

    def test_a_text_that_grows_beyond_the_most_is_an_error(self) -> None:
        assert text("{{ 'abcd' }}{{ 'abcdef' }}", max_characters=10) == "abcdabcdef"
        assert "10" in failure("{{ 'abcd' }}.{{ 'abcdef' }}", max_characters=10).reason
        assert "10" in failure("{{ 'abcdefghijk' }}", max_characters=10).reason
        assert "6" in failure("{{ [context.state.text] }}", max_characters=6).reason
        assert text("{{ [context.state.text] }}", max_characters=7) == "['abc']"

    def test_a_whole_value_has_the_same_bound(self) -> None:
        for template in ("{{ 'abcdefghijk' }}", "{{ ['abcde', 'fghij'] }}"):
            with pytest.raises(RuleError, match="10"):
                value(template, max_characters=10)


def test_a_template_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        Template(3, WORDS, "action.message")  # pyright: ignore[reportArgumentType]
    assert (caught.value.where, caught.value.found) == ("action.message", 3)
