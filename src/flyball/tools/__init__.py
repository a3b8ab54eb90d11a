"""Tools that a model may call, and their bounded execution."""

from typing import TYPE_CHECKING

from ..steadiness import Duplicates
from .admission import Admission
from .builtin import ask_person
from .context import OutcomeSlot, ToolContext, ToolState
from .definition import Approve, Effects, Options, Tool, Toolset, tool
from .executor import BoundedToolExecutor
from .mcp_client import mcp
from .returned import FinalResult
from .source import ToolSource

__all__ = [
    "Admission",
    "Approve",
    "BoundedToolExecutor",
    "Duplicates",
    "Effects",
    "FinalResult",
    "Options",
    "OutcomeSlot",
    "Tool",
    "ToolContext",
    "ToolSource",
    "ToolState",
    "Toolset",
    "ask_person",
    "mcp",
    "tool",
]


if not TYPE_CHECKING:  # else a type checker accepts any name

    def __getattr__(name: str) -> object:
        from .._deprecated import find_old_name

        return globals().setdefault(name, find_old_name(__name__, name))
