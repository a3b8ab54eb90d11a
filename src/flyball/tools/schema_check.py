"""Checks of values against JSON schemas that other people wrote, in a bounded number of steps.

jsonschema does the checking. A foreign schema can make it run for days: references that double per level, patterns that
backtrack, long lists that are compared item by item. So each keyword counts its steps before it works, patterns are
matched by `pattern.py`, and a check that would take too many steps ends. The count is the same in every replay of a
run; a timeout would not be. Nothing is ever fetched.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from itertools import islice
from typing import Any, cast

from ..errors import quote_value
from .pattern import PatternError, compiled

MOST_STEPS = 1_000_000
"""Of one check in the event loop. The most expensive ones take about half a second."""
_DEEPEST = 120
"""Keywords inside one another. Python's stack ends at about twice as many, and jsonschema does not survive that."""
_KEYWORD = 10
"""Steps of a keyword, and of a schema that is entered. A step is about half a microsecond."""
_OVER_ITEMS = frozenset(
    {
        "additionalItems", "additionalProperties", "contains", "items", "patternProperties", "prefixItems",
        "propertyNames", "unevaluatedItems", "unevaluatedProperties",
    }
)  # fmt: skip
"""Keywords that go over the items of a value."""
_IN_DEPTH = frozenset({"const", "dependencies", "dependentRequired", "enum", "uniqueItems"})
"""Keywords that compare all there is in a value, or in the schema."""
_TOO_DEEP = "the schema refers to itself without end, or is nested too deeply"
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})

Keyword = Callable[[Any, Any, Any, Any], Any]


class Uncheckable(Exception):
    """A value cannot be checked; the message says why, and that is no fault of the value's."""


class TooComplex(Uncheckable):
    """The check takes too many steps; another value may take fewer."""


class SchemaCheck:
    """A JSON schema, ready to check values.

    >>> SchemaCheck({"type": "integer"}).problems("x", lambda error: [error.message])
    ("'x' is not of type 'integer'",)
    """

    def __init__(self, schema: Mapping[str, Any], most_steps: int = MOST_STEPS) -> None:
        self._schema = schema
        self._most_steps = most_steps

    def problems(self, value: object, tell: Callable[[Any], Iterable[str]], most: int = 20) -> tuple[str, ...]:
        """Return the first distinct problems, as `tell` words jsonschema's errors. Uncheckable says why not."""
        token = _STEPS.set(_Steps(self._most_steps, self))
        try:
            told = (problem for error in self._validator.iter_errors(value) for problem in tell(error))
            return tuple(islice(_distinct(told), most))
        except Uncheckable:
            raise
        except PatternError as error:
            raise Uncheckable(f"the schema has a pattern that cannot be used: {error}") from None
        except RecursionError:
            raise Uncheckable(_TOO_DEEP) from None
        except Exception as error:  # jsonschema raises whatever a wrong schema leads to
            raise Uncheckable(_reason(error)) from error
        except BaseException as error:
            if type(error).__name__ == "PanicException":  # a RecursionError in rpds, which jsonschema uses
                raise Uncheckable(_TOO_DEEP) from None
            raise
        finally:
            _STEPS.reset(token)

    @functools.cached_property
    def _validator(self) -> Any:
        """Made for the first check: most tools of a server are never called."""
        import referencing
        from jsonschema import Draft202012Validator
        from jsonschema import validators as untyped

        validators: Any = untyped
        kind = validators.validator_for(self._schema, default=Draft202012Validator)
        return _bounded(kind)(self._schema, registry=cast("Any", referencing.Registry)())

    @functools.cached_property
    def size(self) -> int:
        """Number of values in the schema."""
        return sum(1 for _ in _nodes(self._schema))

    @functools.cached_property
    def has_pattern_properties(self) -> bool:
        """Whether some part of the schema has them."""
        return any("patternProperties" in node for node in _nodes(self._schema) if isinstance(node, Mapping))


class _Steps:
    """The steps that are left to one check."""

    __slots__ = ("check", "depth", "left", "most")

    def __init__(self, left: int, check: SchemaCheck) -> None:
        self.most = self.left = left
        self.depth = 0
        self.check = check

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise TooComplex(f"that would take more than {self.most:,} steps; the schema or the value is too complex")

    def spend_on(self, name: str, value: Any, instance: Any) -> None:
        """Count a keyword before it works."""
        steps = _KEYWORD + _length(value)
        if name in _OVER_ITEMS:
            steps += _length(instance)
        elif name in _IN_DEPTH:
            steps += self._in_depth(value) + self._in_depth(instance)
        elif name in _REFERENCES and isinstance(value, str):
            is_pointer = value == "#" or value.startswith("#/")  # a name is looked for in the whole schema
            steps += len(value) // 10 + (0 if is_pointer else 4 * self.check.size)
        self.spend(steps)

    def _in_depth(self, value: object) -> int:
        return sum(1 for _ in islice(_nodes(value), self.left + 1))


_STEPS: ContextVar[_Steps] = ContextVar("steps of a schema check")


