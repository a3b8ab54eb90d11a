"""Text that asks a model for the report of a conversation that has reached a limit."""

from __future__ import annotations

_INSTRUCTION = (
    "{reason} This is the last request of this conversation, and no more tools can be called. Report now: what was "
    "asked, what has been done, what was found, and what is left to do. {form}"
)
_AS_TEXT = "Answer with text only."
_AS_CALL = "Answer with a call of {name}."
_AS_SCHEMA = "Answer in the format that was asked for."
_AS_USUAL = "Answer in the form in which you give a final answer here."


def write_report_request(
    reason: str, *, final_tool: str | None = None, has_schema: bool = False, has_tools: bool = True
) -> str:
    """Return the text. `final_tool` is the tool that carries the answer, or None."""
    if final_tool is not None:
        form = _AS_CALL.format(name=final_tool)
    elif has_schema:
        form = _AS_SCHEMA
    else:
        form = _AS_TEXT if has_tools else _AS_USUAL
    return _INSTRUCTION.format(reason=reason, form=form)
