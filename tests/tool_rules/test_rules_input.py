"""How tool rules may be written, and what is said of those that are wrong."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.errors import ConfigError, SettingError, TomlError
from flyball.tool_rules import BlockUntilTool, LimitedTools, RequirePriorTool, ToolRules

LIMIT = {"limited_tools": ["search"], "max_calls": 3, "then_require_one_of": ["note"]}
PRIOR = {"tool": "publish", "require_prior_tool": "review"}
BLOCK = {"block_until_tool": "login", "tools": ["read"]}


class Verdict(StrEnum):
    OK = "ok"


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


MALFORMED: list[tuple[object, str, object]] = [
    (None, "tool_rules", None),
    (7, "tool_rules", 7),
    ({}, "tool_rules", None),
    ({"tool_rules": BLOCK}, "tool_rules", BLOCK),
    ({"tool_rule": []}, "tool_rules", "tool_rule"),
    ({"tool_rules": [], "more": 1}, "tool_rules", "more"),
    (BLOCK, "tool_rules", "block_until_tool"),
    (["login"], "tool_rules[0]", "login"),
    ([BLOCK, {}], "tool_rules[1]", {}),
    ([{"name": "x"}], "tool_rules[0]", ["name"]),
    ([{"tool": "x"}], "tool_rules[0]", ["tool"]),
    (
        [{"block_until_tool": "a", "require_prior_tool": "b"}],
        "tool_rules[0]",
        ["block_until_tool", "require_prior_tool"],
    ),
    ([{**LIMIT, "max_cals": 3}], "tool_rules[0].max_cals", "max_cals"),
    ([{"block_untill_tool": "a"}], "tool_rules[0].block_untill_tool", "block_untill_tool"),
    ([{**BLOCK, "tool": "x"}], "tool_rules[0].tool", "tool"),
    ([{**BLOCK, "zzz": 1}], "tool_rules[0].zzz", "zzz"),
    ([{**BLOCK, 7: 1}], "tool_rules[0].7", 7),
    ([{**BLOCK, "tools": None}], "tool_rules[0].tools", None),
    ([{**BLOCK, "name": ""}], "tool_rules[0].name", ""),
    ([{**BLOCK, "message": 3}], "tool_rules[0].message", 3),
    ([{"limited_tools": ["a"]}], "tool_rules[0]", ["limited_tools"]),
    ([{"max_calls": 1, "then_require_one_of": ["a"]}], "tool_rules[0].limited_tools", None),
    ([{**LIMIT, "max_calls": -1}], "tool_rules[0].max_calls", -1),
    ([{**LIMIT, "max_calls": 0}], "tool_rules[0].max_calls", 0),
    ([{**LIMIT, "max_calls": True}], "tool_rules[0].max_calls", True),
    ([{**LIMIT, "max_calls": 1.0}], "tool_rules[0].max_calls", 1.0),
    ([{**LIMIT, "max_calls": "3"}], "tool_rules[0].max_calls", "3"),
    ([{**LIMIT, "after_tool": ["a"]}], "tool_rules[0].after_tool", ["a"]),
    ([{**LIMIT, "limited_tools": []}], "tool_rules[0].limited_tools", []),
    ([{**LIMIT, "limited_tools": "search"}], "tool_rules[0].limited_tools", "search"),
    ([{**LIMIT, "limited_tools": ["a", " "]}], "tool_rules[0].limited_tools[1]", " "),
    ([{**LIMIT, "then_require_one_of": []}], "tool_rules[0].then_require_one_of", []),
    ([{**LIMIT, "then_require_one_of": [1]}], "tool_rules[0].then_require_one_of[0]", 1),
    (
        [BLOCK, {**LIMIT, "limited_tools": ["a", "b"], "then_require_one_of": ["b"]}],
        "tool_rules[1].then_require_one_of",
        ["b"],
    ),
    ([{"require_prior_tool": "a"}], "tool_rules[0]", ["require_prior_tool"]),
    ([{**PRIOR, "tool": 4}], "tool_rules[0].tool", 4),
    ([{**PRIOR, "require_prior_tool": ""}], "tool_rules[0].require_prior_tool", ""),
    ([{"tool": "a", "require_prior_tool": "a"}], "tool_rules[0].require_prior_tool", "a"),
    ([{**PRIOR, "with_parameters": {}}], "tool_rules[0].with_parameters", {}),
    ([{**PRIOR, "with_parameters": ["a"]}], "tool_rules[0].with_parameters", ["a"]),
    ([{**PRIOR, "with_parameters": {"a..b": 1}}], "tool_rules[0].with_parameters", "a..b"),
    ([{**PRIOR, "with_parameters": {"a": [1, float("inf")]}}], "tool_rules[0].with_parameters.a[1]", float("inf")),
    ([{**PRIOR, "with_parameters": {"a": {2: 1}}}], "tool_rules[0].with_parameters.a", 2),
    ([{**BLOCK, "block_until_tool": 1}], "tool_rules[0].block_until_tool", 1),
    ([{**BLOCK, "tools": []}], "tool_rules[0].tools", []),
    ([{**BLOCK, "tools": {"a": 1}}], "tool_rules[0].tools", {"a": 1}),
    ([{"block_until_tool": "a", "tools": ["b", "a"]}], "tool_rules[0].tools[1]", "a"),
    ([{"block_until_tool": "a"}, {"block_until_tool": "b"}], "tool_rules", ["a", "b", "a"]),
    (
        [{"tool": "a", "require_prior_tool": "b"}, {"block_until_tool": "a", "tools": ["c", "b"]}],
        "tool_rules",
        ["a", "b", "a"],
    ),
    (
        [{"tool": tool, "require_prior_tool": prior} for tool, prior in ["ab", "bc", "ca", "da"]],
        "tool_rules",
        ["a", "b", "c", "a"],
    ),
]


@pytest.mark.parametrize(("source", "where", "found"), MALFORMED, ids=range(len(MALFORMED)))
def test_a_malformed_rule_is_refused_with_its_place_and_value(source: object, where: str, found: object) -> None:
    with pytest.raises(ConfigError) as caught:
        ToolRules.of(source)
    assert caught.value.code == "config_invalid"
    assert (caught.value.where, repr(caught.value.found)) == (where, repr(found))


HINTS: list[tuple[object, list[str]]] = [
    ({"tool_rule": []}, ["tool_rules"]),
    ([{}], ["max_calls", "then_require_one_of", "require_prior_tool", "block_until_tool"]),
    ([{"name": "x"}], ["max_calls", "then_require_one_of", "require_prior_tool", "block_until_tool"]),
    ([{**LIMIT, "max_cals": 3}], ["max_calls"]),
    ([{"block_untill_tool": "a"}], ["block_until_tool"]),
    ([{**BLOCK, "tool": "x"}], ["tools"]),
    ([{**BLOCK, "zzz": 1}], ["block_until_tool", "message", "name", "tools"]),
    ([{"limited_tools": ["a"]}], ["max_calls", "then_require_one_of"]),
    ([{"max_calls": 1, "then_require_one_of": ["a"]}], ["after_tool"]),
    ([{"require_prior_tool": "a"}], ["tool"]),
    ([{**LIMIT, "max_calls": 0}], ["1"]),
]


@pytest.mark.parametrize(("source", "hints"), HINTS)
def test_a_malformed_rule_is_answered_with_the_keys_that_would_be_right(source: object, hints: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        ToolRules.of(source)
    assert [hint for hint in hints if hint not in caught.value.expected] == []


def test_a_malformed_rule_made_in_python_is_refused_with_its_key() -> None:
    with pytest.raises(ConfigError) as caught:
        LimitedTools(limited_tools=["a"], max_calls=-1, then_require_one_of=["b"])
    assert (caught.value.where, caught.value.found) == ("tool_rule.max_calls", -1)
    with pytest.raises(ConfigError) as caught:
        ToolRules(("login",))  # pyright: ignore[reportArgumentType]
    assert (caught.value.where, caught.value.found) == ("tool_rules[0]", "login")


class TestFiles:
    @pytest.mark.parametrize(
        ("text", "where", "line", "found"),
        [
            (
                '[[tool_rules]]\nblock_until_tool = "login"\n\n[[tool_rules]]\nmax_cals = 3\nlimited_tools = ["a"]\n',
                "tool_rules[1].max_cals",
                ":5",
                "max_cals",
            ),
            ('[[tool_rules]]\nblock_until_tool = "a"\ntools = [\n"b",\n"a"]\n', "tool_rules[0].tools[1]", ":3", "a"),
            ('max_turns = 1\n[[tool_rules]]\nlimited_tools = ["a"]\n', "tool_rules[0]", ":2", ["limited_tools"]),
            (
                '[[tool_rules]]\nblock_until_tool = "a"\n[[tool_rules]]\nblock_until_tool = "b"\n',
                "tool_rules",
                ":1",
                ["a", "b", "a"],
            ),
            (
                '[[tool_rules]]\nblock_until_tool = "a"\n[[tool_rule]]\nblock_until_tool = "b"\n',
                "tool_rule",
                ":3",
                "tool_rule",
            ),
            ("max_turns = 3\n", "tool_rules", "", ["max_turns"]),
            ('[tool_rules]\nblock_until_tool = "a"\n', "tool_rules", ":1", {"block_until_tool": "a"}),
        ],
        ids=[
            "misspelt key",
            "waits for itself",
            "missing keys",
            "wait for each other",
            "misspelt",
            "no rules",
            "no list",
        ],
    )
    def test_a_mistake_in_a_file_of_rules_is_told_with_its_line(
        self, tmp_path: Path, snapshot: Callable[..., None], text: str, where: str, line: str, found: object
    ) -> None:
        path = tmp_path / "x.toml"
        path.write_text(text)
        with pytest.raises(SettingError) as caught:
            ToolRules.of(path)
        assert (caught.value.where, caught.value.source, caught.value.found) == (where, f"{path}{line}", found)
        snapshot(str(caught.value).replace(str(tmp_path), "FOLDER"))

    def test_a_file_of_rules_that_cannot_be_read_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(TomlError, match=r"none\.toml"):
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
    def test_a_tool_that_is_not_offered_is_refused_with_the_nearest(self, tool: str, place: str) -> None:
        with pytest.raises(ConfigError) as caught:
            self.rules.check_offered(self.tools - {tool} | {f"{tool}s"})
        assert (caught.value.where, caught.value.found) == (f"tool_rules{place}", tool)
        assert f"{tool}s" in caught.value.expected

    def test_where_no_offered_tool_is_near_all_are_told(self) -> None:
        with pytest.raises(ConfigError) as caught:
            self.rules.check_offered(["zip", "qux"])
        assert (caught.value.where, caught.value.found) == ("tool_rules[0].block_until_tool", "login")
        assert "qux" in caught.value.expected
        assert "zip" in caught.value.expected
        with pytest.raises(ConfigError) as caught:
            self.rules.check_offered([])
        assert (caught.value.where, caught.value.found) == ("tool_rules[0].block_until_tool", "login")


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
