"""Names of calls and of tools as providers take them back; models, and other servers, make up all kinds."""

from __future__ import annotations

import re

_ODD = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_ID = 40


def call_id(id: str) -> str:
    """The id of a call; of a long one the end, because ids often begin alike."""
    return _ODD.sub("_", id)[-_LONGEST_ID:]


def tool_name(name: str) -> str:
    """The name of a tool that was called, also where there is none of that name."""
    return _ODD.sub("_", name) or "_"
