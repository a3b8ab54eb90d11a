"""Every code block that a reader may copy is run: in README, CONTRIBUTING, docs/ and docstrings.

The blocks of a page run in order, in one folder and one namespace, so that a page reads as one session:
- `python` is executed; an `output` block right behind it is what it prints.
- `toml` must parse. What begins with `# name.toml` or `# name.py` is also that file, for the blocks that follow.
- `console` has commands behind `$` and their output; `make` is only asked whether it knows the target. `flyball` at the
  start of a line is run in this process, as the start of an interpreter takes longer than most commands.
- `text` is a picture, with nothing to run. Any other kind fails.
"""

import contextlib
import doctest
import importlib
import io
import os
import pkgutil
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import flyball

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
Typed = Callable[..., subprocess.CompletedProcess[str]]
FLYBALL = re.compile(r"((?:\w+=\S+ )*)flyball ([^;|&<>$`]+)(?:\| (.+))?")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    kind: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [Block(found[1], found[2], text.count("\n", 0, found.start()) + 2) for found in FENCE.finditer(text)]


class Session:
    """A reader who works through one page."""

    def __init__(self, page: Path, folder: Path, typed: Typed) -> None:
        self.page = page
        self.folder = folder
        self.typed = typed
        self.names: dict[str, Any] = {"__name__": "__page__"}
        self.printed: str | None = None

    def run(self, block: Block) -> None:
        getattr(self, f"run_{block.kind}")(block)

    def run_text(self, block: Block) -> None:
        assert block.text.strip()

    def run_python(self, block: Block) -> None:
        source = "\n" * (block.line - 1) + block.text  # so that a traceback points into the page
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(source, str(self.page), "exec"), self.names)
        self.printed = out.getvalue()
        self.keep(block, "py")

    def run_output(self, block: Block) -> None:
        assert_same(self.printed or "", block.text)

    def run_toml(self, block: Block) -> None:
        tomllib.loads(block.text)
        self.keep(block, "toml")

    def keep(self, block: Block, ending: str) -> None:
        if named := re.match(rf"# ([\w-]+\.{ending})\n", block.text):
            (self.folder / named[1]).write_text(block.text)

    def run_console(self, block: Block) -> None:
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            if command.startswith("make "):
                subprocess.run(
                    [*command.split()[:2], "--dry-run"], cwd=ROOT, capture_output=True, timeout=60, check=True
                )
            elif found := FLYBALL.fullmatch(command):
                assert_same(self.flyball(*found.groups("")), expected)
            else:
                assert_same(self.shell(command), expected)

    def flyball(self, settings: str, arguments: str, pipe: str) -> str:
        environment = dict(setting.split("=", 1) for setting in settings.split())
        done = self.typed(*shlex.split(arguments), merged=not pipe, trusted=False, **environment)
        return done.stderr + (self.shell(pipe, done.stdout) if pipe else done.stdout)

    def shell(self, command: str, stdin: str = "") -> str:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            command,
            shell=True,
            cwd=self.folder,
            env=os.environ | {"PATH": path},
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout


def assert_same(printed: str, expected: str) -> None:
    """Blanks at line ends do not count; a line `...` stands for any lines, and `in 0 s` for any time."""
    lines = ["(?s:.*?)" if line == "..." else re.escape(line.rstrip()) for line in expected.strip().splitlines()]
    lines = [line.replace(re.escape(" in 0 s"), r" in [\d.]+ s") for line in lines]
    pattern = "\n".join(lines)
    text = "\n".join(line.rstrip() for line in printed.strip().splitlines())
    assert re.fullmatch(pattern, text), f"expected:\n{expected}\nprinted:\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_does_what_it_says(page: Path, tmp_path: Path, typed: Typed) -> None:
    session = Session(page, tmp_path, typed)
    for block in blocks(page):
        session.run(block)
    assert page.read_text().count("\n```") % 2 == 0, "a fence is left open"


def test_the_pages_have_blocks() -> None:
    assert {block.kind for page in PAGES for block in blocks(page)} >= {"python", "console", "toml"}


def test_the_examples_in_docstrings_do_what_they_say() -> None:
    names = [info.name for info in pkgutil.walk_packages(flyball.__path__, "flyball.")]
    modules = [importlib.import_module(name) for name in names if name != "flyball.__main__"]  # which runs the command
    results = {module.__name__: doctest.testmod(module, optionflags=doctest.ELLIPSIS) for module in modules}
    assert [name for name, result in results.items() if result.failed] == []
    assert sum(result.attempted for result in results.values()) >= 50
    assert [module.__name__ for module in modules if "```" in (module.__doc__ or "")] == []
