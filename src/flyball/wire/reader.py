"""Reading: a conversation in whatever mixture of shapes becomes a list of messages."""

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

OPENAI_PARTS = frozenset({"image_url", "input_audio", "file", "refusal", "video_url", "audio_url"})
"""The types of part, beside text, that only OpenAI-shaped messages have."""

Json = dict[str, Any]


def normalize(
    messages: str | Iterable[str | Mapping[str, Any] | Message], *, run: str, start: int = 0, at: float = 0.0
) -> list[Message]:
    """Read a conversation into messages that share nothing with it; a MessageError names what nobody can read.

    A text is a user's. A dict has role and content, as OpenAI or Anthropic write them, or `Message.to_dict` made it.
    What was an envelope already keeps its id and time. New ones get the time `at` and numbers from `start`, or from
    behind those that the run has here already. One message of a provider may become several, of one group.

    >>> [message.id for message in normalize(["hello", {"role": "assistant", "content": "hi"}], run="r", start=4)]
    ['r:4', 'r:5']
    """
    validation.check_text("run", run)
    n = validation.check_int("start", start)
    if not is_time(at):
        raise ConfigError("at", at, EXPECTED_TIME)
    kept: dict[int, Message] = {}
    items = list(_to_items(messages))
    for index, item in enumerate(items):
        if isinstance(item, Message):
            kept[index] = item.checked(index)
        elif _is_envelope(item):
            kept[index] = Message.from_dict(cast("Mapping[str, Any]", item), index)
    n = max([n, *(message.n + 1 for message in kept.values() if message.run == run)])
    done: list[Message] = []
    for index, item in enumerate(items):
        if index in kept:
            done.append(kept[index])
        else:
            made = _read_item(index, item)
            group = n if len(made) > 1 else None
            for offset, message in enumerate(made):
                message.run, message.n, message.created_at, message.group = run, n + offset, at, group
            n += len(made)
            done += made
    return done


def _to_items(messages: object) -> Iterable[object]:
    if isinstance(messages, str):
        return [messages]
    one = isinstance(messages, (Mapping, bytes, bytearray))  # they can be iterated, but not over messages
    if one or not isinstance(messages, Iterable):
        raise MessageError(0, "messages", cast("object", messages), "a text or a list of messages")
    return cast("Iterable[object]", messages)


def _is_envelope(item: object) -> bool:
    return isinstance(item, Mapping) and "schema" in item


def _read_item(index: int, item: object) -> list[Message]:
    """The envelopes of one message that is none yet; `normalize` gives them their ids."""
    if isinstance(item, str):
        return [_build_message(MessageType.TEXT, Role.USER, item)]
    if not isinstance(item, Mapping):
        wanted = "a text, a dict with role and content, or a Message (of an object of an SDK, its model_dump())"
        raise MessageError(index, "message", item, wanted)
    data: Json = copy_json(index, "", cast("object", item))
    given = data.get("role")
    role = Role.SYSTEM if given == "developer" else parse_enum(index, "role", given, Role)
    return _read_tool(index, data) if role is Role.TOOL else _read_message(index, role, data)


def _read_tool(index: int, data: Json) -> list[Message]:
    name = data.get("name")
    require(name is None or isinstance(name, str), index, "name", name, "a text, or None")
    payload = {"call_id": _require_text(index, "", data, "tool_call_id"), "name": name, "is_error": False}
    content = _read_result_text(index, "content", data.get("content"), payload, OPENAI)
    made = [_build_message(MessageType.TOOL_RESULT, Role.TOOL, content, payload)]
    return _mark_shape(made, OPENAI, _collect_extra(data, {"role", "content", "tool_call_id", "name"}, {"name"}))


def _read_message(index: int, role: Role, data: Json) -> list[Message]:
    answered, shape = data.get("tool_call_id"), _detect_shape(role, data)
    require(answered is None, index, "tool_call_id", answered, "a tool_call_id only with the role tool")
    made = _read_content(index, role, data, shape) + _read_calls(index, role, data)
    further = _collect_extra(data, {"role", "content", "tool_calls"}, {"tool_calls"})
    if data["role"] != role:
        further["role"] = data["role"]
    if not made or data.get("content") == []:
        further["content"] = data["content"]
    if not made:  # an assistant that refused, or said nothing, still had its turn
        refusal = data.get("refusal")
        made = [_build_message(MessageType.TEXT, role, refusal if isinstance(refusal, str) else "")]
    return _mark_shape(made, shape, further)


