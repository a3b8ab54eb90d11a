"""Compiler of expressions. It never runs code that the author of a rule wrote.

Python's parser turns the text into a tree. The compiler builds a new tree from it, and accepts only the kinds of nodes
in `_CONVERTERS`. The new tree has no attributes, and no names but those of known functions:

    context.turn.count      view["context.turn.count"]               a look-up in a frozen view
    budget("x").ratio       "."(budget(view, "x"), "ratio")           the same, when the name is known only at run time
    a.tools[0]              "[]"(view["a.tools"], 0)
    a.state.get("x", 0)     ".get"(view["a.state"], "x", 0)           get, has and keys of a table, no other method
    a.x + 1                 "+"(view["a.x"], 1)                       a bounded operation, named by its sign
    len(a.tools)            len(view["a.tools"])                      a built-in function of expressions
    tool_failed("x")        tool_failed(view, "x")                    a helper of the vocabulary

Python itself does only: and, or, not, if-else, unary plus and minus, lists, and comparisons. Values from a view have
Python's built-in types, so these run no other code.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator
from types import NoneType
from typing import Any

from .._internal.syntax import parse_python
from ..errors import ConfigError, ConfigErrors
from .operations import FUNCTIONS, METHODS
from .view import MAX_INT, View
from .vocabulary import CONSTANTS, Helper, Vocabulary, suggest_or_list_names

MAX_CHARACTERS = 2_000
"""Maximum length of an expression. Python's parser can handle any text of this length, and never sees a longer one."""
MAX_PARTS, MAX_LEVELS = 300, 30
"""Maximum number of nodes, and maximum nesting, of the parsed tree."""

Span = tuple[int | None, int | None, int | None, int | None]
"""Position as in a code object: first line, last line, first column, column after the last."""


class Source:
    """The text of an expression within a larger text.

    It is parsed in brackets, so that it may span several lines. If a bracket in it closes ours, it is not one
    expression but parts of two, and is refused.
    """

    def __init__(self, text: str, where: str, start: int = 0, end: int | None = None) -> None:
        self.full_text = text
        self.where = where
        self.start = start
        self.text = text[start:end]

    def parse(self) -> ast.expr:
        """Return the parsed tree. Raises ConfigError."""
        if len(self.text) > MAX_CHARACTERS:
            raise self.build_error(0, self.text, f"an expression of at most {MAX_CHARACTERS:,} characters")
        tree = self._parse_text()
        if (tree.lineno, tree.col_offset) == (1, 0):
            raise self.build_error(0, self.text.strip(), "one expression")
        if any(count > MAX_PARTS or level > MAX_LEVELS for count, level in _measure_nodes(tree)):
            expected = f"an expression of at most {MAX_PARTS} parts, nested at most {MAX_LEVELS} levels deep"
            raise self.build_error(0, self.text.strip(), expected)
        return tree

    def dump(self) -> str:
        """Return the parsed tree as text, equal for expressions that differ only in their layout."""
        return ast.dump(self.parse())

    def _parse_text(self) -> ast.expr:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the compiler decides what is allowed, not Python's warnings
                return parse_python(f"({self.text}\n)", "eval").body
        except SyntaxError as error:
            offset, reason = self._find_offset(error.lineno or 1, max(error.offset or 1, 1) - 1), error.msg
        except (ValueError, RecursionError, MemoryError) as error:  # null bytes, lone surrogates, a deep tree
            offset, reason = 0, str(error) or "too deep"
        raise self.build_error(offset, self.text.strip(), f"an expression in Python's syntax: {reason}")

    def build_error(self, at: ast.expr | int, found: object, expected: str) -> ConfigError:
        """Return the error for a node, or for an offset in characters."""
        offset = (
            at
            if isinstance(at, int)
            else self._find_offset(at.lineno, self._count_characters(at.lineno, at.col_offset))
        )
        before = self.full_text[: self.start + offset]
        column = f"column {len(before) - before.rfind(chr(10))}"
        line = f"line {before.count(chr(10)) + 1}, " if "\n" in self.full_text else ""
        return ConfigError(f"{self.where}, {line}{column}", found, expected)

    def quote_span(self, span: Span) -> str:
        """Return the text at a position, or all of it if unknown."""
        line, last_line, column, end_column = span
        if line is None or last_line is None or column is None or end_column is None:
            return self.text.strip()
        start = self._find_offset(line, self._count_characters(line, column))
        return self.text[start : self._find_offset(last_line, self._count_characters(last_line, end_column))]

    def quote_node(self, node: ast.expr) -> str:
        """Return the text of a node."""
        return self.quote_span((node.lineno, node.end_lineno, node.col_offset, node.end_col_offset))

    def _split_lines(self) -> list[str]:
        return f"({self.text}".split("\n")

    def _count_characters(self, line: int, column: int) -> int:
        """Convert a column from bytes, which the parser counts, to characters."""
        lines = self._split_lines()
        return len(lines[line - 1].encode()[:column].decode(errors="ignore")) if line <= len(lines) else 0

    def _find_offset(self, line: int, column: int) -> int:
        """Convert a position in the bracketed text to an offset in `text`."""
        before = sum(len(line) + 1 for line in self._split_lines()[: line - 1])
        return min(max(before + column - 1, 0), len(self.text))


