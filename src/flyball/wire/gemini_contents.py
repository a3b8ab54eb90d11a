"""Contents of Gemini's generateContent API: conversion from and to messages.

Parts have no type. One that is neither text, call nor result is kept as `{"type": its kind, "value": the part}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from ..message import GEMINI, Message, MessageType, Role, is_nonempty_text, require
from .parts import Json, build_message, collect_extra, mark_shape
from .writer import (
    build_foreign_part,
    drop_private,
    get_extra,
    get_role,
    get_system_text,
    get_wire_metadata,
    group_messages,
    list_whole,
    parse_arguments,
    sort_parts,
)

_ROLES = {"user": Role.USER, "model": Role.ASSISTANT, "function": Role.USER, "system": Role.SYSTEM}
_EMPTY: Json = {}


def is_gemini_content(item: Mapping[str, Any]) -> bool:
    """Check whether a dict is a content of this API."""
    return isinstance(item.get("parts"), list) and "content" not in item and "type" not in item


class GeminiReader:
    """Reads the contents of one conversation.

    Calls and results often have no id. A call then gets one from its place. A result without an id belongs to the
    first call of the same tool that has none yet.
    """

    def __init__(self) -> None:
        self._open_calls: dict[str, list[str]] = {}

    def read(self, index: int, item: Json) -> list[Message]:
        """Parse a content, a copy that the messages may keep."""
        name = item.get("role", "user")
        role = _ROLES.get(name) if isinstance(name, str) else None
        require(role is not None, index, "role", name, "user or model")
        assert role is not None
        parts: object = item.get("parts")
        require(isinstance(parts, list) and parts != [], index, "parts", cast("object", parts), "a list of parts")
        rows = cast("list[object]", parts)
        messages = [self._read_part(index, place, role, part) for place, part in enumerate(rows)]
        extra = collect_extra(item, {"role", "parts"})
        if item.get("role") not in ("user", "model"):
            extra |= {"role": item.get("role")}
        return mark_shape(messages, GEMINI, extra)

    def _read_part(self, index: int, place: int, role: Role, value: object) -> Message:
        where = f"parts[{place}]"
        is_part = isinstance(value, dict) and value != {}
        require(is_part, index, where, cast("object", value), "a part, such as a text")
        part = cast("Json", value)
        key = next((key for key in ("functionCall", "function_call") if isinstance(part.get(key), dict)), None)
        if key is not None and role is Role.ASSISTANT:
            return self._read_call(index, f"{where}.{key}", place, part, key)
        key = next((key for key in ("functionResponse", "function_response") if isinstance(part.get(key), dict)), None)
        if key is not None:
            return self._read_result(index, f"{where}.{key}", part, key)
        if isinstance(part.get("text"), str) and not part.get("thought"):
            return build_message(MessageType.TEXT, role, part["text"], None, collect_extra(part, {"text"}))
        kind = "thought" if part.get("thought") else next(iter(part))
        return build_message(MessageType.MULTIMODAL_PART, role, "", wrap_part(part, kind))

    def _read_call(self, index: int, where: str, place: int, part: Json, key: str) -> Message:
        call: Json = part[key]
        name, call_id = call.get("name"), call.get("id")
        arguments: object = call.get("args")
        require(is_nonempty_text(name), index, f"{where}.name", name, "the name of a tool")
        is_dict = arguments is None or isinstance(arguments, dict)
        require(is_dict, index, f"{where}.args", cast("object", arguments), "a dict")
        inner = collect_extra(call, {"name", "args", "id"})
        if "args" not in call or arguments is None:
            inner["args"] = arguments
        if not is_nonempty_text(call_id):
            inner["id"] = call_id
            call_id = f"call-{index}-{place}"
        self._open_calls.setdefault(cast("str", name), []).append(cast("str", call_id))
        extra = collect_extra(part, {key}) | ({"call": inner} if inner else {}) | _note_spelling(key, "functionCall")
        payload = {"call_id": call_id, "name": name, "arguments": cast("Json", arguments or {})}
        return build_message(MessageType.TOOL_CALL, Role.ASSISTANT, "", payload, extra)

    def _read_result(self, index: int, where: str, part: Json, key: str) -> Message:
        result: Json = part[key]
        name, response, call_id = result.get("name"), result.get("response"), result.get("id")
        require(is_nonempty_text(name), index, f"{where}.name", name, "the name of a tool")
        inner, waiting = collect_extra(result, {"name", "id"}), self._open_calls.get(cast("str", name), [])
        if not is_nonempty_text(call_id):
            inner["id"] = call_id
            call_id = waiting.pop(0) if waiting else f"call-{index}"
        elif call_id in waiting:
            waiting.remove(cast("str", call_id))
        extra = collect_extra(part, {key}) | {"result": inner} | _note_spelling(key, "functionResponse")
        text, is_error = read_response(response)
        payload = {"call_id": call_id, "name": name, "is_error": is_error}
        return build_message(MessageType.TOOL_RESULT, Role.TOOL, text, payload, extra)


def wrap_part(part: Json, kind: str, **more: Any) -> Json:
    """Return the payload of a message for a part that has no message of its own kind."""
    return {"part": {"type": kind, "value": part}, "shape": GEMINI} | more


def _note_spelling(key: str, usual: str) -> Json:
    return {} if key == usual else {"key": key}


def read_response(response: object) -> tuple[str, bool]:
    """Return the text of a result, and whether it is an error."""
    fields = cast("Json", response) if isinstance(response, dict) else {}
    for key in ("output", "result", "error"):
        if fields.keys() == {key} and isinstance(fields[key], str):
            return fields[key], key == "error"
    return "" if response is None else json.dumps(response, ensure_ascii=False), "error" in fields


def write_gemini(messages: Iterable[Message]) -> tuple[str | None, list[Json]]:
    """Convert valid messages to a system text and contents, which may share parts with the messages."""
    kept = drop_private(messages, GEMINI)
    names = {
        message.payload["call_id"]: message.payload["name"]
        for message in kept
        if message.type is MessageType.TOOL_CALL and message.payload
    }
    system = [get_system_text(message) for message in kept if get_role(message) is Role.SYSTEM]
    contents: list[Json] = []
    for role, batch in group_messages(
        [message for message in kept if get_role(message) is not Role.SYSTEM], _get_gemini_role
    ):
        whole = list_whole(batch[0], GEMINI)
        if whole:
            contents += whole
            continue
        parts = _build_parts(sort_parts(batch), names)
        if parts:
            content = {"role": "model" if role is Role.ASSISTANT else "user", "parts": parts}
            extra = get_extra(batch, GEMINI)
            contents.append({key: value for key, value in (content | extra).items() if key != "role" or value})
    return "\n\n".join(filter(str.strip, system)) or None, contents


def _get_gemini_role(message: Message) -> Role:
    return Role.ASSISTANT if get_role(message) is Role.ASSISTANT else Role.USER


def _build_parts(batch: list[Message], names: Mapping[str, str]) -> list[Json]:
    """Return the parts of a content. A signature joins the part that it belongs to."""
    signatures = {
        payload["of"]: payload["part"]["value"] for message in batch if "of" in (payload := message.payload or {})
    }
    parts: list[Json] = []
    calls = 0
    for message in batch:
        payload, extra = message.payload or {}, get_extra([message], GEMINI, "part")
        if message.type is MessageType.TOOL_CALL:
            parts.append(_build_call(payload, signatures.get(calls, _EMPTY) | extra))
            calls += 1
        elif message.type is MessageType.TOOL_RESULT:
            parts.append(_build_result(message, extra, names))
        elif message.type is MessageType.MULTIMODAL_PART:
            if "of" not in payload:
                foreign = build_foreign_part(message, GEMINI, "text")
                foreign = foreign.get("value", foreign) if payload["shape"] == GEMINI else foreign
                parts.append({"text": foreign["text"]} if "text" in foreign and "type" in foreign else foreign)
        else:
            code = payload.get("code", "") if message.type is MessageType.ERROR else ""
            own = signatures.get("text", _EMPTY) | extra
            text = message.content or str(code)
            if text or own or "part" in get_wire_metadata(message):  # the API refuses an empty text alone
                parts.append({"text": text} | own)
    return parts


def _build_call(payload: Json, extra: Json) -> Json:
    inner, key = extra.get("call", {}), extra.get("key", "functionCall")
    call = {"id": payload["call_id"], "name": payload["name"], "args": parse_arguments(payload["arguments"])} | inner
    if "id" in inner and inner["id"] is None:
        del call["id"]
    if "args" in inner and inner["args"] is None:
        del call["args"]
    return {key: call} | {name: value for name, value in extra.items() if name not in ("call", "key")}


def _build_result(message: Message, extra: Json, names: Mapping[str, str]) -> Json:
    payload, key = message.payload or {}, extra.get("key", "functionResponse")
    inner = dict(extra.get("result", {}))
    text, _ = read_response(inner.get("response"))
    if "response" not in inner or text != message.content:  # the text was changed since
        inner["response"] = {"error" if payload.get("is_error") else "output": message.content}
    name = payload.get("name") or names.get(payload["call_id"], "unknown")
    result = {"id": payload["call_id"], "name": name} | inner
    if "id" in inner and inner["id"] is None:
        del result["id"]
    return {key: result} | {name: value for name, value in extra.items() if name not in ("result", "key")}
