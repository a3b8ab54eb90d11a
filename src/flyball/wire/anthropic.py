"""Wire of Anthropic's messages API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from ..message import ANTHROPIC
from ..request import Finish, Usage
from .anthropic_reply import AnthropicReplyParser
from .bodies import (
    ErrorReply,
    Json,
    ReplyDraft,
    StreamEvent,
    WireMessages,
    WireRequest,
    encode_arguments,
    get_bool,
    get_dict,
    get_dicts,
    get_int,
    get_text,
    join_blank,
    list_dicts,
    parse_arguments,
    split_chunks,
)
from .reader import read_messages
from .reply_parser import ReplyParser
from .structured import close_schema, describe_schema, sanitize_call_id, sanitize_tool_name
from .wire import Wire, merge_tools, own_items
from .writer import PRIVATE_TYPES, write_anthropic

_FINISHES = {
    Finish.STOP: "end_turn",
    Finish.CALLS: "tool_use",
    Finish.LENGTH: "max_tokens",
    Finish.CONTENT_FILTER: "refusal",
    Finish.REFUSAL: "refusal",
}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_TOO_LONG = "prompt is too long: "
"""Start of the provider's message for a context that is too long. There is no code for it."""
_TOOL_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
_WORDS = {word: choice for choice, word in _TOOL_CHOICES.items()}
_CONTINUATION_TEXT = "(The conversation continues.)"
_MIN_THINKING_TOKENS = 1_024
"""Lowest budget for thinking that the API accepts. It must be below `max_tokens`."""
_CLEAR_THINKING = "clear_thinking"
"""Start of the edit that the API refuses in a request without thinking."""


class AnthropicWire(Wire):
    """Messages."""

    name = ANTHROPIC

    def parse_request(self, body: Json, path: str = "") -> WireRequest:
        """Parse the body of a request."""
        choice = get_dict(body, "tool_choice")
        disabled = get_bool(choice, "disable_parallel_tool_use")
        kind = get_text(choice, "type") or ""
        return WireRequest(
            messages=WireMessages(self.name, body.get("messages"), _read_items),
            instructions=_read_system(body.get("system")),
            tools=[tool for item in get_dicts(body, "tools") if (tool := _read_tool(item))],
            max_output_tokens=get_int(body, "max_tokens"),
            output_schema=get_dict(get_dict(get_dict(body, "output_config"), "format"), "schema") or None,
            model=get_text(body, "model") or "",
            stream=body.get("stream") is True,
            tool_choice=get_text(choice, "name") if kind == "tool" else _WORDS.get(kind),
            parallel_calls=None if disabled is None else not disabled,
            source=body,
        )

    def build_path(self, request: WireRequest) -> str:
        """Return the path of a request."""
        return "/v1/messages"

    def _list_writers(self) -> Sequence[tuple[Sequence[str], Callable[[Json, WireRequest], None]]]:
        return (
            (("model",), _write_model),
            (("max_output_tokens",), _write_max_tokens),
            (("messages", "notices"), _write_messages),
            (("instructions",), _write_system),
            (("tools",), _write_tools),
            (("tool_choice", "parallel_calls"), _write_tool_choice),
            (("output_schema",), _write_output_schema),
            (("stream",), _write_stream),
        )

    def write_reply(self, draft: ReplyDraft) -> Json:
        """Return a message."""
        blocks: list[Json] = []
        if draft.thinking:
            blocks.append({"type": "thinking", "thinking": draft.thinking, "signature": "c2lnbmVk"})
        if draft.text:
            blocks.append({"type": "text", "text": draft.text})
        blocks += [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": parse_arguments(call)}
            for call in draft.calls
        ]
        usage = draft.build_usage(_write_usage(draft.reply.usage or Usage()))
        return _build_message(draft, blocks, draft.get_finish(_FINISHES), usage)

    def create_parser(self, provider: str | None = None, on_text: Callable[[str], None] | None = None) -> ReplyParser:
        """Return a parser for one reply."""
        return AnthropicReplyParser(provider, on_text)

    def iter_events(self, draft: ReplyDraft) -> Iterator[StreamEvent]:
        """Yield the named events of a message."""
        usage, end = draft.reply.usage or Usage(), draft.end
        initial_usage = draft.build_usage(_write_usage(replace(usage, output=1, reasoning=0)))
        yield _build_event({"type": "message_start", "message": _build_message(draft, [], None, initial_usage)})
        yield _build_event({"type": "ping"})
        for index, (block, deltas) in enumerate(_iter_blocks(draft)):
            at = deltas[0][0] if deltas else end
            yield _build_event({"type": "content_block_start", "index": index, "content_block": block}, at)
            for at, delta in deltas:
                yield _build_event({"type": "content_block_delta", "index": index, "delta": delta}, at)
            yield _build_event({"type": "content_block_stop", "index": index}, at)
        delta = {"stop_reason": draft.get_finish(_FINISHES), "stop_sequence": None}
        final_usage = draft.build_usage(_write_usage(usage))
        usage_field = {"usage": final_usage} if final_usage is not None else {}
        yield _build_event({"type": "message_delta", "delta": delta} | usage_field, end)
        yield _build_event({"type": "message_stop"}, end)

    def _find_usage(self, body: Json) -> object:
        return get_dict(body, "message").get("usage") if body.get("type") == "message_start" else body.get("usage")

    def build_error(self, error: ErrorReply) -> Json:
        """Return the body of an error response."""
        kind = _ERRORS.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
        message = error.words
        if error.code == "context_length_exceeded":
            message = _TOO_LONG + message.removeprefix(_TOO_LONG)
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_error"}

    def build_error_event(self, error: ErrorReply) -> StreamEvent:
        """Return an error as an event."""
        return StreamEvent(self.build_error(error), "error")


