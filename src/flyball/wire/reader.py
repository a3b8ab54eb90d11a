"""Parser of conversations: OpenAI's, Anthropic's, the Agents API's and Flyball's formats, in any mixture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, cast

from .._internal import validation
from ..errors import ConfigError, MessageError
from ..message import (
    ANTHROPIC,
    EXPECTED_TEXT,
    EXPECTED_TIME,
    OPENAI,
    Message,
    MessageType,
    Role,
    copy_json,
    is_nonempty_text,
    is_time,
    parse_enum,
    require,
)
from .agents_api import EnvelopeReader, is_agents_api_envelope

OPENAI_PARTS = frozenset({"image_url", "input_audio", "file", "refusal", "video_url", "audio_url"})
"""Types of part, besides text, that only OpenAI's format has."""

Json = dict[str, Any]


def normalize(
    messages: str | Iterable[str | Mapping[str, Any] | Message], *, run: str, start: int = 0, at: float = 0.0
) -> list[Message]:
    """Parse a conversation into messages that share nothing with it.

    A string is a user's text. A dict has role and content, as OpenAI or Anthropic write them, or comes from
    `Message.to_dict`, or is an envelope of the Agents API. A message that has an id and time already keeps them. New
    ones get the time `at` (seconds since the epoch) and numbers from `start`, or after the highest number of the run
    here. One provider message may become several messages of one group. Raises MessageError for the first part that it
    cannot read.

    >>> [message.id for message in normalize(["hello", {"role": "assistant", "content": "hi"}], run="r", start=4)]
    ['r:4', 'r:5']
    """
    validation.check_text("run", run)
    n = validation.check_int("start", start)
    if not is_time(at):
        raise ConfigError("at", at, EXPECTED_TIME)
    existing: dict[int, Message] = {}
    items = list(_to_items(messages))
    for index, item in enumerate(items):
        if isinstance(item, Message):
            existing[index] = item.checked(index)
        elif _is_envelope(item):
            existing[index] = Message.from_dict(cast("Mapping[str, Any]", item), index)
    n = max([n, *(message.n + 1 for message in existing.values() if message.run == run)])
    normalized: list[Message] = []
    envelopes = EnvelopeReader()
    for index, item in enumerate(items):
        if index in existing:
            normalized.append(existing[index])
        else:
            parsed = _read_item(index, item, envelopes)
            group = n if len(parsed) > 1 else None
            for offset, message in enumerate(parsed):
                message.run, message.n, message.created_at, message.group = run, n + offset, at, group
            n += len(parsed)
            normalized += parsed
    return normalized


def _to_items(messages: object) -> Iterable[object]:
    if isinstance(messages, str):
        return [messages]
    is_single = isinstance(messages, (Mapping, bytes, bytearray))  # iterable, but not over messages
    if is_single or not isinstance(messages, Iterable):
        raise MessageError(0, "messages", cast("object", messages), "a string or a list of messages")
    return cast("Iterable[object]", messages)


def _is_envelope(item: object) -> bool:
    return isinstance(item, Mapping) and "schema" in item and not is_agents_api_envelope(cast("object", item))


def _read_item(index: int, item: object, envelopes: EnvelopeReader) -> list[Message]:
    """Parse one provider message; `normalize` assigns the ids."""
    if is_agents_api_envelope(item):
        item = envelopes.read(index, cast("Mapping[str, Any]", item))
        if isinstance(item, Message):
            return [item]
    if isinstance(item, str):
        return [_build_message(MessageType.TEXT, Role.USER, item)]
    if not isinstance(item, Mapping):
        expected = "a string, a dict with role and content, or a Message (for an SDK object, pass its model_dump())"
        raise MessageError(index, "message", item, expected)
    data: Json = copy_json(index, "", cast("object", item))
    role_name = data.get("role")
    role = Role.SYSTEM if role_name == "developer" else parse_enum(index, "role", role_name, Role)
    return _read_tool(index, data) if role is Role.TOOL else _read_message(index, role, data)


def _read_tool(index: int, data: Json) -> list[Message]:
    name = data.get("name")
    require(name is None or isinstance(name, str), index, "name", name, "a string, or None")
    payload = {"call_id": _require_text(index, "", data, "tool_call_id"), "name": name, "is_error": False}
    content = _read_result_text(index, "content", data.get("content"), payload, OPENAI)
    messages = [_build_message(MessageType.TOOL_RESULT, Role.TOOL, content, payload)]
    return _mark_shape(messages, OPENAI, _collect_extra(data, {"role", "content", "tool_call_id", "name"}, {"name"}))


