"""Denied calls: taken out of a reply before the program sees it, or answered by the gateway itself."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

from ..message import Message, MessageType, Role
from ..request import Reply
from ..wire.bodies import Json, WireMessages, get_dict, get_dicts
from ..wire.stream import ReadEvent
from .body import encode_json
from .inbound import Inbound

_CALL_TYPES = frozenset({None, "function", "tool_use", "function_call", "custom_tool_call"})


def drop_calls(body: Any, denied: Collection[str]) -> Any:
    """Return a whole reply without the denied calls. All else stays as it is."""
    if isinstance(body, list):
        items = [item for item in cast("list[Any]", body) if not _is_denied(item, denied)]
        return [drop_calls(item, denied) for item in items]
    if isinstance(body, dict):
        return {key: drop_calls(value, denied) for key, value in cast("Json", body).items()}
    return body


def _is_denied(item: Any, denied: Collection[str]) -> bool:
    if not isinstance(item, dict):
        return False
    fields = cast("Json", item)
    return fields.get("type") in _CALL_TYPES and (fields.get("call_id") or fields.get("id")) in denied


class EventEditor:
    """Takes denied calls out of the events of a stream, and renumbers what comes after them."""

    def __init__(self, denied: Collection[str]) -> None:
        self._denied = denied
        self._dropped: dict[str, set[int]] = {}
        """Indexes that were dropped, by the name of their field."""

    def edit(self, event: ReadEvent) -> bytes:
        """Return the event without denied calls."""
        if event.json is None:
            return event.raw
        has_whole_calls = event.name.endswith(("completed", "done"))
        data = drop_calls(event.json, self._denied) if has_whole_calls else deepcopy(event.json)
        if self._drops_part(data, event.json):
            return b""
        for choice in get_dicts(data, "choices"):
            delta = get_dict(choice, "delta")
            if "tool_calls" in delta:
                delta["tool_calls"] = [piece for piece in get_dicts(delta, "tool_calls") if self._keep_piece(piece)]
                if not delta["tool_calls"]:
                    del delta["tool_calls"]
        if data == event.json:
            return event.raw
        name = f"event: {event.name}\n" if event.name else ""
        return f"{name}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode("utf-8", "replace")

    def _drops_part(self, data: Json, original: Json) -> bool:
        """Check whether an event is about a denied call; else renumber it."""
        for key, part in (("index", "content_block"), ("output_index", "item")):
            index = original.get(key)
            if not isinstance(index, int):
                continue
            dropped = self._dropped.setdefault(key, set())
            if _is_denied(original.get(part), self._denied):
                dropped.add(index)
            if index in dropped:
                return True
            data[key] = index - sum(other < index for other in dropped)
        return False

    def _keep_piece(self, piece: Json) -> bool:
        dropped, index = self._dropped.setdefault("tool_calls", set()), piece.get("index", 0)
        if piece.get("id") in self._denied:
            dropped.add(index)
        if index in dropped:
            return False
        piece["index"] = index - sum(other < index for other in dropped)
        return True


def answer_calls(inbound: Inbound, reply: Reply, denied: Mapping[str, str], reply_id: str | None) -> Inbound:
    """Return the request that follows when the gateway answers all calls of a reply as denied."""
    request = inbound.request
    results = [_build_result(call.id, call.name, denied[call.id]) for call in reply.calls]
    if request.previous_id is not None and reply_id is not None:  # the provider has the reply
        messages: Sequence[Message] = results
        source: Json = {key: value for key, value in inbound.body.items() if key not in ("input", "conversation")}
        source["input"] = []
        parsed = replace(inbound.wire.parse_request(source), previous_id=reply_id)
    else:
        messages, parsed = [*_build_reply(reply), *results], request
    own = parsed.messages
    added = own.plus(*messages) if isinstance(own, WireMessages) else [*own, *messages]
    body = inbound.wire.write_request(replace(parsed, messages=added))
    raw = encode_json(body)
    fresh = inbound.wire.parse_request(body, inbound.route.path)
    return Inbound(inbound.route, inbound.headers, raw, body, fresh, inbound.query, inbound.keys)


def _build_reply(reply: Reply) -> list[Message]:
    parts = [_build(MessageType.MULTIMODAL_PART, Role.ASSISTANT, "", dict(part)) for part in reply.parts]
    text = [_build(MessageType.TEXT, Role.ASSISTANT, reply.text, None)] if reply.text else []
    calls = [
        _build(
            MessageType.TOOL_CALL,
            Role.ASSISTANT,
            "",
            {"call_id": call.id, "name": call.name, "arguments": call.arguments},
        )
        for call in reply.calls
    ]
    return [*parts, *text, *calls]


def _build_result(call_id: str, name: str, reason: str) -> Message:
    payload = {"call_id": call_id, "name": name, "is_error": True}
    return _build(MessageType.TOOL_RESULT, Role.TOOL, f"denied: {reason}", payload, 1)


def _build(kind: MessageType, role: Role, content: str, payload: Json | None, group: int = 0) -> Message:
    return Message("", 0, 0.0, kind, role, content, payload, None, group)
