"""Built-in tools: questions to a person, artifacts, and compaction of messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import Field

from .._internal.functions import is_async
from ..errors import UsageError
from ..message import Message
from ..request import Call
from .call import ToolCallRun
from .context import ToolContext
from .definition import Tool, tool


@tool(effects="read", approve=lambda arguments: arguments["question"])
def ask_person(question: str, ctx: ToolContext) -> str:
    """Ask the person you work for a question that only they can answer. Returns their answer.

    Args:
        question: the question, in one or two plain sentences
    """
    return ctx.answer or "Yes."


@tool(effects="read")
def read_artifact(id: str, offset: Annotated[int, Field(ge=0)] = 0, length: Annotated[int, Field(ge=1)] = 4_000) -> str:
    """Read more of a result that was too long to be shown in full.

    Args:
        id: the artifact, as the excerpt names it
        offset: first character
        length: number of characters, at most 8000
    """
    raise UsageError("read_artifact works only in the run of an agent: the loop answers it")


@tool(effects="write", poll=True, duplicates="allow")
def collect(runs: list[str] | None = None, seconds: Annotated[float | None, Field(ge=0)] = None) -> str:
    """Wait for agents that work in the background, and return their results.

    Args:
        runs: the handles to wait for. Default: all
        seconds: maximum seconds to wait. Default: as long as the run may take
    """
    raise UsageError("collect works only in the run of an agent: the loop answers it")


class Compaction:
    """Factory of tool calls that summarize messages with a user's function."""

    def __init__(self, function: Callable[[Sequence[Message]], Any]) -> None:
        self._function = function
        self._is_async = is_async(function)

    def __call__(self, messages: Sequence[Message], call_id: str) -> ToolCallRun:
        """Return the call that compacts these messages."""

        def compact() -> Any:
            return self._function(messages)

        async def acompact() -> Any:
            return await self._function(messages)

        tool = Tool(acompact if self._is_async else compact, name="compact", timeout=None)
        return ToolCallRun(Call(call_id, "compact", {}), tool, {})
