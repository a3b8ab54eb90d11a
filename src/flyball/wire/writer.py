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

from ..message import ANTHROPIC, OPENAI, Message, MessageType, Role, together
from .reader import texts

PRIVATE = frozenset({"thinking", "redacted_thinking"})
"""Reasoning that its provider signs for itself; no other takes it."""

Json = dict[str, Any]


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(number)
    return value


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)
"""Python would read NaN and infinity, which are no JSON."""


def to_openai(messages: Iterable[Message]) -> list[Json]:
    """The conversation for OpenAI's chat API; arguments that are a dict become JSON text."""
    return write_openai(_checked(messages))


def write_openai(messages: Iterable[Message]) -> list[Json]:
    """The same for messages that are known to be right; what it gives may share parts with them."""
    done: list[Json] = []
    for who, pieces in _joined(_lasting(messages), _speaker):
        if who is Role.TOOL:
            done += [_openai_result(piece) for piece in pieces]
            continue
        calls = [_openai_call(piece) for piece in pieces if piece.type is MessageType.TOOL_CALL]
        said = [piece for piece in pieces if piece.type is not MessageType.TOOL_CALL]
        parts = [part for piece in said if (part := _shown(piece, OPENAI))]
        if parts or calls:
            message = {"role": str(who), "content": _content(said, parts) if parts else None}
            done.append(message | ({"tool_calls": calls} if calls else {}) | _kept(pieces, OPENAI))
    return done


def to_anthropic(messages: Iterable[Message]) -> tuple[str | None, list[Json]]:
    """The system text and the conversation for Anthropic's messages API.

    Arguments that are JSON text become the dict that they say; a blank text is {}, and a text that is no JSON object is
    {"_raw": text}. Blank texts are left out, because that API refuses them.
    """
    return write_anthropic(_checked(messages))


def write_anthropic(messages: Iterable[Message]) -> tuple[str | None, list[Json]]:
    """The same for messages that are known to be right; what it gives may share parts with them."""
    pieces = _lasting(messages)
    system = [_system_text(piece) for piece in pieces if _speaker(piece) is Role.SYSTEM]
    done: list[Json] = []
    for who, batch in _joined([piece for piece in pieces if _speaker(piece) is not Role.SYSTEM], _side):
        blocks = [block for piece in batch if (block := _block(piece)) and not _is_blank(block)]
        if blocks:
            done.append({"role": str(who), "content": _content(batch, blocks)} | _kept(batch, ANTHROPIC))
    return "\n\n".join(filter(str.strip, system)) or None, done


def _checked(messages: Iterable[Message]) -> list[Message]:
    """Copies of them; a MessageError names what no message can have."""
    return [message.checked(index) for index, message in enumerate(messages)]


def _lasting(messages: Iterable[Message]) -> list[Message]:
    return [message for message in messages if message.type is not MessageType.DELTA]


_USER, _TOOL = Role.USER, Role.TOOL  # found once: a member of an enum is looked up slowly
_SPEAKERS = {
    MessageType.TOOL_CALL: Role.ASSISTANT,
    MessageType.INPUT_REQUIRED: Role.ASSISTANT,
    MessageType.APPROVAL_REQUIRED: Role.ASSISTANT,
    MessageType.TOOL_RESULT: _TOOL,
}


def _speaker(message: Message) -> Role:
    speaker = _SPEAKERS.get(message.type)
    if speaker is None:  # only a result can be written as a tool's
        speaker = _USER if message.role is _TOOL else message.role
    return speaker


def _side(message: Message) -> Role:
    """The speaker where there are two: the assistant, and all others."""
    return Role.ASSISTANT if _speaker(message) is Role.ASSISTANT else Role.USER


def _joined(messages: list[Message], speaker: Callable[[Message], Role]) -> Iterator[tuple[Role, list[Message]]]:
    """The envelopes that make one message of a provider, and who speaks in it."""
    pieces: list[Message] = []
    for message in messages:
        if pieces and not (speaker(pieces[-1]) is speaker(message) and together(pieces[-1], message)):
            yield speaker(pieces[0]), pieces
            pieces = []
        pieces.append(message)
    if pieces:
        yield speaker(pieces[0]), pieces


