"""Wire of OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from ..message import RESPONSES
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
from .reply_parser import ReplyParser
from .responses_items import is_output_item, write_responses
from .responses_reply import ResponsesReplyParser
from .structured import close_schema, describe_schema, is_strict_schema, sanitize_tool_name
from .wire import Wire, merge_tools, own_items

_TOOL_CHOICES = frozenset({"auto", "required", "none"})
_INCOMPLETE = {Finish.LENGTH: "max_output_tokens", Finish.CONTENT_FILTER: "content_filter"}
_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}
_MAX_ID_LENGTH = 64


class ResponsesWire(Wire):
    """Responses."""

    name = RESPONSES
    min_output_tokens = 16

    def parse_request(self, body: Json, path: str = "") -> WireRequest:
        """Parse the body of a request."""
        conversation = body.get("conversation")
        kept = get_text(cast("Json", conversation), "id") if isinstance(conversation, dict) else conversation
        return WireRequest(
            messages=WireMessages(self.name, body.get("input"), _read_items),
            instructions=get_text(body, "instructions"),
            tools=[tool for item in get_dicts(body, "tools") if (tool := _read_tool(item))],
            max_output_tokens=get_int(body, "max_output_tokens"),
            output_schema=get_dict(get_dict(get_dict(body, "text"), "format"), "schema") or None,
            model=get_text(body, "model") or "",
            stream=body.get("stream") is True,
            tool_choice=_read_tool_choice(body.get("tool_choice")),
            parallel_calls=get_bool(body, "parallel_tool_calls"),
            previous_id=get_text(body, "previous_response_id") or (kept if isinstance(kept, str) else None),
            source=body,
        )

    def build_path(self, request: WireRequest) -> str:
        """Return the path of a request."""
        return "/responses"

    def _list_writers(self) -> Sequence[tuple[Sequence[str], Callable[[Json, WireRequest], None]]]:
        return (
            (("model",), _write_model),
            (("instructions",), _write_instructions),
            (("messages", "notices"), _write_input),
            (("tools",), _write_tools),
            (("tool_choice", "parallel_calls"), _write_tool_choice),
            (("output_schema",), _write_output_schema),
            (("max_output_tokens",), _write_max_tokens),
            (("previous_id",), _write_previous_id),
            (("stream",), _write_stream),
        )

    def write_reply(self, draft: ReplyDraft) -> Json:
        """Return a response."""
        usage = draft.build_usage(_write_usage(draft.reply.usage or Usage()))
        return _build_response(draft, [item for item, _ in _iter_items(draft)], usage=usage)

    def create_parser(self, provider: str | None = None, on_text: Callable[[str], None] | None = None) -> ReplyParser:
        """Return a parser for one reply."""
        return ResponsesReplyParser(provider, on_text)

    def iter_events(self, draft: ReplyDraft) -> Iterator[StreamEvent]:
        """Yield the numbered events of a response."""
        events: list[tuple[float, str, Json]] = []
        opening = _build_response(draft, [], status="in_progress")
        events += [(0.0, "created", {"response": opening}), (0.0, "in_progress", {"response": opening})]
        for index, (item, deltas) in enumerate(_iter_items(draft)):
            at = deltas[0][0] if deltas else draft.end
            events.append((at, "output_item.added", {"output_index": index, "item": _open_item(item)}))
            where = {"output_index": index, "item_id": item["id"]}
            events += [(at, kind, where | data) for at, kind, data in deltas]
            at = deltas[-1][0] if deltas else draft.end
            events.append((at, "output_item.done", {"output_index": index, "item": item}))
        response = self.write_reply(draft)
        if response["status"] != "in_progress":
            events.append((draft.end, response["status"], {"response": response}))
        for number, (at, kind, data) in enumerate(events):
            name = f"response.{kind}"
            yield StreamEvent({"type": name, "sequence_number": number} | data, name, at)

    def _find_usage(self, body: Json) -> object:
        response = body.get("response")
        return cast("Json", response).get("usage") if isinstance(response, dict) else body.get("usage")

    def build_error(self, error: ErrorReply) -> Json:
        """Return the body of an error response."""
        kind = "invalid_request_error" if error.status < 500 else "server_error"
        code = error.code or _CODES.get(error.status)
        return {"error": {"message": error.words, "type": kind, "param": None, "code": code}}

    def build_error_event(self, error: ErrorReply) -> StreamEvent:
        """Return an error as an event."""
        code = error.code or _CODES.get(error.status) or ("server_error" if error.status >= 500 else "invalid_request")
        data = {"type": "error", "sequence_number": 0, "code": code, "message": error.words, "param": None}
        return StreamEvent(data, "error")


def _read_items(items: object) -> list[Any]:
    return read_messages([{"role": "user", "content": items}] if isinstance(items, str) else items, RESPONSES)


def _read_tool(item: object) -> Json | None:
    fields = cast("Json", item) if isinstance(item, dict) else {}
    name = get_text(fields, "name")
    if fields.get("type") != "function" or not name:
        return None
    described = {"description": fields["description"]} if fields.get("description") else {}
    return {"name": name, **described, "parameters": get_dict(fields, "parameters")}


def _write_tool(tool: Mapping[str, Any]) -> Json:
    return {"type": "function", **tool, "strict": False}  # the API's default is to enforce the schema


def _read_tool_choice(choice: object) -> str | None:
    if isinstance(choice, dict):
        return get_text(cast("Json", choice), "name")
    return choice if isinstance(choice, str) and choice in _TOOL_CHOICES else None


def _write_model(body: Json, request: WireRequest) -> None:
    body["model"] = request.model


def _write_instructions(body: Json, request: WireRequest) -> None:
    body.pop("instructions", None)
    if request.instructions:
        body["instructions"] = request.instructions


def _write_input(body: Json, request: WireRequest) -> None:
    items, added = own_items(request, RESPONSES)
    written = write_responses(added)
    if request.source is None:
        written = [_sanitize(item) for item in _drop_lone_reasoning(list_dicts(written))]
    notices: list[Json] = [{"role": "user", "content": notice} for notice in request.notices]
    body["input"] = [*items, *written, *notices]


def _drop_lone_reasoning(items: list[Json]) -> list[Json]:
    """Leave out reasoning that nothing of its reply follows, because the API refuses it.

    It arises when reasoning uses up the tokens of a reply.
    """
    kept: list[Json] = []
    for item in reversed(items):
        if item.get("type") != "reasoning" or (kept and is_output_item(kept[-1])):
            kept.append(item)
    return kept[::-1]


def _sanitize(item: Json) -> Json:
    """Return an item whose id and name have the length and the characters that the API accepts."""
    if item.get("type") not in ("function_call", "function_call_output"):
        return item
    named = {"name": sanitize_tool_name(str(item["name"]))} if "name" in item else {}
    return item | {"call_id": str(item.get("call_id"))[-_MAX_ID_LENGTH:]} | named


def _write_tools(body: Json, request: WireRequest) -> None:
    tools = merge_tools(body.pop("tools", None), request.tools, _read_tool, _write_tool)
    if tools:
        body["tools"] = tools


def _write_tool_choice(body: Json, request: WireRequest) -> None:
    """Write the choice of tools. Tools may also stand in the input; then the body has had a choice."""
    choice, parallel = request.tool_choice, request.parallel_calls
    has_tools = bool(body.get("tools")) or body.get("tool_choice") is not None
    body.pop("tool_choice", None)
    body.pop("parallel_tool_calls", None)
    if not has_tools:
        return
    if choice is not None:
        body["tool_choice"] = choice if choice in _TOOL_CHOICES else {"type": "function", "name": choice}
    if parallel is not None:
        body["parallel_tool_calls"] = parallel


def _write_output_schema(body: Json, request: WireRequest) -> None:
    """Enforce the schema. The API refuses one that is not an object, so such a schema is described in words."""
    text = {key: value for key, value in get_dict(body, "text").items() if key != "format"}
    body.pop("text", None)
    schema = request.output_schema
    enforced = close_schema(schema) if schema else None
    if enforced is not None and is_strict_schema(enforced):
        text["format"] = {"type": "json_schema", "name": "answer", "schema": enforced, "strict": True}
    elif schema and schema.get("type") == "object":
        text["format"] = {"type": "json_schema", "name": "answer", "schema": schema, "strict": False}
    elif schema:
        body["instructions"] = join_blank((get_text(body, "instructions"), describe_schema(schema)))
    if text:
        body["text"] = text


def _write_max_tokens(body: Json, request: WireRequest) -> None:
    body.pop("max_output_tokens", None)
    if request.max_output_tokens is not None:
        body["max_output_tokens"] = request.max_output_tokens


def _write_previous_id(body: Json, request: WireRequest) -> None:
    for key in ("previous_response_id", "conversation"):
        body.pop(key, None)
    if request.previous_id is not None:
        body["previous_response_id"] = request.previous_id


def _write_stream(body: Json, request: WireRequest) -> None:
    body.pop("stream", None)
    if request.stream:
        body["stream"] = True


def _is_complete(draft: ReplyDraft) -> bool:
    return draft.get_finish({**dict.fromkeys(Finish, "completed"), **_INCOMPLETE}) == "completed"


_Deltas = list[tuple[float, str, Json]]


def _iter_items(draft: ReplyDraft) -> Iterator[tuple[Json, _Deltas]]:
    """Yield each item of the output, and the events between its start and its end."""
    end = draft.end
    if draft.thinking:
        part = {"type": "summary_text", "text": draft.thinking}
        where = {"summary_index": 0}
        opened: Json = {**where, "part": {**part, "text": ""}}
        deltas: _Deltas = [(0.0, "reasoning_summary_part.added", opened)]
        for piece in split_chunks(draft.thinking):
            deltas.append((0.0, "reasoning_summary_text.delta", {**where, "delta": piece}))
        deltas.append((0.0, "reasoning_summary_text.done", {**where, "text": draft.thinking}))
        deltas.append((0.0, "reasoning_summary_part.done", {**where, "part": part}))
        item_id = f"rs_{draft.id}"
        yield {"id": item_id, "type": "reasoning", "summary": [part], "encrypted_content": "c2VhbGVk"}, deltas
    for number, item in enumerate(draft.override.get("items", ())):
        yield {"id": f"item_{draft.id}_{number}", **item}, []
    if draft.text:
        yield _build_message(draft)
    for number, call in enumerate(draft.calls):
        arguments = encode_arguments(call)
        if call.name in draft.free_text_tools:
            deltas = [(end, "custom_tool_call_input.delta", {"delta": piece}) for piece in split_chunks(arguments)]
            deltas.append((end, "custom_tool_call_input.done", {"input": arguments}))
            custom = {"type": "custom_tool_call", "call_id": call.id, "name": call.name, "input": arguments}
            yield {"id": f"ctc_{draft.id}_{number}", **custom, "status": "completed"}, deltas
            continue
        deltas = [(end, "function_call_arguments.delta", {"delta": piece}) for piece in split_chunks(arguments)]
        deltas.append((end, "function_call_arguments.done", {"name": call.name, "arguments": arguments}))
        item = {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments}
        yield {"id": f"fc_{draft.id}_{number}", **item, "status": "completed"}, deltas


def _build_message(draft: ReplyDraft) -> tuple[Json, _Deltas]:
    text, where = draft.text, {"content_index": 0}
    part: Json
    more: Json
    if draft.reply.finish is Finish.REFUSAL:
        kind, key, part = "refusal", "refusal", {"type": "refusal", "refusal": text}
        more = {}
    else:
        kind, key = "output_text", "text"
        more = {"logprobs": []}
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    pieces = list(draft.iter_pieces())
    first, last = (pieces[0][0], pieces[-1][0]) if pieces else (draft.end, draft.end)
    deltas: _Deltas = [(first, "content_part.added", {**where, "part": {**part, key: ""}})]
    deltas += [(at, f"{kind}.delta", {**where, "delta": piece, **more}) for at, piece in pieces]
    deltas.append((last, f"{kind}.done", {**where, key: text, **more}))
    deltas.append((last, "content_part.done", {**where, "part": part}))
    status = "completed" if _is_complete(draft) else "incomplete"
    item_id = f"msg_{draft.id}"
    return {"id": item_id, "type": "message", "role": "assistant", "status": status, "content": [part]}, deltas


def _open_item(item: Json) -> Json:
    """Return an item as it is before its first delta."""
    empty: Json = {"content": [], "summary": [], "arguments": "", "input": "", "status": "in_progress"}
    return {key: empty.get(key, value) for key, value in item.items() if key != "encrypted_content"}


def _build_response(
    draft: ReplyDraft, output: list[Json], *, status: str | None = None, usage: Json | None = None
) -> Json:
    reason: Any = None
    if status is None:
        word = draft.get_finish({**dict.fromkeys(Finish, "completed"), **_INCOMPLETE})
        status, reason = ("incomplete", word) if word not in ("completed", None) else (word or "in_progress", None)
    return {
        "id": f"resp_{draft.id}",
        "object": "response",
        "created_at": draft.created,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None if reason is None else {"reason": reason},
        "instructions": None,
        "max_output_tokens": None,
        "model": draft.model,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": usage,
        "metadata": {},
    }


def _write_usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": usage.written},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.total,
    }
