"""Of every signature, the schema is what pydantic makes of the same model, and what is accepted is what it accepts."""

import functools
import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given
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
    *(str, int, float, bool, None, Any, object, bytes),
    *(int | None, int | str, list[int] | str | None, bool | int | float, Point | Person, "int | None"),
    *(Literal["a", "b"], Literal["a", 1, None, True], Colour, Word, Level, Literal[Colour.RED], Word | None),
    *(list, list[int], list[list[float]], list[Colour | None], dict, dict[str, int], dict[str, list[Point]]),
    *(dict[Word, int], dict[int, str], tuple[int, str], tuple[int, ...], set[str], frozenset[Level], list["Point"]),
    *(Sequence[int], Mapping[str, Any], Point, Line, Person, Team, Tree, list[Tree], Address, list[Address], Pair),
    *(datetime, date, time, timedelta, UUID, Decimal, Path, Json[int]),
    Annotated[int, Field(ge=1, lt=10, multiple_of=3)],
    Annotated[str, Field(min_length=1, max_length=5, pattern="^a")],
    Annotated[list[int], Field(max_length=3)],
    Annotated[Decimal, Field(max_digits=4, decimal_places=2)],
    Annotated[int | None, Field(ge=1, description="how many", examples=[3], title="Count", deprecated=True)],
    list[Annotated[int, Field(gt=0)]],
]

DEFAULTS: list[tuple[Any, Any]] = [
    *((int | None, None), (int, 0), (str, ""), (bool, False), (float, 1.5), (Any, "any"), (None, None)),
    *((list[int], [1]), (dict[str, int], {"a": 1}), (set[int], {1}), (tuple[int, str], (1, "a")), (list[Point], [])),
    *((Colour, Colour.RED), (Word, Word.YES), (Level, Level.LOW), (Colour | None, None), (list[Colour], [Colour.BLUE])),
    *((Person, Person(name="Al")), (Point, Point(1)), (Team, Team(lead=Person(name="Al"))), (Pair, Pair(1))),
    *((datetime, datetime(2020, 1, 2)), (date, date(2020, 1, 2)), (timedelta, timedelta(1)), (Path, Path("/tmp"))),
    *((UUID, UUID(int=1)), (Decimal, Decimal("1.50")), (int, "not an int"), (Annotated[int, Field(ge=1)], 0)),
]


class TestSchemaOfOneParameter:
    @pytest.mark.parametrize("hint", HINTS, ids=str)
    def test_of_every_type_it_is_pydantics(self, hint: Any) -> None:
        schema = tool_of(taking(hint)).schema
        assert schema == model_of(a=(hint, ...)).model_json_schema()
        assert json.loads(json.dumps(schema, allow_nan=False)) == schema

    @pytest.mark.parametrize(("hint", "default"), DEFAULTS, ids=str)
    def test_of_every_default_it_is_pydantics(self, hint: Any, default: Any) -> None:
        schema = tool_of(taking(hint, default)).schema
        assert schema == model_of(a=(hint, default)).model_json_schema()
        assert json.loads(json.dumps(schema, allow_nan=False)) == schema

    @pytest.mark.parametrize(("hint", "default"), DEFAULTS, ids=str)
    def test_a_default_is_handed_on_as_it_is_and_never_shared(self, hint: Any, default: Any) -> None:
        made = tool_of(taking(hint, default))
        first, second = made.read("{}")["a"], made.read("{}")["a"]
        assert repr(first) == repr(second) == repr(default)
        assert first is not second or not isinstance(default, list | dict | set | Person | Point)

    @pytest.mark.parametrize(("hint", "default"), [(float, math.inf), (float, math.nan), (Any, -math.inf)])
    def test_a_default_that_json_cannot_say_is_not_in_it(self, hint: Any, default: float) -> None:
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


