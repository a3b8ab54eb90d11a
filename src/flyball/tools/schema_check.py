"""Bounded checks of values against foreign JSON schemas.

jsonschema does the checking. A foreign schema can make it run for days: references that double per level, patterns that
backtrack, long lists that are compared item by item. So each keyword counts its steps before it runs, `pattern.py`
matches the patterns, and a check that takes too many steps is refused. A step count gives the same result in every
replay of a run; a timeout would not. References to other documents are never fetched.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from itertools import islice
from typing import Any, cast

from ..errors import quote_value
from .pattern import PatternError, compiled

MAX_STEPS = 1_000_000
"""Maximum steps of one check in the event loop. The most expensive checks take about half a second."""
_MAX_DEPTH = 120
"""Maximum nesting of keywords. Python's stack overflows at about twice this depth, and jsonschema crashes then."""
_KEYWORD_STEPS = 10
"""Steps charged for each keyword and subschema. A step takes about half a microsecond."""
_ITEM_KEYWORDS = frozenset(
    {
        "additionalItems", "additionalProperties", "contains", "items", "patternProperties", "prefixItems",
        "propertyNames", "unevaluatedItems", "unevaluatedProperties",
    }
)  # fmt: skip
"""Keywords that iterate over the items of a value."""
_DEEP_KEYWORDS = frozenset({"const", "dependencies", "dependentRequired", "enum", "uniqueItems"})
"""Keywords that compare whole values, in the instance or in the schema."""
_TOO_DEEP = "the schema refers to itself without end, or is nested too deeply"
_REFERENCE_KEYWORDS = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})

Keyword = Callable[[Any, Any, Any, Any], Any]


class Uncheckable(Exception):
    """Raised if a value cannot be checked.

    The message says why; mostly the schema is the reason.
    """


class TooComplex(Uncheckable):
    """Raised if a check takes too many steps.

    Another value may take fewer.
    """


class SchemaCheck:
    """A JSON schema that values can be checked against.

    >>> SchemaCheck({"type": "integer"}).problems("x", lambda error: [error.message])
    ("'x' is not of type 'integer'",)
    """

    def __init__(self, schema: Mapping[str, Any], max_steps: int = MAX_STEPS) -> None:
        self._schema = schema
        self._max_steps = max_steps

    def problems(
        self, value: object, describe: Callable[[Any], Iterable[str]], max_problems: int = 20
    ) -> tuple[str, ...]:
        """Return the first distinct problems of a value.

        `describe` turns an error of jsonschema into texts.

        Raises:
            Uncheckable: the value cannot be checked against this schema.
        """
        token = _STEPS.set(_StepCounter(self._max_steps, self))
        try:
            found = (problem for error in self._validator.iter_errors(value) for problem in describe(error))
            return tuple(islice(_iter_distinct(found), max_problems))
        except Uncheckable:
            raise
        except PatternError as error:
            raise Uncheckable(f"the schema has a pattern that cannot be used: {error}") from None
        except RecursionError:
            raise Uncheckable(_TOO_DEEP) from None
        except Exception as error:  # an invalid schema can make jsonschema raise anything
            raise Uncheckable(_describe_failure(error)) from error
        except BaseException as error:
            if type(error).__name__ == "PanicException":  # rpds, used by jsonschema, turns a RecursionError into this
                raise Uncheckable(_TOO_DEEP) from None
            raise
        finally:
            _STEPS.reset(token)

    @functools.cached_property
    def _validator(self) -> Any:
        # Built on the first check: most tools of a server are never called.
        import referencing
        from jsonschema import Draft202012Validator
        from jsonschema import validators as untyped

        validators: Any = untyped
        kind = validators.validator_for(self._schema, default=Draft202012Validator)
        return _build_bounded_class(kind)(self._schema, registry=cast("Any", referencing.Registry)())

    @functools.cached_property
    def size(self) -> int:
        """Number of values in the schema."""
        return sum(1 for _ in _iter_nodes(self._schema))

    @functools.cached_property
    def has_pattern_properties(self) -> bool:
        """True if any part of the schema uses `patternProperties`."""
        return any("patternProperties" in node for node in _iter_nodes(self._schema) if isinstance(node, Mapping))


class _StepCounter:
    """Remaining steps of one check."""

    __slots__ = ("check", "depth", "max_steps", "remaining")

    def __init__(self, max_steps: int, check: SchemaCheck) -> None:
        self.max_steps = self.remaining = max_steps
        self.depth = 0
        self.check = check

    def spend(self, steps: int) -> None:
        self.remaining -= steps
        if self.remaining < 0:
            raise TooComplex(
                f"the check needs more than {self.max_steps:,} steps, because the schema or the value is too complex"
            )

    def spend_on(self, name: str, value: Any, instance: Any) -> None:
        """Charge for a keyword before it runs."""
        steps = _KEYWORD_STEPS + _count_items(value)
        if name in _ITEM_KEYWORDS:
            steps += _count_items(instance)
        elif name in _DEEP_KEYWORDS:
            steps += self._count_nodes(value) + self._count_nodes(instance)
        elif name in _REFERENCE_KEYWORDS and isinstance(value, str):
            is_pointer = value == "#" or value.startswith("#/")  # an anchor is searched for in the whole schema
            steps += len(value) // 10 + (0 if is_pointer else 4 * self.check.size)
        self.spend(steps)

    def _count_nodes(self, value: object) -> int:
        return sum(1 for _ in islice(_iter_nodes(value), self.remaining + 1))


