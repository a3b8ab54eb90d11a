"""Signatures become schemas: strict, under the names of their parameters, without the context.

What pydantic makes of each type is pydantic's to test; here are one type of each kind and all that we add.
"""

import functools
import inspect
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from pydantic import BaseModel, ConfigDict, Field, Json, ValidationError, create_model
from typing_extensions import TypedDict

from flyball.errors import ArgumentError, ConfigError
from flyball.tools import Tool, ToolContext

Function = Callable[..., Any]
Short = Annotated[str, Field(max_length=3)]


class Colour(Enum):
    RED = "red"
    BLUE = 2


class Word(StrEnum):
    YES = "yes"
    NO = "no"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Point:
    x: int
    y: float = 0.0


@dataclass
class Line:
    start: Point
    through: list[Point] = field(default_factory=list[Point])


class Person(BaseModel):
    """Somebody."""

    name: str = Field(description="as in the passport")
    born: date | None = None


class Team(BaseModel):
    lead: Person
    others: dict[str, Person] = {}


class Tree(BaseModel):
    value: int
    branches: "list[Tree]" = []


class Address(TypedDict, total=False):
    street: str
    number: int


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


def model_of(**fields: Any) -> type[BaseModel]:
    return create_model("Expected", __base__=Strict, **fields)


def tool_of(function: Function) -> Tool:
    """With the model's name, so that not even titles differ."""
    return Tool(function, name="Expected")


def taking(hint: Any, *default: Any) -> Function:
    """A function of one parameter `a`, with that annotation and perhaps that default."""

    def function(a: Any) -> Any:
        return a

    function.__annotations__ = {"a": hint}
    function.__defaults__ = default
    return function


HINTS: list[Any] = [
    *(int | None, Colour, list[Tree], Address, Json[int]),
    Annotated[int | None, Field(ge=1, description="how many", examples=[3], title="Count", deprecated=True)],
]

DEFAULTS: list[tuple[Any, Any]] = [
    *((list[Point], []), (Colour, Colour.RED), (Person, Person(name="Al")), (int, "not an int")),
]


@pytest.mark.parametrize("hint", HINTS, ids=str)
def test_the_schema_of_a_parameter_is_that_of_a_strict_model(hint: Any) -> None:
    schema = tool_of(taking(hint)).schema
    assert schema == model_of(a=(hint, ...)).model_json_schema()
    assert json.loads(json.dumps(schema, allow_nan=False)) == schema


@pytest.mark.parametrize(("hint", "default"), DEFAULTS, ids=str)
def test_a_default_is_in_the_schema_and_handed_on_as_it_is_and_never_shared(hint: Any, default: Any) -> None:
    made = tool_of(taking(hint, default))
    assert made.schema == model_of(a=(hint, default)).model_json_schema()
    first, second = made.read("{}")["a"], made.read("{}")["a"]
    assert repr(first) == repr(second) == repr(default)
    assert first is not second or not isinstance(default, list | dict | set | Person | Point)


@pytest.mark.parametrize(("hint", "default"), [(float, math.nan), (Any, -math.inf)])
def test_a_default_that_json_cannot_say_is_not_in_the_schema(hint: Any, default: float) -> None:
    schema = tool_of(taking(hint, default)).schema
    assert json.loads(json.dumps(schema, allow_nan=False)) == schema
    assert "required" not in schema


def keyword_only(a: int, *, b: str, c: bool = True) -> None: ...
def positional_only(a: int, b: str = "b", /, c: bool = True) -> None: ...
def clashing(schema: int, copy: str, json: bool, model_config: int, dict: int = 1) -> None: ...
def numbered(p1: int, p0: str, validate: list[int]) -> None: ...
def like_a_method(self: int, cls: str, function: str = "", _private: int = 0) -> None: ...
def with_context(a: int, ctx: ToolContext, b: str = "b") -> None: ...
def with_context_or_none(a: int, b: str = "b", *, ctx: ToolContext | None = None) -> None: ...
def with_context_in_words(a: int, ctx: Annotated[ToolContext | None, "the run's"] = None, b: str = "b") -> None: ...
def two(a: int, b: str = "b") -> None: ...
async def later(a: int, b: str = "b") -> None: ...
def nothing() -> None: ...
def signed(*args: Any, **kwargs: Any) -> None: ...
def unannotated(a, b=2): ...  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]


def wrapping(function: Function) -> Function:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> None: ...

    return wrapper


