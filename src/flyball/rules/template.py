"""Templates: texts with `{{ expression }}` in them, by the same compiler as conditions, and within a length.

Behind an expression may stand filters: `| round` or `| round(2)`, `| percent` or `| percent(1)`, and `| default(other)`
for a value that is none or cannot be worked out. They bind as Python's `|` does, so `a / b | percent` needs no brackets
and `(a > b) | default(false)` does. Braces themselves are written `{{ "{{" }}`.

>>> from .view import View
>>> words = Vocabulary({"used", "most", "cost"})
>>> template = Template("{{ used / most | percent }} of the turns, {{ cost | default('no') }} dollars.", words)
>>> template.render(View({"used": 8, "most": 10}))
'80% of the turns, no dollars.'
>>> Template("{{ [used, most] }}", words).render_value(View({"used": 8, "most": 10}))
[8, 10]
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from .._internal import validation
from ..errors import ConfigError, ConfigErrors, RuleError
from .compiler import MAX_CHARACTERS, Compiler, Source, build_call, build_lambda
from .expression import Expression
from .operations import to_text as written
from .view import View, to_plain
from .vocabulary import Vocabulary, suggest_or_list_names

MAX_TEMPLATE_CHARACTERS = 10_000
"""Characters of a template, and of what comes out of it."""

_FILTERS = {"default": (1, 1), "percent": (0, 1), "round": (0, 1)}
"""Each with how many arguments it takes, at least and at most."""
_OPEN, _CLOSE = "{{", "}}"
_TOKEN = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\}\}|.""", re.DOTALL)


class Template:
    """A text that was found right, ready to be filled in. It has no state, and any thread may use it."""

    __slots__ = ("_parts", "max_characters")

    def __init__(
        self, text: str, vocabulary: Vocabulary, where: str = "template", max_characters: int = MAX_TEMPLATE_CHARACTERS
    ) -> None:
        """`where` is what a mistake says of the place; all mistakes are raised together, as one `ConfigErrors`."""
        validation.check_type(where, text, str)
        if len(text) > MAX_TEMPLATE_CHARACTERS:
            raise ConfigErrors((ConfigError(where, text, f"at most {MAX_TEMPLATE_CHARACTERS:,} characters"),))
        self.max_characters = max_characters
        self._parts: list[str | Expression] = []
        mistakes: list[ConfigError] = []
        for part in _split_parts(text, where):
            try:
                self._parts.append(Expression(_FilterCompiler(part, vocabulary)) if isinstance(part, Source) else part)
            except ConfigErrors as found:
                mistakes.extend(found.errors)
        if mistakes:
            raise ConfigErrors(tuple(mistakes))

    def render(self, view: View) -> str:
        """The text with everything filled in. A RuleError tells what could not be, or that it grew too long."""
        left = self.max_characters
        texts: list[str] = []
        for part in self._parts:
            texts.append(part if isinstance(part, str) else written(part.compute(view), self.max_characters))
            left -= len(texts[-1])
            if left < 0:
                raise RuleError(f"the text has more than {self.max_characters:,} characters")
        return "".join(texts)

    def render_value(self, view: View) -> object:
        """As `text`; but where the template is one expression and nothing else, the value itself, of its own type."""
        match self._parts:
            case [Expression() as only]:
                return to_plain(only.compute(view), self.max_characters)
            case _:
                return self.render(view)


def _split_parts(text: str, where: str) -> Iterator[str | Source]:
    """The texts between the expressions, and the expressions."""
    done = 0
    while (opened := text.find(_OPEN, done)) >= 0:
        if opened > done:
            yield text[done:opened]
        start = opened + len(_OPEN)
        closed = _find_close(text, start)
        yield _UnclosedSource(text, where, opened) if closed is None else Source(text, where, start, closed)
        done = len(text) if closed is None else closed + len(_CLOSE)
    if done < len(text):
        yield text[done:]


def _find_close(text: str, start: int) -> int | None:
    """Where the braces close that opened just before; those in quotes are text."""
    tokens = _TOKEN.finditer(text, start, start + MAX_CHARACTERS + len(_CLOSE))
    return next((token.start() for token in tokens if token[0] == _CLOSE), None)


class _UnclosedSource(Source):
    """An expression without end."""

    def parse(self) -> ast.expr:
        raise self.build_error(0, self.text, f"{_CLOSE} within {MAX_CHARACTERS:,} characters")


class _FilterCompiler(Compiler):
    """A compiler that knows filters, at the end of an expression and nowhere else."""

    def convert_root(self, node: ast.expr) -> ast.expr:
        """The new node for a value with filters."""
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)):
            return self.convert(node)
        value = self.convert_root(node.left)
        return ast.copy_location(self.apply_filter(value, node.right), node)

    def apply_filter(self, value: ast.expr, node: ast.expr) -> ast.expr:
        """The new node for a value with one filter more."""
        match node:
            case ast.Name(id=name):
                asked = ast.copy_location(ast.Call(node, [], []), node)
            case ast.Call(func=ast.Name(id=name)):
                asked = node
            case _:
                return self.add_error(node, f"a filter: {', '.join(_FILTERS)}")
        if name not in _FILTERS:
            return self.add_error(node, f"the filter {' or '.join(suggest_or_list_names(name, _FILTERS))}")
        arguments = self.convert_arguments(asked, *_FILTERS[name])
        if name == "default":
            return build_call("|default", build_lambda(value), *map(build_lambda, arguments))
        return build_call(f"|{name}", value, *arguments)
