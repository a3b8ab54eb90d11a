"""The tail of a run that has not ended: what was said and done in a turn that is not over, which no transcript has.

What the model said last and what calls came to is in the journal; which calls were made is in the events, by the ids
that the run has given them and without what is sensitive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ..message import Message, MessageType, Role
from ..outcome import Ended
from ..request import Reply
from .told import Told

if TYPE_CHECKING:
    from ..store import Row

_Parts = tuple[MessageType, Role, str, dict[str, Any] | None]


def tail(rows: Sequence[Row], events: Sequence[Mapping[str, Any]], kept: Sequence[Message]) -> list[Message]:
    """The messages behind those that are kept of a run."""
    calls = _ids(kept, MessageType.TOOL_CALL)
    news = [told for event in events if (told := Told(event)).text("call_id") not in calls]
    started = {told.text("call_id"): told for told in news if told.text("event") == "tool_started"}
    answered = _ids(kept, MessageType.TOOL_RESULT)
    outcomes = [one for one in _outcomes(rows) if one.call_id not in answered and one.call_id in calls | set(started)]
    parts = [*_text(rows, kept, bool(started)), *map(_call, started.values()), *map(_result, outcomes)]
    return [Message(kept[0].run if kept else "", len(kept) + n, 0.0, *one) for n, one in enumerate(parts)]


def _ids(messages: Sequence[Message], kind: MessageType) -> set[str]:
    return {str((one.payload or {}).get("call_id")) for one in messages if one.type is kind}


def _text(rows: Sequence[Row], kept: Sequence[Message], has_calls: bool) -> Iterator[_Parts]:
    """What the model said last, where that is not kept."""
    said = [one.content for one in kept if one.role is Role.ASSISTANT and one.type is MessageType.TEXT]
    reply = next((one for one in reversed(list(_values(rows))) if isinstance(one, Reply)), None)
    if reply is not None and reply.text and (has_calls or reply.text not in said[-1:]):
        yield MessageType.TEXT, Role.ASSISTANT, reply.text, None


def _call(started: Told) -> _Parts:
    payload = {
        "call_id": started.text("call_id"),
        "name": started.text("tool"),
        "arguments": started.get("arguments"),
    }
    return MessageType.TOOL_CALL, Role.ASSISTANT, "", payload


def _result(outcome: Ended) -> _Parts:
    payload = {"call_id": outcome.call_id, "name": outcome.tool, "is_error": not outcome.ok}
    return MessageType.TOOL_RESULT, Role.TOOL, outcome.text, payload


def _outcomes(rows: Sequence[Row]) -> list[Ended]:
    """What calls came to, each once: it is told when it is there, and again when all of its batch have ended."""
    return list({one.call_id: one for one in _values(rows) if isinstance(one, Ended)}.values())


def _values(rows: Sequence[Row]) -> Iterator[object]:
    """The replies and outcomes that a journal has, in order."""
    from ..runtime.history import CODE
    from ..store import Kind

    for row in rows:
        if row.kind is Kind.OUTCOME:
            _, outcome = CODE.loads(row.data)
            yield outcome
        elif row.kind is Kind.ANSWER:
            value: object = CODE.loads(row.data).value
            yield from cast("list[object]", value) if isinstance(value, list | tuple) else [value]