signed.__signature__ = inspect.signature(two)  # pyright: ignore[reportFunctionMemberAccess]


class Desk:
    def method(self, a: int, b: str = "b") -> None: ...

    @classmethod
    def of_class(cls, a: int, b: str = "b") -> None: ...

    @staticmethod
    def static(a: int, b: str = "b") -> None: ...

    def __call__(self, a: int, b: str = "b") -> None: ...


TWO = {"a": (int, ...), "b": (str, "b")}


def renamed(**fields: Any) -> dict[str, Any]:
    """For names that a pydantic model cannot have: other names, and these as aliases."""
    return {f"of_{name}": (hint, Field(default, alias=name)) for name, (hint, default) in fields.items()}


CALLABLES: dict[str, tuple[list[Function], dict[str, Any]]] = {
    "nothing": ([nothing, functools.partial(functools.partial(two, 1), b="c")], {}),
    "keywords": ([keyword_only], {"a": (int, ...), "b": (str, ...), "c": (bool, True)}),
    "positions": ([positional_only], TWO | {"c": (bool, True)}),
    "names of pydantic": (
        [clashing],
        renamed(schema=(int, ...), copy=(str, ...), json=(bool, ...), model_config=(int, ...), dict=(int, 1)),
    ),
    "names of ours": ([numbered], renamed(p1=(int, ...), p0=(str, ...), validate=(list[int], ...))),
    "private names": (
        [like_a_method],
        renamed(self=(int, ...), cls=(str, ...), function=(str, ""), _private=(int, 0)),
    ),
    "wrapped": ([two, later, wrapping(two), signed, functools.lru_cache(two)], TWO),
    "the context": ([with_context, with_context_or_none, with_context_in_words], TWO),
    "methods": ([Desk().method, Desk.of_class, Desk().of_class, Desk.static, Desk()], TWO),
    "partial": (
        [
            *(functools.partial(one, 1) for one in (two, wrapping(two), later, Desk().method, Desk(), with_context)),
            *(wrapping(functools.partial(two, 1)), functools.partial(two, a=1)),
        ],
        {"b": TWO["b"]},
    ),
    "unannotated": ([unannotated], {"a": (Any, ...), "b": (Any, 2)}),  # pyright: ignore[reportUnknownVariableType]
    "classes": ([Point], {"x": (int, ...), "y": (float, 0.0)}),
}


@pytest.mark.parametrize("kind", CALLABLES)
def test_the_schema_of_a_callable_has_its_parameters_by_their_names(kind: str) -> None:
    functions, fields = CALLABLES[kind]
    model = model_of(**fields)
    for function in functions:
        made = tool_of(function)
        assert made.schema == model.model_json_schema()
        assert list(made.signature.names) == [said.alias or name for name, said in model.model_fields.items()]


def google(a: int, b: Short = "", c: Annotated[int, "in a note"] = 0) -> None:
    """Do it.

    Args:
        a: the first,
            and more of it
        b (str, optional): the second: in words
        c: not this, the note comes first

    Returns:
        nothing: really
    """


def numpy(ctx: ToolContext, a: int, b: Short = "", c: "Annotated[int, 'in a note']" = 0) -> None:
    """Do it.

    Parameters
    ----------
    ctx : ToolContext
        hidden
    a : int
        the first,
        and more of it
    b : str, optional
        the second: in words

    Returns
    -------
    a
        nothing
    """


def sphinx(a: int, b: Short = "", c: Annotated[int, Field(description="in a note"), "or another"] = 0) -> None:
    """Do it.

    :param a: the first,
        and more of it
    :param str b: the second: in words
    :param d: nobody
    :returns: nothing
    """


@pytest.mark.parametrize("function", [google, numpy, sphinx])
def test_the_docstring_of_a_parameter_is_its_description(function: Function) -> None:
    expected = model_of(
        a=(int, Field(description="the first, and more of it")),
        b=(str, Field("", description="the second: in words", max_length=3)),
        c=(int, Field(0, description="in a note")),
    )
    for made in (tool_of(function), tool_of(wrapping(function)), tool_of(functools.singledispatch(function))):
        assert (made.description, made.schema) == ("Do it.", expected.model_json_schema())


def scalars(a: int, b: float, c: str, d: bool, e: int | None = None) -> None: ...
def choices(word: Word, /, colour: Colour, level: Level, schema: Literal["s", 1, None] = "s") -> None: ...
def shapes(p: Point, q: Person, t: Tree | None = None, s: Address | None = None, pair: Pair = Pair(1)) -> None: ...  # noqa: B008


