"""Reading: a conversation in whatever mixture of shapes becomes a list of messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, cast

from .._internal import validation
from ..errors import ConfigError, MessageError
from ..message import (
    ANTHROPIC,
    OPENAI,
    TEXT,
    TIME,
    Message,
    MessageType,
    Role,
    is_text,
    is_time,
    json_copy,
    member,
    need,
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
    validation.text("run", run)
    n = validation.whole("start", start)
    if not is_time(at):
        raise ConfigError("at", at, TIME)
    kept: dict[int, Message] = {}
    items = list(_items(messages))
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
            made = _read(index, item)
            group = n if len(made) > 1 else None
            for offset, message in enumerate(made):
                message.run, message.n, message.created_at, message.group = run, n + offset, at, group
            n += len(made)
            done += made
    return done


def _items(messages: object) -> Iterable[object]:
    if isinstance(messages, str):
        return [messages]
    one = isinstance(messages, (Mapping, bytes, bytearray))  # they can be iterated, but not over messages
    if one or not isinstance(messages, Iterable):
        raise MessageError(0, "messages", cast("object", messages), "a text or a list of messages")
    return cast("Iterable[object]", messages)


def _is_envelope(item: object) -> bool:
    return isinstance(item, Mapping) and "schema" in item


def _read(index: int, item: object) -> list[Message]:
    """The envelopes of one message that is none yet; `normalize` gives them their ids."""
    if isinstance(item, str):
        return [_made(MessageType.TEXT, Role.USER, item)]
    if not isinstance(item, Mapping):
        wanted = "a text, a dict with role and content, or a Message (of an object of an SDK, its model_dump())"
        raise MessageError(index, "message", item, wanted)
    data: Json = json_copy(index, "", cast("object", item))
    given = data.get("role")
    role = Role.SYSTEM if given == "developer" else member(index, "role", given, Role)
    return _read_tool(index, data) if role is Role.TOOL else _read_message(index, role, data)


def _read_tool(index: int, data: Json) -> list[Message]:
    name = data.get("name")
    need(name is None or isinstance(name, str), index, "name", name, "a text, or None")
    payload = {"call_id": _text(index, "", data, "tool_call_id"), "name": name, "is_error": False}
    content = _result_text(index, "content", data.get("content"), payload, OPENAI)
    made = [_made(MessageType.TOOL_RESULT, Role.TOOL, content, payload)]
    return _marked(made, OPENAI, _further(data, {"role", "content", "tool_call_id", "name"}, {"name"}))


def _read_message(index: int, role: Role, data: Json) -> list[Message]:
    answered, shape = data.get("tool_call_id"), _shape(role, data)
    need(answered is None, index, "tool_call_id", answered, "a tool_call_id only with the role tool")
    made = _read_content(index, role, data, shape) + _read_calls(index, role, data)
    further = _further(data, {"role", "content", "tool_calls"}, {"tool_calls"})
    if data["role"] != role:
        further["role"] = data["role"]
    if not made or data.get("content") == []:
        further["content"] = data["content"]
    if not made:  # an assistant that refused, or said nothing, still had its turn
        refusal = data.get("refusal")
        made = [_made(MessageType.TEXT, role, refusal if isinstance(refusal, str) else "")]
    return _marked(made, shape, further)


def _shape(role: Role, data: Json) -> str | None:
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
        return [_made(MessageType.TEXT, role, content)]
    silent = role is Role.ASSISTANT  # only a model may answer with nothing, or with calls alone
    if content is None and silent and ("content" in data or data.get("tool_calls")):
        return []
    if isinstance(content, list) and (content or silent):
        parts = cast("list[object]", content)
        lone = len(parts) == 1
        return [_read_part(index, f"content[{place}]", role, part, shape, lone) for place, part in enumerate(parts)]
    expected = "a text, a list of parts, or None" if silent else "a text or a list of parts"
    raise MessageError(index, "content", cast("object", content), expected)


def _read_part(index: int, where: str, role: Role, value: object, shape: str | None, lone: bool) -> Message:
    part = _part(index, where, value)
    match part["type"]:
        case "text":
            further = _further(part, {"type", "text"})
            return _made(MessageType.TEXT, role, part["text"], None, further, lone)
        case "tool_use":
            need(role is Role.ASSISTANT, index, f"{where}.type", "tool_use", "a tool_use only from the assistant")
            return _read_use(index, where, part)
        case "tool_result":
            need(role is Role.USER, index, f"{where}.type", "tool_result", "a tool_result only from the user")
            return _read_result(index, where, part)
        case kind:
            owner = OPENAI if kind in OPENAI_PARTS else shape or ANTHROPIC
            return _made(MessageType.MULTIMODAL_PART, role, "", {"part": part, "shape": owner})


def _read_use(index: int, where: str, block: Json) -> Message:
    call_id, name, arguments = _text(index, where, block, "id"), _text(index, where, block, "name"), block.get("input")
    need(isinstance(arguments, dict), index, f"{where}.input", arguments, "a dict")
    payload = {"call_id": call_id, "name": name, "arguments": arguments}
    further = _further(block, {"type", "id", "name", "input"})
    return _made(MessageType.TOOL_CALL, Role.ASSISTANT, "", payload, further)


def _read_result(index: int, where: str, block: Json) -> Message:
    failed, content = block.get("is_error"), block.get("content")
    need(failed is None or isinstance(failed, bool), index, f"{where}.is_error", failed, "a bool")
    payload = {"call_id": _text(index, where, block, "tool_use_id"), "name": None, "is_error": bool(failed)}
    content = "" if content is None else _result_text(index, f"{where}.content", content, payload, ANTHROPIC)
    further = _further(block, {"type", "tool_use_id", "content", "is_error"}, {"content", "is_error"})
    return _made(MessageType.TOOL_RESULT, Role.TOOL, content, payload, further)


def _result_text(index: int, where: str, content: object, payload: Json, shape: str) -> str:
    """The text of a result; where it is made of parts, they go into its payload."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise MessageError(index, where, content, "a text or a list of parts")
    parts = [_part(index, f"{where}[{place}]", part) for place, part in enumerate(cast("list[object]", content))]
    payload |= {"parts": parts, "shape": shape}
    return texts(parts)


