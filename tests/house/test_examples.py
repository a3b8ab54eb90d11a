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


def run(path: Path, folder: Path, seconds: float = 60) -> str:
    command, nobody = [sys.executable, path], subprocess.DEVNULL
    done = subprocess.run(
        command, cwd=folder, stdin=nobody, capture_output=True, text=True, timeout=seconds, check=False
    )
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
    """What the model says is its own business, and differs from machine to machine; what Flyball says does not."""
    _, _, rest = (ROOT / "README.md").read_text().partition("$ make demo\n")
    shown, _, _ = rest.partition("\n$ ")
    printed = run(ROOT / "examples" / "demo.py", tmp_path, 900)
    run_part, _, why_part = printed.partition("$ flyball why\n")
    assert ours(run_part) == ours(shown)
    assert re.search(r"^turns +8 +8$", run_part, re.MULTILINE)
    assert re.search(r"^tokens +[\d,]+ +12,000$", run_part, re.MULTILINE)
    assert "refused max_agent_iterations_reached" in why_part
    assert "It reached a limit: Maximum agent iterations (8) reached" in why_part


def ours(text: str) -> list[str]:
    """The lines that are not the model's words."""
    heads = ("notice", "refused", "grace", "budget  ")
    return [line for line in text.splitlines() if line.startswith(heads) and "used" not in line]
