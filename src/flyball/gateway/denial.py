"""Answer of the gateway to a reply whose calls are all denied: the request that asks the model again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..message import RESPONSES, Message, MessageType, Role
from ..request import Reply
from ..wire.bodies import Json, WireMessages
from .body import encode_json
from .inbound import Inbound


def answer_calls(
    inbound: Inbound, reply: Reply, denied: Mapping[int, str], reply_id: str | None, kinds: Mapping[str, str]
) -> Inbound:
    """Return the request that follows when the gateway answers all calls of a reply as denied.

    `kinds` has the types of special calls, by id.
    """
    request = inbound.request
    # Gemini need not give its calls ids.
    calls = [replace(call, id=call.id or f"call_flyball_{place}") for place, call in enumerate(reply.calls)]
    reply = replace(reply, calls=tuple(calls))
    results = [
        _mark_kind(_build_result(call.id, call.name, denied[place]), kinds.get(call.id), "_output")
        for place, call in enumerate(calls)
    ]
    if request.previous_id is not None and reply_id is not None:  # the provider has the reply
        messages: Sequence[Message] = results
        source: Json = {key: value for key, value in inbound.body.items() if key not in ("input", "conversation")}
        source["input"] = []
        parsed = replace(inbound.wire.parse_request(source), previous_id=reply_id)
    else:
        messages, parsed = [*_build_reply(reply, kinds), *results], request
    own = parsed.messages
    added = own.plus(*messages) if isinstance(own, WireMessages) else [*own, *messages]
    body = inbound.wire.write_request(replace(parsed, messages=added))
    raw = encode_json(body)
    fresh = inbound.wire.parse_request(body, inbound.route.path)
    return Inbound(inbound.route, inbound.headers, raw, body, fresh, inbound.query, inbound.keys)


def _build_reply(reply: Reply, kinds: Mapping[str, str]) -> list[Message]:
    parts = [_build(MessageType.MULTIMODAL_PART, Role.ASSISTANT, "", dict(part)) for part in reply.parts]
    text = [_build(MessageType.TEXT, Role.ASSISTANT, reply.text, None)] if reply.text else []
    calls: list[Message] = []
    for call in reply.calls:
        payload = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        calls.append(_mark_kind(_build(MessageType.TOOL_CALL, Role.ASSISTANT, "", payload), kinds.get(call.id)))
    return [*parts, *text, *calls]


def _mark_kind(message: Message, kind: str | None, suffix: str = "") -> Message:
    """Note the type of a call's item, which has a result of its own type."""
    if kind is not None:
        message.metadata = {"wire": {"part": {"type": f"{kind}{suffix}"}, "shape": RESPONSES}}
    return message


def _build_result(call_id: str, name: str, reason: str) -> Message:
    payload = {"call_id": call_id, "name": name, "is_error": True}
    return _build(MessageType.TOOL_RESULT, Role.TOOL, f"denied: {reason}", payload, 1)


def _build(kind: MessageType, role: Role, content: str, payload: Json | None, group: int = 0) -> Message:
    return Message("", 0, 0.0, kind, role, content, payload, None, group)
