"""Parser of message envelopes of the Agents API, which Data Machine stores (`agents-api.message`, version 1)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from ..message import Message, MessageType, Role, copy_json, is_nonempty_text, parse_enum, require

SCHEMA, VERSION = "agents-api.message", 1
_CALL_ID_KEYS = ("tool_call_id", "call_id", "id")
_RESULT_KEYS = ("tool_data", "result", "data")
"""Keys of a result's payload that hold what the tool returned."""

Json = dict[str, Any]


def is_agents_api_envelope(item: object) -> bool:
    """Check whether an item is an envelope of the Agents API."""
    return isinstance(item, Mapping) and cast("Mapping[object, object]", item).get("schema") == SCHEMA


class EnvelopeReader:
    """Reads the envelopes of one conversation.

    Calls and results often have no id. A call then gets one from its position, and the next result of the same tool
    without an id belongs to it.
    """

    def __init__(self) -> None:
        self._open_calls: dict[str, list[str]] = {}

    def read(self, index: int, item: Mapping[str, Any]) -> Message | Json:
        """Return the message, without its own id, or a dict with role and content for texts and parts."""
        data: Json = copy_json(index, "", item)
        version = data.get("version", VERSION)
        require(type(version) is int and version == VERSION, index, "version", version, str(VERSION))
        kind = parse_enum(index, "type", data.get("type", "text"), MessageType)
        payload: Json = data.get("payload") or {}
        require(_is_dict(payload), index, "payload", payload, "a dict")
        if kind in (MessageType.TEXT, MessageType.MULTIMODAL_PART):
            return {"role": data.get("role"), "content": data.get("content")}
        text = _read_text(data.get("content"))
        if kind is MessageType.TOOL_CALL:
            return self._read_call(index, payload)
        if kind is MessageType.TOOL_RESULT:
            return self._read_result(index, payload, text)
        role = parse_enum(index, "role", data.get("role"), Role)
        if kind is MessageType.ERROR and not is_nonempty_text(payload.get("code")):
            payload = {**payload, "code": "error"}
        return Message("", 0, 0.0, kind, role, text, payload or None)

    def _read_call(self, index: int, payload: Json) -> Message:
        name, call_id = _require_name(index, payload), _find_call_id(payload)
        if call_id is None:
            call_id = f"call-{index}"
            self._open_calls.setdefault(name, []).append(call_id)
        arguments: Json | str = payload.get("parameters") or payload.get("arguments") or {}
        require(
            _is_dict(arguments) or isinstance(arguments, str),
            index,
            "payload.parameters",
            arguments,
            "a dict, or JSON text",
        )
        own: Json = {"call_id": call_id, "name": name, "arguments": arguments}
        return Message("", 0, 0.0, MessageType.TOOL_CALL, Role.ASSISTANT, "", own)

    def _read_result(self, index: int, payload: Json, text: str) -> Message:
        name, call_id = _require_name(index, payload), _find_call_id(payload)
        if call_id is None:
            waiting = self._open_calls.get(name)
            call_id = waiting.pop(0) if waiting else f"call-{index}"
        returned = next((payload[key] for key in _RESULT_KEYS if payload.get(key) is not None), None)
        if not text and returned is not None:
            text = returned if isinstance(returned, str) else json.dumps(returned, ensure_ascii=False)
        own = {"call_id": call_id, "name": name, "is_error": _is_failed(payload)}
        return Message("", 0, 0.0, MessageType.TOOL_RESULT, Role.TOOL, text, own)


def _is_dict(value: object) -> bool:
    return isinstance(value, dict)


def _is_failed(payload: Json) -> bool:
    return payload["success"] is False if "success" in payload else bool(payload.get("error"))


def _require_name(index: int, payload: Json) -> str:
    name = payload.get("tool_name", payload.get("name"))
    require(is_nonempty_text(name), index, "payload.tool_name", name, "the name of a tool")
    return cast("str", name)


def _find_call_id(payload: Json) -> str | None:
    return next((payload[key] for key in _CALL_ID_KEYS if is_nonempty_text(payload.get(key))), None)


def _read_text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = cast("list[object]", content) if isinstance(content, list) else []
    texts = [cast("Json", part).get("text") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))
