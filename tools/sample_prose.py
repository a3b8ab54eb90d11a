"""Print docstrings and error messages of Flyball at random, to read as a stranger.

Usage: python tools/sample_prose.py [SEED] [FOLDER ...]     folders of src/flyball are left out
"""

import ast
import random
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "flyball"
DOCSTRINGS, ERRORS = 40, 20
Documented = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def main(seed: int, left_out: Sequence[str]) -> None:
    """Print a sample; the same seed and the same code give the same sample."""
    chance = random.Random(seed)
    docstrings: list[str] = []
    errors: list[str] = []
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE)
        if place.parts[0] not in left_out:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            docstrings += [f"{place}: {name}\n    {text}" for name, text in find_docstrings(tree)]
            errors += [f"{place}:{line}\n    {text}" for line, text in find_errors(tree)]
    print(f"seed {seed}: {DOCSTRINGS} of {len(docstrings):,} docstrings, {ERRORS} of {len(errors):,} errors\n")
    print(*chance.sample(docstrings, DOCSTRINGS), *chance.sample(errors, ERRORS), sep="\n")


def find_docstrings(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring of each class, function and documented field."""
    for node in ast.walk(tree):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            yield node.name, " ".join(text.split())
        if isinstance(node, ast.ClassDef | ast.Module):
            for pair in pairwise(node.body):
                match pair:
                    case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                        yield name, " ".join(text.split())
                    case _:
                        pass


def find_errors(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the call of each error that is raised with a text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            text = ast.unparse(node.exc)
            if re.match(r"\w*(Error|Refused|Failed|Busy|Fence)\(.*['\"]", text):
                yield node.lineno, text


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1, sys.argv[2:])
