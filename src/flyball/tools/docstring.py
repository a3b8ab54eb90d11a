"""What a docstring says of a function and of each of its parameters, in the three styles people use."""

from __future__ import annotations

import inspect
import re
from typing import NamedTuple

_GOOGLE = re.compile(r"^(?:Args|Arguments|Parameters):\s*$", re.MULTILINE)
_NUMPY = re.compile(r"^Parameters\n-{3,}\s*$", re.MULTILINE)
_REST = re.compile(r"^:param\s+(?:[^:\n]+\s+)?(\*{0,2}\w+):[ \t]*(.*(?:\n[ \t]+\S.*)*)", re.MULTILINE)
_SECTION = re.compile(
    r"^(?:(?:Args|Arguments|Parameters|Returns?|Yields?|Raises):\s*$"
    r"|(?:Parameters|Returns|Yields|Raises)\n-{3,}\s*$|:(?:param|type|returns?|rtype|raises)\b)",
    re.MULTILINE,
)
_ENTRY = re.compile(r"^(\w+)(?:\s*\(.*?\))?\s*:\s+(.*)$")
_NUMPY_ENTRY = re.compile(r"^(\w+)\s*(?::.*)?$")


class Docstring(NamedTuple):
    """The description of a function, and that of its parameters by name."""

    description: str
    parameters: dict[str, str]


def read(text: str | None) -> Docstring:
    """Read a docstring; what is in no style we know is part of the description.

    >>> read("Add numbers.\\n\\nArgs:\\n    a: the first\\n    b (int): the second")
    Docstring(description='Add numbers.', parameters={'a': 'the first', 'b': 'the second'})
    """
    text = inspect.cleandoc(text or "")
    first = _SECTION.search(text)
    description = (text[: first.start()] if first else text).strip()
    parameters = {name.lstrip("*"): _joined(words) for name, words in _REST.findall(text)}
    if found := _NUMPY.search(text):
        parameters |= _numpy(text[found.end() :])
    elif found := _GOOGLE.search(text):
        parameters |= _google(text[found.end() :])
    return Docstring(description, parameters)


def _google(text: str) -> dict[str, str]:
    """Entries are indented, and what goes on is indented further; the section ends where the indent does."""
    lines = [line for line in text.strip("\n").splitlines() if line.strip()]
    indent = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    entries: dict[str, str] = {}
    name = None
    for line in lines if indent else []:
        depth = len(line) - len(line.lstrip())
        if depth < indent:
            break
        if depth == indent:
            entry = _ENTRY.match(line.strip())
            name = entry[1] if entry else None
            if entry:
                entries[entry[1]] = entry[2]
        elif name is not None:
            entries[name] += f" {line.strip()}"
    return {name: words.strip() for name, words in entries.items()}


def _numpy(text: str) -> dict[str, str]:
    """Names stand at the margin, what is said of them below and indented; the next headline ends the section."""
    end = re.search(r"^\S.*\n-{3,}\s*$", text, re.MULTILINE)
    entries: dict[str, list[str]] = {}
    words: list[str] = []
    for line in text[: end.start() if end else len(text)].splitlines():
        if line and not line[0].isspace():
            entry = _NUMPY_ENTRY.match(line.strip())
            words = entries.setdefault(entry[1], []) if entry else []
        elif line.strip():
            words.append(line.strip())
    return {name: " ".join(words) for name, words in entries.items()}


def _joined(words: str) -> str:
    return " ".join(line.strip() for line in words.splitlines())
