"""The text of one expression, read by Python's own parser, and how to point into it."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

from ..errors import ConfigError

MOST_CHARACTERS = 2_000
"""Of one expression. So much the parser can read whatever it says; what is longer it never sees."""
MOST_PARTS, MOST_LEVELS = 300, 30
"""Of the tree that it reads."""

Span = tuple[int | None, int | None, int | None, int | None]
"""Where something stands, as a code object has it: first and last line, first column and the one behind the last."""


class Source:
    """An expression that stands somewhere in a text.

    It is read in brackets, so that it may run over several lines. Where a bracket in it closes ours, it is not one
    expression but the pieces of two.
    """

    def __init__(self, text: str, where: str, start: int = 0, end: int | None = None) -> None:
        self.whole = text
        self.where = where
        self.start = start
        self.text = text[start:end]

    def tree(self) -> ast.expr:
        """What is written here, or a ConfigError."""
        if len(self.text) > MOST_CHARACTERS:
            raise self.mistake(0, self.text, f"an expression of at most {MOST_CHARACTERS:,} characters")
        tree = self._parsed()
        if (tree.lineno, tree.col_offset) == (1, 0):
            raise self.mistake(0, self.text.strip(), "one expression")
        if any(count > MOST_PARTS or level > MOST_LEVELS for count, level in _sizes(tree)):
            expected = f"an expression of at most {MOST_PARTS} parts, {MOST_LEVELS} in each other"
            raise self.mistake(0, self.text.strip(), expected)
        return tree

    def _parsed(self) -> ast.expr:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what Python finds odd is for the rules here to allow or refuse
                return ast.parse(f"({self.text}\n)", mode="eval").body
        except SyntaxError as error:
            place, told = self._offset(error.lineno or 1, max(error.offset or 1, 1) - 1), error.msg
        except (ValueError, RecursionError, MemoryError) as error:  # null bytes, half characters, a deep tree
            place, told = 0, str(error) or "too deep"
        raise self.mistake(place, self.text.strip(), f"an expression in Python's syntax: {told}")

    def mistake(self, at: ast.expr | int, found: object, expected: str) -> ConfigError:
        """The error for what stands at a node, or behind so many characters."""
        offset = at if isinstance(at, int) else self._offset(at.lineno, self._characters(at.lineno, at.col_offset))
        before = self.whole[: self.start + offset]
        column = f"column {len(before) - before.rfind(chr(10))}"
        line = f"line {before.count(chr(10)) + 1}, " if "\n" in self.whole else ""
        return ConfigError(f"{self.where}, {line}{column}", found, expected)

    def quoted(self, span: Span) -> str:
        """The words at a place; all of them where it is not known."""
        line, last, column, behind = span
        if line is None or last is None or column is None or behind is None:
            return self.text.strip()
        start = self._offset(line, self._characters(line, column))
        return self.text[start : self._offset(last, self._characters(last, behind))]

    def words(self, node: ast.expr) -> str:
        """What was written for a node."""
        return self.quoted((node.lineno, node.end_lineno, node.col_offset, node.end_col_offset))

    def _lines(self) -> list[str]:
        return f"({self.text}".split("\n")

    def _characters(self, line: int, column: int) -> int:
        """The parser counts bytes."""
        lines = self._lines()
        return len(lines[line - 1].encode()[:column].decode(errors="ignore")) if line <= len(lines) else 0

    def _offset(self, line: int, column: int) -> int:
        """How many characters of the text stand before a place; our own brackets are no part of it."""
        before = sum(len(line) + 1 for line in self._lines()[: line - 1])
        return min(max(before + column - 1, 0), len(self.text))


def _sizes(tree: ast.expr) -> Iterator[tuple[int, int]]:
    """After each part: how many there were so far, and in how many others it stands."""
    waiting: list[tuple[ast.AST, int]] = [(tree, 1)]
    count = 0
    while waiting:
        node, level = waiting.pop()
        count += isinstance(node, ast.expr)
        yield count, level
        waiting.extend((child, level + 1) for child in ast.iter_child_nodes(node))
