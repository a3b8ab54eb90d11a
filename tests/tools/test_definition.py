import enum
import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from flyball.errors import ArgumentError, ConfigError, UnknownTool
from flyball.tools import Effects, Tool, ToolContext, Toolset, tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: float = 0.0


class Person(BaseModel):
    name: str
    born: date | None = None


def paint(
    where: Point,
    who: Person,
    colour: Colour,
    size: Literal["s", "l"] = "s",
    tags: list[str] | None = None,
    count: Annotated[int, Field(ge=1)] = 1,
    note: Annotated[str, "what to write on it"] = "",
    schema: dict[str, float] = {},  # noqa: B006
    copy: tuple[int, int] = (1, 2),
) -> str:
    """Paint a wall.

    Args:
        where: the place
        count: how many times
    """
    return f"{where.x} {who.name} {colour.value} {size} {tags} {count} {note} {schema} {copy}"


class PaintModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    where: Point = Field(description="the place")
    who: Person
    colour: Colour
    size: Literal["s", "l"] = "s"
    tags: list[str] | None = None
    count: Annotated[int, Field(ge=1)] = Field(1, description="how many times")
    note: str = Field("", description="what to write on it")
    other: dict[str, float] = Field({}, alias="schema")
    another: tuple[int, int] = Field((1, 2), alias="copy")


WITHOUT_HINTS: list[Any] = [lambda: None, lambda a: a, lambda a, /, b, *, c=3: (a, b, c)]  # pyright: ignore[reportUnknownLambdaType]


class TestSchema:
    def test_the_schema_of_a_tool_is_what_pydantic_makes_of_the_same_model(self) -> None:
        assert Tool(paint).schema == {**PaintModel.model_json_schema(), "title": "paint"}

    def test_the_description_is_the_docstrings(self) -> None:
        assert Tool(paint).description == "Paint a wall."
        assert Tool(paint, description="Other.").definition()["description"] == "Other."

    @pytest.mark.parametrize("function", WITHOUT_HINTS)
    def test_functions_without_hints_take_anything(self, function: Callable[..., Any]) -> None:
        made = Tool(function, name="f")
        assert set(made.schema.get("properties", {})) == set(made.signature.names)

    def test_a_default_that_json_cannot_say_is_left_to_the_function(self) -> None:
        marker = object()

        def f(a: Any = marker) -> bool:
            return a is marker

        assert Tool(f).bind(Tool(f).read("{}"))() is True


class TestArguments:
    def test_text_and_dict_become_what_the_function_declares(self) -> None:
        text = '{"where": {"x": 1}, "who": {"name": "Al", "born": "1999-01-02"}, "colour": "red", "copy": [3, 4]}'
        values = Tool(paint).read(text)
        assert values["where"] == Point(1, 0.0)
        assert values["who"] == Person(name="Al", born=date(1999, 1, 2))
        assert (values["colour"], values["copy"], values["count"]) == (Colour.RED, (3, 4), 1)
        given = {"where": {"x": 1}, "who": {"name": "Al"}, "colour": "blue"}
        assert Tool(paint).bind(Tool(paint).read(given))() == "1 Al blue s None 1  {} (1, 2)"

    @pytest.mark.parametrize("nothing", ["", None, {}, "{}", b"{}"])
    def test_no_arguments_may_be_said_in_many_ways(self, nothing: Any) -> None:
        assert Tool(lambda: 1, name="f").read(nothing) == {}

    def test_every_mistake_is_listed_in_words_for_the_model(self, snapshot: Callable[..., None]) -> None:
        text = '{"where": {"x": "1"}, "who": {}, "color": "red", "count": 0, "tags": [1]}'
        with pytest.raises(ArgumentError) as caught:
            Tool(paint).read(text)
        assert [one.partition(":")[0] for one in caught.value.problems] == [
            "where.x", "who.name", "colour", "tags[0]", "count", "color",
        ]  # fmt: skip
        assert (caught.value.code, caught.value.tool) == ("arguments_invalid", "paint")
        snapshot(caught.value)

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            ("{", "not JSON"),
            ("[1]", "arguments: "),
            ('"x"', "arguments: "),
            ("[" * 100_000, "not JSON"),
            ({"a": object()}, "not JSON"),
            (b"\xff", "not JSON"),
            ('{"a": true}', "a: Input should be a valid integer"),
            ('{"a": 1.0}', "a: Input should be a valid integer"),
        ],
    )
    def test_what_is_no_object_of_arguments_is_told(self, arguments: Any, problem: str) -> None:
        def f(a: int) -> int:
            return a

        with pytest.raises(ArgumentError) as caught:
            Tool(f).read(arguments)
        assert caught.value.problems[0].startswith(problem)

    def test_a_validator_that_breaks_is_told_and_not_raised(self) -> None:
        from pydantic import AfterValidator

        def broken(value: int) -> int:
            raise ZeroDivisionError

        def f(a: Annotated[int, AfterValidator(broken)]) -> int:
            return a

        with pytest.raises(ArgumentError, match="ZeroDivisionError"):
            Tool(f).read('{"a": 1}')