def _measure_nodes(tree: ast.expr) -> Iterator[tuple[int, int]]:
    """Yield the running count and the nesting level of each node."""
    stack: list[tuple[ast.AST, int]] = [(tree, 1)]
    count = 0
    while stack:
        node, level = stack.pop()
        count += isinstance(node, ast.expr)
        yield count, level
        stack.extend((child, level + 1) for child in ast.iter_child_nodes(node))


CODE_FILENAME = "<a rule>"
"""File name in the code objects of expressions."""
_VIEW_NAME = "the view"
"""Name of the argument in compiled code. The space keeps authors and helpers from using it."""


class Compiler:
    """Compiler of one expression. It collects all errors in `errors`."""

    def __init__(self, source: Source, vocabulary: Vocabulary) -> None:
        self.source = source
        self.vocabulary = vocabulary
        self.errors: list[ConfigError] = []

    def build_function(self) -> Callable[[View], object]:
        """Return the compiled function of a view. Raises ConfigErrors."""
        try:
            body = self.convert_root(self.source.parse())
        except ConfigError as error:
            raise ConfigErrors((error,)) from None
        if self.errors:
            raise ConfigErrors(tuple(self.errors))
        tree = ast.Expression(build_lambda(body, _VIEW_NAME))
        return eval(compile(ast.fix_missing_locations(tree), CODE_FILENAME, "eval"), self.vocabulary.namespace)

    def convert_root(self, node: ast.expr) -> ast.expr:
        """Convert the root of the tree. Subclasses may accept more here."""
        return self.convert(node)

    def convert(self, node: ast.expr) -> ast.expr:
        """Convert a node and keep its position.

        A node that is not allowed is an error.
        """
        converter = _CONVERTERS.get(type(node))
        if converter is None:
            return self.add_error(node, f"an expression without {_NODE_NAMES.get(type(node), type(node).__name__)}")
        return ast.copy_location(converter(self, node), node)

    def add_error(self, node: ast.expr, expected: str, found: str | None = None) -> ast.expr:
        """Add an error and return a placeholder for the node."""
        self.errors.append(self.source.build_error(node, found or self.source.quote_node(node), expected))
        return ast.copy_location(ast.Constant(None), node)

    def convert_constant(self, node: ast.Constant) -> ast.expr:
        """Convert a number, a text, true, false or none."""
        if type(node.value) is int and node.value > MAX_INT:
            return self.add_error(node, "a number of at most 64 bits")
        if type(node.value) not in {NoneType, bool, int, float, str}:
            return self.add_error(node, "a number, a string, true, false or none")
        return ast.Constant(node.value)

    def convert_name(self, node: ast.Name) -> ast.expr:
        """Convert a name to a constant or a look-up in the view."""
        known = self.vocabulary
        if node.id in CONSTANTS:
            return ast.Constant(CONSTANTS[node.id])
        if node.id in FUNCTIONS or node.id in known.helpers:
            return self.add_error(node, f"a call: {node.id}(…)")
        if node.id not in known.tree:
            return self.add_error(
                node, " or ".join(suggest_or_list_names(node.id, [*known.tree, *FUNCTIONS, *known.helpers]))
            )
        return self.build_lookup((node.id,), node)

    def build_lookup(self, path: tuple[str, ...], node: ast.expr) -> ast.expr:
        """Return the look-up of a dotted name in the view."""
        correction = self.vocabulary.suggest_correction(path)
        if correction is not None:
            return self.add_error(node, correction)
        return ast.Subscript(ast.Name(_VIEW_NAME, ast.Load()), ast.Constant(".".join(path)), ast.Load())

    def convert_attribute(self, node: ast.Attribute) -> ast.expr:
        """Convert a dotted field to a look-up."""
        if node.attr.startswith("__"):
            return self.add_error(node, "a field whose name does not begin with __")
        path = self.find_path(node)
        if path is not None:
            return self.build_lookup(path, node)
        match node.value:
            case ast.Call(func=ast.Name(id=name)) if name in self.vocabulary.helpers:
                fields = self.vocabulary.helpers[name].fields
                if fields and node.attr not in fields:
                    self.add_error(node, " or ".join(suggest_or_list_names(node.attr, fields)), node.attr)
            case _:
                pass
        return build_call(".", self.convert(node.value), ast.Constant(node.attr))

    def find_path(self, node: ast.expr) -> tuple[str, ...] | None:
        """Return the dotted name that a node stands for, also for `a["b"]`.

        None if the name is known only at run time.
        """
        match node:
            case ast.Name(id=name) if name in self.vocabulary.tree:
                return (name,)
            case ast.Attribute(value=owner, attr=name) if not name.startswith("__"):
                owner_path = self.find_path(owner)
            case ast.Subscript(value=owner, slice=ast.Constant(value=str(name))) if "." not in name:
                owner_path = self.find_path(owner)
            case _:
                return None
        return None if owner_path is None else (*owner_path, name)

    def convert_subscript(self, node: ast.Subscript) -> ast.expr:
        """Convert an index, a key or a slice."""
        path = self.find_path(node)
        if path is not None:
            return self.build_lookup(path, node)
        value, key = self.convert(node.value), node.slice
        if not isinstance(key, ast.Slice):
            return build_call("[]", value, self.convert(key))
        ends = [ast.Constant(None) if end is None else self.convert(end) for end in (key.lower, key.upper, key.step)]
        return build_call("[:]", value, *ends)

    def convert_call(self, node: ast.Call) -> ast.expr:
        """Convert a call of a built-in function or of a helper."""
        functions = [*FUNCTIONS, *self.vocabulary.helpers]
        if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            return self.convert_method(node, node.func)
        if not isinstance(node.func, ast.Name):
            return self.add_error(node, f"a call of {', '.join(functions)}")
        name = node.func.id
        if name not in functions:
            return self.add_error(node.func, " or ".join(suggest_or_list_names(name, functions)))
        helper = self.vocabulary.helpers.get(name)
        min_count, max_count = FUNCTIONS[name][1:] if helper is None else (helper.argument_count, helper.argument_count)
        arguments = self.convert_arguments(node, min_count, max_count)
        if helper is None:
            return build_call(name, *arguments)
        self.check_choice(helper, node.args)
        return build_call(name, ast.Name(_VIEW_NAME, ast.Load()), *arguments)

    def convert_method(self, node: ast.Call, method: ast.Attribute) -> ast.expr:
        """Convert `table.get(key, default)`, `table.has(key)` or `table.keys()`."""
        path = self.find_path(method.value)
        path = self.vocabulary.count_tables.get(path, path) if path else None
        if path is None:
            owner = self.convert(method.value)
        else:
            correction = self.vocabulary.suggest_correction((*path, method.attr))
            owner = self.add_error(method, correction) if correction else self.build_lookup(path, method.value)
            owner = ast.copy_location(owner, method.value)
        arguments = self.convert_arguments(node, *METHODS[method.attr])
        return build_call(f".{method.attr}", owner, *arguments)

    def convert_arguments(self, node: ast.Call, min_count: int, max_count: int) -> list[ast.expr]:
        """Convert positional arguments, and check their number."""
        for keyword in node.keywords:
            self.add_error(keyword.value, f"an argument without {'**' if keyword.arg is None else f'{keyword.arg}='}")
        if not min_count <= len(node.args) <= max_count:
            number = str(max_count) if min_count == max_count else f"{min_count} to {max_count}"
            self.add_error(node, f"{number} argument{'' if max_count == 1 else 's'}")
        return [self.convert(argument) for argument in node.args]

    def check_choice(self, helper: Helper, arguments: list[ast.expr]) -> None:
        """Check that a literal first argument is one of the helper's choices."""
        first = arguments[0] if arguments and helper.choices else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value not in helper.choices:
            self.add_error(first, " or ".join(suggest_or_list_names(first.value, helper.choices)), first.value)

    def convert_list(self, node: ast.List | ast.Tuple) -> ast.expr:
        """Convert a list or a tuple to a list."""
        return ast.List([self.convert(item) for item in node.elts], ast.Load())

    def convert_bool_op(self, node: ast.BoolOp) -> ast.expr:
        """Convert `and` and `or`."""
        return ast.BoolOp(node.op, [self.convert(value) for value in node.values])

    def convert_unary_op(self, node: ast.UnaryOp) -> ast.expr:
        """Convert `not` and unary plus and minus."""
        if not isinstance(node.op, ast.Not | ast.USub | ast.UAdd):
            self.add_error(node, "an expression without ~")
        return ast.UnaryOp(node.op, self.convert(node.operand))

    def convert_binary_op(self, node: ast.BinOp) -> ast.expr:
        """Convert arithmetic to a bounded operation."""
        sign = _SIGNS.get(type(node.op))
        if sign is None:
            self.add_error(node, f"an expression without {_NODE_NAMES.get(type(node.op), type(node.op).__name__)}")
        return build_call(sign or "+", self.convert(node.left), self.convert(node.right))

    def convert_comparison(self, node: ast.Compare) -> ast.expr:
        """Convert a comparison or a chain of them.

        `is` is allowed with none only.
        """
        left, others = self.convert(node.left), [self.convert(other) for other in node.comparators]
        for sign, old, new in zip(node.ops, node.comparators, others, strict=True):
            none = isinstance(new, ast.Constant) and new.value is None
            if type(sign) in _IDENTITY_OPERATORS and not none:
                self.add_error(old, "none after is, or == instead of is")
        return ast.Compare(left, [_IDENTITY_OPERATORS.get(type(sign), sign) for sign in node.ops], others)

    def convert_conditional(self, node: ast.IfExp) -> ast.expr:
        """Convert `a if b else c`."""
        return ast.IfExp(self.convert(node.test), self.convert(node.body), self.convert(node.orelse))


