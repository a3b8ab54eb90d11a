"""How tool rules may be written, and what is said of those that are wrong."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.errors import ConfigError, SettingError, TomlError
from flyball.toolrule import BlockUntilTool, LimitedTools, RequirePriorTool, ToolRules

LIMIT = {"limited_tools": ["search"], "max_calls": 3, "then_require_one_of": ["note"]}
PRIOR = {"tool": "publish", "require_prior_tool": "review"}
BLOCK = {"block_until_tool": "login", "tools": ["read"]}
KINDS = "max_calls with then_require_one_of, or require_prior_tool with tool, or block_until_tool"
NAMES = "a list of one or more names of tools"
TEXT = "a text that is not empty"
WAITS = "rules that can be satisfied together: each of these tools waits for the next"


class Verdict(StrEnum):
    OK = "ok"


def problem(source: object) -> str:
    with pytest.raises(ConfigError) as caught:
        ToolRules.of(source)
    return str(caught.value)


class TestSources:
    written: tuple[Mapping[str, Any], ...] = (
        {**LIMIT, "after_tool": "search", "name": "searches"},
        {**PRIOR, "with_parameters": {"verdict": "ok", "by": {"name": "ann"}}},
        {**BLOCK, "message": "Log in."},
    )
    rules = ToolRules(
        (
            LimitedTools(
                after_tool="search",
                limited_tools=("search",),
                max_calls=3,
                then_require_one_of=("note",),
                name="searches",
            ),
            RequirePriorTool(
                tool="publish",
                require_prior_tool="review",
                with_parameters={"verdict": "ok", "by": {"name": "ann"}},
            ),
            BlockUntilTool(block_until_tool="login", tools=("read",), message="Log in."),
        )
    )

    def test_rules_are_read_from_mappings_and_from_rules(self) -> None:
        assert ToolRules.of(list(self.written)) == self.rules
        assert ToolRules.of(self.written) == self.rules
        assert ToolRules.of({"tool_rules": list(self.written)}) == self.rules
        assert ToolRules.of([*self.rules][:1] + list(self.written)[1:]) == self.rules

    def test_rules_are_read_from_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "agent.toml"
        path.write_text(
            """
            max_turns = 4
            [[tool_rules]]
            name = "searches"
            after_tool = "search"
            limited_tools = ["search"]
            max_calls = 3
            then_require_one_of = ["note"]
            [[tool_rules]]
            tool = "publish"
            require_prior_tool = "review"
            with_parameters = { verdict = "ok", by.name = "ann" }
            [[tool_rules]]
            block_until_tool = "login"
            tools = ["read"]
            message = "Log in."
            """
        )
        assert ToolRules.of(path) == ToolRules.of(str(path)) == self.rules

    def test_no_rules_are_rules_too(self) -> None:
        assert len(ToolRules.of([])) == len(ToolRules.of({"tool_rules": []})) == 0

    def test_what_is_left_out_is_filled_in(self) -> None:
        [rule] = ToolRules.of([{"after_tool": "search", "max_calls": 1, "then_require_one_of": ["note"]}])
        assert isinstance(rule, LimitedTools)
        assert rule.limited_tools == ("search",)

    def test_a_rule_does_not_change_with_what_it_was_made_of(self) -> None:
        parameters: dict[str, Any] = {"tags": ["x"], "verdict": Verdict.OK}
        tools = ["read"]
        rules = ToolRules.of([{**PRIOR, "with_parameters": parameters}, {**BLOCK, "tools": tools}])
        parameters["tags"].append("y")
        tools.append("write")
        assert rules == ToolRules.of([{**PRIOR, "with_parameters": {"tags": ["x"], "verdict": "ok"}}, BLOCK])


MALFORMED: list[tuple[object, str]] = [
    (None, "tool_rules: found None; expected a list of rules"),
    (7, "tool_rules: found 7; expected a list of rules"),
    ({}, "tool_rules: found None; expected a list of rules"),
    ({"tool_rules": BLOCK}, f"tool_rules: found {BLOCK!r}; expected a list of rules"),
    ({"tool_rule": []}, "tool_rules: found 'tool_rule'; expected the key tool_rules, and no other"),
    ({"tool_rules": [], "more": 1}, "tool_rules: found 'more'; expected the key tool_rules, and no other"),
    (BLOCK, "tool_rules: found 'block_until_tool'; expected the key tool_rules, and no other"),
    (["login"], f"tool_rules[0]: found 'login'; expected a rule with {KINDS}"),
    ([BLOCK, {}], f"tool_rules[1]: found {{}}; expected a rule with {KINDS}"),
    ([{"name": "x"}], f"tool_rules[0]: found ['name']; expected the keys of one kind of rule: {KINDS}"),
    ([{"tool": "x"}], f"tool_rules[0]: found ['tool']; expected the keys of one kind of rule: {KINDS}"),
    (
        [{"block_until_tool": "a", "require_prior_tool": "b"}],
        "tool_rules[0]: found ['block_until_tool', 'require_prior_tool']; "
        f"expected the keys of one kind of rule: {KINDS}",
    ),
    ([{**LIMIT, "max_cals": 3}], "tool_rules[0].max_cals: found 'max_cals'; expected the key max_calls"),
    (
        [{"block_untill_tool": "a"}],
        "tool_rules[0].block_untill_tool: found 'block_untill_tool'; expected the key block_until_tool",
    ),
    ([{**BLOCK, "tool": "x"}], "tool_rules[0].tool: found 'tool'; expected the key tools"),
    (
        [{**BLOCK, "zzz": 1}],
        "tool_rules[0].zzz: found 'zzz'; expected the key block_until_tool or message or name or tools",
    ),
    ([{**BLOCK, 7: 1}], "tool_rules[0].7: found 7; expected the key block_until_tool or message or name or tools"),
    ([{**BLOCK, "tools": None}], "tool_rules[0].tools: found None; expected a value, or no such key"),
    ([{**BLOCK, "name": ""}], f"tool_rules[0].name: found ''; expected {TEXT}"),
    ([{**BLOCK, "message": 3}], f"tool_rules[0].message: found 3; expected {TEXT}"),
    # so many calls
    (
        [{"limited_tools": ["a"]}],
        "tool_rules[0]: found ['limited_tools']; expected the key max_calls and then_require_one_of as well",
    ),
    (
        [{"max_calls": 1, "then_require_one_of": ["a"]}],
        "tool_rules[0].limited_tools: found None; expected a list of tools, as there is no after_tool either",
    ),
    ([{**LIMIT, "max_calls": -1}], "tool_rules[0].max_calls: found -1; expected an int of at least 1"),
    (
        [{**LIMIT, "max_calls": 0}],
        "tool_rules[0].max_calls: found 0; expected an int of at least 1",
    ),
    ([{**LIMIT, "max_calls": True}], "tool_rules[0].max_calls: found True; expected an int of at least 1"),
    ([{**LIMIT, "max_calls": 1.0}], "tool_rules[0].max_calls: found 1.0; expected an int of at least 1"),
    ([{**LIMIT, "max_calls": "3"}], "tool_rules[0].max_calls: found '3'; expected an int of at least 1"),
    ([{**LIMIT, "after_tool": ["a"]}], f"tool_rules[0].after_tool: found ['a']; expected {TEXT}"),
    ([{**LIMIT, "limited_tools": []}], f"tool_rules[0].limited_tools: found []; expected {NAMES}"),
    ([{**LIMIT, "limited_tools": "search"}], f"tool_rules[0].limited_tools: found 'search'; expected {NAMES}"),
    ([{**LIMIT, "limited_tools": ["a", " "]}], f"tool_rules[0].limited_tools[1]: found ' '; expected {TEXT}"),
    ([{**LIMIT, "then_require_one_of": []}], f"tool_rules[0].then_require_one_of: found []; expected {NAMES}"),
    ([{**LIMIT, "then_require_one_of": [1]}], f"tool_rules[0].then_require_one_of[0]: found 1; expected {TEXT}"),
    (
        [BLOCK, {**LIMIT, "limited_tools": ["a", "b"], "then_require_one_of": ["b"]}],
        "tool_rules[1].then_require_one_of: found ['b']; expected a tool that is not limited itself, as nothing else "
        "could lift the limit",
    ),
    # this after that
    ([{"require_prior_tool": "a"}], "tool_rules[0]: found ['require_prior_tool']; expected the key tool as well"),
    ([{**PRIOR, "tool": 4}], f"tool_rules[0].tool: found 4; expected {TEXT}"),
    ([{**PRIOR, "require_prior_tool": ""}], f"tool_rules[0].require_prior_tool: found ''; expected {TEXT}"),
    (
        [{"tool": "a", "require_prior_tool": "a"}],
        "tool_rules[0].require_prior_tool: found 'a'; expected another tool, as none can come before itself",
    ),
    (
        [{**PRIOR, "with_parameters": {}}],
        "tool_rules[0].with_parameters: found {}; expected a table of one or more dotted paths and their values",
    ),
    (
        [{**PRIOR, "with_parameters": ["a"]}],
        "tool_rules[0].with_parameters: found ['a']; expected a table of one or more dotted paths and their values",
    ),
    (
        [{**PRIOR, "with_parameters": {"a..b": 1}}],
        "tool_rules[0].with_parameters: found 'a..b'; expected a dotted path: names with one dot between them",
    ),
    (
        [{**PRIOR, "with_parameters": {"a": [1, float("inf")]}}],
        "tool_rules[0].with_parameters.a[1]: found inf; expected a text, a finite number, true, false, none, or a list "
        "or table of these",
    ),
    (
        [{**PRIOR, "with_parameters": {"a": {2: 1}}}],
        "tool_rules[0].with_parameters.a: found 2; expected a key that is a text",
    ),
    # blocked until
    ([{**BLOCK, "block_until_tool": 1}], f"tool_rules[0].block_until_tool: found 1; expected {TEXT}"),
    ([{**BLOCK, "tools": []}], f"tool_rules[0].tools: found []; expected {NAMES}"),
    ([{**BLOCK, "tools": {"a": 1}}], f"tool_rules[0].tools: found {{'a': 1}}; expected {NAMES}"),
    (
        [{"block_until_tool": "a", "tools": ["b", "a"]}],
        "tool_rules[0].tools[1]: found 'a'; expected another tool, as none can wait for itself",
    ),
    # together
    (
        [{"block_until_tool": "a"}, {"block_until_tool": "b"}],
        f"tool_rules: found ['a', 'b', 'a']; expected {WAITS}",
    ),
    (
        [{"tool": "a", "require_prior_tool": "b"}, {"block_until_tool": "a", "tools": ["c", "b"]}],
        f"tool_rules: found ['a', 'b', 'a']; expected {WAITS}",
    ),
    (
        [{"tool": tool, "require_prior_tool": prior} for tool, prior in ["ab", "bc", "ca", "da"]],
        f"tool_rules: found ['a', 'b', 'c', 'a']; expected {WAITS}",
    ),
]


@pytest.mark.parametrize(("source", "words"), MALFORMED, ids=[words[:60] for _, words in MALFORMED])
def test_a_mistake_is_told_with_its_place_and_what_would_be_right(source: object, words: str) -> None:
    assert problem(source) == words


def test_a_mistake_in_python_names_the_key() -> None:
    with pytest.raises(ConfigError, match=r"^tool_rule\.max_calls: found -1; expected an int of at least 1$"):
        LimitedTools(limited_tools=["a"], max_calls=-1, then_require_one_of=["b"])
    with pytest.raises(ConfigError, match=r"^tool_rules\[0\]: found 'login'; expected a tool rule$"):
        ToolRules(("login",))  # pyright: ignore[reportArgumentType]


class TestFiles:
    def problem(self, path: Path, text: str) -> str:
        path.write_text(text)
        with pytest.raises(SettingError) as caught:
            ToolRules.of(path)
        return str(caught.value)

    def test_a_mistake_in_a_file_is_told_with_its_line(self, tmp_path: Path) -> None:
        path = tmp_path / "x.toml"
        text = '[[tool_rules]]\nblock_until_tool = "login"\n\n[[tool_rules]]\nmax_cals = 3\nlimited_tools = ["a"]\n'
        words = f"tool_rules[1].max_cals ({path}:5): found 'max_cals'; expected the key max_calls"
        assert self.problem(path, text) == words
        text = '[[tool_rules]]\nblock_until_tool = "a"\ntools = [\n"b",\n"a"]\n'
        words = f"tool_rules[0].tools[1] ({path}:3): found 'a'; expected another tool, as none can wait for itself"
        assert self.problem(path, text) == words
        text = 'max_turns = 1\n[[tool_rules]]\nlimited_tools = ["a"]\n'
        words = f"tool_rules[0] ({path}:2): found ['limited_tools']; expected the key max_calls and "
        assert self.problem(path, text) == f"{words}then_require_one_of as well"

    def test_rules_that_wait_for_each_other_are_told_too(self, tmp_path: Path) -> None:
        path = tmp_path / "x.toml"
        text = '[[tool_rules]]\nblock_until_tool = "a"\n[[tool_rules]]\nblock_until_tool = "b"\n'
        assert self.problem(path, text) == f"tool_rules ({path}:1): found ['a', 'b', 'a']; expected {WAITS}"

    def test_a_misspelt_table_is_not_passed_over(self, tmp_path: Path) -> None:
        path = tmp_path / "x.toml"
        text = '[[tool_rules]]\nblock_until_tool = "a"\n[[tool_rule]]\nblock_until_tool = "b"\n'
        assert self.problem(path, text) == f"tool_rule ({path}:3): found 'tool_rule'; expected the key tool_rules"

    def test_a_file_without_rules_is_a_mistake(self, tmp_path: Path) -> None:
        path = tmp_path / "x.toml"
        words = f"tool_rules ({path}): found ['max_turns']; expected one or more tables [[tool_rules]]"
        assert self.problem(path, "max_turns = 3\n") == words
        text = '[tool_rules]\nblock_until_tool = "a"\n'
        words = f"tool_rules ({path}:1): found {{'block_until_tool': 'a'}}; expected a list of rules"
        assert self.problem(path, text) == words

    def test_a_file_that_cannot_be_read_is_one_too(self, tmp_path: Path) -> None:
        with pytest.raises(TomlError, match="No such file"):
            ToolRules.of(tmp_path / "none.toml")


class TestOffered:
    rules = ToolRules.of([BLOCK, {**LIMIT, "after_tool": "find"}, PRIOR])
    tools = frozenset({"login", "read", "search", "find", "note", "publish", "review"})

    def test_all_tools_that_rules_name_must_be_offered(self) -> None:
        self.rules.check_offered(self.tools)
        self.rules.check_offered([*self.tools, "more"])

    @pytest.mark.parametrize(
        ("tool", "place"),
        [
            ("login", "[0].block_until_tool"),
            ("read", "[0].tools[0]"),
            ("find", "[1].after_tool"),
            ("search", "[1].limited_tools[0]"),
            ("note", "[1].then_require_one_of[0]"),
            ("publish", "[2].tool"),
            ("review", "[2].require_prior_tool"),
        ],
    )
    def test_one_that_is_not_is_told_with_its_place(self, tool: str, place: str) -> None:
        with pytest.raises(ConfigError) as caught:
            self.rules.check_offered(self.tools - {tool} | {f"{tool}s"})
        assert str(caught.value) == f"tool_rules{place}: found {tool!r}; expected a tool that is offered: {tool}s"

    def test_where_none_is_near_all_are_told(self) -> None:
        with pytest.raises(ConfigError) as caught:
            self.rules.check_offered(["zip", "qux"])
        assert str(caught.value) == (
            "tool_rules[0].block_until_tool: found 'login'; expected a tool that is offered: qux or zip"
        )
        with pytest.raises(ConfigError, match="a tool that is offered: none at all"):
            self.rules.check_offered([])


keys = st.sampled_from([*LIMIT, "after_tool", *PRIOR, "with_parameters", *BLOCK, "name", "message", "other"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def read(source: object) -> ToolRules | ConfigError:
    try:
        return ToolRules.of(source)
    except ConfigError as error:
        return error


@given(
    st.lists(st.dictionaries(keys, values, max_size=6) | values, max_size=3)
    | values.filter(lambda value: not isinstance(value, str))
)
def test_whatever_is_given_is_read_or_refused_with_its_place(source: object) -> None:
    answer = read(source)
    assert isinstance(answer, ToolRules) or (answer.where and answer.expected)