def _read_message(index: int, role: Role, data: Json) -> list[Message]:
    answered_call_id, shape = data.get("tool_call_id"), _detect_shape(role, data)
    require(answered_call_id is None, index, "tool_call_id", answered_call_id, "a tool_call_id only with the role tool")
    messages = _read_content(index, role, data, shape) + _read_calls(index, role, data)
    extra = _collect_extra(data, {"role", "content", "tool_calls"}, {"tool_calls"})
    if data["role"] != role:
        extra["role"] = data["role"]
    if not messages or data.get("content") == []:
        extra["content"] = data["content"]
    if not messages:  # an assistant message with a refusal, or without content, is kept as a message
        refusal = data.get("refusal")
        messages = [_build_message(MessageType.TEXT, role, refusal if isinstance(refusal, str) else "")]
    return _mark_shape(messages, shape, extra)


def _detect_shape(role: Role, data: Json) -> str | None:
    """Return the provider of a message, or None if both write it so."""
    content = data.get("content")
    parts = cast("list[object]", content) if isinstance(content, list) else []
    kinds = {str(cast("Json", part).get("type")) for part in parts if isinstance(part, dict)} - {"text"}
    if role is Role.SYSTEM or "tool_calls" in data or kinds & OPENAI_PARTS:
        return OPENAI
    return ANTHROPIC if kinds or data.get("type") == "message" else None


def _read_content(index: int, role: Role, data: Json, shape: str | None) -> list[Message]:
    content = data.get("content")
    if isinstance(content, str):
        return [_build_message(MessageType.TEXT, role, content)]
    is_assistant = role is Role.ASSISTANT  # only the assistant may have no content, or calls alone
    if content is None and is_assistant and ("content" in data or data.get("tool_calls")):
        return []
    if isinstance(content, list) and (content or is_assistant):
        parts = cast("list[object]", content)
        is_only_part = len(parts) == 1
        return [
            _read_part(index, f"content[{place}]", role, part, shape, is_only_part) for place, part in enumerate(parts)
        ]
    expected = "a string, a list of parts, or None" if is_assistant else "a string or a list of parts"
    raise MessageError(index, "content", cast("object", content), expected)


def _read_part(index: int, where: str, role: Role, value: object, shape: str | None, is_only_part: bool) -> Message:
    part = _require_part(index, where, value)
    match part["type"]:
        case "text":
            extra = _collect_extra(part, {"type", "text"})
            return _build_message(MessageType.TEXT, role, part["text"], None, extra, is_only_part)
        case "tool_use":
            require(role is Role.ASSISTANT, index, f"{where}.type", "tool_use", "a tool_use only from the assistant")
            return _read_tool_use(index, where, part)
        case "tool_result":
            require(role is Role.USER, index, f"{where}.type", "tool_result", "a tool_result only from the user")
            return _read_tool_result(index, where, part)
        case kind:
            owner = OPENAI if kind in OPENAI_PARTS else shape or ANTHROPIC
            return _build_message(MessageType.MULTIMODAL_PART, role, "", {"part": part, "shape": owner})


def _read_tool_use(index: int, where: str, block: Json) -> Message:
    call_id, name, arguments = (
        _require_text(index, where, block, "id"),
        _require_text(index, where, block, "name"),
        block.get("input"),
    )
    require(isinstance(arguments, dict), index, f"{where}.input", arguments, "a dict")
    payload = {"call_id": call_id, "name": name, "arguments": arguments}
    extra = _collect_extra(block, {"type", "id", "name", "input"})
    return _build_message(MessageType.TOOL_CALL, Role.ASSISTANT, "", payload, extra)


def _read_tool_result(index: int, where: str, block: Json) -> Message:
    failed, content = block.get("is_error"), block.get("content")
    require(failed is None or isinstance(failed, bool), index, f"{where}.is_error", failed, "a bool")
    payload = {"call_id": _require_text(index, where, block, "tool_use_id"), "name": None, "is_error": bool(failed)}
    content = "" if content is None else _read_result_text(index, f"{where}.content", content, payload, ANTHROPIC)
    extra = _collect_extra(block, {"type", "tool_use_id", "content", "is_error"}, {"content", "is_error"})
    return _build_message(MessageType.TOOL_RESULT, Role.TOOL, content, payload, extra)


