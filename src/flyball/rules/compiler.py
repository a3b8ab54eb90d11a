"""From the text of an expression to its code. Nothing of what an author wrote is run.

Python's parser reads the text into a tree. Of the kinds of node in `_ALLOWED`, and of no others, a new tree is built,
which has no attributes, and no names but those of functions that we know:

    context.turn.count      view["context.turn.count"]               a look-up in a frozen view
    budget("x").ratio       "."(budget(view, "x"), "ratio")           the same, where the name is not known before
    a.tools[0]              "[]"(view["a.tools"], 0)
    a.x + 1                 "+"(view["a.x"], 1)                       an operation with bounds, by its sign
    len(a.tools)            len(view["a.tools"])                      a function of the language
    tool_failed("x")        tool_failed(view, "x")                    a helper of the vocabulary

What is left to Python itself is and, or, not, if-else, a sign before a number, a list, and comparison. With values that
left a view, which are of Python's own types, these run no code but Python's.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import NoneType
from typing import Any

from ..errors import ConfigError, Mistakes
from .operations import FUNCTIONS
from .source import Source
from .view import LARGEST, View
from .vocabulary import WORDS, Helper, Vocabulary, likely

FILE = "<a rule>"
"""What the code of every expression says that it was read from."""
_VIEW = "the view"
"""What the code calls its argument; no author and no helper can be called so."""


class Compiler:
    """Builds the code of one expression, and collects all that is wrong with it."""

    def __init__(self, source: Source, vocabulary: Vocabulary) -> None:
        self.source = source
        self.vocabulary = vocabulary
        self.mistakes: list[ConfigError] = []

    def compiled(self) -> Callable[[View], object]:
        """The code as a function of a view; `Mistakes` if there are any."""
        try:
            body = self.whole(self.source.tree())
        except ConfigError as mistake:
            raise Mistakes((mistake,)) from None
        if self.mistakes:
            raise Mistakes(tuple(self.mistakes))
        tree = ast.Expression(function(body, _VIEW))
        return eval(compile(ast.fix_missing_locations(tree), FILE, "eval"), self.vocabulary.namespace)

    def whole(self, node: ast.expr) -> ast.expr:
        """The new node for the root of the tree."""
        return self.new(node)

    def new(self, node: ast.expr) -> ast.expr:
        """The new node for an old one, pointing to where that stands; any that is not allowed is a mistake."""
        allowed = _ALLOWED.get(type(node))
        if allowed is None:
            return self.wrong(node, f"an expression without {_NAMES.get(type(node), type(node).__name__)}")
        return ast.copy_location(allowed(self, node), node)

    def wrong(self, node: ast.expr, expected: str, found: str | None = None) -> ast.expr:
        """A mistake; the node only holds the place, so that the rest can be looked at."""
        self.mistakes.append(self.source.mistake(node, found or self.source.words(node), expected))
        return ast.copy_location(ast.Constant(None), node)

    def constant(self, node: ast.Constant) -> ast.expr:
        """A number, a text, true, false or none."""
        if type(node.value) is int and node.value > LARGEST:
            return self.wrong(node, "a number of at most 64 bits")
        if type(node.value) not in {NoneType, bool, int, float, str}:
            return self.wrong(node, "a number, a text, true, false or none")
        return ast.Constant(node.value)

    def name(self, node: ast.Name) -> ast.expr:
        """A value that the view has by this name."""
        known = self.vocabulary
        if node.id in WORDS:
            return ast.Constant(WORDS[node.id])
        if node.id in FUNCTIONS or node.id in known.helpers:
            return self.wrong(node, f"a call: {node.id}(…)")
        if node.id not in known.tree:
            return self.wrong(node, " or ".join(likely(node.id, [*known.tree, *FUNCTIONS, *known.helpers])))
        return self.looked_up((node.id,), node)

    def looked_up(self, path: tuple[str, ...], node: ast.expr) -> ast.expr:
        """A value that the view has by a dotted name."""
        meant = self.vocabulary.meant(path)
        if meant is not None:
            return self.wrong(node, meant)
        return ast.Subscript(ast.Name(_VIEW, ast.Load()), ast.Constant(".".join(path)), ast.Load())

    def field(self, node: ast.Attribute) -> ast.expr:
        """What stands behind a dot."""
        if node.attr.startswith("__"):
            return self.wrong(node, "a field whose name does not begin with __")
        path = self.path(node)
        if path is not None:
            return self.looked_up(path, node)
        match node.value:
            case ast.Call(func=ast.Name(id=name)) if name in self.vocabulary.helpers:
                fields = self.vocabulary.helpers[name].fields
                if fields and node.attr not in fields:
                    self.wrong(node, " or ".join(likely(node.attr, fields)), node.attr)
            case _:
                pass
        return call(".", self.new(node.value), ast.Constant(node.attr))

    def path(self, node: ast.expr) -> tuple[str, ...] | None:
        """A dotted name that is known before anything runs; `a["b"]` is one, too."""
        match node:
            case ast.Name(id=name) if name in self.vocabulary.tree:
                return (name,)
            case ast.Attribute(value=owner, attr=name) if not name.startswith("__"):
                above = self.path(owner)
            case ast.Subscript(value=owner, slice=ast.Constant(value=str(name))) if "." not in name:
                above = self.path(owner)
            case _:
                return None
        return None if above is None else (*above, name)

    def item(self, node: ast.Subscript) -> ast.expr:
        """What stands in brackets behind a value: an index, a name, or a slice."""
        path = self.path(node)
        if path is not None:
            return self.looked_up(path, node)
        value, key = self.new(node.value), node.slice
        if not isinstance(key, ast.Slice):
            return call("[]", value, self.new(key))
        ends = [ast.Constant(None) if end is None else self.new(end) for end in (key.lower, key.upper, key.step)]
        return call("[:]", value, *ends)

    def called(self, node: ast.Call) -> ast.expr:
        """A call of a function of the language or of the vocabulary, by its name."""
        functions = [*FUNCTIONS, *self.vocabulary.helpers]
        if not isinstance(node.func, ast.Name):
            return self.wrong(node, f"a call of {', '.join(functions)}")
        name = node.func.id
        if name not in functions:
            return self.wrong(node.func, " or ".join(likely(name, functions)))
        helper = self.vocabulary.helpers.get(name)
        least, most = FUNCTIONS[name][1:] if helper is None else (helper.takes, helper.takes)
        arguments = self.arguments(node, least, most)
        if helper is None:
            return call(name, *arguments)
        self.choice(helper, node.args)
        return call(name, ast.Name(_VIEW, ast.Load()), *arguments)

    def arguments(self, node: ast.Call, least: int, most: int) -> list[ast.expr]:
        """What a function is called with: values without names, and not too few or too many."""
        for keyword in node.keywords:
            self.wrong(keyword.value, f"an argument without {'**' if keyword.arg is None else f'{keyword.arg}='}")
        if not least <= len(node.args) <= most:
            number = str(most) if least == most else f"{least} to {most}"
            self.wrong(node, f"{number} argument{'' if most == 1 else 's'}")
        return [self.new(argument) for argument in node.args]

    def choice(self, helper: Helper, arguments: list[ast.expr]) -> None:
        """That a text which is written as the first argument of a helper is one that it knows."""
        first = arguments[0] if arguments and helper.choices else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value not in helper.choices:
            self.wrong(first, " or ".join(likely(first.value, helper.choices)), first.value)

    def items(self, node: ast.List | ast.Tuple) -> ast.expr:
        """A list; what Python calls a tuple is one as well."""
        return ast.List([self.new(item) for item in node.elts], ast.Load())

    def any_or_all(self, node: ast.BoolOp) -> ast.expr:
        """And, or."""
        return ast.BoolOp(node.op, [self.new(value) for value in node.values])

    def signed(self, node: ast.UnaryOp) -> ast.expr:
        """Not, and a sign before a number."""
        if not isinstance(node.op, ast.Not | ast.USub | ast.UAdd):
            self.wrong(node, "an expression without ~")
        return ast.UnaryOp(node.op, self.new(node.operand))

    def operation(self, node: ast.BinOp) -> ast.expr:
        """Arithmetic."""
        sign = _SIGNS.get(type(node.op))
        if sign is None:
            self.wrong(node, f"an expression without {_NAMES.get(type(node.op), type(node.op).__name__)}")
        return call(sign or "+", self.new(node.left), self.new(node.right))

    def comparison(self, node: ast.Compare) -> ast.expr:
        """One comparison, or a chain; `is` is for none alone."""
        left, others = self.new(node.left), [self.new(other) for other in node.comparators]
        for sign, old, new in zip(node.ops, node.comparators, others, strict=True):
            none = isinstance(new, ast.Constant) and new.value is None
            if type(sign) in _SAME and not none:
                self.wrong(old, "none behind is, or == in place of is")
        return ast.Compare(left, [_SAME.get(type(sign), sign) for sign in node.ops], others)

    def choice_of_two(self, node: ast.IfExp) -> ast.expr:
        """If, else."""
        return ast.IfExp(self.new(node.test), self.new(node.body), self.new(node.orelse))


_ALLOWED: dict[type[ast.expr], Callable[[Compiler, Any], ast.expr]] = {
    ast.Attribute: Compiler.field,
    ast.BinOp: Compiler.operation,
    ast.BoolOp: Compiler.any_or_all,
    ast.Call: Compiler.called,
    ast.Compare: Compiler.comparison,
    ast.Constant: Compiler.constant,
    ast.IfExp: Compiler.choice_of_two,
    ast.List: Compiler.items,
    ast.Name: Compiler.name,
    ast.Subscript: Compiler.item,
    ast.Tuple: Compiler.items,
    ast.UnaryOp: Compiler.signed,
}
_SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}
_SAME: dict[type[ast.cmpop], ast.cmpop] = {ast.Is: ast.Eq(), ast.IsNot: ast.NotEq()}
"""Nothing but none equals none."""
_NAMES: dict[type[ast.AST], str] = {
    ast.Await: "await",
    ast.BitAnd: "& (and is spelt out)",
    ast.BitOr: "| (or is spelt out; a filter stands at the end of a template's expression)",
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
    ast.Set: "{ } (a list has [ ])",
    ast.SetComp: "for",
    ast.Starred: "*",
    ast.Yield: "yield",
    ast.YieldFrom: "yield",
}
"""What the most usual of all that is not allowed is called; this table decides nothing."""


def call(name: str, *arguments: ast.expr) -> ast.expr:
    """The new node for a call of one of the functions that the code knows."""
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def function(body: ast.expr, *names: str) -> ast.expr:
    """The new node for a function."""
    arguments = ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])
    return ast.copy_location(ast.Lambda(arguments, body), body)