def _content(pieces: list[Message], parts: list[Json]) -> str | list[Json]:
    """A single text as it is, unless it came in a list of its own."""
    single = len(parts) == 1 and parts[0].keys() == {"type", "text"}
    return parts[0]["text"] if single and not any("part" in _wire(piece) for piece in pieces) else parts


def _shown(message: Message, shape: str) -> Json | None:
    """A text or a part; both providers write a text alike, and each has parts that the other does not know."""
    payload = message.payload or {}
    if message.type is not MessageType.MULTIMODAL_PART:
        code = payload.get("code", "") if message.type is MessageType.ERROR else ""
        return {"type": "text", "text": message.content or str(code)} | _kept([message], shape, "part")
    part: Json = payload["part"]
    if payload["shape"] == shape:
        return part
    if part["type"] in PRIVATE:
        return None
    return _image(part, shape) or {"type": "text", "text": message.content or _left_out(part)}


def _image(part: Json, shape: str) -> Json | None:
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


def _left_out(part: Json) -> str:
    return f"[left out: {part['type']}]"


def _openai_call(message: Message) -> Json:
    payload, kept = message.payload or {}, _kept([message], OPENAI, "part")
    arguments = payload["arguments"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    function = {"name": payload["name"], "arguments": text} | kept.pop("function", {})
    return {"id": payload["call_id"], "type": "function", "function": function} | kept


def _openai_result(message: Message) -> Json:
    payload, content = message.payload or {}, _result_content(message, OPENAI)
    name = {} if payload.get("name") is None else {"name": payload["name"]}
    return {"role": "tool", "tool_call_id": payload["call_id"], "content": content} | name | _kept([message], OPENAI)


def _block(message: Message) -> Json | None:
    payload, kept = message.payload or {}, _kept([message], ANTHROPIC, "part")
    match message.type:
        case MessageType.TOOL_CALL:
            arguments = _parsed(payload["arguments"])
            return {"type": "tool_use", "id": payload["call_id"], "name": payload["name"], "input": arguments} | kept
        case MessageType.TOOL_RESULT:
            content = _result_content(message, ANTHROPIC)
            said = {"content": content} if content else {}
            failed = {"is_error": True} if payload.get("is_error") else {}
            return kept | {"type": "tool_result", "tool_use_id": payload["call_id"]} | said | failed
        case _:
            return _shown(message, ANTHROPIC)


def _system_text(message: Message) -> str:
    part = _shown(message, ANTHROPIC) or {"type": "text"}
    return str(part.get("text", "")) if part["type"] == "text" else _left_out(part)


def _is_blank(block: Json) -> bool:
    return block["type"] == "text" and not str(block.get("text", "")).strip()


def _parsed(arguments: str | Json) -> Json:
    """Arguments as a dict; a text that is none is passed on, so that the model sees what it wrote."""
    if not isinstance(arguments, str):
        return arguments
    try:
        found: object = _DECODER.decode(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        found = None
    return cast("Json", found) if isinstance(found, dict) else {"_raw": arguments}


def _result_content(message: Message, shape: str) -> str | list[Json]:
    """The parts of a result in their own shape, unless its text has been changed since; else the text."""
    payload = message.payload or {}
    parts: list[Json] | None = payload.get("parts")
    if parts is None or texts(parts) != message.content:
        return message.content
    if payload.get("shape") == shape:
        return parts
    lines = [message.content, *(_left_out(part) for part in parts if part["type"] != "text")]
    return "\n".join(line for line in lines if line)


def _wire(message: Message) -> Json:
    wire = (message.metadata or {}).get("wire")
    return cast("Json", wire) if isinstance(wire, dict) else {}


def _kept(messages: list[Message], shape: str, level: str = "message") -> Json:
    """What was kept of the provider's further keys, if they are of this shape."""
    kept: Json = {}
    for wire in map(_wire, messages):
        found = wire.get(level)
        if isinstance(found, dict) and wire.get("shape", shape) == shape:
            kept |= cast("Json", found)
    return kept
