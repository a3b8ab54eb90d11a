"""Writer of conversations in the formats of OpenAI's and Anthropic's APIs.

Both formats write a final result or an error as text of its role, and a question to a person as the assistant's text.
Both leave deltas out, because the whole text follows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, cast

from ..message import ANTHROPIC, OPENAI, Message, MessageType, Role, belong_together
from .images import convert_image
from .parts import TEXT_TYPES, WHOLE, join_texts

PRIVATE_TYPES = frozenset({"thinking", "redacted_thinking", "reasoning", "thought", "signature", "state"})
"""Reasoning that is signed by its provider. No other provider accepts it."""

Json = dict[str, Any]


def to_openai(messages: Iterable[Message]) -> list[Json]:
    """Convert messages for OpenAI's chat API.

    Arguments that are a dict become JSON text. The result shares nothing with the messages. Raises MessageError for an
    invalid message.
    """
    return write_openai(check_messages(messages))


def write_openai(messages: Iterable[Message]) -> list[Json]:
    """Convert valid messages as `to_openai` does, without checks or copies.

    The result may share parts with the messages.
    """
    written: list[Json] = []
    for role, batch in group_messages(drop_private(messages, OPENAI), get_role):
        whole = list_whole(batch[0], OPENAI)
        if whole:
            written += whole
            continue
        if role is Role.TOOL:
            written += [_build_openai_result(message) for message in batch]
            continue
        calls = [_build_openai_call(message) for message in batch if message.type is MessageType.TOOL_CALL]
        contents = [message for message in batch if message.type is not MessageType.TOOL_CALL]
        parts = [_build_part(message, OPENAI) for message in contents]
        if parts or calls:
            body = {"role": str(role), "content": build_content(contents, parts) if parts else None}
            written.append(body | ({"tool_calls": calls} if calls else {}) | get_extra(batch, OPENAI))
    return written


def to_anthropic(messages: Iterable[Message]) -> tuple[str | None, list[Json]]:
    """Convert messages to a system text and the messages of Anthropic's API.

    Arguments that are JSON text become a dict. Blank text becomes {}, and text that is not a JSON object becomes
    {"_raw": text}. Blank texts are dropped, because the API refuses them. The result shares nothing with the messages.
    Raises MessageError for an invalid message.
    """
    return write_anthropic(check_messages(messages))


def write_anthropic(messages: Iterable[Message]) -> tuple[str | None, list[Json]]:
    """Convert valid messages as `to_anthropic` does, without checks or copies.

    The result may share parts with the messages.
    """
    kept = drop_private(messages, ANTHROPIC)
    system = [get_system_text(message) for message in kept if get_role(message) is Role.SYSTEM]
    written: list[Json] = []
    for role, batch in group_messages(
        [message for message in kept if get_role(message) is not Role.SYSTEM], _get_anthropic_role
    ):
        whole = list_whole(batch[0], ANTHROPIC)
        if whole:
            written += whole
            continue
        blocks = [block for message in batch if (block := _build_anthropic_block(message)) and not _is_blank(block)]
        if blocks:
            written.append({"role": str(role), "content": build_content(batch, blocks)} | get_extra(batch, ANTHROPIC))
    return "\n\n".join(filter(str.strip, system)) or None, written


def check_messages(messages: Iterable[Message]) -> list[Message]:
    """Return validated copies of messages."""
    return [message.checked(index) for index, message in enumerate(messages)]


def drop_private(messages: Iterable[Message], shape: str) -> list[Message]:
    """Leave out deltas, and the private reasoning of other providers."""
    return [
        message
        for message in messages
        if message.type is not MessageType.DELTA
        and not (message.type is MessageType.MULTIMODAL_PART and _is_private(message.payload or {}, shape))
    ]


def _is_private(payload: Json, shape: str) -> bool:
    return payload["shape"] != shape and payload["part"]["type"] in PRIVATE_TYPES


def sort_parts(messages: list[Message]) -> list[Message]:
    """Return the messages of one reply in the order in which its provider sent them.

    A reply is kept as its parts, text and calls. A part that came later says so: `before` is the place of the call that
    it preceded.
    """
    if not any("before" in (message.payload or {}) for message in messages):
        return messages
    order: list[tuple[int, Message]] = []
    calls = 0
    for message in messages:
        before = (message.payload or {}).get("before")
        if message.type is MessageType.TOOL_CALL:
            order.append((2 * calls + 1, message))
            calls += 1
        else:
            order.append((2 * before if isinstance(before, int) else -1, message))
    return [message for _, message in sorted(order, key=itemgetter(0))]


_USER, _TOOL = Role.USER, Role.TOOL  # enum member lookup is ~5x slower than a global on 3.11
_ROLES = {
    MessageType.TOOL_CALL: Role.ASSISTANT,
    MessageType.INPUT_REQUIRED: Role.ASSISTANT,
    MessageType.APPROVAL_REQUIRED: Role.ASSISTANT,
    MessageType.TOOL_RESULT: _TOOL,
}


def get_role(message: Message) -> Role:
    """Return the role of the provider message that a message belongs to."""
    role = _ROLES.get(message.type)
    if role is None:  # only a result can have the role tool
        role = _USER if message.role is _TOOL else message.role
    return role


def _get_anthropic_role(message: Message) -> Role:
    return Role.ASSISTANT if get_role(message) is Role.ASSISTANT else Role.USER


def group_messages(
    messages: list[Message], get_role: Callable[[Message], Role]
) -> Iterator[tuple[Role, list[Message]]]:
    """Yield the messages that form one provider message, with its role."""
    batch: list[Message] = []
    for message in messages:
        if batch and not (get_role(batch[-1]) is get_role(message) and belong_together(batch[-1], message)):
            yield get_role(batch[0]), batch
            batch = []
        batch.append(message)
    if batch:
        yield get_role(batch[0]), batch


def build_content(messages: list[Message], parts: list[Json], text_type: str = "text") -> str | list[Json]:
    """Return a single text as a string, unless it came in a list."""
    single = len(parts) == 1 and parts[0].keys() == {"type", "text"} and parts[0]["type"] == text_type
    return (
        parts[0]["text"] if single and not any("part" in get_wire_metadata(message) for message in messages) else parts
    )


def list_whole(message: Message, shape: str) -> list[Any]:
    """Return the provider's message that the reader kept whole, or [] if this is none of that format."""
    payload = message.payload or {}
    if message.type is not MessageType.MULTIMODAL_PART or payload["shape"] != shape:
        return []
    part: Json = payload["part"]
    return [part["item"]] if part["type"] == WHOLE and "item" in part else []