class Adder:
    """About the object."""

    def __init__(self, base: int) -> None:
        self.base = base

    def __call__(self, a: int) -> int:
        """Add to the base."""
        return self.base + a

    def method(self, a: int) -> int:
        """Add in a method."""
        return self.base + a

    @tool(effects="read")
    def decorated(self, a: int) -> int:
        """Add in a decorated method."""
        return self.base + a


class TestKindsOfFunctions:
    def test_methods_partials_and_objects_work(self) -> None:
        adder = Adder(10)
        partial = functools.partial(adder.method, a=5)
        made = [Tool.of(adder.method), Tool.of(adder), Tool.of(adder.decorated), Tool(partial, name="five")]
        assert [(one.name, one.description, one.signature.names) for one in made] == [
            ("method", "Add in a method.", ("a",)),
            ("adder", "Add to the base.", ("a",)),
            ("decorated", "Add in a decorated method.", ("a",)),
            ("five", "Add in a method.", ()),
        ]
        assert [one.bind(one.read({"a": 1} if one.signature.names else {}))() for one in made] == [11, 11, 11, 15]
        assert adder.decorated.effects is Effects.READ

    def test_async_ones_are_known(self) -> None:
        class Later:
            async def __call__(self) -> None: ...

        async def later() -> None: ...

        made = [Tool(one, name="f") for one in (later, Later(), functools.partial(later), lambda: None)]
        assert [one.is_async for one in made] == [True, True, True, False]

    def test_positional_only_parameters_are_given_by_their_place(self) -> None:
        def f(a: int, /, b: int) -> int:
            return a - b

        assert Tool(f).bind(Tool(f).read('{"b": 1, "a": 5}'))() == 4

    def test_the_context_is_handed_in_and_hidden_from_the_model(self) -> None:
        def f(ctx: ToolContext, a: int) -> tuple[object, int]:
            return ctx, a

        made = Tool(f)
        assert set(made.schema["properties"]) == {"a"}
        assert made.bind({"a": 1}, None)() == (None, 1)

    def test_a_tool_can_still_be_called(self) -> None:
        @tool
        def three() -> int:
            return 3

        assert (three(), three.name) == (3, "three")

    def test_cached_functions_and_classes_keep_their_types(self) -> None:
        @functools.lru_cache
        def cached(a: int) -> int:
            return a

        for function in (cached, Point):
            with pytest.raises(ArgumentError, match="Input should be a valid integer"):
                Tool(function, name="f").read({"a": "text", "x": "text"})

    def test_what_a_function_returns_need_not_be_found(self) -> None:
        def f(a: int) -> "NotThere":  # noqa: F821  # pyright: ignore[reportUndefinedVariable, reportUnknownParameterType]
            ...

        assert Tool(f).read({"a": 1}) == {"a": 1}  # pyright: ignore[reportUnknownArgumentType]

    def test_the_context_may_be_optional(self) -> None:
        def f(a: int, ctx: ToolContext | None = None) -> None: ...
        def g(ctx: Annotated[ToolContext, "mine"]) -> None: ...

        assert (Tool(f).signature.names, Tool(g).signature.names) == (("a",), ())


