"""Requests for reports that the smallest models can answer.

A model of 135 million parameters does not summarize a conversation: asked in the usual words, it apologizes, or invents
tools and numbers. It does put one call and its result into a sentence, if two examples show how. So it is asked about
the last call only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from .._internal.text import to_one_line
from ..message import MessageType, Role
from ..request import Request

Json = dict[str, Any]

_SYSTEM = "You report what was done, in one or two short sentences."
_QUESTION = "Task: {task}\nLast call: {call}\nResult: {result}\nReport."
_EXAMPLES = (
    (
        _QUESTION.format(task="Water the plants.", call="water, plant = palm", result="the palm is wet"),
        "I called water for the palm. The result was: the palm is wet. The task is not finished.",
    ),
    (
        _QUESTION.format(task="Copy all files.", call="copy_file, file = notes", result="failed, the disk is full"),
        "I called copy_file for the file notes. The result was: failed, the disk is full. The task is not finished.",
    ),
)
_NOT_RUN = "Not run ("
"""Start of the result of a call that was refused."""
_MAX_CHARS = 200


def build_report_messages(request: Request) -> list[Json] | None:
    """Return a short request for a report, or None if no call was made."""
    last = _find_last_call(request)
    if last is None:
        return None
    task = next((message.content for message in request.messages if message.role is Role.USER), "")
    question = _QUESTION.format(task=to_one_line(str(task), _MAX_CHARS), call=last[0], result=last[1])
    messages: list[Json] = [{"role": "system", "content": _SYSTEM}]
    for asked, answered in _EXAMPLES:
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
    return [*messages, {"role": "user", "content": question}]


def _find_last_call(request: Request) -> tuple[str, str] | None:
    """Return the newest call that was made, and its result."""
    calls = {
        payload.get("call_id"): payload
        for message in request.messages
        if message.type is MessageType.TOOL_CALL and (payload := message.payload or {})
    }
    for message in reversed(request.messages):
        call = calls.get((message.payload or {}).get("call_id"))
        text = str(message.content)
        if message.type is MessageType.TOOL_RESULT and call is not None and not text.startswith(_NOT_RUN):
            return _format_call(call), to_one_line(text, _MAX_CHARS)
    return None


def _format_call(payload: Mapping[str, Any]) -> str:
    arguments = payload.get("arguments")
    named = cast("Mapping[str, object]", arguments if isinstance(arguments, Mapping) else {})
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in named.items()}
    values = [f"{name} = {text}" for name, text in texts.items()]
    return to_one_line(", ".join([str(payload.get("name")), *values]), _MAX_CHARS)