CALLABLES: list[tuple[Function, dict[str, Any]]] = [
    (nothing, {}),
    (keyword_only, {"a": (int, ...), "b": (str, ...), "c": (bool, True)}),
    (positional_only, TWO | {"c": (bool, True)}),
    (clashing, renamed(schema=(int, ...), copy=(str, ...), json=(bool, ...), model_config=(int, ...), dict=(int, 1))),
    (numbered, renamed(p1=(int, ...), p0=(str, ...), validate=(list[int], ...))),
    (like_a_method, renamed(self=(int, ...), cls=(str, ...), function=(str, ""), _private=(int, 0))),
    *((function, TWO) for function in (two, later, wrapping(two), signed, functools.lru_cache(two))),
    *((function, TWO) for function in (with_context, with_context_or_none, with_context_in_words)),
    *((function, TWO) for function in (Desk().method, Desk.of_class, Desk().of_class, Desk.static, Desk())),
    *((functools.partial(one, 1), {"b": TWO["b"]}) for one in (two, wrapping(two), later, Desk().method, Desk())),
    (wrapping(functools.partial(two, 1)), {"b": TWO["b"]}),
    (functools.partial(two, b="c"), {"a": TWO["a"]}),
    (functools.partial(two, a=1), {"b": TWO["b"]}),
    (functools.partial(functools.partial(two, 1), b="c"), {}),
    (functools.partial(positional_only, 1), {"b": TWO["b"], "c": (bool, True)}),
    (functools.partial(with_context, 1), {"b": TWO["b"]}),
    (unannotated, {"a": (Any, ...), "b": (Any, 2)}),  # pyright: ignore[reportUnknownArgumentType]
    (Point, {"x": (int, ...), "y": (float, 0.0)}),
    (Pair, {"left": (int, ...), "right": (str, "r")}),
    (Tree, {"value": (int, ...), "branches": (list[Tree], [])}),
]


@pytest.mark.parametrize(("function", "fields"), CALLABLES)
def test_of_whatever_can_be_called_the_schema_is_pydantics(function: Function, fields: dict[str, Any]) -> None:
    made, model = tool_of(function), model_of(**fields)
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


@pytest.mark.parametrize("function", [google, numpy, sphinx, wrapping(google), functools.singledispatch(numpy)])
def test_what_is_said_of_a_parameter_is_its_description(function: Function) -> None:
    expected = model_of(
        a=(int, Field(description="the first, and more of it")),
        b=(str, Field("", description="the second: in words", max_length=3)),
        c=(int, Field(0, description="in a note")),
    )
    made = tool_of(function)
    assert (made.description, made.schema) == ("Do it.", expected.model_json_schema())


def scalars(a: int, b: float, c: str, d: bool, e: int | None = None) -> None: ...
def choices(word: Word, /, colour: Colour, level: Level, schema: Literal["s", 1, None] = "s") -> None: ...
def many(a: list[list[int]], *, b: dict[str, int], c: tuple[int, str], d: set[str] = {"x"}, e: Any = None) -> None: ...  # noqa: B006
def shapes(p: Point, q: Person, t: Tree | None = None, s: Address | None = None, pair: Pair = Pair(1)) -> None: ...  # noqa: B008
def written(a: datetime, b: date, c: UUID, d: Decimal, e: Path, f: Json[int] = 1) -> None: ...
def bounded(a: Annotated[int, Field(ge=1)], b: Annotated[str, Field(max_length=3, pattern="^a")] = "a") -> None: ...


Values = dict[str, list[Any]]
"""For each parameter, values that are right (the first of them) or nearly so."""

DAYS = ["2020-01-02", "2020-13-01", 0, "soon"]
READS: list[tuple[Function, Values]] = [
    (scalars, {"a": [1, -(10**30), "1"], "b": [1, 1.5], "c": ["", "ä"], "d": [True, False, 1], "e": [3, None, True]}),
    (choices, {"word": ["yes"], "colour": ["red", 2], "level": [1, 2], "schema": ["s", 1, None]}),
    (many, {"a": [[[1], [2]], []], "b": [{"": 1, ".k": 2}], "c": [[1, "x"]], "d": [["x", "x"]], "e": [[{}], 1.0]}),
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
    (
        written,
        {"a": ["2020-01-02T03:04:05Z"], "b": DAYS, "c": ["0" * 32, "7"], "d": ["1.5", 2], "e": ["/"], "f": ["3", "{"]},
    ),
    (bounded, {"a": [1, 5, 0], "b": ["a", "abc", "abcd", "b"]}),
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
class TestReading:
    def test_the_first_value_of_each_is_accepted_in_any_order(self, function: Function, likely: Values) -> None:
        backwards = {name: values[0] for name, values in reversed(likely.items())}
        assert list(tool_of(function).read(backwards)) == list(likely)

    def test_what_is_accepted_and_what_it_becomes_is_pydantics(self, function: Function, likely: Values) -> None:
        made, model = tool_of(function), model_like(function)

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
    [
        *(Annotated[int, Field(default_factory=int)], Annotated[int, Field(discriminator="kind")]),
        *(Annotated[str, Field(pattern="(")], Annotated[int, Field(ge="x")], list[ToolContext], dict[str, ToolContext]),
        *(Callable[[], int], ClassVar[int], type("Opaque", (), {})),
    ],
    ids=str,
)
def test_what_pydantic_cannot_take_is_told_as_a_mistake_in_the_annotations(hint: Any) -> None:
    with pytest.raises(ConfigError, match="tool 'Expected'"):
        tool_of(taking(hint, 1))
