"""Pages of the documentation, as a reader works through them."""

import contextlib
import gc
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from flyball.testing.server import ModelServer

ROOT = Path(__file__).parents[2]
Typed = Callable[..., subprocess.CompletedProcess[str]]
FLYBALL = re.compile(r"((?:\w+=\S+ )*)flyball ([^;|&<>$`]+)(?:\| (.+))?")
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    kind: str
    text: str
    line: int
    section: str = ""
    """Heading that it stands under."""

    @property
    def missing(self) -> list[str]:
        """Packages that its first line, `# pip install NAME`, names and that are not installed."""
        first = self.text.partition("\n")[0]
        names = (
            re.findall(r"[\w-]+(?=[\s'\[]|$)", first.removeprefix("# pip install "))
            if "# pip install " in first
            else []
        )
        return [name for name in names if not is_installed(name)]


def is_installed(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    headings = [(found.start(), found[1]) for found in HEADING.finditer(text)]

    def find_section(at: int) -> str:
        return next((heading for start, heading in reversed(headings) if start < at), "")

    return [
        Block(found[1], found[2], text.count("\n", 0, found.start()) + 2, find_section(found.start()))
        for found in FENCE.finditer(text)
    ]


class Session:
    """A reader who works through one page."""

    def __init__(self, page: Path, folder: Path, typed: Typed) -> None:
        self.page = page
        self.folder = folder
        self.typed = typed
        self.names: dict[str, Any] = {"__name__": "__page__"}
        self.printed: str | None = None
        self.is_left_out = False
        self.environment = dict(os.environ)

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        for value in self.names.values():
            if isinstance(value, ModelServer):  # one that the page has left open
                value.__exit__(None, None, None)
        os.environ.clear()
        os.environ.update(self.environment)
        self.names.clear()
        with warnings.catch_warnings():  # of a client that has outlived its event loop, as in programs of users
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()

    def run(self, block: Block) -> None:
        if block.kind == "output" and self.is_left_out:
            return
        self.is_left_out = bool(block.missing)
        if not self.is_left_out:
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
    """Blanks at line ends do not count; a line `...` stands for any lines or none, and `in 0 s` for any time."""
    lines = ["(?s:.*?)" if line == "..." else re.escape(line.rstrip()) for line in expected.strip().splitlines()]
    lines = [line.replace(re.escape(" in 0 s"), r" in [\d.]+ s") for line in lines]
    pattern = "\n".join(lines).replace("(?s:.*?)\n", "(?s:(?:.*?\n)??)")
    text = "\n".join(line.rstrip() for line in printed.strip().splitlines())
    assert re.fullmatch(pattern, text), f"expected:\n{expected}\nprinted:\n{printed}"