def _detect_shape(role: Role, data: Json) -> str | None:
    """Whose message it is, or None where both providers would write it so."""
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
    silent = role is Role.ASSISTANT  # only a model may answer with nothing, or with calls alone
    if content is None and silent and ("content" in data or data.get("tool_calls")):
        return []
    if isinstance(content, list) and (content or silent):
        parts = cast("list[object]", content)
        lone = len(parts) == 1
        return [_read_part(index, f"content[{place}]", role, part, shape, lone) for place, part in enumerate(parts)]
    expected = "a text, a list of parts, or None" if silent else "a text or a list of parts"
    raise MessageError(index, "content", cast("object", content), expected)


def _read_part(index: int, where: str, role: Role, value: object, shape: str | None, is_only_part: bool) -> Message:
    part = _require_part(index, where, value)
    match part["type"]:
        case "text":
            further = _collect_extra(part, {"type", "text"})
            return _build_message(MessageType.TEXT, role, part["text"], None, further, is_only_part)
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
    further = _collect_extra(block, {"type", "id", "name", "input"})
    return _build_message(MessageType.TOOL_CALL, Role.ASSISTANT, "", payload, further)


def _read_tool_result(index: int, where: str, block: Json) -> Message:
    failed, content = block.get("is_error"), block.get("content")
    require(failed is None or isinstance(failed, bool), index, f"{where}.is_error", failed, "a bool")
    payload = {"call_id": _require_text(index, where, block, "tool_use_id"), "name": None, "is_error": bool(failed)}
    content = "" if content is None else _read_result_text(index, f"{where}.content", content, payload, ANTHROPIC)
    further = _collect_extra(block, {"type", "tool_use_id", "content", "is_error"}, {"content", "is_error"})
    return _build_message(MessageType.TOOL_RESULT, Role.TOOL, content, payload, further)


def _read_result_text(index: int, where: str, content: object, payload: Json, shape: str) -> str:
    """The text of a result; where it is made of parts, they go into its payload."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise MessageError(index, where, content, "a text or a list of parts")
    parts = [
        _require_part(index, f"{where}[{place}]", part) for place, part in enumerate(cast("list[object]", content))
    ]
    payload |= {"parts": parts, "shape": shape}
    return join_texts(parts)


def _read_calls(index: int, role: Role, data: Json) -> list[Message]:
    calls, old = data.get("tool_calls"), data.get("function_call")
    require(old is None, index, "function_call", old, "tool_calls, which replaced it")
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
    inner = cast("Json", function)
    name, arguments = _require_text(index, f"{where}.function", inner, "name"), inner.get("arguments")
    good = isinstance(arguments, (str, dict))  # some servers of this shape write a dict
    require(good, index, f"{where}.function.arguments", arguments, "JSON text, or a dict")
    deeper = _collect_extra(inner, {"name", "arguments"})
    further = _collect_extra(call, {"id", "type", "function"}) | ({"function": deeper} if deeper else {})
    payload = {"call_id": call_id, "name": name, "arguments": arguments}
    return _build_message(MessageType.TOOL_CALL, Role.ASSISTANT, "", payload, further)


def _build_message(
    kind: MessageType,
    role: Role,
    content: str,
    payload: Json | None = None,
    extra: Json | None = None,
    is_only_part: bool = False,
) -> Message:
    """A message without id or time; `lone` marks a text that came in a list of its own."""
    metadata = {"wire": {"part": extra or {}}} if extra or is_only_part else None
    return Message("", 0, 0.0, kind, role, content, payload, metadata)


def _mark_shape(messages: list[Message], shape: str | None, extra: Json) -> list[Message]:
    """The same envelopes, with the further keys of their message and the shape of all further keys."""
    if extra:
        messages[0].metadata = {"wire": (messages[0].metadata or {"wire": {}})["wire"] | {"message": extra}}
        shape = shape or OPENAI  # because Anthropic's messages have no further keys
    for message in messages:
        if message.metadata and shape:
            message.metadata["wire"]["shape"] = shape
    return messages


def _collect_extra(data: Json, known: AbstractSet[str], optional: AbstractSet[str] = frozenset()) -> Json:
    """What the envelope itself does not tell: unknown keys, and empty values where the key might as well be missing."""
    return {key: value for key, value in data.items() if key not in known or (key in optional and not value)}


def _require_text(index: int, where: str, data: Json, key: str) -> str:
    value = data.get(key)
    require(is_nonempty_text(value), index, f"{where}.{key}" if where else key, value, EXPECTED_TEXT)
    return cast("str", value)


def _require_part(index: int, where: str, value: object) -> Json:
    require(isinstance(value, dict), index, where, value, "a dict with a type")
    part = cast("Json", value)
    kind, text = _require_text(index, where, part, "type"), part.get("text")
    require(kind != "text" or isinstance(text, str), index, f"{where}.text", text, "a text, perhaps empty")
    return part


def join_texts(parts: list[Json]) -> str:
    """What the text parts of a result say, a line each."""
    return "\n".join(str(part.get("text", "")) for part in parts if part["type"] == "text")
