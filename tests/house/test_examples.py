"""Each example runs offline, in a folder of its own, and prints what its docstring says it prints."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest

from flyball._internal.syntax import parse_python

ROOT = Path(__file__).parents[2]
NUMBERED = sorted((ROOT / "examples").glob("[0-9][0-9]_*.py"))


RUN_ALL = """
import json, os, runpy, signal, sys
from flyball import Agent
from flyball.testing import ScriptedModel
codes = {}
for path, folder in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os.chdir(folder)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
        sys.argv, sys.path[0] = [path], os.path.dirname(path)
        runpy.run_path(path, run_name="__main__")
        sys.exit()
    codes[path] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps(codes))
"""
"""Runs each example in a process and a folder of its own. All are forks of one interpreter, which imports once."""


class Ended(NamedTuple):
    code: int
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """What became of each example, by its name."""
    folders = {path: tmp_path_factory.mktemp(path.stem) for path in NUMBERED}
    given = json.dumps([(str(path), str(folder)) for path, folder in folders.items()])
    command, nobody = [sys.executable, "-c", RUN_ALL, given], subprocess.DEVNULL
    done = subprocess.run(command, stdin=nobody, stdout=subprocess.PIPE, text=True, timeout=600, check=True)
    codes = json.loads(done.stdout)
    return {
        path.name: Ended(codes[str(path)], (folder / "stdout").read_text(), (folder / "stderr").read_text())
        for path, folder in folders.items()
    }


@pytest.mark.parametrize("path", NUMBERED, ids=lambda path: path.name)
def test_an_example_prints_what_it_promises(path: Path, ended: dict[str, Ended]) -> None:
    docstring = ast.get_docstring(parse_python(path.read_text())) or ""
    _, _, promised = docstring.partition("Prints:\n")
    code, stdout, stderr = ended[path.name]
    assert (code, stderr) == (0, "")
    assert "\n".join(line.rstrip() for line in stdout.splitlines()) == dedent(promised).strip()


def test_the_numbers_have_no_gap() -> None:
    assert [int(path.name[:2]) for path in NUMBERED] == list(range(1, len(NUMBERED) + 1))


DEMO = """
import runpy, sys
if sys.argv[2] == "script":
    sys.modules["xllamacpp"] = None
runpy.run_path(sys.argv[1], run_name="__main__")
"""
"""Runs the demo; without the package that runs weights, a script plays the model."""
REAL = pytest.mark.skipif("DEMO" not in os.environ, reason="takes 12 s; `make soak` runs it, as `make demo` does")


@pytest.mark.parametrize("player", ["script", pytest.param("model", marks=REAL)])
def test_the_demo_prints_what_the_readme_shows(player: str, tmp_path: Path) -> None:
    """The calls and words of a model differ from machine to machine; what Flyball says does not."""
    _, _, rest = (ROOT / "README.md").read_text().partition("$ make demo\n")
    shown, _, _ = rest.partition("```")
    command, nobody = [sys.executable, "-c", DEMO, ROOT / "examples" / "demo.py", player], subprocess.DEVNULL
    done = subprocess.run(command, cwd=tmp_path, stdin=nobody, capture_output=True, text=True, timeout=900, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    printed = "\n".join(line.rstrip() for line in done.stdout.splitlines())
    assert printed.startswith("(A script") == (player == "script")
    run_part, _, why_part = printed.partition("$ flyball why\n")
    assert re.search(build_pattern(shown), run_part), f"README shows:\n{shown}\nprinted:\n{run_part}"
    assert re.search(r"^used     8 of 8 turns, .* of 12,000 tokens, [\d.]+ s$", run_part, re.MULTILINE)
    assert "refused max_agent_iterations_reached" in why_part
    assert "It reached a limit: Maximum agent iterations (8) reached" in why_part


def build_pattern(shown: str) -> str:
    """A pattern for what README shows: `...` stands for any lines, and each call or word of the model for another."""
    words = {
        r"(turn \d   ).*": r"\1\\w+\\(.*\\): done",
        r"(report   ).*": r"\1.+ \\(the model's words\\)",
        r"(record   calls done: ).*": r"\1.+; last result: .+ \\(Flyball's record\\)",
    }
    lines: list[str] = []
    for line in shown.strip().splitlines():
        own = [re.sub(pattern, text, line) for pattern, text in words.items() if re.fullmatch(pattern, line)]
        lines.append(r"(?s:.*?)" if line == "..." else own[0] if own else re.escape(line))
    return "\n".join(lines)
