"""Each example runs offline, in a folder of its own, and prints what its docstring says it prints."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[2]
NUMBERED = sorted((ROOT / "examples").glob("[0-9][0-9]_*.py"))


def run(path: Path, folder: Path) -> str:
    command, nobody = [sys.executable, path], subprocess.DEVNULL
    done = subprocess.run(command, cwd=folder, stdin=nobody, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return "\n".join(line.rstrip() for line in done.stdout.splitlines())


@pytest.mark.parametrize("path", NUMBERED, ids=lambda path: path.name)
def test_an_example_prints_what_it_promises(path: Path, tmp_path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    _, _, promised = docstring.partition("Prints:\n")
    assert run(path, tmp_path) == dedent(promised).strip()


def test_the_numbers_have_no_gap() -> None:
    assert [int(path.name[:2]) for path in NUMBERED] == list(range(1, len(NUMBERED) + 1))


def test_the_demo_prints_what_the_readme_shows(tmp_path: Path) -> None:
    _, _, rest = (ROOT / "README.md").read_text().partition("$ make demo\n")
    shown, _, _ = rest.partition("\n$ ")
    assert timeless(run(ROOT / "examples" / "demo.py", tmp_path)) == timeless(shown)


def timeless(text: str) -> str:
    return re.sub(r"\bin [\d.]+ s\b", "in … s", text.strip())