_STEPS: ContextVar[_StepCounter] = ContextVar("steps of a schema check")


@functools.cache
def _build_bounded_class(kind: Any) -> Any:
    """Return a subclass of a validator class with counted steps."""
    from jsonschema import validators as untyped

    validators: Any = untyped
    originals = cast("dict[str, Keyword]", kind.VALIDATORS)
    replacements: dict[str, Keyword] = {
        "pattern": _check_pattern,
        "patternProperties": _check_pattern_properties,
        "uniqueItems": _check_unique_items,
    }
    if "additionalProperties" in originals:
        replacements["additionalProperties"] = functools.partial(_check_additional, originals["additionalProperties"])
    for name in {"unevaluatedItems", "unevaluatedProperties"} & originals.keys():
        replacements[name] = functools.partial(_check_unevaluated, originals[name])
    counted = {name: _count_steps(name, replacements.get(name, work)) for name, work in originals.items()}
    bounded = validators.extend(kind, counted)
    bounded.evolve = _evolve
    return bounded


def _evolve(validator: Any, **changes: Any) -> Any:
    """Return a validator of the same class for a subschema.

    jsonschema's own method switches to the class that `$schema` names. That class would count no steps and would match
    patterns with `re`.
    """
    schema = changes.get("schema", validator.schema)
    steps = _KEYWORD_STEPS
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


def _count_steps(name: str, work: Keyword) -> Keyword:
    def keyword(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        steps = _STEPS.get()
        steps.spend_on(name, value, instance)
        if steps.depth >= _MAX_DEPTH:
            raise Uncheckable(_TOO_DEEP)
        steps.depth += 1
        try:
            for error in work(validator, value, instance, schema) or ():
                steps.spend(len(error.message) // 100)  # the message quotes the whole value
                yield error
        finally:
            steps.depth -= 1

    return keyword


def _check_pattern(validator: Any, expression: str, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, str) and not _matches(expression, instance):
        yield _make_error(f"{quote_value(instance)} does not match {quote_value(expression)}")


def _check_pattern_properties(validator: Any, patterns: Mapping[str, Any], instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, dict):
        for expression, subschema in patterns.items():
            for key, value in cast("dict[str, Any]", instance).items():
                if _matches(expression, key):
                    yield from validator.descend(value, subschema, path=key, schema_path=expression)


def _check_additional(work: Keyword, validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    # jsonschema would match the sibling patternProperties with `re`. So remove the properties that they match first.
    patterns = schema.get("patternProperties")
    if not patterns or not isinstance(instance, dict):
        yield from work(validator, value, instance, schema)
        return
    table = cast("dict[str, Any]", instance)
    remaining = {key: item for key, item in table.items() if not any(_matches(pattern, key) for pattern in patterns)}
    for error in work(validator, value, remaining, {**schema, "patternProperties": {}}):
        if not error.path:
            error.instance = remaining
        yield error


def _check_unevaluated(work: Keyword, validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    # jsonschema follows sibling references without counting steps. So follow and count them first.
    if _STEPS.get().check.has_pattern_properties:
        raise Uncheckable("the schema has an unevaluated keyword together with patternProperties")
    siblings = {name: part for name, part in schema.items() if not name.startswith("unevaluated")}
    for _ in validator.descend(instance, siblings):
        pass
    yield from work(validator, value, instance, schema)


def _check_unique_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if wanted and isinstance(instance, list):
        items = cast("list[object]", instance)
        if len({_canonicalize(item) for item in items}) < len(items):
            yield _make_error(f"{quote_value(items)} has non-unique elements")


def _matches(expression: str, text: str) -> bool:
    return compiled(expression).found_in(text, _STEPS.get().spend)


def _canonicalize(value: object) -> str:
    """Return the same text for values that JSON Schema considers equal.

    1 equals 1.0, but not true.
    """
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        return f"{{{','.join(f'{key!r}:{_canonicalize(table[key])}' for key in sorted(table))}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_canonicalize, cast('list[object]', value)))}]"
    if isinstance(value, float) and value.is_integer():
        return repr(int(value))
    return repr(value)


def _make_error(message: str) -> Any:
    from jsonschema import ValidationError

    return ValidationError(message)


def _describe_failure(error: Exception) -> str:
    from referencing.exceptions import Unresolvable

    if isinstance(error, Unresolvable):
        return f"the schema refers to {quote_value(error.ref)}, which is outside the schema and is not fetched"
    message = (str(error) or "no reason given").splitlines()[0]
    return f"the schema cannot be used: {type(error).__name__}: {message[:200]}"


def _iter_distinct(texts: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for text in texts:
        if text not in seen:
            seen.add(text)
            yield text


def _count_items(value: object) -> int:
    return len(cast("list[object]", value)) if isinstance(value, list | dict) else 0


def _iter_nodes(value: object) -> Iterator[object]:
    """Yield a value and all values nested in it."""
    pending = [value]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, Mapping):
            pending += cast("Mapping[str, object]", node).values()
        elif isinstance(node, list):
            pending += cast("list[object]", node)
