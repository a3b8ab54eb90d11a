"""Tools: what a model may call, what a call is told, and how its end is decided."""

from .context import State, ToolContext
from .gate import End, Gate
from .tool import Duplicates, Effects, Options, Tool, Toolset, tool

__all__ = ["Duplicates", "Effects", "End", "Gate", "Options", "State", "Tool", "ToolContext", "Toolset", "tool"]