def _read_items(items: object) -> list[Any]:
    return read_messages(items, ANTHROPIC)


def _read_system(system: object) -> str | None:
    texts = [system] if isinstance(system, str) else [get_text(block, "text") for block in list_dicts(system)]
    return join_blank(texts) or None


def _read_tool(item: object) -> Json | None:
    """Return a tool of the client. Tools of the provider have no schema."""
    fields = cast("Json", item) if isinstance(item, dict) else {}
    name, schema = get_text(fields, "name"), fields.get("input_schema")
    if not name or not isinstance(schema, dict):
        return None
    described = {"description": fields["description"]} if fields.get("description") else {}
    return {"name": name, **described, "parameters": schema}


def _write_tool(tool: Mapping[str, Any]) -> Json:
    described = {"description": tool["description"]} if tool.get("description") else {}
    return {"name": tool["name"], **described, "input_schema": tool["parameters"]}


def _write_model(body: Json, request: WireRequest) -> None:
    body["model"] = request.model


def _write_max_tokens(body: Json, request: WireRequest) -> None:
    """Write the limit, which the API requires. The budget for thinking must be below it."""
    limit = request.max_output_tokens
    if limit is None:
        return
    body["max_tokens"] = limit
    budget = get_int(get_dict(body, "thinking"), "budget_tokens") or 0
    if budget < limit:
        return
    if limit > _MIN_THINKING_TOKENS:
        body["thinking"] = {**body["thinking"], "budget_tokens": limit - 1}
        return
    del body["thinking"]
    management = get_dict(body, "context_management")
    edits = get_dicts(management, "edits")
    kept = [edit for edit in edits if not str(edit.get("type")).startswith(_CLEAR_THINKING)]
    if len(kept) < len(edits):
        body["context_management"] = {**management, "edits": kept}


def _write_messages(body: Json, request: WireRequest) -> None:
    items, added = own_items(request, ANTHROPIC)
    system, written = write_anthropic(added)
    if request.source is None:
        written = _prepare(written)
        if written and written[0].get("role") != "user":
            written.insert(0, {"role": "user", "content": _CONTINUATION_TEXT})
        if not request.tools and (names := _list_tool_names(written)):  # the API rejects calls of undeclared tools
            body["tools"] = [{"name": name, "input_schema": {"type": "object"}} for name in names]
            body["tool_choice"] = {"type": "none"}
    if system:
        body["system"] = join_blank((_read_system(body.get("system")), system))
    body["messages"] = _add_notices([*items, *written], request.notices)


def _prepare(messages: list[Json]) -> list[Json]:
    """Adapt ids and names to the characters that the API accepts.

    Messages with nothing but reasoning are left out, because the API rejects them. They arise when reasoning uses up
    the tokens of a reply.
    """
    kept = [message for message in list_dicts(messages) if not _has_only_reasoning(message)]
    return [
        message | {"content": [_sanitize(block) for block in _get_blocks(message)]}
        if isinstance(message.get("content"), list)
        else message
        for message in kept
    ]


