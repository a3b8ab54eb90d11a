"""Parser of conversations: the providers', the Agents API's and Flyball's formats, in any mixture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from .._internal import validation
from ..errors import ConfigError, MessageError
from ..message import (
    ANTHROPIC,
    EXPECTED_TIME,
    GEMINI,
    OPENAI,
    RESPONSES,
    Message,
    MessageType,
    Role,
    copy_json,
    is_time,
    parse_enum,
    require,
)
from .agents_api import EnvelopeReader, is_agents_api_envelope
from .gemini_contents import GeminiReader, is_gemini_content
from .parts import WHOLE, build_message, collect_extra, join_texts, mark_shape, require_part, require_text
from .responses_items import is_responses_item, read_item

OPENAI_PARTS = frozenset({"image_url", "input_audio", "file", "refusal", "video_url", "audio_url"})
"""Types of part, besides text, that only OpenAI's format has."""

Json = dict[str, Any]


def normalize(
    messages: str | Iterable[str | Mapping[str, Any] | Message], *, run: str, start: int = 0, at: float = 0.0
) -> list[Message]:
    """Parse a conversation into messages that share nothing with it.

    A string is a user's text. A dict is a message, item or content as OpenAI, Anthropic or Gemini write them, or comes
    from `Message.to_dict`, or is an envelope of the Agents API. A message that has an id and time already keeps them.
    New ones get the time `at` (seconds since the epoch) and numbers from `start`, or after the highest number of the
    run here. One provider message may become several messages of one group. Raises MessageError for the first part that
    it cannot read.

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
    readers = _ItemReaders()
    for index, item in enumerate(items):
        if index in existing:
            normalized.append(existing[index])
        else:
            parsed = _read_item(index, item, readers)
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


def read_messages(items: object, shape: str) -> list[Message]:
    """Parse the messages of a request's body, which is in this format. It never fails.

    A message that is not understood is kept whole. The ids of the messages are those of a run named "body".
    """
    readers, messages = _ItemReaders(), list[Message]()
    for index, item in enumerate(cast("list[object]", items) if isinstance(items, list) else [items] if items else []):
        try:
            parsed = _read_item(index, item, readers, shape)
        except (MessageError, RecursionError):
            payload = {"part": {"type": WHOLE, "item": item}, "shape": shape}
            role = cast("Json", item).get("role") if isinstance(item, dict) else None
            role = Role(role) if role in (Role.SYSTEM, Role.ASSISTANT) else Role.USER
            parsed = [build_message(MessageType.MULTIMODAL_PART, role, "", payload)]
        n = len(messages)
        for offset, message in enumerate(parsed):
            message.run, message.n, message.group = "body", n + offset, n if len(parsed) > 1 else None
        messages += parsed
    return messages


class _ItemReaders:
    """Readers that keep what they need of earlier items of the conversation."""

    __slots__ = ("agents_api", "gemini")

    def __init__(self) -> None:
        self.agents_api = EnvelopeReader()
        self.gemini = GeminiReader()


def _read_item(index: int, item: object, readers: _ItemReaders, shape: str | None = None) -> list[Message]:
    """Parse one provider message; `normalize` assigns the ids."""
    if shape is None and is_agents_api_envelope(item):
        item = readers.agents_api.read(index, cast("Mapping[str, Any]", item))
        if isinstance(item, Message):
            return [item]
    if isinstance(item, str):
        return [build_message(MessageType.TEXT, Role.USER, item)]
    if not isinstance(item, Mapping):
        expected = "a string, a dict with role and content, or a Message (for an SDK object, pass its model_dump())"
        raise MessageError(index, "message", item, expected)
    data: Json = copy_json(index, "", cast("object", item))
    if shape == RESPONSES or (shape is None and is_responses_item(data)):
        return read_item(index, data)
    if shape == GEMINI or (shape is None and is_gemini_content(data)):
        return readers.gemini.read(index, data)
    role_name = data.get("role")
    role = Role.SYSTEM if role_name == "developer" else parse_enum(index, "role", role_name, Role)
    return _read_tool(index, data) if role is Role.TOOL else _read_message(index, role, data)


def _read_tool(index: int, data: Json) -> list[Message]:
    name = data.get("name")
    require(name is None or isinstance(name, str), index, "name", name, "a string, or None")
    payload = {"call_id": require_text(index, "", data, "tool_call_id"), "name": name, "is_error": False}
    content = _read_result_text(index, "content", data.get("content"), payload, OPENAI)
    messages = [build_message(MessageType.TOOL_RESULT, Role.TOOL, content, payload)]
    return mark_shape(messages, OPENAI, collect_extra(data, {"role", "content", "tool_call_id", "name"}, {"name"}))


def _read_message(index: int, role: Role, data: Json) -> list[Message]:
    answered_call_id, shape = data.get("tool_call_id"), _detect_shape(role, data)
    require(answered_call_id is None, index, "tool_call_id", answered_call_id, "a tool_call_id only with the role tool")
    messages = _read_content(index, role, data, shape) + _read_calls(index, role, data)
    extra = collect_extra(data, {"role", "content", "tool_calls"}, {"tool_calls"})
    if data["role"] != role:
        extra["role"] = data["role"]
    if not messages or data.get("content") == []:
        extra["content"] = data["content"]
    if not messages:  # an assistant message with a refusal, or without content, is kept as a message
        refusal = data.get("refusal")
        messages = [build_message(MessageType.TEXT, role, refusal if isinstance(refusal, str) else "")]
    return mark_shape(messages, shape, extra)


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
        return [build_message(MessageType.TEXT, role, content)]
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
    part = require_part(index, where, value)
    match part["type"]:
        case "text":
            extra = collect_extra(part, {"type", "text"})
            return build_message(MessageType.TEXT, role, part["text"], None, extra, is_only_part)
        case "tool_use":
            require(role is Role.ASSISTANT, index, f"{where}.type", "tool_use", "a tool_use only from the assistant")
            return _read_tool_use(index, where, part)
        case "tool_result":
            require(role is Role.USER, index, f"{where}.type", "tool_result", "a tool_result only from the user")
            return _read_tool_result(index, where, part)
        case kind:
            owner = OPENAI if kind in OPENAI_PARTS else shape or ANTHROPIC
            return build_message(MessageType.MULTIMODAL_PART, role, "", {"part": part, "shape": owner})


def _read_tool_use(index: int, where: str, block: Json) -> Message:
    call_id, name, arguments = (
        require_text(index, where, block, "id"),
        require_text(index, where, block, "name"),
        block.get("input"),
    )
    require(isinstance(arguments, dict), index, f"{where}.input", arguments, "a dict")
    payload = {"call_id": call_id, "name": name, "arguments": arguments}
    extra = collect_extra(block, {"type", "id", "name", "input"})
    return build_message(MessageType.TOOL_CALL, Role.ASSISTANT, "", payload, extra)


def _read_tool_result(index: int, where: str, block: Json) -> Message:
    failed, content = block.get("is_error"), block.get("content")
    require(failed is None or isinstance(failed, bool), index, f"{where}.is_error", failed, "a bool")
    payload = {"call_id": require_text(index, where, block, "tool_use_id"), "name": None, "is_error": bool(failed)}
    content = "" if content is None else _read_result_text(index, f"{where}.content", content, payload, ANTHROPIC)
    extra = collect_extra(block, {"type", "tool_use_id", "content", "is_error"}, {"content", "is_error"})
    return build_message(MessageType.TOOL_RESULT, Role.TOOL, content, payload, extra)


def _read_result_text(index: int, where: str, content: object, payload: Json, shape: str) -> str:
    """Return the text of a result, and store its parts in the payload."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise MessageError(index, where, content, "a string or a list of parts")
    parts = [require_part(index, f"{where}[{place}]", part) for place, part in enumerate(cast("list[object]", content))]
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
    """Parse a call of a function, or of a tool that takes free text."""
    require(isinstance(value, dict), index, where, value, "a dict with id, type and function")
    call = cast("Json", value)
    call_id, kind = require_text(index, where, call, "id"), call.get("type", "function")
    require(kind in ("function", "custom"), index, f"{where}.type", kind, "'function' or 'custom'")
    function, key = cast("object", call.get(kind)), "arguments" if kind == "function" else "input"
    require(isinstance(function, dict), index, f"{where}.{kind}", function, f"a dict with name and {key}")
    function_data = cast("Json", function)
    name, arguments = require_text(index, f"{where}.{kind}", function_data, "name"), function_data.get(key)
    is_valid = isinstance(arguments, (str, dict))  # some OpenAI-like servers send a dict
    require(is_valid, index, f"{where}.{kind}.{key}", arguments, "JSON text, or a dict")
    function_extra = collect_extra(function_data, {"name", key})
    extra = collect_extra(call, {"id", "type", kind}) | ({"function": function_extra} if function_extra else {})
    payload = {"call_id": call_id, "name": name, "arguments": arguments}
    return build_message(
        MessageType.TOOL_CALL, Role.ASSISTANT, "", payload, extra | ({} if key == "arguments" else {"type": kind})
    )
