"""Every code block that a reader may copy is run: in README, CONTRIBUTING, docs/ and docstrings.

The blocks of a page run in order, in one folder and one namespace, so that a page reads as one session:
- `python` is executed; an `output` block right behind it is what it prints.
- `toml` must parse. What begins with `# name.toml` or `# name.py` is also that file, for the blocks that follow.
- `console` has commands behind `$` and their output; `make` is only asked whether it knows the target. `flyball` at the
  start of a line is run in this process, as the start of an interpreter takes longer than most commands.
- `text` is a picture, with nothing to run. Any other kind fails.
- A block that begins with `# pip install NAME` is run where NAME is installed. `make test-adapters` has the others.
"""

import doctest
import importlib
import pkgutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import flyball

from ..conftest import UNCLOSED
from .pages import ROOT, Session, Typed, blocks

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TESTED_ELSEWHERE = {"agno", "claude-agent-sdk", "crewai", "litellm", "smolagents"}


@pytest.mark.filterwarnings(UNCLOSED)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_does_what_it_says(page: Path, tmp_path: Path, typed: Typed) -> None:
    with Session(page, tmp_path, typed) as session:
        for block in blocks(page):
            session.run(block)
    assert page.read_text().count("\n```") % 2 == 0, "a fence is left open"


def test_each_program_of_the_readme_runs_alone(tmp_path: Path) -> None:
    """A newcomer copies one of them."""
    parts = blocks(ROOT / "README.md")
    pairs = [(block, shown) for block, shown in pairwise(parts) if (block.kind, shown.kind) == ("python", "output")]
    assert len(pairs) == sum(block.kind == "python" for block in parts) >= 2
    for number, (block, shown) in enumerate(pairs):
        (tmp_path / f"program_{number}.py").write_text(block.text)
        command = [sys.executable, f"program_{number}.py"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert (done.stderr, done.stdout) == ("", shown.text)


def test_no_block_needs_a_package_that_neither_the_lock_nor_the_adapters_have() -> None:
    missing = {name for page in PAGES for block in blocks(page) for name in block.missing}
    assert missing <= TESTED_ELSEWHERE


def test_the_pages_have_blocks() -> None:
    assert {block.kind for page in PAGES for block in blocks(page)} >= {"python", "console", "toml"}


def test_the_examples_in_docstrings_do_what_they_say() -> None:
    names = [info.name for info in pkgutil.walk_packages(flyball.__path__, "flyball.")]
    apart = {"flyball.__main__", "flyball.adapters.claude_options"}  # runs the command; needs an environment of its own
    modules = [importlib.import_module(name) for name in names if name not in apart]
    results = {module.__name__: doctest.testmod(module, optionflags=doctest.ELLIPSIS) for module in modules}
    assert [name for name, result in results.items() if result.failed] == []
    assert sum(result.attempted for result in results.values()) >= 50
    assert [module.__name__ for module in modules if "```" in (module.__doc__ or "")] == []
