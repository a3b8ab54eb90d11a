"""Writing: a list of messages becomes a conversation as OpenAI's or Anthropic's API wants it.

Both write a final result or an error as text of its role, and a question to a person as the assistant's text. Both
leave deltas out, because the whole text comes too. What they write shares nothing with the messages.
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
"""Reasoning that its provider signs for itself; no other takes it."""

Json = dict[str, Any]


def _parse_finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(number)
    return value


_DECODER = json.JSONDecoder(parse_float=_parse_finite, parse_constant=_parse_finite)
"""Python would read NaN and infinity, which are no JSON."""


def to_openai(messages: Iterable[Message]) -> list[Json]:
    """The conversation for OpenAI's chat API; arguments that are a dict become JSON text."""
    return write_openai(_check_messages(messages))


def write_openai(messages: Iterable[Message]) -> list[Json]:
    """The same for messages that are known to be right; what it gives may share parts with them."""
    done: list[Json] = []
    for who, pieces in _group_messages(_drop_deltas(messages), _get_role):
        if who is Role.TOOL:
            done += [_build_openai_result(piece) for piece in pieces]
            continue
        calls = [_build_openai_call(piece) for piece in pieces if piece.type is MessageType.TOOL_CALL]
        said = [piece for piece in pieces if piece.type is not MessageType.TOOL_CALL]
        parts = [part for piece in said if (part := _build_part(piece, OPENAI))]
        if parts or calls:
            message = {"role": str(who), "content": _build_content(said, parts) if parts else None}
            done.append(message | ({"tool_calls": calls} if calls else {}) | _get_extra(pieces, OPENAI))
    return done


def to_anthropic(messages: Iterable[Message]) -> tuple[str | None, list[Json]]:
    """The system text and the conversation for Anthropic's messages API.

    Arguments that are JSON text become the dict that they say; a blank text is {}, and a text that is no JSON object is
    {"_raw": text}. Blank texts are left out, because that API refuses them.
    """
    return write_anthropic(_check_messages(messages))


def write_anthropic(messages: Iterable[Message]) -> tuple[str | None, list[Json]]:
    """The same for messages that are known to be right; what it gives may share parts with them."""
    pieces = _drop_deltas(messages)
    system = [_get_system_text(piece) for piece in pieces if _get_role(piece) is Role.SYSTEM]
    done: list[Json] = []
    for who, batch in _group_messages(
        [piece for piece in pieces if _get_role(piece) is not Role.SYSTEM], _get_anthropic_role
    ):
        blocks = [block for piece in batch if (block := _build_anthropic_block(piece)) and not _is_blank(block)]
        if blocks:
            done.append({"role": str(who), "content": _build_content(batch, blocks)} | _get_extra(batch, ANTHROPIC))
    return "\n\n".join(filter(str.strip, system)) or None, done


def _check_messages(messages: Iterable[Message]) -> list[Message]:
    """Copies of them; a MessageError names what no message can have."""
    return [message.checked(index) for index, message in enumerate(messages)]


def _drop_deltas(messages: Iterable[Message]) -> list[Message]:
    return [message for message in messages if message.type is not MessageType.DELTA]


_USER, _TOOL = Role.USER, Role.TOOL  # found once: a member of an enum is looked up slowly
_ROLES = {
    MessageType.TOOL_CALL: Role.ASSISTANT,
    MessageType.INPUT_REQUIRED: Role.ASSISTANT,
    MessageType.APPROVAL_REQUIRED: Role.ASSISTANT,
    MessageType.TOOL_RESULT: _TOOL,
}


def _get_role(message: Message) -> Role:
    speaker = _ROLES.get(message.type)
    if speaker is None:  # only a result can be written as a tool's
        speaker = _USER if message.role is _TOOL else message.role
    return speaker


def _get_anthropic_role(message: Message) -> Role:
    """The speaker where there are two: the assistant, and all others."""
    return Role.ASSISTANT if _get_role(message) is Role.ASSISTANT else Role.USER


