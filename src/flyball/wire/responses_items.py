"""Items of OpenAI's Responses API: conversion from and to messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from ..message import RESPONSES, Message, MessageType, Role, is_nonempty_text, parse_enum, require
from .parts import Json, build_message, collect_extra, join_texts, mark_shape, require_part
from .writer import (
    build_content,
    build_foreign_part,
    build_result_content,
    drop_private,
    get_extra,
    get_role,
    group_messages,
    list_whole,
    sort_parts,
)

CONTENT_TYPES = frozenset(
    {"input_text", "output_text", "refusal", "input_image", "input_file", "input_audio", "computer_screenshot"}
)
"""Types of part inside a message. All other types are items of their own."""
_ITEM_TYPES = frozenset({"reasoning", "item_reference", "compaction", "mcp_list_tools", "mcp_approval_request"})
_CALL, _CUSTOM_CALL = "function_call", "custom_tool_call"


def is_responses_item(item: Mapping[str, Any]) -> bool:
    """Check whether a dict is an item of this API, and not a message that other APIs write alike."""
    if "role" not in item:
        kind = item.get("type")
        return isinstance(kind, str) and (kind in _ITEM_TYPES or kind.endswith(("_call", "_output")))
    content: Any = item.get("content")
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    kinds = {cast("Json", part).get("type") for part in parts if isinstance(part, dict)}
    is_message = item.get("type") == "message" and isinstance(content, str)
    return is_message or bool(kinds & CONTENT_TYPES - {"refusal", "input_audio"})


def is_output_item(item: Mapping[str, Any]) -> bool:
    """Check whether an item comes from the model: no message of another role, and no result of a call."""
    return item.get("role", "assistant") == "assistant" and not str(item.get("type")).endswith("_output")


def is_client_call(item: Mapping[str, Any]) -> bool:
    """Check whether an item is a call that the client makes. Calls of the provider's own tools have no `call_id`."""
    kind = item.get("type")
    is_call = isinstance(kind, str) and kind.endswith("_call") and is_nonempty_text(item.get("call_id"))
    return is_call and item.get("execution") != "server"


