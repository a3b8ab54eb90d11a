"""Tools that run at the provider, such as a web search: one request may make many calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ..wire.bodies import Json, get_dict, get_dicts
from ..wire.formats import ANTHROPIC, RESPONSES
from ..wire.wire import Wire

_CALL_TYPES = frozenset(
    {
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
        "computer_call",
    }
)

_AT_PROVIDER = (
    "web_search", "web_fetch", "code_execution", "file_search", "code_interpreter", "image_generation", "mcp",
)  # fmt: skip
"""Starts of the types of such tools. Others, such as `bash_...`, run in the program."""


def has_server_tools(body: Json) -> bool:
    """Check whether a request offers tools that run at the provider."""
    return any(_runs_at_provider(tool) for tool in get_dicts(body, "tools"))


def limit_server_tools(body: Json, wire: Wire, ceiling: int, left: int) -> bool:
    """Limit the calls that a request may make at the provider; return whether the body was changed.

    Anthropic's tools get the ceiling of the run, which does not change, so that the prompt cache is kept.
    """
    changed = False
    if wire is RESPONSES:
        asked = body.get("max_tool_calls")
        wanted = min(asked, left) if isinstance(asked, int) else left
        changed, body["max_tool_calls"] = asked != wanted, max(1, wanted)
    elif wire is ANTHROPIC:
        tools: list[Any] = []
        for tool in cast("list[Any]", body["tools"]):
            fields = cast("Json", tool) if isinstance(tool, dict) else Json()
            uses = fields.get("max_uses")
            if _runs_at_provider(fields) and (not isinstance(uses, int) or uses > ceiling):
                tools.append(fields | {"max_uses": max(1, ceiling)})
                changed = True
            else:
                tools.append(tool)
        body["tools"] = tools
    return changed


def count_server_calls(data: Mapping[str, Any]) -> int:
    """Return the calls at the provider that a whole reply, or an event with the final usage, tells of."""
    source = dict(data)
    for key in ("response", "message"):
        source = get_dict(source, key) or source
    used = get_dict(get_dict(source, "usage"), "server_tool_use")
    counts = [count for count in used.values() if isinstance(count, int) and count > 0]
    return sum(counts) + sum(item.get("type") in _CALL_TYPES for item in get_dicts(source, "output"))


def _runs_at_provider(tool: Json) -> bool:
    return str(tool.get("type")).startswith(_AT_PROVIDER)
