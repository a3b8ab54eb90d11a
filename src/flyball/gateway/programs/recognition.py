"""Recognition of a known program in a command, also behind npx, uvx, `python -m` and `node FILE`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath

from .launch import KnownProgram
from .wrappers import get_name, iter_hidden, open_wrappers, skip_options

_RUNNERS = {
    "npx": 0,
    "bunx": 0,
    "uvx": 0,
    "pnpx": 0,
    "npm": 1,
    "pnpm": 1,
    "yarn": 1,
    "bun": 1,
    "uv": 1,
    "pipx": 1,
    "poetry": 1,
}
"""Programs that run packages, with the number of words of their own command, such as `exec` or `dlx`."""
_WITH_VALUE = frozenset(
    {
        "-p", "--package", "-c", "--call", "--from", "--with", "--with-editable", "--with-requirements", "--python",
        "--index", "--index-url", "--prefix", "-w", "--directory", "--project", "--extra", "--group", "--env-file",
    }
)  # fmt: skip
"""Options of the runners that take a value."""
_LOADERS = frozenset({"-r", "--require", "--import", "--loader", "--env-file", "-C", "--conditions"})
"""Options of node that take a value."""
_PYTHON = re.compile(r"python[\d.]*|pypy[\d.]*")
_INTERPRETERS = frozenset({"node", "bun", "deno", "nodejs"})
_MODULE_FOLDER = re.compile(r"(?:node_modules|site-packages)/((?:@[^/]+/)?[^/]+)/")


def identify(command: Sequence[str], programs: Iterable[KnownProgram]) -> tuple[KnownProgram | None, int]:
    """Return the known program that a command runs, and the index of its first argument. None if it is not known."""
    known = tuple(programs)
    name = get_name(command[0])
    found = _find_by_name(name, known) or _find_by_path(command[0], known)
    if found is not None:
        return found, 1
    if name in _RUNNERS:
        own = 1 + _RUNNERS[name] + ("tool" in command[1:2])
        return _identify_package(command, own, known)
    if _PYTHON.fullmatch(name):
        return _identify_python(command, known)
    if name in _INTERPRETERS:
        at = skip_options(command, 1, _LOADERS)
        return (_find_by_path(command[at], known), at + 1) if at < len(command) else (None, 0)
    return None, 0


def find_hidden(command: Sequence[str], programs: Iterable[KnownProgram]) -> KnownProgram | None:
    """Return the known program that a shell or the like starts by itself, where its command cannot be changed."""
    known = tuple(programs)
    for words in iter_hidden(command):
        _, inner = open_wrappers(words, {})
        found, _ = identify(inner, known)
        found = found or find_hidden(inner, known)
        if found is not None:
            return found
    return None


def _identify_package(
    command: Sequence[str], at: int, known: tuple[KnownProgram, ...]
) -> tuple[KnownProgram | None, int]:
    at = skip_options(command, at, _WITH_VALUE)
    if at >= len(command):
        return None, 0
    word = re.sub(r"(?<!^)(@|==|~=|>=|\[).*", "", command[at])
    found = _find_by_name(word, known) or next(
        (program for program in known if word in (*program.packages, *program.modules)), None
    )
    if found is None and _PYTHON.fullmatch(word):
        found, start = _identify_python(command[at:], known)
        return found, start + at
    return found, at + 1


def _identify_python(command: Sequence[str], known: tuple[KnownProgram, ...]) -> tuple[KnownProgram | None, int]:
    for at, word in enumerate(command[1:-1], 1):
        if word == "-m":
            module = command[at + 1].partition(".")[0]
            return next((program for program in known if module in program.modules), None), at + 2
        if not word.startswith("-"):
            break
    at = next((index for index, word in enumerate(command[1:], 1) if not word.startswith("-")), None)
    if at is None or "-c" in command[1:at]:
        return None, 0
    is_script = PurePath(command[at]).suffix in ("", ".py") and Path(command[at]).parent.name == "bin"
    found = _find_by_name(get_name(command[at]), known) if is_script else None
    return found or _find_by_path(command[at], known), at + 1


def _find_by_name(name: str, known: Iterable[KnownProgram]) -> KnownProgram | None:
    return next((program for program in known if name in program.names), None)


def _find_by_path(path: str, known: Iterable[KnownProgram]) -> KnownProgram | None:
    """Return the program whose package has the file that a path leads to."""
    packages = _MODULE_FOLDER.findall(os.path.realpath(path)) if "/" in path else []
    if not packages:
        return None
    return next((program for program in known if packages[-1] in (*program.packages, *program.modules)), None)