def _sanitize(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    fields = cast("Json", block)
    ids = {key: sanitize_call_id(str(fields[key])) for key in ("id", "tool_use_id") if key in fields}
    named = {"name": sanitize_tool_name(str(fields.get("name")))} if fields.get("type") == "tool_use" else {}
    return fields | ids | named if ids or named else fields


def _add_notices(messages: list[Json], notices: Sequence[str]) -> list[Json]:
    """Add texts behind the newest message: behind all results, if it has some."""
    blocks = [{"type": "text", "text": notice} for notice in notices]
    if not blocks:
        return messages
    last = (list_dicts(messages[-1:]) or [{}])[0]
    if last.get("role") == "user":
        return [*messages[:-1], {**last, "content": [*_get_blocks(last), *blocks]}]
    return [*messages, {"role": "user", "content": blocks}]


def _get_blocks(message: Mapping[str, Any]) -> list[Json]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return cast("list[Json]", content) if isinstance(content, list) else []


def _has_only_reasoning(message: Json) -> bool:
    blocks = list_dicts(message.get("content"))
    return blocks != [] and all(str(block.get("type")) in PRIVATE_TYPES for block in blocks)


def _list_tool_names(messages: Iterable[Json]) -> list[str]:
    """Return the names of the called tools, each once."""
    blocks = [block for message in messages for block in list_dicts(message.get("content"))]
    return list(dict.fromkeys(str(block.get("name")) for block in blocks if block.get("type") == "tool_use"))


def _write_system(body: Json, request: WireRequest) -> None:
    old = None if request.source is not None else _read_system(body.pop("system", None))
    body.pop("system", None)
    text = join_blank((request.instructions, old))
    if text:
        body["system"] = text


def _write_tools(body: Json, request: WireRequest) -> None:
    if request.source is None and not request.tools:
        return  # declarations of tools that were called before stay
    tools = merge_tools(body.pop("tools", None), request.tools, _read_tool, _write_tool)
    if tools:
        body["tools"] = tools


def _write_tool_choice(body: Json, request: WireRequest) -> None:
    """Write the choice of tools, which the API refuses in a body without tools."""
    choice, parallel = request.tool_choice, request.parallel_calls
    if request.source is None and not request.tools:
        return
    body.pop("tool_choice", None)
    written: Json = {}
    if choice is not None:
        written = {"type": _TOOL_CHOICES[choice]} if choice in _TOOL_CHOICES else {"type": "tool", "name": choice}
    if parallel is not None and written.get("type") != "none":
        written = {"type": "auto", **written, "disable_parallel_tool_use": not parallel}
    if written and body.get("tools"):
        body["tool_choice"] = written


def _write_output_schema(body: Json, request: WireRequest) -> None:
    """Enforce the schema, or ask for it in words."""
    config = {key: value for key, value in get_dict(body, "output_config").items() if key != "format"}
    body.pop("output_config", None)
    enforced = close_schema(request.output_schema) if request.output_schema else None
    if enforced is not None:
        config["format"] = {"type": "json_schema", "schema": enforced}
    elif request.output_schema:
        body["system"] = join_blank((_read_system(body.get("system")), describe_schema(request.output_schema)))
    if config:
        body["output_config"] = config


def _write_stream(body: Json, request: WireRequest) -> None:
    body.pop("stream", None)
    if request.stream:
        body["stream"] = True


def _iter_blocks(draft: ReplyDraft) -> Iterator[tuple[Json, list[tuple[float, Json]]]]:
    """Yield the start of each block, and its deltas with their times."""
    if draft.thinking:
        thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in split_chunks(draft.thinking)]
        signed = {"type": "signature_delta", "signature": "c2lnbmVk"}
        yield {"type": "thinking", "thinking": "", "signature": ""}, [(0.0, delta) for delta in [*thoughts, signed]]
    deltas = [(at, {"type": "text_delta", "text": piece}) for at, piece in draft.iter_pieces()]
    if deltas:
        yield {"type": "text", "text": ""}, deltas
    for call in draft.calls:
        pieces = ["", *split_chunks("" if call.arguments == {} else encode_arguments(call))]
        deltas = [(draft.end, {"type": "input_json_delta", "partial_json": piece}) for piece in pieces]
        yield {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}, deltas


def _build_event(data: Json, at: float = 0.0) -> StreamEvent:
    return StreamEvent(data, str(data["type"]), at)


def _build_message(draft: ReplyDraft, content: list[Json], finish: str | None, usage: Json | None) -> Json:
    message = {
        "id": f"msg_{draft.id}",
        "type": "message",
        "role": "assistant",
        "model": draft.model,
        "content": content,
        "stop_reason": finish,
        "stop_sequence": None,
    }
    return message | ({"usage": usage} if usage is not None else {})


def _write_usage(usage: Usage) -> Json:
    """Return Anthropic's counts. Its input excludes cached tokens."""
    return {
        "input_tokens": usage.input - usage.cached - usage.written,
        "cache_creation_input_tokens": usage.written,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
    }
