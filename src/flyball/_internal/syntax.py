"""Python's parser, made safe for threads."""

from __future__ import annotations

import ast
from typing import Literal, overload

_MAX_ATTEMPTS = 20


@overload
def parse_python(text: str, mode: Literal["exec"] = "exec") -> ast.Module: ...
@overload
def parse_python(text: str, mode: Literal["eval"]) -> ast.Expression: ...
def parse_python(text: str, mode: Literal["exec", "eval"] = "exec") -> ast.AST:
    """Parse Python code as `ast.parse` does.

    CPython before 3.11.8 and 3.12.2 counts the depth of the tree in a variable that all threads share (gh-106905). If
    the garbage collector runs meanwhile and lets another thread parse, as formatting a traceback does, the first parse
    raises SystemError. The text is fine then, so it is parsed again.
    """
    for _ in range(_MAX_ATTEMPTS - 1):
        try:
            return ast.parse(text, mode=mode)
        except SystemError:
            continue
    return ast.parse(text, mode=mode)