def _group_messages(
    messages: list[Message], get_role: Callable[[Message], Role]
) -> Iterator[tuple[Role, list[Message]]]:
    """The envelopes that make one message of a provider, and who speaks in it."""
    pieces: list[Message] = []
    for message in messages:
        if pieces and not (get_role(pieces[-1]) is get_role(message) and belong_together(pieces[-1], message)):
            yield get_role(pieces[0]), pieces
            pieces = []
        pieces.append(message)
    if pieces:
        yield get_role(pieces[0]), pieces


def _build_content(messages: list[Message], parts: list[Json]) -> str | list[Json]:
    """A single text as it is, unless it came in a list of its own."""
    single = len(parts) == 1 and parts[0].keys() == {"type", "text"}
    return parts[0]["text"] if single and not any("part" in _get_wire_metadata(piece) for piece in messages) else parts


def _build_part(message: Message, shape: str) -> Json | None:
    """A text or a part; both providers write a text alike, and each has parts that the other does not know."""
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
    """The other provider's image in this shape, or None for what is no image or is kept with that provider."""
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
    payload, kept = message.payload or {}, _get_extra([message], OPENAI, "part")
    arguments = payload["arguments"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    function = {"name": payload["name"], "arguments": text} | kept.pop("function", {})
    return {"id": payload["call_id"], "type": "function", "function": function} | kept


def _build_openai_result(message: Message) -> Json:
    payload, content = message.payload or {}, _build_result_content(message, OPENAI)
    name = {} if payload.get("name") is None else {"name": payload["name"]}
    return (
        {"role": "tool", "tool_call_id": payload["call_id"], "content": content} | name | _get_extra([message], OPENAI)
    )


def _build_anthropic_block(message: Message) -> Json | None:
    payload, kept = message.payload or {}, _get_extra([message], ANTHROPIC, "part")
    match message.type:
        case MessageType.TOOL_CALL:
            arguments = _parse_arguments(payload["arguments"])
            return {"type": "tool_use", "id": payload["call_id"], "name": payload["name"], "input": arguments} | kept
        case MessageType.TOOL_RESULT:
            content = _build_result_content(message, ANTHROPIC)
            said = {"content": content} if content else {}
            failed = {"is_error": True} if payload.get("is_error") else {}
            return kept | {"type": "tool_result", "tool_use_id": payload["call_id"]} | said | failed
        case _:
            return _build_part(message, ANTHROPIC)


def _get_system_text(message: Message) -> str:
    part = _build_part(message, ANTHROPIC) or {"type": "text"}
    return str(part.get("text", "")) if part["type"] == "text" else _describe_omitted(part)


def _is_blank(block: Json) -> bool:
    return block["type"] == "text" and not str(block.get("text", "")).strip()


def _parse_arguments(arguments: str | Json) -> Json:
    """Arguments as a dict; a text that is none is passed on, so that the model sees what it wrote."""
    if not isinstance(arguments, str):
        return arguments
    try:
        found: object = _DECODER.decode(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        found = None
    return cast("Json", found) if isinstance(found, dict) else {"_raw": arguments}


def _build_result_content(message: Message, shape: str) -> str | list[Json]:
    """The parts of a result in their own shape, unless its text has been changed since; else the text."""
    payload = message.payload or {}
    parts: list[Json] | None = payload.get("parts")
    if parts is None or join_texts(parts) != message.content:
        return message.content
    if payload.get("shape") == shape:
        return parts
    lines = [message.content, *(_describe_omitted(part) for part in parts if part["type"] != "text")]
    return "\n".join(line for line in lines if line)


def _get_wire_metadata(message: Message) -> Json:
    wire = (message.metadata or {}).get("wire")
    return cast("Json", wire) if isinstance(wire, dict) else {}


def _get_extra(messages: list[Message], shape: str, level: str = "message") -> Json:
    """What was kept of the provider's further keys, if they are of this shape."""
    kept: Json = {}
    for wire in map(_get_wire_metadata, messages):
        found = wire.get(level)
        if isinstance(found, dict) and wire.get("shape", shape) == shape:
            kept |= cast("Json", found)
    return kept
