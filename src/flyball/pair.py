"""Pairs: every call has its result. Finds those that stand alone, and closes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast

from .message import TEXT, Message, MessageType, Role, is_text, need


@dataclass(frozen=True, slots=True)
class Orphan:
    """A call or a result that stands alone: its place in the list, its call, and what is wrong."""

    index: int
    call_id: str
    kind: Literal["call_without_result", "result_without_call", "second_result"]


def together(first: Message, second: Message) -> bool:
    """Whether two neighbours belong in one message of a provider that puts all results of a batch into one message.

    Calls and results that were given no group still belong together: no provider takes a batch in pieces.
    """
    if first.group is not None and (first.run, first.group) == (second.run, second.group):
        return True
    if first.type is second.type is MessageType.TOOL_RESULT:
        return True
    return first.type is second.type is MessageType.TOOL_CALL and first.group is second.group is None


def check_pairs(messages: Iterable[Message]) -> list[Orphan]:
    """Every call without its result, every result without an earlier call and every second result, in order.

    A call id that is used again is a new call: a result belongs to the latest call of its id that still waits for one.
    """
    waiting: dict[str, list[int]] = {}
    orphans: list[Orphan] = []
    for index, message in enumerate(messages):
        if message.type is MessageType.TOOL_CALL:
            waiting.setdefault(_call_id(index, message), []).append(index)
        elif message.type is MessageType.TOOL_RESULT:
            call_id = _call_id(index, message)
            if waiting.get(call_id):
                waiting[call_id].pop()
            else:
                kind = "second_result" if call_id in waiting else "result_without_call"
                orphans.append(Orphan(index, call_id, kind))
    orphans += [Orphan(index, call_id, "call_without_result") for call_id, left in waiting.items() for index in left]
    return sorted(orphans, key=lambda orphan: orphan.index)


def repair_pairs(messages: Iterable[Message]) -> list[Message]:
    """The same messages with every pair closed: a new list, in which the messages that stay are the same objects.

    A call without result gets one that says so, right behind the results of its batch, with the time of the call,
    `is_error` true and the metadata {"repaired": true}; its number follows the highest of its run. A result without
    call and a second result are left out.
    """
    old = list(messages)
    orphans = check_pairs(old)
    alone = {orphan.index for orphan in orphans if orphan.kind != "call_without_result"}
    highest: dict[str, int] = {}
    for message in old:
        highest[message.run] = max(message.n, highest.get(message.run, 0))
    added: dict[int, list[Message]] = {}
    end = -1
    for orphan in orphans:
        if orphan.index not in alone:
            call = old[orphan.index]
            if orphan.index > end:  # orphans come in order, and all calls of a batch have one end
                end = _end_of_batch(old, orphan.index)
            highest[call.run] += 1
            added.setdefault(end, []).append(_missing_result(call, highest[call.run], old[end]))
    new: list[Message] = []
    for index, message in enumerate(old):
        new += [] if index in alone else [message]
        new += added.get(index, [])
    return new


def _end_of_batch(messages: list[Message], index: int) -> int:
    """The last message of the batch that the call at `index` is in: behind all its calls, and the results they have."""
    end, last = index, len(messages) - 1
    while end < last and together(messages[end], messages[end + 1]):
        end += 1
    while end < last and messages[end + 1].type is MessageType.TOOL_RESULT:
        end += 1
    return end


def _missing_result(call: Message, n: int, before: Message) -> Message:
    """In the group of the result before it, so that it does not part that result from what came with it."""
    group = before.group if before.type is MessageType.TOOL_RESULT and before.run == call.run else None
    name = (call.payload or {}).get("name")
    payload = {"call_id": _call_id(n, call), "name": name, "is_error": True}
    text = "No result of this call was recorded."
    return Message(
        call.run, n, call.created_at, MessageType.TOOL_RESULT, Role.TOOL, text, payload, {"repaired": True}, group
    )


def _call_id(index: int, message: Message) -> str:
    call_id = (message.payload or {}).get("call_id")
    need(is_text(call_id), index, "payload.call_id", call_id, TEXT)
    return cast("str", call_id)