def _read_result_text(index: int, where: str, content: object, payload: Json, shape: str) -> str:
    """Return the text of a result, and store its parts in the payload."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise MessageError(index, where, content, "a string or a list of parts")
    parts = [
        _require_part(index, f"{where}[{place}]", part) for place, part in enumerate(cast("list[object]", content))
    ]
    payload |= {"parts": parts, "shape": shape}
    return join_texts(parts)


def _read_calls(index: int, role: Role, data: Json) -> list[Message]:
    calls, function_call = data.get("tool_calls"), data.get("function_call")
    require(function_call is None, index, "function_call", function_call, "tool_calls, which replaced it")
    if calls is None or calls == []:
        return []
    require(role is Role.ASSISTANT, index, "tool_calls", calls, "tool calls only from the assistant")
    require(isinstance(calls, list), index, "tool_calls", calls, "a list of tool calls, or None")
    return [_read_call(index, f"tool_calls[{place}]", call) for place, call in enumerate(calls)]


def _read_call(index: int, where: str, value: object) -> Message:
    require(isinstance(value, dict), index, where, value, "a dict with id, type and function")
    call = cast("Json", value)
    call_id, kind, function = (
        _require_text(index, where, call, "id"),
        call.get("type", "function"),
        call.get("function"),
    )
    require(kind == "function", index, f"{where}.type", kind, "'function'")
    require(isinstance(function, dict), index, f"{where}.function", function, "a dict with name and arguments")
    function_data = cast("Json", function)
    name, arguments = _require_text(index, f"{where}.function", function_data, "name"), function_data.get("arguments")
    is_valid = isinstance(arguments, (str, dict))  # some OpenAI-like servers send a dict
    require(is_valid, index, f"{where}.function.arguments", arguments, "JSON text, or a dict")
    function_extra = _collect_extra(function_data, {"name", "arguments"})
    extra = _collect_extra(call, {"id", "type", "function"}) | ({"function": function_extra} if function_extra else {})
    payload = {"call_id": call_id, "name": name, "arguments": arguments}
    return _build_message(MessageType.TOOL_CALL, Role.ASSISTANT, "", payload, extra)


def _build_message(
    kind: MessageType,
    role: Role,
    content: str,
    payload: Json | None = None,
    extra: Json | None = None,
    is_only_part: bool = False,
) -> Message:
    """Build a message without id or time.

    `is_only_part` marks a text that came alone in a list.
    """
    metadata = {"wire": {"part": extra or {}}} if extra or is_only_part else None
    return Message("", 0, 0.0, kind, role, content, payload, metadata)


def _mark_shape(messages: list[Message], shape: str | None, extra: Json) -> list[Message]:
    """Add the provider message's other keys and shape to the metadata."""
    if extra:
        messages[0].metadata = {"wire": (messages[0].metadata or {"wire": {}})["wire"] | {"message": extra}}
        shape = shape or OPENAI  # Anthropic's messages have no other keys
    for message in messages:
        if message.metadata and shape:
            message.metadata["wire"]["shape"] = shape
    return messages


def _collect_extra(data: Json, known: AbstractSet[str], optional: AbstractSet[str] = frozenset()) -> Json:
    """Return keys that the message cannot restore: unknown ones, and empty optional ones."""
    return {key: value for key, value in data.items() if key not in known or (key in optional and not value)}


def _require_text(index: int, where: str, data: Json, key: str) -> str:
    value = data.get(key)
    require(is_nonempty_text(value), index, f"{where}.{key}" if where else key, value, EXPECTED_TEXT)
    return cast("str", value)


def _require_part(index: int, where: str, value: object) -> Json:
    require(isinstance(value, dict), index, where, value, "a dict with a type")
    part = cast("Json", value)
    kind, text = _require_text(index, where, part, "type"), part.get("text")
    require(kind != "text" or isinstance(text, str), index, f"{where}.text", text, "a string")
    return part


def join_texts(parts: list[Json]) -> str:
    """Join the text parts of a result, one line each."""
    return "\n".join(str(part.get("text", "")) for part in parts if part["type"] == "text")
