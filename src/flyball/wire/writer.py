"""Writer of conversations in the formats of OpenAI's and Anthropic's APIs.

Both formats write a final result or an error as text of its role, and a question to a person as the assistant's text.
Both leave deltas out, because the whole text follows.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from ..message import ANTHROPIC, OPENAI, Message, MessageType, Role, belong_together
from .reader import join_texts

PRIVATE_TYPES = frozenset({"thinking", "redacted_thinking"})
"""Reasoning that is signed by its provider. No other provider accepts it."""

Json = dict[str, Any]


def to_openai(messages: Iterable[Message]) -> list[Json]:
    """Convert messages for OpenAI's chat API.

    Arguments that are a dict become JSON text. The result shares nothing with the messages. Raises MessageError for an
    invalid message.
    """
    return write_openai(_check_messages(messages))


def write_openai(messages: Iterable[Message]) -> list[Json]:
    """Convert valid messages as `to_openai` does, without checks or copies.

    The result may share parts with the messages.
    """
    written: list[Json] = []
    for role, batch in _group_messages(_drop_deltas(messages), _get_role):
        if role is Role.TOOL:
            written += [_build_openai_result(message) for message in batch]
            continue
        calls = [_build_openai_call(message) for message in batch if message.type is MessageType.TOOL_CALL]
        contents = [message for message in batch if message.type is not MessageType.TOOL_CALL]
        parts = [part for message in contents if (part := _build_part(message, OPENAI))]
        if parts or calls:
            body = {"role": str(role), "content": _build_content(contents, parts) if parts else None}
            written.append(body | ({"tool_calls": calls} if calls else {}) | _get_extra(batch, OPENAI))
    return written


def to_anthropic(messages: Iterable[Message]) -> tuple[str | None, list[Json]]:
    """Convert messages to a system text and the messages of Anthropic's API.

    Arguments that are JSON text become a dict. Blank text becomes {}, and text that is not a JSON object becomes
    {"_raw": text}. Blank texts are dropped, because the API refuses them. The result shares nothing with the messages.
    Raises MessageError for an invalid message.
    """
    return write_anthropic(_check_messages(messages))


def write_anthropic(messages: Iterable[Message]) -> tuple[str | None, list[Json]]:
    """Convert valid messages as `to_anthropic` does, without checks or copies.

    The result may share parts with the messages.
    """
    kept = _drop_deltas(messages)
    system = [_get_system_text(message) for message in kept if _get_role(message) is Role.SYSTEM]
    written: list[Json] = []
    for role, batch in _group_messages(
        [message for message in kept if _get_role(message) is not Role.SYSTEM], _get_anthropic_role
    ):
        blocks = [block for message in batch if (block := _build_anthropic_block(message)) and not _is_blank(block)]
        if blocks:
            written.append({"role": str(role), "content": _build_content(batch, blocks)} | _get_extra(batch, ANTHROPIC))
    return "\n\n".join(filter(str.strip, system)) or None, written


def _check_messages(messages: Iterable[Message]) -> list[Message]:
    return [message.checked(index) for index, message in enumerate(messages)]


def _drop_deltas(messages: Iterable[Message]) -> list[Message]:
    return [message for message in messages if message.type is not MessageType.DELTA]


_USER, _TOOL = Role.USER, Role.TOOL  # enum member lookup is ~5x slower than a global on 3.11
_ROLES = {
    MessageType.TOOL_CALL: Role.ASSISTANT,
    MessageType.INPUT_REQUIRED: Role.ASSISTANT,
    MessageType.APPROVAL_REQUIRED: Role.ASSISTANT,
    MessageType.TOOL_RESULT: _TOOL,
}


def _get_role(message: Message) -> Role:
    role = _ROLES.get(message.type)
    if role is None:  # only a result can have the role tool
        role = _USER if message.role is _TOOL else message.role
    return role


def _get_anthropic_role(message: Message) -> Role:
    return Role.ASSISTANT if _get_role(message) is Role.ASSISTANT else Role.USER


def _group_messages(
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


def _build_content(messages: list[Message], parts: list[Json]) -> str | list[Json]:
    """Return a single text as a string, unless it came in a list."""
    single = len(parts) == 1 and parts[0].keys() == {"type", "text"}
    return (
        parts[0]["text"] if single and not any("part" in _get_wire_metadata(message) for message in messages) else parts
    )


def _build_part(message: Message, shape: str) -> Json | None:
    """Return a text or part in a provider's format.

    Returns None for private reasoning of the other provider.
    """
    payload = message.payload or {}
    if message.type is not MessageType.MULTIMODAL_PART:
        code = payload.get("code", "") if message.type is MessageType.ERROR else ""
        return {"type": "text", "text": message.content or str(code)} | _get_extra([message], shape, "part")
    part: Json = payload["part"]
    if payload["shape"] == shape:
        return part
    if part["type"] in PRIVATE_TYPES:
        return None
    return _convert_image(part, shape) or {"type": "text", "text": message.content or _describe_omitted(part)}


def _convert_image(part: Json, shape: str) -> Json | None:
    """Convert the other provider's image; return None for other parts and stored files."""
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            pass
        case {"type": "image", "source": {"type": "url", "url": str(url)}}:
            pass
        case {"type": "image", "source": {"type": "base64", "media_type": str(media), "data": str(data)}}:
            url = f"data:{media};base64,{data}"
        case _:
            return None
    if shape == OPENAI:
        return {"type": "image_url", "image_url": {"url": url}}
    inline = re.fullmatch(r"data:([^;,]+);base64,(.*)", url, re.DOTALL)
    source = {"type": "base64", "media_type": inline[1], "data": inline[2]} if inline else {"type": "url", "url": url}
    return {"type": "image", "source": source}