@functools.cache
def _bounded(kind: Any) -> Any:
    """Return a validator class like `kind` whose work is counted and bounded."""
    from jsonschema import validators as untyped

    validators: Any = untyped
    known = cast("dict[str, Keyword]", kind.VALIDATORS)
    own: dict[str, Keyword] = {"pattern": _pattern, "patternProperties": _pattern_properties, "uniqueItems": _unique}
    if "additionalProperties" in known:
        own["additionalProperties"] = functools.partial(_additional_properties, known["additionalProperties"])
    for name in {"unevaluatedItems", "unevaluatedProperties"} & known.keys():
        own[name] = functools.partial(_unevaluated, known[name])
    counted = {name: _counted(name, own.get(name, work)) for name, work in known.items()}
    bounded = validators.extend(kind, counted)
    bounded.evolve = _evolved
    return bounded


def _evolved(validator: Any, **changes: Any) -> Any:
    """Return a validator of the same class for another schema.

    jsonschema's own method takes the class that `$schema` names, which would count nothing and run every pattern.
    """
    schema = changes.get("schema", validator.schema)
    steps = _KEYWORD
    if isinstance(schema, Mapping):
        table = cast("Mapping[str, Any]", schema)
        steps += len(table) + len(str(table.get("$id", ""))) // 10
    _STEPS.get().spend(steps)
    same = {
        "schema": validator.schema,
        "format_checker": validator.format_checker,
        "registry": validator._registry,
        "_resolver": validator._resolver,
    }
    return type(validator)(**{**same, **changes})


def _counted(name: str, work: Keyword) -> Keyword:
    def keyword(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        steps = _STEPS.get()
        steps.spend_on(name, value, instance)
        if steps.depth >= _DEEPEST:
            raise Uncheckable(_TOO_DEEP)
        steps.depth += 1
        try:
            for error in work(validator, value, instance, schema) or ():
                steps.spend(len(error.message) // 100)  # it quotes the whole value
                yield error
        finally:
            steps.depth -= 1

    return keyword


def _pattern(validator: Any, expression: str, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, str) and not _matches(expression, instance):
        yield _error(f"{quote_value(instance)} does not match {quote_value(expression)}")


def _pattern_properties(validator: Any, patterns: Mapping[str, Any], instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, dict):
        for expression, below in patterns.items():
            for key, value in cast("dict[str, Any]", instance).items():
                if _matches(expression, key):
                    yield from validator.descend(value, below, path=key, schema_path=expression)


def _additional_properties(work: Keyword, validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """jsonschema would match the patterns beside it itself, so it is given only what they leave."""
    patterns = schema.get("patternProperties")
    if not patterns or not isinstance(instance, dict):
        yield from work(validator, value, instance, schema)
        return
    table = cast("dict[str, Any]", instance)
    others = {key: item for key, item in table.items() if not any(_matches(one, key) for one in patterns)}
    for error in work(validator, value, others, {**schema, "patternProperties": {}}):
        if not error.path:
            error.instance = others
        yield error


def _unevaluated(work: Keyword, validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """jsonschema follows the references beside it without counting, so they are followed and counted first."""
    if _STEPS.get().check.has_pattern_properties:
        raise Uncheckable("the schema has an unevaluated keyword together with patternProperties")
    beside = {name: part for name, part in schema.items() if not name.startswith("unevaluated")}
    for _ in validator.descend(instance, beside):
        pass
    yield from work(validator, value, instance, schema)


def _unique(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if wanted and isinstance(instance, list):
        items = cast("list[object]", instance)
        if len({_canonical(item) for item in items}) < len(items):
            yield _error(f"{quote_value(items)} has non-unique elements")


def _matches(expression: str, text: str) -> bool:
    return compiled(expression).found_in(text, _STEPS.get().spend)


def _canonical(value: object) -> str:
    """Return the same text for values that JSON Schema calls equal: 1 is 1.0, but not true."""
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        return f"{{{','.join(f'{key!r}:{_canonical(table[key])}' for key in sorted(table))}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_canonical, cast('list[object]', value)))}]"
    if isinstance(value, float) and value.is_integer():
        return repr(int(value))
    return repr(value)


def _error(message: str) -> Any:
    from jsonschema import ValidationError

    return ValidationError(message)


def _reason(error: Exception) -> str:
    from referencing.exceptions import Unresolvable

    if isinstance(error, Unresolvable):
        return f"the schema refers to {quote_value(error.ref)}, which is not in the schema and is never fetched"
    words = (str(error) or "no reason given").splitlines()[0]
    return f"the schema cannot be used: {type(error).__name__}: {words[:200]}"


def _distinct(texts: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for text in texts:
        if text not in seen:
            seen.add(text)
            yield text


def _length(value: object) -> int:
    return len(cast("list[object]", value)) if isinstance(value, list | dict) else 0


def _nodes(value: object) -> Iterator[object]:
    """Yield a value and all that is in it."""
    waiting = [value]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, Mapping):
            waiting += cast("Mapping[str, object]", node).values()
        elif isinstance(node, list):
            waiting += cast("list[object]", node)