class TestOptions:
    def test_what_is_left_out_has_its_default(self) -> None:
        made = Tool(paint)
        assert (made.timeout, made.effects, made.cheap, made.idempotent) == (45.0, "write", False, False)
        assert (made.duplicates, made.max_calls, made.sensitive) == (None, None, frozenset())
        assert made.retry_on_timeout is False
        assert Tool(paint, effects="read").retry_on_timeout is True
        assert Tool(paint, effects="read", retry_on_timeout=False).retry_on_timeout is False

    @pytest.mark.parametrize(
        ("options", "where", "found"),
        [
            ({"timeout": 0}, "tool 'paint', timeout", 0),
            ({"effects": "none"}, "tool 'paint', effects", "none"),
            ({"duplicates": "drop"}, "tool 'paint', duplicates", "drop"),
            ({"max_calls": -1}, "tool 'paint', max_calls", -1),
            ({"sensitive": ["password"]}, "tool 'paint', sensitive", "password"),
            ({"aprove": True}, "tool, options", "aprove"),
            ({"name": 5}, "tool, name", 5),
            ({"retry_on_timeout": "no"}, "tool, retry_on_timeout", "no"),
            ({"duplicates": ""}, "tool 'paint', duplicates", ""),
            ({"name": "two words"}, "tool, name", "two words"),
            ({"name": "x" * 65}, "tool, name", "x" * 65),
        ],
    )
    def test_a_wrong_option_of_a_tool_is_told_where_it_is_written(
        self, options: dict[str, Any], where: str, found: object
    ) -> None:
        with pytest.raises(ConfigError) as caught:
            Tool(paint, **options)
        assert (caught.value.where, caught.value.found) == (where, found)

    def test_texts_of_wrong_options_are_as_stored(self, snapshot: Callable[..., None]) -> None:
        for name, value in {"effects": "none", "sensitive": ["password"], "aprove": True, "name": "two words"}.items():
            options: Any = {name: value}
            with pytest.raises(ConfigError) as caught:
                Tool(paint, **options)
            snapshot(caught.value, name)

    def test_approval_is_asked_of_a_function_and_a_broken_one_means_yes(self) -> None:
        assert Tool(paint).needs_approval({}) is False
        assert Tool(paint, approve=True).needs_approval({}) is True
        assert Tool(paint, approve=lambda arguments: arguments["count"] > 3).needs_approval({"count": 1}) is False
        assert Tool(paint, approve=lambda arguments: arguments["missing"]).needs_approval({}) is True


class Opaque:
    pass


class TestRefused:
    def test_parameters_without_a_name_or_a_type_that_json_has(self) -> None:
        def stars(*args: int) -> None: ...
        def keywords(**kwargs: int) -> None: ...
        def opaque(a: Opaque) -> None: ...
        def field(a: int = Field(3, ge=1)) -> None: ...
        def nowhere(a: "NotThere") -> None: ...  # noqa: F821  # pyright: ignore[reportUndefinedVariable, reportUnknownParameterType]

        refused: list[tuple[Any, str]] = [
            (stars, r"\*args"),
            (keywords, r"\*\*kwargs"),
            (opaque, "opaque"),
            (field, "'a'.*Annotated"),
            (nowhere, "NotThere"),
        ]
        for function, message in refused:
            with pytest.raises(ConfigError, match=message):
                Tool(function)

    def test_what_cannot_be_called(self) -> None:
        with pytest.raises(ConfigError) as caught:
            Tool.of(3)  # pyright: ignore[reportArgumentType]
        assert (caught.value.where, caught.value.found) == ("tool", 3)


class TestToolset:
    def test_tools_are_found_by_name_and_the_nearest_is_told(self, snapshot: Callable[..., None]) -> None:
        tools = Toolset([paint, Tool(lambda: 1, name="one")])
        assert (list(tools), len(tools), "paint" in tools, tools["one"].name) == (["paint", "one"], 2, True, "one")
        with pytest.raises(UnknownTool, match="paint") as caught:
            _ = tools["pant"]
        assert (caught.value.code, caught.value.name, set(caught.value.known)) == (
            "tool_unknown",
            "pant",
            {"paint", "one"},
        )
        snapshot(caught.value)
        with pytest.raises(UnknownTool):
            _ = tools[[]]  # pyright: ignore[reportArgumentType]

    def test_two_of_one_name_are_refused(self) -> None:
        with pytest.raises(ConfigError) as caught:
            Toolset([paint, Tool(paint)])
        assert caught.value.found == "paint"
