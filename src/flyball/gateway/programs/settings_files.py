"""Formats of the settings files of programs: JSON with comments, and `.env`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

Json = dict[str, Any]
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*+"?|//[^\n]*|/\*(?:.*?\*/|.*)|,(?=\s*[}\]])', re.DOTALL)
"""Text, comment, or comma before the end of a list or an object."""


def get_nested(settings: Mapping[str, Any], *keys: str) -> Any:
    """Return the value below these keys, or None.

    >>> get_nested({"a": {"b": 1}}, "a", "b")
    1
    """
    value: Any = settings
    for key in keys:
        value = cast("Json", value).get(key) if isinstance(value, dict) else None
    return value


def get_table(settings: Mapping[str, Any], *keys: str) -> Json:
    """Return a copy of the object below these keys, or {}."""
    value = get_nested(settings, *keys)
    return dict(cast("Json", value)) if isinstance(value, dict) else {}


def strip_comments(text: str) -> str:
    """Return JSON without the comments and trailing commas that some programs allow.

    >>> strip_comments('{"a": "//", /* b */ "c": [1,], } // d')
    '{"a": "//",  "c": [1] } '
    """
    without = _TOKEN.sub(lambda match: match[0] if match[0].startswith(('"', ",")) else "", text)
    return _TOKEN.sub(lambda match: match[0] if match[0].startswith('"') else "", without)


def parse_dotenv(text: str) -> dict[str, str]:
    """Return the variables of a `.env` file.

    >>> parse_dotenv('export A="x"\\n# b\\nB=y # z')
    {'A': 'x', 'B': 'y'}
    """
    variables: dict[str, str] = {}
    for line in text.splitlines():
        name, separator, value = line.strip().removeprefix("export ").partition("=")
        if not separator or name.startswith("#"):
            continue
        value = value.strip()
        quoted = len(value) > 1 and value[0] in "'\"" and value[-1] == value[0]
        variables[name.strip()] = value[1:-1] if quoted else value.partition(" #")[0].strip()
    return variables
