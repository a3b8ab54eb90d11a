"""Tool sources, whose tools are known only while they are open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeGuard

from .definition import Function, Tool


class ToolSource(Protocol):
    """Provider of tools that each run opens, such as `mcp(...)`."""

    @property
    def name(self) -> str:
        """Name of the source in errors."""
        ...

    def open(self) -> AbstractAsyncContextManager[Sequence[Tool]]:
        """Return a context manager that provides the tools.

        The run enters and leaves it in one task, on asyncio or trio. Several may be open at a time. Entering needs a
        timeout of its own and must be cancellable. Leaving has a few seconds. An exception on entering ends the run as
        failed.
        """
        ...


ToolLike = Tool | Function | ToolSource
"""Item of an agent's list of tools."""
Tools = Iterable[ToolLike] | Mapping[str, Mapping[str, Any] | Tool | Function]
"""Tools of an agent: a list, or a mapping of names to definitions, tools and functions."""


def is_source(value: object) -> TypeGuard[ToolSource]:
    """Check whether a value is a tool source.

    Callables are tools, not sources.
    """
    return not callable(value) and callable(getattr(value, "open", None)) and hasattr(value, "name")
