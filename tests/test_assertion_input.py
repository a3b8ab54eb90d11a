"""How assertions are written down, and what is said of mistakes."""

import copy
import pickle
from collections.abc import Callable
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from flyball.assertion import Assertions
from flyball.errors import ConfigError, Mistakes, SettingError, TomlError
from flyball.proof import Proof, Way

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
    proof = Proof(Tool.A, required_parameters={"kind": Tool.A, "day": date(2024, 5, 1), "all": (Tool.A,)})
    assert proof.required() == {"name": "a", "required_parameters": {"kind": "a", "day": "2024-05-01", "all": ["a"]}}
    assert type(proof.name) is str
    assert Assertions(required_tool_names=[Tool.A]).required() == {"required_tool_names": ["a"]}


C = "completion_assertions"
KEYS = (
    "required_tool_names or required_engine_data_keys or minimum_successful_tool_counts or complete_when_any or "
    "forbidden_tool_names or messages or hide_mechanics"
)


def ways(*tools: object, **more: object) -> dict[str, Any]:
    return {"complete_when_any": [{"name": "w", "tools": list(tools), **more}]}


T = f"{C}.complete_when_any[0].tools[0]"
MALFORMED: list[tuple[Any, str]] = [
    (3, f"{C}: found 3; expected an Assertions, a mapping, or the path of a TOML file"),
    (None, f"{C}: found None; expected an Assertions, a mapping, or the path of a TOML file"),
    (["a"], f"{C}: found ['a']; expected an Assertions, a mapping, or the path of a TOML file"),
    ({}, f"{C}: found {{}}; expected at least one assertion"),
    ({C: {}}, f"{C}: found {{}}; expected at least one assertion"),
    ({"required_tool_names": [], "complete_when_any": []}, f"{C}: found {{}}; expected at least one assertion"),
    ({"hide_mechanics": True}, f"{C}: found {{'hide_mechanics': True}}; expected at least one assertion"),
    ({"messages": {"a": "b"}}, f"{C}: found {{'messages': {{'a': 'b'}}}}; expected at least one assertion"),
    ({C: ["a"]}, f"{C}: found ['a']; expected a table of assertions"),
    ({C: None}, f"{C}: found None; expected a table of assertions"),
    ({"completion_assertion": {}}, f"completion_assertion: found 'completion_assertion'; expected the key {C}"),
    ({C: {"required_tool_names": ["a"]}, "x": 1}, f"x: found 'x'; expected no such key beside {C}"),
    (
        {"required_tools_names": ["a"]},
        f"{C}.required_tools_names: found 'required_tools_names'; expected the key required_tool_names",
    ),
    ({"zzz": 1}, f"{C}.zzz: found 'zzz'; expected the key {KEYS}"),
    ({3: 1}, f"{C}: found 3; expected a key that is a text"),
    ({"a b": 1}, f"{C}['a b']: found 'a b'; expected the key {KEYS}"),
    ({"required_tool_names": "a"}, f"{C}.required_tool_names: found 'a'; expected a list of names of tools"),
    ({"required_tool_names": None}, f"{C}.required_tool_names: found None; expected a list of names of tools"),
    ({"required_tool_names": {"a"}}, f"{C}.required_tool_names: found {{'a'}}; expected a list of names of tools"),
    (
        {"required_tool_names": ["a", 3]},
        f"{C}.required_tool_names[1]: found 3; expected one of the names of tools, as a text",
    ),
    (
        {"required_tool_names": [""]},
        f"{C}.required_tool_names[0]: found ''; expected one of the names of tools, as a text",
    ),
    (
        {"required_tool_names": [" a"]},
        f"{C}.required_tool_names[0]: found ' a'; expected one of the names of tools, as a text",
    ),
    (
        {"required_tool_names": ["a", "b", "a"]},
        f"{C}.required_tool_names[2]: found 'a'; expected "
        "each tool once; for several calls there is minimum_successful_tool_counts",
    ),
    ({"forbidden_tool_names": ["a", "a"]}, f"{C}.forbidden_tool_names[1]: found 'a'; expected each of them once"),
    ({"forbidden_tool_names": "a"}, f"{C}.forbidden_tool_names: found 'a'; expected a list of names of tools"),
    ({"required_engine_data_keys": "a"}, f"{C}.required_engine_data_keys: found 'a'; expected a list of dotted paths"),
    (
        {"required_engine_data_keys": ["a..b"]},
        f"{C}.required_engine_data_keys[0]: found 'a..b'; expected a dotted path, such as comment.html_url",
    ),
    (
        {"required_engine_data_keys": [0]},
        f"{C}.required_engine_data_keys[0]: found 0; expected a dotted path, such as comment.html_url",
    ),
    (
        {"required_engine_data_keys": ["a", "a"]},
        f"{C}.required_engine_data_keys[1]: found 'a'; expected each path once",
    ),
    (
        {"minimum_successful_tool_counts": ["a"]},
        f"{C}.minimum_successful_tool_counts: found ['a']; expected a table of tools and how often each must succeed",
    ),
    (
        {"minimum_successful_tool_counts": {"a": 0}},
        f"{C}.minimum_successful_tool_counts.a: found 0; expected an int of at least 1",
    ),
    (
        {"minimum_successful_tool_counts": {"a": True}},
        f"{C}.minimum_successful_tool_counts.a: found True; expected an int of at least 1",
    ),
    (
        {"minimum_successful_tool_counts": {"a": 1.0}},
        f"{C}.minimum_successful_tool_counts.a: found 1.0; expected an int of at least 1",
    ),
    (
        {"minimum_successful_tool_counts": {"": 1}},
        f"{C}.minimum_successful_tool_counts['']: found ''; expected the name of a tool",
    ),
    (
        {"complete_when_any": {"name": "a"}},
        f"{C}.complete_when_any: found {{'name': 'a'}}; expected "
        "a list of tables, each with the name of an outcome and its tools",
    ),
    (
        {"complete_when_any": ["a"]},
        f"{C}.complete_when_any[0]: found 'a'; expected a table with the name of an outcome and its tools\n"
        f"{C}.complete_when_any[0].name: found None; expected the name of an outcome\n"
        f"{C}.complete_when_any[0].tools: found None; expected a list of tables, each with the name of a tool",
    ),
    (ways(), f"{C}.complete_when_any[0].tools: found []; expected at least one tool"),
    (ways({"name": "a"}, name=""), f"{C}.complete_when_any[0].name: found ''; expected the name of an outcome"),
    (ways({"name": "a"}, tool=1), f"{C}.complete_when_any[0].tool: found 'tool'; expected the key tools"),
    (
        {"complete_when_any": [{"name": n, "tools": [{"name": "a"}]} for n in "vww"]},
        f"{C}.complete_when_any[2].name: found 'w'; expected a name that no other outcome has",
    ),
    (
        ways({"name": "a"}, {"name": "a"}),
        f"{C}.complete_when_any[0].tools[1]: found {{'name': 'a'}}; expected "
        "each proof once; for several calls there is min_successful_calls",
    ),
    (ways({"min_successful_calls": 2}), f"{T}.name: found None; expected the name of a tool"),
    (
        ways({"name": "b"}, {"name": "a", "min_succesful_calls": 2}),
        f"{C}.complete_when_any[0].tools[1].min_succesful_calls: found 'min_succesful_calls'; expected "
        "the key min_successful_calls",
    ),
    (
        ways({"name": "a", "min_successful_calls": "2"}),
        f"{T}.min_successful_calls: found '2'; expected an int of at least 1",
    ),
    (
        ways({"name": "a", "required_parameters": ["x"]}),
        f"{T}.required_parameters: found ['x']; expected a table of parameters",
    ),
    (
        ways({"name": "a", "required_parameters": {"x.": 1}}),
        f"{T}.required_parameters['x.']: found 'x.'; expected a dotted path, such as comment.html_url",
    ),
    (
        ways({"name": "a", "required_parameters": {"x": float("nan")}}),
        f"{T}.required_parameters.x: found nan; expected a value that JSON can carry",
    ),
    (
        ways({"name": "a", "required_parameters": {"x": [1, {2}]}}),
        f"{T}.required_parameters.x[1]: found {{2}}; expected a value that JSON can carry",
    ),
    (
        ways({"name": "a", "required_parameters": {"x": {1: 2}}}),
        f"{T}.required_parameters.x: found 1; expected a key that is a text",
    ),
    (
        ways({"name": "a", "required_output": "url"}),
        f"{T}.required_output: found 'url'; expected a list of dotted paths",
    ),
    (
        ways({"name": "a", "required_output": [".url"]}),
        f"{T}.required_output[0]: found '.url'; expected a dotted path, such as comment.html_url",
    ),
    ({"required_tool_names": ["a"], "messages": "x"}, f"{C}.messages: found 'x'; expected a table of messages"),
    (
        {"required_tool_names": ["a"], "messages": {"a": " "}},
        f"{C}.messages.a: found ' '; expected a message for the model",
    ),
    (
        {"required_tool_names": ["create_pr"], "messages": {"creat_pr": "x"}},
        f"{C}.messages.creat_pr: found 'creat_pr'; expected the name of what is asked for: create_pr",
    ),
    (
        {"required_tool_names": ["a", "b"], "messages": {"zzz": "x"}},
        f"{C}.messages.zzz: found 'zzz'; expected the name of what is asked for: a or b",
    ),
    (
        {"required_tool_names": ["a"], "messages": {"a": "x"}, "hide_mechanics": True},
        f"{C}.messages: found {{'a': 'x'}}; expected no messages, as hide_mechanics would never show them",
    ),
    ({"required_tool_names": ["a"], "hide_mechanics": 1}, f"{C}.hide_mechanics: found 1; expected true or false"),
    (
        {"required_tool_names": ["a"], "forbidden_tool_names": ["b", "a"]},
        f"{C}.forbidden_tool_names[1]: found 'a'; expected a tool that required_tool_names does not ask for",
    ),
    (
        {"minimum_successful_tool_counts": {"a": 1}, "forbidden_tool_names": ["a"]},
        f"{C}.forbidden_tool_names[0]: found 'a'; expected a tool that minimum_successful_tool_counts does not ask for",
    ),
    (
        ways({"name": "a"}) | {"forbidden_tool_names": ["a"]},
        f"{C}.forbidden_tool_names: found ['a']; expected one outcome of complete_when_any that needs none of them",
    ),
    (
        {"required_tool_names": "a", "hide_mechanics": 1, "x": 2},
        f"{C}.x: found 'x'; expected the key {KEYS}\n"
        f"{C}.required_tool_names: found 'a'; expected a list of names of tools\n"
        f"{C}.hide_mechanics: found 1; expected true or false",
    ),
]


