"""Wire of Gemini's generateContent API. The model, and whether to stream, are in the path of a request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote, unquote

from ..message import GEMINI
from ..request import Finish, Usage
from .bodies import (
    ErrorReply,
    Json,
    ReplyDraft,
    StreamEvent,
    WireMessages,
    WireRequest,
    get_int,
    get_text,
    join_blank,
    list_dicts,
    parse_arguments,
)
from .gemini_contents import write_gemini
from .gemini_reply import GeminiReplyParser
from .images import get_either, to_snake
from .reader import read_messages
from .reply_parser import ReplyParser
from .structured import close_schema, describe_schema, sanitize_tool_name
from .wire import Wire, own_items

_PATH = re.compile(r"/(?:models|tunedModels)/([^/:?]+):(\w+)")
_FINISHES = {
    Finish.STOP: "STOP",
    Finish.CALLS: "STOP",
    Finish.LENGTH: "MAX_TOKENS",
    Finish.CONTENT_FILTER: "SAFETY",
    Finish.REFUSAL: "SAFETY",
}
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_MODES = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
_WORDS = {mode: word for word, mode in _MODES.items()}
_TOO_LONG = "The input token count exceeds the maximum number of tokens allowed"
_CONTINUATION_TEXT = "(The conversation continues.)"
_UNSIGNED = "skip_thought_signature_validator"
"""Signature for a call that another model made. Gemini 3 refuses a call without one."""


class GeminiWire(Wire):
    """generateContent and streamGenerateContent."""

    name = GEMINI

    def parse_request(self, body: Json, path: str = "") -> WireRequest:
        """Parse the body of a request, and its path."""
        match = _PATH.search(path)
        config, tools = (
            _get(body, "generationConfig"),
            [tool for item in _tool_items(body) for tool in _read_tools(item)],
        )
        return WireRequest(
            messages=WireMessages(self.name, body.get("contents"), _read_items),
            instructions=_read_system(get_either(body, "systemInstruction")),
            tools=tools,
            max_output_tokens=get_int(config, "maxOutputTokens") or get_int(config, "max_output_tokens"),
            output_schema=_read_schema(config),
            model=unquote(match[1]) if match else (get_text(body, "model") or "").removeprefix("models/"),
            stream=bool(match and match[2] == "streamGenerateContent"),
            tool_choice=_read_tool_choice(body),
            source=body,
        )

    def build_path(self, request: WireRequest) -> str:
        """Return the path of a request, behind the version."""
        action = "streamGenerateContent?alt=sse" if request.stream else "generateContent"
        return f"/v1beta/models/{quote(request.model, safe='')}:{action}"

    def _list_writers(self) -> Sequence[tuple[Sequence[str], Callable[[Json, WireRequest], None]]]:
        return (
            (("messages", "notices"), _write_contents),
            (("instructions",), _write_system),
            (("tools",), _write_tools),
            (("tool_choice",), _write_tool_choice),
            (("max_output_tokens",), _write_max_tokens),
            (("output_schema",), _write_output_schema),
        )

    def write_reply(self, draft: ReplyDraft) -> Json:
        """Return a reply."""
        thoughts = [{"text": draft.thinking, "thought": True}] if draft.thinking else []
        texts = [{"text": draft.text}] if draft.text else []
        return _build_chunk(draft, [*thoughts, *texts, *_write_calls(draft)], is_last=True)

    def create_parser(self, provider: str | None = None, on_text: Callable[[str], None] | None = None) -> ReplyParser:
        """Return a parser for one reply."""
        return GeminiReplyParser(provider, on_text)

    def iter_events(self, draft: ReplyDraft) -> Iterator[StreamEvent]:
        """Yield the chunks of a reply."""
        if draft.thinking:
            yield StreamEvent(_build_chunk(draft, [{"text": draft.thinking, "thought": True}]))
        for at, piece in draft.iter_pieces():
            yield StreamEvent(_build_chunk(draft, [{"text": piece}]), at=at)
        for part in _write_calls(draft):
            yield StreamEvent(_build_chunk(draft, [part]), at=draft.end)
        yield StreamEvent(_build_chunk(draft, [{"text": ""}], is_last=True), at=draft.end)

    def _find_usage(self, body: Json) -> object:
        return get_either(body, "usageMetadata")

    def build_error(self, error: ErrorReply) -> Json:
        """Return the body of an error response."""
        message = error.words
        if error.code == "context_length_exceeded":
            message = f"{_TOO_LONG}: {message}"
        return {"error": {"code": error.status, "message": message, "status": _STATUSES.get(error.status, "UNKNOWN")}}


def _get(body: Json, key: str) -> Json:
    value = get_either(body, key)
    return cast("Json", value) if isinstance(value, dict) else {}


def _put(body: Json, key: str, value: Json) -> None:
    """Replace an object under either spelling. An empty one is left out."""
    spelling = to_snake(key) if to_snake(key) in body else key
    body.pop(spelling, None)
    if value:
        body[spelling] = value


def _without(data: Json, *keys: str) -> Json:
    spellings = {spelling for key in keys for spelling in (key, to_snake(key))}
    return {key: value for key, value in data.items() if key not in spellings}


def _read_items(items: object) -> list[Any]:
    return read_messages([_write_user_text(items)] if isinstance(items, str) else items, GEMINI)


def _write_user_text(text: str) -> Json:
    return {"role": "user", "parts": [{"text": text}]}


def _read_system(system: object) -> str | None:
    parts = list_dicts(cast("Json", system).get("parts")) if isinstance(system, dict) else []
    return join_blank(get_text(part, "text") for part in parts) or None


def _tool_items(body: Json) -> list[Json]:
    return list_dicts(body.get("tools"))


def _read_tools(item: Json) -> list[Json]:
    """Return the functions of a tool. Tools of the provider, such as its search, have none."""
    declarations = list_dicts(get_either(item, "functionDeclarations"))
    return [tool for declaration in declarations if (tool := _read_tool(declaration))]


def _read_tool(declaration: Json) -> Json | None:
    name = get_text(declaration, "name")
    if not name:
        return None
    described = {"description": declaration["description"]} if declaration.get("description") else {}
    schema = get_either(declaration, "parametersJsonSchema") or declaration.get("parameters")
    return {"name": name, **described, "parameters": schema if isinstance(schema, dict) else {}}


def _write_tool(tool: Mapping[str, Any]) -> Json:
    described = {"description": tool["description"]} if tool.get("description") else {}
    return {"name": tool["name"], **described, "parametersJsonSchema": tool["parameters"]}


def _write_tools(body: Json, request: WireRequest) -> None:
    wanted, tools = {tool["name"]: tool for tool in request.tools}, list[Json]()
    for item in _tool_items(body):
        key = next((key for key in ("functionDeclarations", "function_declarations") if key in item), None)
        if key is None:
            tools.append(item)
            continue
        kept: list[Json] = []
        for declaration in list_dicts(item[key]):
            old = _read_tool(declaration)
            new = wanted.pop(old["name"], None) if old else None
            kept += [] if new is None else [declaration if new == old else _write_tool(new)]
        if kept or len(item) > 1:
            tools.append(item | {key: kept})
    if wanted:
        tools.append({"functionDeclarations": [_write_tool(tool) for tool in wanted.values()]})
    body.pop("tools", None)
    if tools:
        body["tools"] = tools


def _read_tool_choice(body: Json) -> str | None:
    config = _get(_get(body, "toolConfig"), "functionCallingConfig")
    names: Any = get_either(config, "allowedFunctionNames")
    mode = config.get("mode")  # a missing one is not the word NONE
    choice = _WORDS.get(mode.upper()) if isinstance(mode, str) else None
    is_one = choice == "required" and isinstance(names, list) and len(cast("list[Any]", names)) == 1
    return str(cast("list[Any]", names)[0]) if is_one else choice


def _write_tool_choice(body: Json, request: WireRequest) -> None:
    choice, config = request.tool_choice, _without(_get(body, "toolConfig"), "functionCallingConfig")
    if choice is not None and body.get("tools"):
        named = {} if choice in _MODES else {"allowedFunctionNames": [choice]}
        config["functionCallingConfig"] = {"mode": _MODES.get(choice, "ANY")} | named
    _put(body, "toolConfig", config)


def _read_schema(config: Json) -> Json | None:
    schema = get_either(config, "responseJsonSchema") or get_either(config, "responseSchema")
    return cast("Json", schema) if isinstance(schema, dict) and schema else None


def _write_contents(body: Json, request: WireRequest) -> None:
    items, added = own_items(request, GEMINI, _write_user_text)
    system, written = write_gemini(added)
    if request.source is None:
        written = [_sanitize(content, is_gemini_3(request.model)) for content in list_dicts(written)]
        if written and written[0].get("role") != "user":
            written.insert(0, {"role": "user", "parts": [{"text": _CONTINUATION_TEXT}]})
    if system:
        _set_system(body, system)
    notices = [{"role": "user", "parts": [{"text": notice} for notice in request.notices]}] if request.notices else []
    body["contents"] = [*items, *written, *notices]


def _sanitize(content: Json, is_signed: bool) -> Json:
    """Return a content whose names have the characters that the API accepts, and whose first call is signed."""
    parts: list[Any] = []
    for part in list_dicts(content.get("parts")):
        for key in ("functionCall", "functionResponse"):
            called = part.get(key)
            if isinstance(called, dict):
                fields = cast("Json", called)
                part = part | {key: fields | {"name": sanitize_tool_name(str(fields.get("name")))}}
        if "functionCall" in part:
            part = {"thoughtSignature": _UNSIGNED, **part} if is_signed else part
            is_signed = False
        parts.append(part)
    return content | {"parts": parts}


def is_gemini_3(model: str) -> bool:
    """Check whether a model is of Gemini 3 or later, as the newest ones are (`gemini-flash-latest`)."""
    match = re.match(r"gemini-(?:(\d{1,3})|[a-z-]+-latest$)", model)
    return match is not None and int(match[1] or 3) >= 3


def _set_system(body: Json, text: str) -> None:
    old = _read_system(get_either(body, "systemInstruction"))
    _put(body, "systemInstruction", {"parts": [{"text": join_blank((old, text))}]})


def _write_system(body: Json, request: WireRequest) -> None:
    old = None if request.source is not None else _read_system(get_either(body, "systemInstruction"))
    text = join_blank((request.instructions, old))
    _put(body, "systemInstruction", {"parts": [{"text": text}]} if text else {})


def _write_max_tokens(body: Json, request: WireRequest) -> None:
    limit = {} if request.max_output_tokens is None else {"maxOutputTokens": request.max_output_tokens}
    _put(body, "generationConfig", _without(_get(body, "generationConfig"), "maxOutputTokens") | limit)


def _write_output_schema(body: Json, request: WireRequest) -> None:
    """Enforce the schema. Models before Gemini 3 refuse that beside tools, so then it is described in words."""
    keys = ("responseMimeType", "responseSchema", "responseJsonSchema")
    config, schema = _get(body, "generationConfig"), request.output_schema
    if schema or _read_schema(config):
        config = _without(config, *keys)
    enforced = close_schema(schema) if schema and (not body.get("tools") or is_gemini_3(request.model)) else None
    if enforced is not None:
        config = config | {"responseMimeType": "application/json", "responseJsonSchema": enforced}
    elif schema:
        _set_system(body, describe_schema(schema))
    _put(body, "generationConfig", config)


def _write_calls(draft: ReplyDraft) -> list[Json]:
    return [{"functionCall": {"id": call.id, "name": call.name, "args": parse_arguments(call)}} for call in draft.calls]


def _build_chunk(draft: ReplyDraft, parts: list[Json], *, is_last: bool = False) -> Json:
    candidate: Json = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if is_last:
        finish = draft.get_finish(_FINISHES)
        candidate |= {} if finish is None else {"finishReason": finish}
    usage = draft.build_usage(_write_usage(draft.reply.usage or Usage())) if is_last else None
    return {
        "candidates": [candidate],
        **({"usageMetadata": usage} if usage is not None else {}),
        "modelVersion": draft.model,
        "responseId": f"resp-{draft.id}",
    }


def _write_usage(usage: Usage) -> Json:
    return {
        "promptTokenCount": usage.input,
        "candidatesTokenCount": usage.output - usage.reasoning,
        "totalTokenCount": usage.total,
        "cachedContentTokenCount": usage.cached,
        "thoughtsTokenCount": usage.reasoning,
    }