Values = dict[str, list[Any]]
"""For each parameter, values that are right (the first of them) or nearly so."""

DAYS = ["2020-01-02", "2020-13-01", 0, "soon"]
READS: list[tuple[Function, Values]] = [
    (scalars, {"a": [1, -(10**30), "1"], "b": [1, 1.5], "c": ["", "ä"], "d": [True, False, 1], "e": [3, None, True]}),
    (choices, {"word": ["yes"], "colour": ["red", 2], "level": [1, 2], "schema": ["s", 1, None]}),
    (
        shapes,
        {
            "p": [{"x": 1}, {"x": 1, "y": 2.5}, {"x": 1, "z": 1}],
            "q": [{"name": "Al", "born": DAYS[0]}, {"name": "Al", "other": 1}],
            "t": [{"value": 1, "branches": [{"value": 2}]}, None, {"value": 1, "branches": [{"value": []}]}],
            "s": [{"street": "x", "number": 1}, {}, {"town": "y"}],
            "pair": [[1], [1, "x"], {"left": 1}],
        },
    ),
]


def model_like(function: Function) -> type[BaseModel]:
    given = inspect.signature(function).parameters
    defaults = {name: ... if one.default is one.empty else one.default for name, one in given.items()}
    return model_of(**renamed(**{name: (one.annotation, defaults[name]) for name, one in given.items()}))


NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS, lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(max_size=3), some, max_size=3)
)


@st.composite
def arguments(draw: st.DrawFn, likely: Values) -> Any:
    """An object that is right, or has mistakes of every kind, in any order; now and then something else."""
    if draw(st.integers(0, 19)) == 0:
        return draw(VALUES)
    given: dict[str, Any] = {}
    for name, values in likely.items():
        kind = draw(st.sampled_from(["likely"] * 8 + ["any", "absent"]))
        if kind != "absent":
            given[name] = draw(st.sampled_from(values) if kind == "likely" else VALUES)
    odd = st.sampled_from(["", ".", ".a", "p0", "of_word", "a.b", "[0]", "arguments", "model_config", "ä b"])
    if draw(st.integers(0, 9)) == 0:
        given |= draw(st.dictionaries(odd | st.text(max_size=5), SCALARS, min_size=1, max_size=2))
    return dict(draw(st.permutations(list(given.items()))))


def names(problem: str, parts: tuple[int | str, ...]) -> bool:
    """Whether it begins with the parameter, as it is or quoted, and has every step from there."""
    top, quoted = str(parts[0]), repr(parts[0])
    heads = [quoted, f"[{quoted}", *(f"{top}{mark}" for mark in ":.[" if top)]
    return problem.startswith(tuple(heads)) and all(str(part) in problem or repr(part) in problem for part in parts)


@pytest.mark.parametrize(("function", "likely"), READS)
def test_arguments_are_accepted_as_a_strict_model_accepts_them_in_any_order(function: Function, likely: Values) -> None:
    made, model = tool_of(function), model_like(function)
    backwards = {name: values[0] for name, values in reversed(likely.items())}
    assert list(made.read(backwards)) == list(likely)

    @settings(max_examples=40)
    @given(arguments(likely))
    def check(drawn: Any) -> None:
        text = json.dumps(drawn)
        try:
            wanted = dict(zip(likely, dict(model.model_validate_json(text)).values(), strict=True))
        except ValidationError as error:
            with pytest.raises(ArgumentError) as caught:
                made.read(text)
            for problem, one in zip(caught.value.problems, error.errors(), strict=True):
                assert names(problem, one["loc"] or ("arguments",))
        else:
            values = made.read(text)
            assert (values, repr(values)) == (wanted, repr(wanted))
            assert repr(made.read(drawn)) == repr(made.read(text.encode())) == repr(wanted)

    check()


@pytest.mark.parametrize(
    "hint",
    [Annotated[int, Field(default_factory=int)], Annotated[str, Field(pattern="(")], list[ToolContext], ClassVar[int]],
    ids=str,
)
def test_an_annotation_that_pydantic_cannot_take_is_refused_with_the_name_of_the_tool(hint: Any) -> None:
    with pytest.raises(ConfigError, match="tool 'Expected'"):
        tool_of(taking(hint, 1))