@pytest.mark.parametrize(("source", "message"), MALFORMED, ids=range(len(MALFORMED)))
def test_a_mistake_is_told_with_its_place_and_what_would_be_right(source: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Assertions.of(source)
    assert str(caught.value) == message
    assert isinstance(caught.value, Mistakes) == ("\n" in message)


MADE_IN_PYTHON: list[tuple[Callable[[], object], str]] = [
    (lambda: Proof(""), "proof.name: found ''; expected the name of a tool"),
    (lambda: Proof("a", 0), "proof.min_successful_calls: found 0; expected an int of at least 1"),
    (lambda: Proof("a", required_output="url"), "proof.required_output: found 'url'; expected a list of dotted paths"),
    (
        lambda: Proof("a", required_parameters={"x": {1}}),
        "proof.required_parameters.x: found {1}; expected a value that JSON can carry",
    ),
    (lambda: Way("", [Proof("a")]), "way.name: found ''; expected the name of an outcome"),
    (lambda: Way("w", []), "way.tools: found []; expected at least one tool"),
    (lambda: Way("w", ()), "way.tools: found (); expected at least one tool"),
    (
        lambda: Way("w", [Proof("a"), Proof("a")]),
        "way.tools[1]: found Proof(name='a', min_successful_calls=1, required_parameters={}, required_output=()); "
        "expected "
        "each proof once; for several calls there is min_successful_calls",
    ),
    (lambda: Assertions(), f"{C}: found {{}}; expected at least one assertion"),
    (
        lambda: Assertions(required_tool_names="a"),
        f"{C}.required_tool_names: found 'a'; expected a list of names of tools",
    ),
    (
        lambda: Assertions(required_tool_names=["a"], forbidden_tool_names=["a"]),
        f"{C}.forbidden_tool_names[0]: found 'a'; expected a tool that required_tool_names does not ask for",
    ),
    (
        lambda: Assertions(complete_when_any=[Way("w", [Proof("a")])] * 2),
        f"{C}.complete_when_any[1].name: found 'w'; expected a name that no other outcome has",
    ),
]


@pytest.mark.parametrize(("make", "message"), MADE_IN_PYTHON, ids=range(len(MADE_IN_PYTHON)))
def test_what_is_made_in_python_is_checked_as_well(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value) == message


def test_a_value_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ConfigError, match="a value that JSON can carry"):
        Proof("a", required_parameters={"x": endless})


