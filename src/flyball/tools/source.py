"""A source of tools: tools that are known only when it is open, as those of a server are."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeGuard

from .tool import Function, Tool


class ToolSource(Protocol):
    """Something among an agent's tools that is opened with each run, and closed with it; `mcp(...)` is one."""

    @property
    def name(self) -> str:
        """What errors call it."""
        ...

    def open(self) -> AbstractAsyncContextManager[Sequence[Tool]]:
        """Its tools, for as long as the block lasts.

        It is entered and left in one task, on asyncio or trio, and several may be open at a time. Entering must end by
        itself and give way to a cancel; leaving has a few seconds. What entering raises ends the run as failed.
        """
        ...


ToolLike = Tool | Function | ToolSource
"""What may stand in a list of tools."""


def is_source(value: object) -> TypeGuard[ToolSource]:
    """Whether it is a source; what can be called is a tool."""
    return not callable(value) and callable(getattr(value, "open", None)) and hasattr(value, "name")