def _describe_omitted(part: Json) -> str:
    return f"[left out: {part['type']}]"


def _build_openai_call(message: Message) -> Json:
    payload, extra = message.payload or {}, _get_extra([message], OPENAI, "part")
    arguments = payload["arguments"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    function = {"name": payload["name"], "arguments": text} | extra.pop("function", {})
    return {"id": payload["call_id"], "type": "function", "function": function} | extra


def _build_openai_result(message: Message) -> Json:
    payload, content = message.payload or {}, _build_result_content(message, OPENAI)
    name = {} if payload.get("name") is None else {"name": payload["name"]}
    return (
        {"role": "tool", "tool_call_id": payload["call_id"], "content": content} | name | _get_extra([message], OPENAI)
    )


def _build_anthropic_block(message: Message) -> Json | None:
    payload, extra = message.payload or {}, _get_extra([message], ANTHROPIC, "part")
    match message.type:
        case MessageType.TOOL_CALL:
            arguments = _parse_arguments(payload["arguments"])
            return {"type": "tool_use", "id": payload["call_id"], "name": payload["name"], "input": arguments} | extra
        case MessageType.TOOL_RESULT:
            content = _build_result_content(message, ANTHROPIC)
            content_field = {"content": content} if content else {}
            error_field = {"is_error": True} if payload.get("is_error") else {}
            return extra | {"type": "tool_result", "tool_use_id": payload["call_id"]} | content_field | error_field
        case _:
            return _build_part(message, ANTHROPIC)


def _get_system_text(message: Message) -> str:
    part = _build_part(message, ANTHROPIC) or {"type": "text"}
    return str(part.get("text", "")) if part["type"] == "text" else _describe_omitted(part)


def _is_blank(block: Json) -> bool:
    return block["type"] == "text" and not str(block.get("text", "")).strip()


def _parse_finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(number)
    return value


_DECODER = json.JSONDecoder(parse_float=_parse_finite, parse_constant=_parse_finite)
"""Strict decoder. Python's default accepts NaN and infinity, which are not JSON."""


def _parse_arguments(arguments: str | Json) -> Json:
    if not isinstance(arguments, str):
        return arguments
    try:
        parsed: object = _DECODER.decode(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        parsed = None
    # Text that is not an object is passed on, so that the model sees what it wrote.
    return cast("Json", parsed) if isinstance(parsed, dict) else {"_raw": arguments}


def _build_result_content(message: Message, shape: str) -> str | list[Json]:
    """Return the parts of a result in their own format, otherwise its text."""
    payload = message.payload or {}
    parts: list[Json] | None = payload.get("parts")
    if parts is None or join_texts(parts) != message.content:  # no parts, or a text that was changed since
        return message.content
    if payload.get("shape") == shape:
        return parts
    lines = [message.content, *(_describe_omitted(part) for part in parts if part["type"] != "text")]
    return "\n".join(line for line in lines if line)


def _get_wire_metadata(message: Message) -> Json:
    wire = (message.metadata or {}).get("wire")
    return cast("Json", wire) if isinstance(wire, dict) else {}


def _get_extra(messages: list[Message], shape: str, level: str = "message") -> Json:
    """Return the keys that the reader kept for this provider."""
    extra: Json = {}
    for wire in map(_get_wire_metadata, messages):
        keys = wire.get(level)
        if isinstance(keys, dict) and wire.get("shape", shape) == shape:
            extra |= cast("Json", keys)
    return extra
