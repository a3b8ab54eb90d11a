"""Tools: what a model may call, what a call is told, and how it is bounded."""

from ..steadiness import Duplicates
from .admission import Admission
from .builtin import ask_person
from .context import Gate, State, ToolContext
from .executor import BoundedToolExecutor
from .mcp import mcp
from .source import ToolSource
from .tool import Approve, Effects, Options, Tool, Toolset, tool

__all__ = [
    "Admission",
    "Approve",
    "BoundedToolExecutor",
    "Duplicates",
    "Effects",
    "Gate",
    "Options",
    "State",
    "Tool",
    "ToolContext",
    "ToolSource",
    "Toolset",
    "ask_person",
    "mcp",
    "tool",
]