def _build_part(message: Message, shape: str) -> Json:
    """Return a text or part in a provider's format."""
    payload = message.payload or {}
    if message.type is MessageType.MULTIMODAL_PART:
        return build_foreign_part(message, shape, "text")
    code = payload.get("code", "") if message.type is MessageType.ERROR else ""
    return {"type": "text", "text": message.content or str(code)} | get_extra([message], shape, "part")


def build_foreign_part(message: Message, shape: str, text_type: str) -> Json:
    """Return a part as it is if it has this format, otherwise converted, or a text that names what is left out."""
    payload = message.payload or {}
    part: Json = payload["part"]
    if payload["shape"] == shape:
        return part
    return convert_image(part, shape) or {"type": text_type, "text": message.content or describe_omitted(part)}


def describe_omitted(part: Json) -> str:
    """Return a line that names a part which cannot be converted."""
    return f"[left out: {part['type']}]"


def _build_openai_call(message: Message) -> Json:
    payload, extra = message.payload or {}, get_extra([message], OPENAI, "part")
    arguments = payload["arguments"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    kind = extra.pop("type", "function")
    function = {"name": payload["name"], "input" if kind == "custom" else "arguments": text}
    return {"id": payload["call_id"], "type": kind, kind: function | extra.pop("function", {})} | extra


def _build_openai_result(message: Message) -> Json:
    payload, content = message.payload or {}, build_result_content(message, OPENAI)
    name = {} if payload.get("name") is None else {"name": payload["name"]}
    return (
        {"role": "tool", "tool_call_id": payload["call_id"], "content": content} | name | get_extra([message], OPENAI)
    )


def _build_anthropic_block(message: Message) -> Json | None:
    payload, extra = message.payload or {}, get_extra([message], ANTHROPIC, "part")
    match message.type:
        case MessageType.TOOL_CALL:
            arguments = parse_arguments(payload["arguments"])
            return {"type": "tool_use", "id": payload["call_id"], "name": payload["name"], "input": arguments} | extra
        case MessageType.TOOL_RESULT:
            content = build_result_content(message, ANTHROPIC)
            content_field = {"content": content} if content else {}
            error_field = {"is_error": True} if payload.get("is_error") else {}
            return extra | {"type": "tool_result", "tool_use_id": payload["call_id"]} | content_field | error_field
        case _:
            return _build_part(message, ANTHROPIC)


def get_system_text(message: Message) -> str:
    """Return the text of a system message."""
    part = _build_part(message, ANTHROPIC)
    return str(part.get("text", "")) if part["type"] == "text" else describe_omitted(part)


def _is_blank(block: Json) -> bool:
    return block["type"] == "text" and not str(block.get("text", "")).strip()


def _parse_finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(number)
    return value


_DECODER = json.JSONDecoder(parse_float=_parse_finite, parse_constant=_parse_finite)
"""Strict decoder. Python's default accepts NaN and infinity, which are not JSON."""


def parse_arguments(arguments: str | Json) -> Json:
    """Return the arguments of a call as a dict."""
    if not isinstance(arguments, str):
        return arguments
    try:
        parsed: object = _DECODER.decode(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        parsed = None
    # Text that is not an object is passed on, so that the model sees what it wrote.
    return cast("Json", parsed) if isinstance(parsed, dict) else {"_raw": arguments}


def build_result_content(message: Message, shape: str) -> str | list[Json]:
    """Return the parts of a result in their own format, otherwise its text."""
    payload = message.payload or {}
    parts: list[Json] | None = payload.get("parts")
    if parts is None or join_texts(parts) != message.content:  # no parts, or a text that was changed since
        return message.content
    if payload.get("shape") == shape:
        return parts
    lines = [message.content, *(describe_omitted(part) for part in parts if part["type"] not in TEXT_TYPES)]
    return "\n".join(line for line in lines if line)


def get_wire_metadata(message: Message) -> Json:
    """Return the keys that a reader kept for a provider."""
    wire = (message.metadata or {}).get("wire")
    return cast("Json", wire) if isinstance(wire, dict) else {}


def get_extra(messages: list[Message], shape: str, level: str = "message") -> Json:
    """Return the keys that the reader kept for this provider."""
    extra: Json = {}
    for wire in map(get_wire_metadata, messages):
        keys = wire.get(level)
        if isinstance(keys, dict) and wire.get("shape", shape) == shape:
            extra |= cast("Json", keys)
    return extra
