"""How assertions are written down, and what is said of mistakes."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import fields
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from flyball.completion.assertions import Assertions, CompletionOption, ToolRequirement
from flyball.errors import ConfigError, ConfigErrors, SettingError, TomlError

ALL: dict[str, Any] = {
    "required_tool_names": ["a"],
    "required_engine_data_keys": ["report.url"],
    "minimum_successful_tool_counts": {"b": 2},
    "complete_when_any": [
        {
            "name": "one",
            "tools": [
                {
                    "name": "c",
                    "min_successful_calls": 3,
                    "required_parameters": {"action": "close", "deep.er": [1, {"x": None}]},
                    "required_output": ["url"],
                }
            ],
        }
    ],
    "forbidden_tool_names": ["d"],
    "messages": {"a": "Call a.", "report.url": "Set it.", "one": "Go one way."},
}
ALL_IN_TOML = """
required_tool_names = ["a"]
required_engine_data_keys = ["report.url"]
forbidden_tool_names = ["d"]
minimum_successful_tool_counts = { b = 2 }
messages = { a = "Call a.", "report.url" = "Set it.", one = "Go one way." }

[[complete_when_any]]
name = "one"
[[complete_when_any.tools]]
name = "c"
min_successful_calls = 3
required_parameters = { action = "close", "deep.er" = [1, {}] }
required_output = ["url"]
"""


def test_every_key_survives_the_way_out_and_in() -> None:
    asked = Assertions.of(ALL)
    assert asked.required() == ALL
    assert Assertions.of({"completion_assertions": asked.required()}) == asked
    assert Assertions.of(asked) is asked
    assert hash(Assertions.of(ALL)) == hash(asked)
    assert pickle.loads(pickle.dumps(asked)) == copy.deepcopy(asked) == asked


def test_what_was_given_or_handed_out_can_change_without_changing_the_assertions() -> None:
    source = copy.deepcopy(ALL)
    asked = Assertions.of(source)
    for table in (source, asked.required()):
        table["required_tool_names"].append("z")
        table["messages"]["a"] = "z"
        table["complete_when_any"][0]["tools"][0]["required_parameters"]["deep.er"][1]["x"] = 9
    assert asked.required() == ALL


@pytest.mark.parametrize("head", ["", "[completion_assertions]\n"])
def test_a_toml_file_has_the_same_keys_with_or_without_a_table_around(tmp_path: Path, head: str) -> None:
    text = ALL_IN_TOML.replace("[[", "[[completion_assertions.") if head else ALL_IN_TOML
    path = tmp_path / "done.toml"
    path.write_text(head + text)
    expected = copy.deepcopy(ALL)
    expected["complete_when_any"][0]["tools"][0]["required_parameters"]["deep.er"][1] = {}
    assert Assertions.of(path).required() == expected
    assert Assertions.of(str(path)) == Assertions.of(path)


def test_a_file_may_have_more_in_it_for_others(tmp_path: Path) -> None:
    path = tmp_path / "flyball.toml"
    path.write_text('max_turns = 3\n[completion_assertions]\nrequired_tool_names = ["a"]\n[delegation]\nx = 1\n')
    assert Assertions.of(path) == Assertions(required_tool_names=("a",))


def test_a_message_may_have_several_lines(tmp_path: Path) -> None:
    path = tmp_path / "done.toml"
    path.write_text('required_tool_names = ["a"]\n[messages]\na = """\nCall a.\nThen go on.\n"""\n')
    assert Assertions.of(path).messages == {"a": "Call a.\nThen go on.\n"}


class Tool(str, Enum):  # noqa: UP042
    A = "a"


def test_enums_and_dates_are_kept_as_json_has_them() -> None:
    proof = ToolRequirement(Tool.A, required_parameters={"kind": Tool.A, "day": date(2024, 5, 1), "all": (Tool.A,)})
    assert proof.required() == {"name": "a", "required_parameters": {"kind": "a", "day": "2024-05-01", "all": ["a"]}}
    assert type(proof.name) is str
    assert Assertions(required_tool_names=[Tool.A]).required() == {"required_tool_names": ["a"]}


C = "completion_assertions"


def ways(*tools: object, **more: object) -> dict[str, Any]:
    return {"complete_when_any": [{"name": "w", "tools": list(tools), **more}]}


T = f"{C}.complete_when_any[0].tools[0]"
MALFORMED: list[tuple[Any, str, object]] = [
    (3, C, 3),
    (None, C, None),
    (["a"], C, ["a"]),
    ({}, C, {}),
    ({C: {}}, C, {}),
    ({"required_tool_names": [], "complete_when_any": []}, C, {}),
    ({"hide_mechanics": True}, C, {"hide_mechanics": True}),
    ({"messages": {"a": "b"}}, C, {"messages": {"a": "b"}}),
    ({C: ["a"]}, C, ["a"]),
    ({C: None}, C, None),
    ({"completion_assertion": {}}, "completion_assertion", "completion_assertion"),
    ({C: {"required_tool_names": ["a"]}, "x": 1}, "x", "x"),
    ({"required_tools_names": ["a"]}, f"{C}.required_tools_names", "required_tools_names"),
    ({"zzz": 1}, f"{C}.zzz", "zzz"),
    ({3: 1}, C, 3),
    ({"a b": 1}, f"{C}['a b']", "a b"),
    ({"required_tool_names": "a"}, f"{C}.required_tool_names", "a"),
    ({"required_tool_names": None}, f"{C}.required_tool_names", None),
    ({"required_tool_names": {"a"}}, f"{C}.required_tool_names", {"a"}),
    ({"required_tool_names": ["a", 3]}, f"{C}.required_tool_names[1]", 3),
    ({"required_tool_names": [""]}, f"{C}.required_tool_names[0]", ""),
    ({"required_tool_names": [" a"]}, f"{C}.required_tool_names[0]", " a"),
    ({"required_tool_names": ["a", "b", "a"]}, f"{C}.required_tool_names[2]", "a"),
    ({"forbidden_tool_names": ["a", "a"]}, f"{C}.forbidden_tool_names[1]", "a"),
    ({"forbidden_tool_names": "a"}, f"{C}.forbidden_tool_names", "a"),
    ({"required_engine_data_keys": "a"}, f"{C}.required_engine_data_keys", "a"),
    ({"required_engine_data_keys": ["a..b"]}, f"{C}.required_engine_data_keys[0]", "a..b"),
    ({"required_engine_data_keys": [0]}, f"{C}.required_engine_data_keys[0]", 0),
    ({"required_engine_data_keys": ["a", "a"]}, f"{C}.required_engine_data_keys[1]", "a"),
    ({"minimum_successful_tool_counts": ["a"]}, f"{C}.minimum_successful_tool_counts", ["a"]),
    ({"minimum_successful_tool_counts": {"a": 0}}, f"{C}.minimum_successful_tool_counts.a", 0),
    ({"minimum_successful_tool_counts": {"a": True}}, f"{C}.minimum_successful_tool_counts.a", True),
    ({"minimum_successful_tool_counts": {"a": 1.0}}, f"{C}.minimum_successful_tool_counts.a", 1.0),
    ({"minimum_successful_tool_counts": {"": 1}}, f"{C}.minimum_successful_tool_counts['']", ""),
    ({"complete_when_any": {"name": "a"}}, f"{C}.complete_when_any", {"name": "a"}),
    (ways(), f"{C}.complete_when_any[0].tools", []),
    (ways({"name": "a"}, name=""), f"{C}.complete_when_any[0].name", ""),
    (ways({"name": "a"}, tool=1), f"{C}.complete_when_any[0].tool", "tool"),
    (
        {"complete_when_any": [{"name": n, "tools": [{"name": "a"}]} for n in "vww"]},
        f"{C}.complete_when_any[2].name",
        "w",
    ),
    (ways({"name": "a"}, {"name": "a"}), f"{C}.complete_when_any[0].tools[1]", {"name": "a"}),
    (ways({"min_successful_calls": 2}), f"{T}.name", None),
    (
        ways({"name": "b"}, {"name": "a", "min_succesful_calls": 2}),
        f"{C}.complete_when_any[0].tools[1].min_succesful_calls",
        "min_succesful_calls",
    ),
    (ways({"name": "a", "min_successful_calls": "2"}), f"{T}.min_successful_calls", "2"),
    (ways({"name": "a", "required_parameters": ["x"]}), f"{T}.required_parameters", ["x"]),
    (ways({"name": "a", "required_parameters": {"x.": 1}}), f"{T}.required_parameters['x.']", "x."),
    (ways({"name": "a", "required_parameters": {"x": float("nan")}}), f"{T}.required_parameters.x", float("nan")),
    (ways({"name": "a", "required_parameters": {"x": [1, {2}]}}), f"{T}.required_parameters.x[1]", {2}),
    (ways({"name": "a", "required_parameters": {"x": {1: 2}}}), f"{T}.required_parameters.x", 1),
    (ways({"name": "a", "required_output": "url"}), f"{T}.required_output", "url"),
    (ways({"name": "a", "required_output": [".url"]}), f"{T}.required_output[0]", ".url"),
    ({"required_tool_names": ["a"], "messages": "x"}, f"{C}.messages", "x"),
    ({"required_tool_names": ["a"], "messages": {"a": " "}}, f"{C}.messages.a", " "),
    ({"required_tool_names": ["create_pr"], "messages": {"creat_pr": "x"}}, f"{C}.messages.creat_pr", "creat_pr"),
    ({"required_tool_names": ["a", "b"], "messages": {"zzz": "x"}}, f"{C}.messages.zzz", "zzz"),
    ({"required_tool_names": ["a"], "messages": {"a": "x"}, "hide_mechanics": True}, f"{C}.messages", {"a": "x"}),
    ({"required_tool_names": ["a"], "hide_mechanics": 1}, f"{C}.hide_mechanics", 1),
    ({"required_tool_names": ["a"], "forbidden_tool_names": ["b", "a"]}, f"{C}.forbidden_tool_names[1]", "a"),
    ({"minimum_successful_tool_counts": {"a": 1}, "forbidden_tool_names": ["a"]}, f"{C}.forbidden_tool_names[0]", "a"),
    (ways({"name": "a"}) | {"forbidden_tool_names": ["a"]}, f"{C}.forbidden_tool_names", ["a"]),
]


def mistakes(error: ConfigError) -> list[tuple[str, str]]:
    return [(one.where, repr(one.found)) for one in (error.errors if isinstance(error, ConfigErrors) else (error,))]


@pytest.mark.parametrize(("source", "where", "found"), MALFORMED, ids=range(len(MALFORMED)))
def test_a_malformed_assertion_is_refused_with_its_place_and_value(source: Any, where: str, found: object) -> None:
    with pytest.raises(ConfigError) as caught:
        Assertions.of(source)
    assert caught.value.code == "config_invalid"
    assert mistakes(caught.value) == [(where, repr(found))]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (
            {"complete_when_any": ["a"]},
            [
                (".complete_when_any[0]", "a"),
                (".complete_when_any[0].name", None),
                (".complete_when_any[0].tools", None),
            ],
        ),
        (
            {"required_tool_names": "a", "hide_mechanics": 1, "x": 2},
            [(".x", "x"), (".required_tool_names", "a"), (".hide_mechanics", 1)],
        ),
    ],
)
def test_several_malformed_assertions_are_refused_together(source: Any, found: list[tuple[str, object]]) -> None:
    with pytest.raises(ConfigErrors) as caught:
        Assertions.of(source)
    assert caught.value.code == "config_mistakes"
    assert mistakes(caught.value) == [(C + place, repr(value)) for place, value in found]


@pytest.mark.parametrize(
    ("source", "hints"),
    [
        ({"completion_assertion": {}}, [C]),
        ({"required_tools_names": ["a"]}, ["required_tool_names"]),
        ({"zzz": 1}, [field.name for field in fields(Assertions)]),
        ({"required_tool_names": ["a", "a"]}, ["minimum_successful_tool_counts"]),
        (ways({"name": "a"}, tool=1), ["tools"]),
        (ways({"name": "a"}, {"name": "a"}), ["min_successful_calls"]),
        (ways({"name": "a", "min_succesful_calls": 2}), ["min_successful_calls"]),
        ({"required_tool_names": ["create_pr"], "messages": {"creat_pr": "x"}}, ["create_pr"]),
        ({"required_tool_names": ["a1", "b1"], "messages": {"zzz": "x"}}, ["a1", "b1"]),
        ({"required_tool_names": ["a"], "messages": {"a": "x"}, "hide_mechanics": True}, ["hide_mechanics"]),
        ({"required_tool_names": ["a"], "forbidden_tool_names": ["a"]}, ["required_tool_names"]),
        (
            {"minimum_successful_tool_counts": {"a": 1}, "forbidden_tool_names": ["a"]},
            ["minimum_successful_tool_counts"],
        ),
        (ways({"name": "a"}) | {"forbidden_tool_names": ["a"]}, ["complete_when_any"]),
        ({"minimum_successful_tool_counts": {"a": 0}}, ["1"]),
    ],
)
def test_a_malformed_assertion_is_answered_with_the_keys_that_would_be_right(source: Any, hints: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        Assertions.of(source)
    assert [hint for hint in hints if hint not in caught.value.expected] == []


MADE_IN_PYTHON: list[tuple[Callable[[], object], str, object]] = [
    (lambda: ToolRequirement(""), "proof.name", ""),
    (lambda: ToolRequirement("a", 0), "proof.min_successful_calls", 0),
    (lambda: ToolRequirement("a", required_output="url"), "proof.required_output", "url"),
    (lambda: ToolRequirement("a", required_parameters={"x": {1}}), "proof.required_parameters.x", {1}),
    (lambda: CompletionOption("", [ToolRequirement("a")]), "way.name", ""),
    (lambda: CompletionOption("w", []), "way.tools", []),
    (lambda: CompletionOption("w", ()), "way.tools", ()),
    (
        lambda: CompletionOption("w", [ToolRequirement("a"), ToolRequirement("a")]),
        "way.tools[1]",
        ToolRequirement(name="a", min_successful_calls=1, required_parameters={}, required_output=()),
    ),
    (lambda: Assertions(), C, {}),
    (lambda: Assertions(required_tool_names="a"), f"{C}.required_tool_names", "a"),
    (lambda: Assertions(required_tool_names=["a"], forbidden_tool_names=["a"]), f"{C}.forbidden_tool_names[0]", "a"),
    (
        lambda: Assertions(complete_when_any=[CompletionOption("w", [ToolRequirement("a")])] * 2),
        f"{C}.complete_when_any[1].name",
        "w",
    ),
]


@pytest.mark.parametrize(("make", "where", "found"), MADE_IN_PYTHON, ids=range(len(MADE_IN_PYTHON)))
def test_an_assertion_made_in_python_is_checked_as_well(make: Callable[[], object], where: str, found: object) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert mistakes(caught.value) == [(where, repr(found))]


def test_a_value_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ConfigError) as caught:
        ToolRequirement("a", required_parameters={"x": endless})
    assert caught.value.where.startswith("proof.required_parameters.x")


def test_a_mistake_in_a_file_is_told_with_its_line(tmp_path: Path, snapshot: Callable[..., None]) -> None:
    path = tmp_path / "done.toml"
    path.write_text(
        'max_turns = 1\nhide_mechanic = true\n[completion_assertions]\nrequired_tool_names = ["a"]\n'
        '[[completion_assertions.complete_when_any]]\nname = "w"\n'
        '[[completion_assertions.complete_when_any.tools]]\nname = "a"\n\nmin_succesful_calls = 2\n'
    )
    with pytest.raises(ConfigErrors) as caught:
        Assertions.of(path)
    assert [(type(one), one.where, getattr(one, "source", "")) for one in caught.value.errors] == [
        (SettingError, "hide_mechanic", f"{path}:2"),
        (SettingError, f"{T}.min_succesful_calls", f"{path}:10"),
    ]
    snapshot(str(caught.value).replace(str(tmp_path), "FOLDER"))


def test_a_file_at_whose_top_the_keys_stand_has_its_lines_too(tmp_path: Path) -> None:
    path = tmp_path / "done.toml"
    path.write_text('required_tool_names = ["a"]\nforbidden_tool_names = ["a"]\n')
    with pytest.raises(SettingError) as caught:
        Assertions.of(path)
    assert (caught.value.where, caught.value.source) == (f"{C}.forbidden_tool_names[0]", f"{path}:2")


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TomlError, match=r"none\.toml"):
        Assertions.of(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("a = \n")
    with pytest.raises(TomlError, match=r"broken\.toml:1"):
        Assertions.of(str(broken))