def test_a_mistake_in_a_file_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "done.toml"
    path.write_text(
        'max_turns = 1\nhide_mechanic = true\n[completion_assertions]\nrequired_tool_names = ["a"]\n'
        '[[completion_assertions.complete_when_any]]\nname = "w"\n'
        '[[completion_assertions.complete_when_any.tools]]\nname = "a"\n\nmin_succesful_calls = 2\n'
    )
    with pytest.raises(Mistakes) as caught:
        Assertions.of(path)
    assert str(caught.value) == (
        f"hide_mechanic ({path}:2): found 'hide_mechanic'; expected no such key beside {C}\n"
        f"{T}.min_succesful_calls ({path}:10): found 'min_succesful_calls'; expected the key min_successful_calls"
    )
    assert all(isinstance(error, SettingError) for error in caught.value.errors)


def test_a_file_at_whose_top_the_keys_stand_has_its_lines_too(tmp_path: Path) -> None:
    path = tmp_path / "done.toml"
    path.write_text('required_tool_names = ["a"]\nforbidden_tool_names = ["a"]\n')
    with pytest.raises(SettingError) as caught:
        Assertions.of(path)
    assert str(caught.value) == (
        f"{C}.forbidden_tool_names[0] ({path}:2): found 'a'; expected a tool that required_tool_names does not ask for"
    )


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TomlError, match="a file that can be read"):
        Assertions.of(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("a = \n")
    with pytest.raises(TomlError, match=r"broken.toml:1.*valid TOML"):
        Assertions.of(str(broken))
