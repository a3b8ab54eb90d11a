"""Wire of OpenAI's chat completions API, which many other servers offer too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from ..message import OPENAI
from ..request import Finish, Usage
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
    split_chunks,
)
from .reader import read_messages
from .reply_parser import MAX_INDEXES, PartialCall, ReplyParser, expect_dict, expect_list, expect_text
from .structured import close_schema, describe_schema, is_strict_schema, sanitize_call_id, sanitize_tool_name
from .wire import Wire, merge_tools, own_items
from .writer import write_openai

_FINISHES = {
    "stop": Finish.STOP,
    "length": Finish.LENGTH,
    "tool_calls": Finish.CALLS,
    "function_call": Finish.CALLS,
    "content_filter": Finish.CONTENT_FILTER,
}
_WRITTEN_FINISHES = {
    Finish.STOP: "stop",
    Finish.REFUSAL: "stop",
    Finish.CALLS: "tool_calls",
    Finish.LENGTH: "length",
    Finish.CONTENT_FILTER: "content_filter",
}
_ERRORS = {
    401: ("invalid_request_error", "invalid_api_key"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}
_MAX_TOKENS_KEYS = ("max_completion_tokens", "max_tokens")
_TOOL_CHOICES = frozenset({"auto", "required", "none"})
_TEXT_KEYS = frozenset({"content", "role"})
"""Keys of a message or a piece of one that has nothing but text."""


class ChatWire(Wire):
    """Chat completions. Compatible servers may know only the older name of the token limit."""

    name = OPENAI

    def __init__(self, max_tokens_key: str = "max_completion_tokens") -> None:
        self._max_tokens_key = max_tokens_key

    def parse_request(self, body: Json, path: str = "") -> WireRequest:
        """Parse the body of a request."""
        stream = body.get("stream") is True
        limits = [limit for key in _MAX_TOKENS_KEYS if (limit := get_int(body, key)) is not None]
        return WireRequest(
            messages=WireMessages(self.name, body.get("messages"), _read_items),
            tools=[tool for item in get_dicts(body, "tools") if (tool := _read_tool(item))],
            max_output_tokens=max(limits, default=None),  # a compatible server may know only one of the keys
            output_schema=_read_schema(body),
            model=get_text(body, "model") or "",
            stream=stream,
            tool_choice=_read_tool_choice(body.get("tool_choice")),
            parallel_calls=get_bool(body, "parallel_tool_calls"),
            includes_usage=not stream or get_dict(body, "stream_options").get("include_usage") is True,
            source=body,
        )

    def build_path(self, request: WireRequest) -> str:
        """Return the path of a request."""
        return "/chat/completions"

    def _list_writers(self) -> Sequence[tuple[Sequence[str], Callable[[Json, WireRequest], None]]]:
        return (
            (("model",), _write_model),
            (("messages", "instructions", "notices"), _write_messages),
            (("tools",), _write_tools),
            (("tool_choice", "parallel_calls"), _write_tool_choice),
            (("output_schema",), _write_output_schema),
            (("max_output_tokens",), self._write_max_tokens),
            (("stream", "includes_usage"), _write_stream),
        )

    def _write_max_tokens(self, body: Json, request: WireRequest) -> None:
        keys = [key for key in _MAX_TOKENS_KEYS if body.pop(key, None) is not None]
        if request.max_output_tokens is not None:
            body[(keys or [self._max_tokens_key])[0]] = request.max_output_tokens

    def write_reply(self, draft: ReplyDraft) -> Json:
        """Return a chat completion."""
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": encode_arguments(call)}}
            for call in draft.calls
        ]
        refused = draft.reply.finish is Finish.REFUSAL
        told = {"content": None, "refusal": draft.text} if refused else {"content": draft.text or None, "refusal": None}
        message: Json = {"role": "assistant", **told}
        if draft.thinking:
            message["reasoning_content"] = draft.thinking
        if calls:
            message["tool_calls"] = calls
        finish = draft.get_finish(_WRITTEN_FINISHES)
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        usage = draft.build_usage(_write_usage(draft.reply.usage or Usage()))
        return _build_completion(draft, "chat.completion", choice) | ({"usage": usage} if usage is not None else {})

    def create_parser(self, provider: str | None = None, on_text: Callable[[str], None] | None = None) -> ReplyParser:
        """Return a parser for one reply."""
        return _ChatReplyParser(provider, on_text)

    def iter_events(self, draft: ReplyDraft) -> Iterator[StreamEvent]:
        """Yield the chunks of a completion, and the final `[DONE]`."""
        end, key = draft.end, "refusal" if draft.reply.finish is Finish.REFUSAL else "content"
        yield _build_chunk(draft, {"role": "assistant", "content": "" if draft.text else None, "refusal": None})
        for piece in split_chunks(draft.thinking):
            yield _build_chunk(draft, {"reasoning_content": piece})
        for at, piece in draft.iter_pieces():
            yield _build_chunk(draft, {key: piece}, at=at)
        for index, call in enumerate(draft.calls):
            opening = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
            yield _build_chunk(draft, {"tool_calls": [{"index": index} | opening]}, at=end)
            for part in split_chunks(encode_arguments(call)):
                yield _build_chunk(draft, {"tool_calls": [{"index": index, "function": {"arguments": part}}]}, at=end)
        yield _build_chunk(draft, {}, draft.get_finish(_WRITTEN_FINISHES), at=end)
        usage = draft.build_usage(_write_usage(draft.reply.usage or Usage()))
        if draft.includes_usage and usage is not None:
            yield StreamEvent(_build_completion(draft, "chat.completion.chunk") | {"usage": usage}, at=end)
        yield StreamEvent("[DONE]", at=end)

    def _find_usage(self, body: Json) -> object:
        return body.get("usage")

    def build_error(self, error: ErrorReply) -> Json:
        """Return the body of an error response."""
        default = ("invalid_request_error", None) if error.status < 500 else ("server_error", None)
        kind, code = _ERRORS.get(error.status, default)
        return {"error": {"message": error.words, "type": kind, "param": None, "code": error.code or code}}


def _read_items(items: object) -> list[Any]:
    return read_messages(items, OPENAI)


def _read_tool(item: object) -> Json | None:
    function = get_dict(cast("Json", item), "function") if isinstance(item, dict) else {}
    name = get_text(function, "name")
    if not name:
        return None
    described = {"description": function["description"]} if "description" in function else {}
    return {"name": name, **described, "parameters": get_dict(function, "parameters")}


def _write_tool(tool: Mapping[str, Any]) -> Json:
    return {"type": "function", "function": dict(tool)}


def _read_tool_choice(choice: object) -> str | None:
    if isinstance(choice, dict):
        fields = cast("Json", choice)
        return get_text(get_dict(fields, "function") or get_dict(fields, "custom"), "name")
    return choice if isinstance(choice, str) and choice in _TOOL_CHOICES else None


def _read_schema(body: Json) -> Json | None:
    return get_dict(get_dict(get_dict(body, "response_format"), "json_schema"), "schema") or None


def _write_model(body: Json, request: WireRequest) -> None:
    body["model"] = request.model


def _write_messages(body: Json, request: WireRequest) -> None:
    items, added = own_items(request, OPENAI)
    written = write_openai(added)
    if request.source is None:
        written = [_sanitize(message) for message in written]
    head: list[Json] = [{"role": "system", "content": request.instructions}] if request.instructions else []
    tail: list[Json] = [{"role": "user", "content": notice} for notice in request.notices]
    body["messages"] = [*head, *items, *written, *tail]


def _sanitize(message: Any) -> Any:
    """Return a message whose ids and names have the characters that the API accepts."""
    if not isinstance(message, dict):
        return message  # kept whole, because it was not understood
    fields = cast("Json", message)
    if fields.get("role") == "tool":  # other formats need the tool's name; this API has no such field
        kept = {key: value for key, value in fields.items() if key != "name"}
        return kept | {"tool_call_id": sanitize_call_id(str(fields.get("tool_call_id")))}
    calls = list_dicts(fields.get("tool_calls"))
    return fields | {"tool_calls": [_sanitize_call(call) for call in calls]} if calls else fields


def _sanitize_call(call: Json) -> Json:
    key = "custom" if "custom" in call else "function"
    function = get_dict(call, key)
    named = {key: function | {"name": sanitize_tool_name(str(function.get("name")))}}
    return call | {"id": sanitize_call_id(str(call.get("id")))} | named


def _write_tools(body: Json, request: WireRequest) -> None:
    tools = merge_tools(body.pop("tools", None), request.tools, _read_tool, _write_tool)
    if tools:
        body["tools"] = tools


def _write_tool_choice(body: Json, request: WireRequest) -> None:
    """Write the choice of tools, which the API refuses in a body without tools."""
    choice, parallel = request.tool_choice, request.parallel_calls
    body.pop("tool_choice", None)
    body.pop("parallel_tool_calls", None)
    if not body.get("tools"):
        return
    if choice is not None:
        is_word = choice in _TOOL_CHOICES
        body["tool_choice"] = choice if is_word else {"type": "function", "function": {"name": choice}}
    if parallel is not None:
        body["parallel_tool_calls"] = parallel


def _write_output_schema(body: Json, request: WireRequest) -> None:
    """Enforce the schema. The API refuses one that is not an object, so such a schema is described in words."""
    body.pop("response_format", None)
    schema = request.output_schema
    if not schema:
        return
    enforced = close_schema(schema)
    if enforced is not None and is_strict_schema(enforced):
        output_format = {"name": "answer", "schema": enforced, "strict": True}
    elif schema.get("type") == "object":
        output_format = {"name": "answer", "schema": schema, "strict": False}
    else:
        body["messages"] = _add_instruction(body["messages"], describe_schema(schema))
        return
    body["response_format"] = {"type": "json_schema", "json_schema": output_format}


def _add_instruction(messages: list[Json], text: str) -> list[Json]:
    first = messages[0] if messages else {}
    if first.get("role") == "system" and isinstance(first.get("content"), str):
        return [{**first, "content": join_blank((first["content"], text))}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def _write_stream(body: Json, request: WireRequest) -> None:
    options = get_dict(body, "stream_options")
    for key in ("stream", "stream_options"):
        body.pop(key, None)
    options = {key: value for key, value in options.items() if key != "include_usage"}
    if request.stream:
        body["stream"] = True
        if request.includes_usage or options:
            body["stream_options"] = options | ({"include_usage": True} if request.includes_usage else {})


def _build_completion(draft: ReplyDraft, kind: str, *choices: Json) -> Json:
    return {
        "id": f"chatcmpl-{draft.id}",
        "object": kind,
        "created": draft.created,
        "model": draft.model,
        "choices": [*choices],
    }


def _build_chunk(draft: ReplyDraft, delta: Json, finish: str | None = None, *, at: float = 0.0) -> StreamEvent:
    choice: dict[str, Any] = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    usage = {"usage": None} if draft.includes_usage else {}
    return StreamEvent(_build_completion(draft, "chat.completion.chunk", choice) | usage, at=at)


def _write_usage(usage: Usage) -> Json:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": usage.written},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


class _ChatReplyParser(ReplyParser):
    """Parser for chunks with a `delta`, or for one reply with a `message`."""

    def __init__(self, provider: str | None, on_text: Callable[[str], None] | None = None) -> None:
        super().__init__(provider, on_text)
        self._calls_by_index: dict[int, PartialCall] = {}

    def parse_event(self, event: Json) -> None:
        """Parse a chunk.

        The usage may come in a chunk after the finish reason.
        """
        self._parse_header(event)
        for choice in expect_list(event.get("choices"), "choices")[:1]:
            fields = expect_dict(choice, "a choice")
            self._parse_message(expect_dict(fields.get("delta"), "a delta"))
            self._set_finish(fields.get("finish_reason"))

    def parse_reply(self, reply: Json) -> None:
        """Parse a reply that was not streamed."""
        self._parse_header(reply)
        for choice in expect_list(reply.get("choices"), "choices")[:1]:
            fields = expect_dict(choice, "a choice")
            if "message" in fields:
                self._parse_message(expect_dict(fields["message"], "a message"))
                self._set_finish(fields.get("finish_reason") or "stop")

    def _parse_header(self, event: Json) -> None:
        if event.get("usage") is not None:
            self.set_usage(event["usage"])
        if self.model is None and isinstance(event.get("model"), str):
            self.model = event["model"]
        if self.id is None and isinstance(event.get("id"), str):
            self.id = event["id"]

    def _parse_message(self, message: Json) -> None:
        self.add_text(message.get("content"))
        if message.keys() <= _TEXT_KEYS:  # of most chunks
            return
        self.add_refusal(message.get("refusal"))
        if message.get("reasoning_content") or message.get("reasoning"):
            self.piece_count += 1
        for piece in expect_list(message.get("tool_calls"), "tool_calls"):
            self.piece_count += 1
            self._add_call_piece(expect_dict(piece, "a tool call"))
        if message.get("function_call") is not None:  # the older form of one call
            self._add_call_piece({"index": 0, "function": message["function_call"]})

    def _add_call_piece(self, piece: Json) -> None:
        """Start a call, or extend one.

        Some servers leave out the index, or send 0 with every call.
        """
        function = expect_dict(piece.get("function") or piece.get("custom"), "a function")
        index, id, name = piece.get("index"), expect_text(piece.get("id")), expect_text(function.get("name"))
        index = index if isinstance(index, int) and 0 <= index < MAX_INDEXES else None
        call = None if index is None else self._calls_by_index.get(index)
        if call is None or (id and call.id and id != call.id):
            call = PartialCall()
            self.calls.append(call)
            if index is not None:
                self._calls_by_index[index] = call
        call.id, call.name = call.id or id, call.name or name
        call.add_arguments(function.get("arguments", function.get("input")))

    def _set_finish(self, reason: object) -> None:
        if reason is not None:
            self.finish = _FINISHES.get(str(reason), Finish.STOP)
