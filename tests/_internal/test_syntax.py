import ast
import gc
from collections.abc import Iterator
from typing import Any

import pytest

from flyball._internal.syntax import parse_python

TEXT = "(" + " + ".join(f"a[{n}].b" for n in range(200)) + ")"


@pytest.fixture
def disturbed() -> Iterator[list[str]]:
    """Parse something else once, from the garbage collector, in the middle of a parse: what another thread may do."""
    parsed: list[str] = []

    def parse_meanwhile(phase: str, info: dict[str, Any]) -> None:
        if not parsed:
            parsed.append(phase)
            ast.parse("(1)")

    thresholds = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(parse_meanwhile)
    gc.set_threshold(100)
    yield parsed
    gc.callbacks.remove(parse_meanwhile)
    gc.set_threshold(*thresholds)


def test_a_parse_that_is_disturbed_by_another_is_repeated(disturbed: list[str]) -> None:
    tree = parse_python(TEXT, "eval")
    assert disturbed == ["start"]
    assert ast.unparse(tree) == TEXT[1:-1]


def test_a_wrong_text_is_a_syntax_error_at_once() -> None:
    with pytest.raises(SyntaxError):
        parse_python("a b")
