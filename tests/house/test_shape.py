"""The house style, as far as a program can see it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE_LINES, FUNCTION_LINES, README_LINES = 400, 50, 100
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "manager", "types"}


def python_files() -> list[Path]:
    return [path for top in ("src", "tests", "benchmarks", "examples") for path in sorted((ROOT / top).rglob("*.py"))]


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_or_function_outgrows_the_house(path: Path) -> None:
    text = path.read_text()
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = {f.name: size for f in functions if (size := (f.end_lineno or 0) - f.lineno + 1) > FUNCTION_LINES}
    assert long == {}
    assert len(text.splitlines()) <= FILE_LINES
    assert path.stem not in FORBIDDEN_NAMES


def test_the_readme_fits() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES
