"""A tool with which a model asks the person it works for."""

from __future__ import annotations

from .context import ToolContext
from .tool import tool


@tool(effects="read", approve=lambda arguments: arguments["question"])
def ask_person(question: str, ctx: ToolContext) -> str:
    """Ask the person you work for, where only they can know. The answer is what they say.

    Args:
        question: what to ask, in one or two plain sentences
    """
    return ctx.answer or "Yes."