def _read_calls(index: int, role: Role, data: Json) -> list[Message]:
    calls, old = data.get("tool_calls"), data.get("function_call")
    need(old is None, index, "function_call", old, "tool_calls, which replaced it")
    if calls is None or calls == []:
        return []
    need(role is Role.ASSISTANT, index, "tool_calls", calls, "tool calls only from the assistant")
    need(isinstance(calls, list), index, "tool_calls", calls, "a list of tool calls, or None")
    return [_read_call(index, f"tool_calls[{place}]", call) for place, call in enumerate(calls)]


def _read_call(index: int, where: str, value: object) -> Message:
    need(isinstance(value, dict), index, where, value, "a dict with id, type and function")
    call = cast("Json", value)
    call_id, kind, function = _text(index, where, call, "id"), call.get("type", "function"), call.get("function")
    need(kind == "function", index, f"{where}.type", kind, "'function'")
    need(isinstance(function, dict), index, f"{where}.function", function, "a dict with name and arguments")
    inner = cast("Json", function)
    name, arguments = _text(index, f"{where}.function", inner, "name"), inner.get("arguments")
    good = isinstance(arguments, (str, dict))  # some servers of this shape write a dict
    need(good, index, f"{where}.function.arguments", arguments, "JSON text, or a dict")
    deeper = _further(inner, {"name", "arguments"})
    further = _further(call, {"id", "type", "function"}) | ({"function": deeper} if deeper else {})
    payload = {"call_id": call_id, "name": name, "arguments": arguments}
    return _made(MessageType.TOOL_CALL, Role.ASSISTANT, "", payload, further)


def _made(
    kind: MessageType,
    role: Role,
    content: str,
    payload: Json | None = None,
    further: Json | None = None,
    lone: bool = False,
) -> Message:
    """A message without id or time; `lone` marks a text that came in a list of its own."""
    metadata = {"wire": {"part": further or {}}} if further or lone else None
    return Message("", 0, 0.0, kind, role, content, payload, metadata)


def _marked(made: list[Message], shape: str | None, further: Json) -> list[Message]:
    """The same envelopes, with the further keys of their message and the shape of all further keys."""
    if further:
        made[0].metadata = {"wire": (made[0].metadata or {"wire": {}})["wire"] | {"message": further}}
        shape = shape or OPENAI  # because Anthropic's messages have no further keys
    for message in made:
        if message.metadata and shape:
            message.metadata["wire"]["shape"] = shape
    return made


def _further(data: Json, known: AbstractSet[str], optional: AbstractSet[str] = frozenset()) -> Json:
    """What the envelope itself does not tell: unknown keys, and empty values where the key might as well be missing."""
    return {key: value for key, value in data.items() if key not in known or (key in optional and not value)}


def _text(index: int, where: str, data: Json, key: str) -> str:
    value = data.get(key)
    need(is_text(value), index, f"{where}.{key}" if where else key, value, TEXT)
    return cast("str", value)


def _part(index: int, where: str, value: object) -> Json:
    need(isinstance(value, dict), index, where, value, "a dict with a type")
    part = cast("Json", value)
    kind, text = _text(index, where, part, "type"), part.get("text")
    need(kind != "text" or isinstance(text, str), index, f"{where}.text", text, "a text, perhaps empty")
    return part


def texts(parts: list[Json]) -> str:
    """What the text parts of a result say, a line each."""
    return "\n".join(str(part.get("text", "")) for part in parts if part["type"] == "text")