_CONVERTERS: dict[type[ast.expr], Callable[[Compiler, Any], ast.expr]] = {
    ast.Attribute: Compiler.convert_attribute,
    ast.BinOp: Compiler.convert_binary_op,
    ast.BoolOp: Compiler.convert_bool_op,
    ast.Call: Compiler.convert_call,
    ast.Compare: Compiler.convert_comparison,
    ast.Constant: Compiler.convert_constant,
    ast.IfExp: Compiler.convert_conditional,
    ast.List: Compiler.convert_list,
    ast.Name: Compiler.convert_name,
    ast.Subscript: Compiler.convert_subscript,
    ast.Tuple: Compiler.convert_list,
    ast.UnaryOp: Compiler.convert_unary_op,
}
_SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}
_IDENTITY_OPERATORS: dict[type[ast.cmpop], ast.cmpop] = {ast.Is: ast.Eq(), ast.IsNot: ast.NotEq()}
"""Only none equals none, so == can replace `is`."""
_NODE_NAMES: dict[type[ast.AST], str] = {
    ast.Await: "await",
    ast.BitAnd: "& (write and)",
    ast.BitOr: "| (write or; a filter belongs at the end of a template's expression)",
    ast.BitXor: "^",
    ast.Dict: "{ }",
    ast.DictComp: "for",
    ast.GeneratorExp: "for",
    ast.JoinedStr: "an f-string",
    ast.Lambda: "lambda",
    ast.ListComp: "for",
    ast.LShift: "<<",
    ast.MatMult: "@",
    ast.NamedExpr: ":=",
    ast.Pow: "**",
    ast.RShift: ">>",
    ast.Set: "{ } (write a list with [ ])",
    ast.SetComp: "for",
    ast.Starred: "*",
    ast.Yield: "yield",
    ast.YieldFrom: "yield",
}
"""Names of common forbidden nodes, for error messages only. `_CONVERTERS` decides what is allowed."""


def build_call(name: str, *arguments: ast.expr) -> ast.expr:
    """Return a node that calls a known function."""
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def build_lambda(body: ast.expr, *names: str) -> ast.expr:
    """Return a lambda node with these parameters."""
    arguments = ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])
    return ast.copy_location(ast.Lambda(arguments, body), body)
