"""A tool that others have written, and described by a JSON schema."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Unpack

from ..context import ToolContext
from ..json_schema import Shape
from ..tool import Options, Tool

Call = Callable[[Mapping[str, Any], ToolContext | None], Awaitable[Any]]
"""Makes a call with arguments that were checked."""


class ForeignTool(Tool):
    """A tool whose arguments have names that no function of ours has, so they are handed over together."""

    def __init__(self, call: Call, schema: Mapping[str, Any], **options: Unpack[Options]) -> None:
        self._shown = schema
        super().__init__(call, **options)
        self.is_async = True

    def _signed(self, described: Mapping[str, str]) -> Shape:
        return Shape(self.name, self._shown)

    def bound(self, arguments: Mapping[str, Any], context: ToolContext | None = None) -> Callable[[], Any]:
        """The call, ready to be made."""
        return partial(self.function, arguments, context)

    def __call__(self, **arguments: Any) -> Any:
        """Make the call as if it were no tool."""
        return self.function(arguments, None)
