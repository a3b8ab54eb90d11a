"""Templates: texts with `{{ expression }}` in them, compiled like conditions and limited in length.

Filters may follow an expression: `| round` or `| round(2)`, `| percent` or `| percent(1)`, `| int`, `| length`,
`| upper`, `| lower`, and `| default(other)` for a value that is none or an error. They bind like Python's `|`:
`a / b | percent` needs no brackets, but `(a > b) | default(false)` does. To write braces, use `{{ "{{" }}`.

>>> from .view import View
>>> vocabulary = Vocabulary({"used", "limit", "cost"})
>>> template = Template("{{ used / limit | percent }} of the turns, {{ cost | default('no') }} dollars.", vocabulary)
>>> template.render(View({"used": 8, "limit": 10}))
'80% of the turns, no dollars.'
>>> Template("{{ [used, limit] }}", vocabulary).render_value(View({"used": 8, "limit": 10}))
[8, 10]
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from .._internal import validation
from ..errors import ConfigError, ConfigErrors, RuleError
from .compiler import MAX_CHARACTERS, Compiler, Source, build_call, build_lambda
from .expression import Expression
from .operations import to_text
from .view import View, to_plain
from .vocabulary import Vocabulary, suggest_or_list_names

MAX_TEMPLATE_CHARACTERS = 10_000
"""Maximum characters of a template, and of the rendered text."""

_FILTERS = {
    "default": (1, 1), "int": (0, 1), "length": (0, 0), "lower": (0, 0), "percent": (0, 1), "round": (0, 1),
    "upper": (0, 0),
}  # fmt: skip
"""Filters with their minimum and maximum number of arguments."""
_OPEN, _CLOSE = "{{", "}}"
_OPEN_TAG = re.compile(r"\{\{|\{[%#]")
"""Start of an expression, or of a Jinja tag or comment, which are not allowed."""
_TOKEN = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\}\}|.""", re.DOTALL)


class Template:
    """A compiled template. Stateless, so any thread may use it."""

    __slots__ = ("_parts", "max_characters")

    def __init__(
        self, text: str, vocabulary: Vocabulary, where: str = "template", max_characters: int = MAX_TEMPLATE_CHARACTERS
    ) -> None:
        """Compile a template. `where` names its place in errors.

        Raises ConfigErrors with everything that is wrong.
        """
        validation.check_type(where, text, str)
        if len(text) > MAX_TEMPLATE_CHARACTERS:
            raise ConfigErrors((ConfigError(where, text, f"at most {MAX_TEMPLATE_CHARACTERS:,} characters"),))
        self.max_characters = max_characters
        self._parts: list[str | Expression] = []
        errors: list[ConfigError] = []
        for part in _split_parts(text, where):
            try:
                self._parts.append(Expression(_FilterCompiler(part, vocabulary)) if isinstance(part, Source) else part)
            except ConfigErrors as group:
                errors.extend(group.errors)
        if errors:
            raise ConfigErrors(tuple(errors))

    @property
    def key(self) -> tuple[tuple[bool, str], ...]:
        """Texts and parsed expressions, equal for templates that differ only in the layout of expressions."""
        return tuple((True, part) if isinstance(part, str) else (False, part.source.dump()) for part in self._parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def render(self, view: View) -> str:
        """Render the text.

        Raises RuleError if an expression fails or it gets too long.
        """
        remaining = self.max_characters
        texts: list[str] = []
        for part in self._parts:
            texts.append(part if isinstance(part, str) else to_text(part.compute(view), self.max_characters))
            remaining -= len(texts[-1])
            if remaining < 0:
                raise RuleError(f"the text has more than {self.max_characters:,} characters")
        return "".join(texts)

    def render_value(self, view: View) -> object:
        """Render the text.

        A template that is one expression returns its value instead.
        """
        match self._parts:
            case [Expression() as only]:
                return to_plain(only.compute(view), self.max_characters)
            case _:
                return self.render(view)


class TemplateTree:
    """A value with templates in it: a text, a number, or a table or list of these."""

    __slots__ = ("_node",)

    def __init__(self, node: Template | Mapping[str, TemplateTree] | Sequence[TemplateTree]) -> None:
        self._node = node

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TemplateTree) and self._node == other._node

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def render(self, view: View) -> object:
        """Render the value. A text that is one expression keeps the type of its value."""
        match self._node:
            case Template() as template:
                return template.render_value(view)
            case Mapping() as table:
                return {key: tree.render(view) for key, tree in table.items()}
            case items:
                return [tree.render(view) for tree in items]


def _split_parts(text: str, where: str) -> Iterator[str | Source]:
    position = 0
    while (match := _OPEN_TAG.search(text, position)) is not None:
        opened, start = match.span()
        if opened > position:
            yield text[position:opened]
        if match[0] != _OPEN:
            position = text.find("}", start) + 1 or len(text)
            yield _TagSource(text, where, opened, position)
            continue
        closed = _find_close(text, start)
        yield _UnclosedSource(text, where, opened) if closed is None else Source(text, where, start, closed)
        position = len(text) if closed is None else closed + len(_CLOSE)
    if position < len(text):
        yield text[position:]


def _find_close(text: str, start: int) -> int | None:
    """Return the offset of the closing braces.

    Braces in quotes do not count.
    """
    tokens = _TOKEN.finditer(text, start, start + MAX_CHARACTERS + len(_CLOSE))
    return next((token.start() for token in tokens if token[0] == _CLOSE), None)


class _TagSource(Source):
    """A statement or a comment of Jinja. Templates have neither."""

    def parse(self) -> ast.expr:
        choice = '{{ a if b else c }} for a choice, and {{ "{%" }} for the characters themselves'
        raise self.build_error(0, self.text, f"{{{{ expression }}}}, because templates have no statements: {choice}")


class _UnclosedSource(Source):
    """An expression without closing braces."""

    def parse(self) -> ast.expr:
        raise self.build_error(0, self.text, f"{_CLOSE} within {MAX_CHARACTERS:,} characters")


class _FilterCompiler(Compiler):
    """Compiler that accepts filters, at the end of an expression only."""

    def convert_root(self, node: ast.expr) -> ast.expr:
        """Convert a value with its filters."""
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)):
            return self.convert(node)
        value = self.convert_root(node.left)
        return ast.copy_location(self.apply_filter(value, node.right), node)

    def apply_filter(self, value: ast.expr, node: ast.expr) -> ast.expr:
        """Return a node that applies one filter to a value."""
        match node:
            case ast.Name(id=name):
                call = ast.copy_location(ast.Call(node, [], []), node)
            case ast.Call(func=ast.Name(id=name)):
                call = node
            case _:
                return self.add_error(node, f"a filter: {', '.join(_FILTERS)}")
        if name not in _FILTERS:
            return self.add_error(node, f"the filter {' or '.join(suggest_or_list_names(name, _FILTERS))}")
        arguments = self.convert_arguments(call, *_FILTERS[name])
        if name == "default":
            return build_call("|default", build_lambda(value), *map(build_lambda, arguments))
        return build_call(f"|{name}", value, *arguments)