def read_call(item: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return name and arguments of a client call."""
    kind = item["type"]
    if kind == _CALL:
        return item.get("name") or "", item.get("arguments") or ""
    if kind == _CUSTOM_CALL:
        return item.get("name") or "", item.get("input") or ""
    action = item.get("action", item.get("operation", item.get("arguments")))
    name = item.get("name") if is_nonempty_text(item.get("name")) else kind.removesuffix("_call")
    return name, cast("Json", action) if isinstance(action, dict) else {}


def read_item(index: int, item: Json) -> list[Message]:
    """Parse an item, a copy that the messages may keep."""
    kind = item.get("type", "message" if "role" in item else None)
    if kind == "message" and "role" in item:
        return _read_message(index, item)
    require(is_nonempty_text(kind), index, "type", kind, "the type of an item")
    if is_client_call(item):
        return mark_shape([_read_call(index, item)], RESPONSES, {})
    if kind.endswith("_output") and is_nonempty_text(item.get("call_id")):
        return mark_shape([_read_result(index, item)], RESPONSES, {})
    payload = {"part": item, "shape": RESPONSES}
    return [build_message(MessageType.MULTIMODAL_PART, Role.ASSISTANT, "", payload)]


def _read_message(index: int, item: Json) -> list[Message]:
    name, content = item["role"], cast("object", item.get("content"))
    role = Role.SYSTEM if name == "developer" else parse_enum(index, "role", name, Role)
    require(role is not Role.TOOL, index, "role", name, "user, assistant, system or developer")
    extra = collect_extra(item, {"role", "content"}) | ({"role": name} if name != role else {})
    if isinstance(content, str):
        messages = [build_message(MessageType.TEXT, role, content)]
    else:
        require(
            isinstance(content, list) and content != [],
            index,
            "content",
            cast("object", content),
            "a text or a list of parts",
        )
        parts = cast("list[object]", content)
        messages = [_read_part(index, place, role, part, len(parts) == 1) for place, part in enumerate(parts)]
    return mark_shape(messages, RESPONSES, extra)


def _read_part(index: int, place: int, role: Role, value: object, is_only_part: bool) -> Message:
    part = require_part(index, f"content[{place}]", value)
    kind, text = part["type"], part.get("text")
    if kind in ("input_text", "output_text") and isinstance(text, str):
        extra = collect_extra(part, {"type", "text"}) | ({} if kind == _get_text_type(role) else {"type": kind})
        return build_message(MessageType.TEXT, role, text, None, extra, is_only_part)
    message = build_message(MessageType.MULTIMODAL_PART, role, "", {"part": part, "shape": RESPONSES})
    message.metadata = {"wire": {"part": {}}}  # a part of a message, and not an item
    return message


def _get_text_type(role: Role) -> str:
    return "output_text" if role is Role.ASSISTANT else "input_text"


def _read_call(index: int, item: Json) -> Message:
    name, arguments = read_call(item)
    require(is_nonempty_text(name), index, "name", name, "the name of a tool")
    require(isinstance(arguments, (str, dict)), index, "arguments", arguments, "JSON text")
    known = {_CALL: {"type", "call_id", "name", "arguments"}, _CUSTOM_CALL: {"call_id", "name", "input"}}
    extra = collect_extra(item, known.get(item["type"], {"call_id"}))
    payload = {"call_id": item["call_id"], "name": name, "arguments": arguments}
    return build_message(MessageType.TOOL_CALL, Role.ASSISTANT, "", payload, extra)


def _read_result(index: int, item: Json) -> Message:
    output, payload = item.get("output"), {"call_id": item["call_id"], "name": None, "is_error": False}
    extra = collect_extra(item, {"call_id", "output"} | ({"type"} if item["type"] == f"{_CALL}_output" else set()))
    if isinstance(output, list):
        rows = cast("list[object]", output)
        parts = [require_part(index, f"output[{place}]", row) for place, row in enumerate(rows)]
        payload |= {"parts": parts, "shape": RESPONSES}
        text = join_texts(parts)
    elif isinstance(output, str):
        text = output
    else:  # the output of a special tool
        text = "" if output is None else json.dumps(output, ensure_ascii=False)
        extra |= {"output": output} if "output" in item else {}
    return build_message(MessageType.TOOL_RESULT, Role.TOOL, text, payload, extra)


def write_responses(messages: Iterable[Message]) -> list[Json]:
    """Convert valid messages to items, which may share parts with the messages."""
    items: list[Json] = []
    for role, batch in group_messages(drop_private(messages, RESPONSES), get_role):
        contents: list[Message] = []
        for message in sort_parts(batch):
            if _is_state(message):
                continue
            own = list_whole(message, RESPONSES) or _build_items(message)
            if own:
                items += [*_build_message(role, contents), *own]
                contents = []
            else:
                contents.append(message)
        items += _build_message(role, contents)
    return items


def _is_state(message: Message) -> bool:
    """Check for a part that is a model's own note, and no item."""
    return message.type is MessageType.MULTIMODAL_PART and (message.payload or {})["part"]["type"] == "state"


def _build_items(message: Message) -> list[Json]:
    """Return a message as an item of its own, or [] for text and other parts of a message."""
    payload, extra = message.payload or {}, get_extra([message], RESPONSES, "part")
    if message.type is MessageType.TOOL_CALL:
        return [_build_call(payload, extra)]
    if message.type is MessageType.TOOL_RESULT:
        output = build_result_content(message, RESPONSES)
        return [{"type": f"{_CALL}_output", "call_id": payload["call_id"], "output": output} | extra]
    if message.type is not MessageType.MULTIMODAL_PART or payload["shape"] != RESPONSES:
        return []
    is_part = payload["part"]["type"] in CONTENT_TYPES or "of" in payload or "part" in _get_wire(message)
    return [] if is_part else [payload["part"]]


def _build_call(payload: Json, extra: Json) -> Json:
    arguments = payload["arguments"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    match extra.get("type", _CALL):
        case "function_call":
            call = {"type": _CALL, "name": payload["name"], "arguments": text}
        case "custom_tool_call":
            call = {"name": payload["name"], "input": text}
        case _:
            call = {}
    return {"call_id": payload["call_id"]} | call | extra


def _build_message(role: Role, messages: list[Message]) -> list[Json]:
    """Return the item for the texts and other parts of a message, if there are any."""
    parts: list[Json] = []
    kept = [payload["part"]["value"] for message in messages if "of" in (payload := message.payload or {})]
    messages = [message for message in messages if "of" not in (message.payload or {})]
    if not messages:
        return []
    for message in messages:
        text = message.content or str((message.payload or {}).get("code", ""))
        if message.type is MessageType.MULTIMODAL_PART:
            parts.append(build_foreign_part(message, RESPONSES, _get_text_type(role)))
        else:
            extra = get_extra([message], RESPONSES, "part")
            parts.append({"type": _get_text_type(role), "text": text} | extra)
    content = build_content(messages, parts, _get_text_type(role))
    extra = {key: value for extras in kept for key, value in extras.items()}
    return [{"role": str(role), "content": content} | extra | get_extra(messages, RESPONSES)]


def _get_wire(message: Message) -> Json:
    return (message.metadata or {}).get("wire") or {}
