"""What type checkers know about programs of users: `make check` runs mypy and pyright over this file, too."""

import ast
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_type

import pytest

import flyball
from flyball import Agent, Result, Run, arun_conversation, run_conversation, tool
from flyball._internal.syntax import parse_python
from flyball.testing import ScriptedModel, say
from flyball.tools import Tool

PACKAGE = Path(flyball.__file__).parent


@dataclass
class City:
    name: str


@tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@tool(timeout=5, effects="read")
async def look(path: str) -> list[str]:
    """List a folder."""
    return [path]


class Shop:
    @tool(effects="read")
    def price(self, item: str) -> float:
        """Return the price of an item."""
        return float(len(item))


def speaker(text: str) -> ScriptedModel:
    return ScriptedModel(say(text))


def test_a_tool_keeps_the_signature_of_its_function() -> None:
    assert assert_type(add(1), int) == 3
    assert assert_type(add(1, b=4), int) == 5
    call: Coroutine[Any, Any, list[str]] = look(".")
    call.close()
    with pytest.raises(TypeError):
        add("1", c=2)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_a_tool_of_a_class_is_a_method() -> None:
    assert assert_type(Shop().price("tea"), float) == 3.0
    assert [tool.name for tool in (add, look, Shop().price)] == ["add", "look", "price"]


def test_a_tool_of_any_function_fits_every_list_of_tools() -> None:
    tools: list[Tool] = [add, look, Shop().price]
    assert Agent(model=speaker("x"), tools=tools).run("Go.").completed


def test_the_answer_has_the_declared_type() -> None:
    agent = Agent(model=speaker('{"name": "Oslo"}'), output=City)
    assert_type(agent, Agent[City])
    result = assert_type(agent.run("Go."), Result[City])
    answer = assert_type(result.output, City | None)
    assert answer is not None
    assert answer.name == "Oslo"


def test_the_answer_has_the_declared_type_through_every_door() -> None:
    def start(agent: Agent[City]) -> None:
        assert_type(agent.start("Go."), Run[City])
        assert_type(agent.open("Go."), Run[City])
        assert_type(agent.start("Go.").result(), Result[City])
        assert_type(agent.resume("r1"), Result[City])

    async def await_result(agent: Agent[City]) -> None:
        assert_type(await agent.arun("Go."), Result[City])
        assert_type(await agent.open("Go.").aresult(), Result[City])
        assert_type(await arun_conversation("Go.", [], speaker("x"), output=City), Result[City])

    assert callable(start)
    assert callable(await_result)


def test_the_answer_of_a_conversation_has_the_declared_type() -> None:
    result = run_conversation("Go.", [add], speaker('{"name": "Oslo"}'), output=City, max_turns=3)
    assert assert_type(result, Result[City]).output == City("Oslo")


def test_a_list_is_a_declared_type() -> None:
    agent = Agent(model=speaker('{"result": ["a"]}'), output=list[str])
    assert assert_type(agent.run("Go.").output, list[str] | None) == ["a"]


def test_a_union_is_named_by_the_caller() -> None:
    agent = Agent[City | int](model=speaker('{"result": 3}'), output=City | int)
    assert assert_type(agent.run("Go.").output, City | int | None) == 3


def test_without_a_type_agents_and_results_are_of_any() -> None:
    def run(agent: Agent) -> Result:
        return assert_type(agent, Agent[Any]).run("Go.")

    assert run(Agent(model=speaker("x"))).text == "x"
    assert run(Agent(model=speaker('"x"'), output=str)).output == '"x"'


def test_an_unknown_option_is_an_error_to_type_checkers() -> None:
    with pytest.raises(TypeError, match="max_turns"):
        Agent(model=speaker("x"), max_turns=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


def test_a_misspelt_name_is_an_error_to_type_checkers() -> None:
    with pytest.raises(ImportError, match="Agnet"):
        from flyball import Agnet  # type: ignore[attr-defined]  # pyright: ignore  # noqa: F401
    assert_type(flyball.__version__, str)


def test_no_module_offers_any_name_to_type_checkers() -> None:
    """A type checker that sees a module's `__getattr__` accepts every name, and takes it for Any."""
    seen = [
        str(path.relative_to(PACKAGE))
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in parse_python(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name == "__getattr__"
    ]
    assert seen == []


def test_no_package_exports_a_name_that_one_of_its_modules_has() -> None:
    """A type checker that meets the package first takes the module for the function, as mypy did with `tool`."""
    shadowed: list[str] = []
    for path in sorted(PACKAGE.rglob("__init__.py")):
        modules = {found.stem for found in path.parent.iterdir() if found.suffix == ".py" or found.is_dir()}
        for node in parse_python(path.read_text()).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [alias.asname or alias.name for alias in node.names]
                shadowed += [f"{path.parent.relative_to(PACKAGE)}: {name}" for name in names if name in modules]
    assert shadowed == []
