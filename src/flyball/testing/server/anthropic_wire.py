"""Anthropic's messages API, from the server's side."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from ...request import Call, Finish, Usage
from .faults import StatusReply
from .reply import Json, SpokenReply, StreamEvent, encode_arguments, split_chunks

_FINISH = {
    Finish.STOP: "end_turn",
    Finish.CALLS: "tool_use",
    Finish.LENGTH: "max_tokens",
    Finish.CONTENT_FILTER: "refusal",
}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_TOO_LONG = "prompt is too long: "
"""Start of the provider's message for a context that is too long. There is no code for it."""


class AnthropicWire:
    """Encoder of replies as messages and their events."""

    def build_body(self, reply: SpokenReply) -> Json:
        """Return a message."""
        blocks: list[Json] = []
        if reply.thinking:
            blocks.append({"type": "thinking", "thinking": reply.thinking, "signature": "c2lnbmVk"})
        if reply.text:
            blocks.append({"type": "text", "text": reply.text, "citations": None})
        blocks += [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": _arguments_to_json(call)}
            for call in reply.calls
        ]
        usage = reply.build_usage(_usage_to_json(reply.usage or Usage()))
        return _build_message(reply, blocks, reply.get_finish_reason(_FINISH), usage)

    def iter_events(self, reply: SpokenReply) -> Iterator[StreamEvent]:
        """Yield the named events of a message."""
        usage = reply.usage or Usage()
        initial_usage = reply.build_usage(_usage_to_json(replace(usage, output=1, reasoning=0)))
        yield _build_event({"type": "message_start", "message": _build_message(reply, [], None, initial_usage)})
        yield _build_event({"type": "ping"})
        for index, (block, deltas) in enumerate(_iter_blocks(reply)):
            at = deltas[0][0] if deltas else reply.end
            yield _build_event({"type": "content_block_start", "index": index, "content_block": block}, at)
            for at, delta in deltas:
                yield _build_event({"type": "content_block_delta", "index": index, "delta": delta}, at)
            yield _build_event({"type": "content_block_stop", "index": index}, at)
        delta = {"stop_reason": reply.get_finish_reason(_FINISH), "stop_sequence": None}
        final_usage = reply.build_usage(_usage_to_json(usage))
        usage_field = {"usage": final_usage} if final_usage is not None else {}
        yield _build_event({"type": "message_delta", "delta": delta} | usage_field, reply.end)
        yield _build_event({"type": "message_stop"}, reply.end)

    def build_error(self, status: StatusReply) -> Json:
        """Return the body of an error response."""
        kind = _ERRORS.get(status.status, "invalid_request_error" if status.status < 500 else "api_error")
        message = status.message or f"The server answers with status {status.status}."
        if status.code == "context_length_exceeded":
            message = _TOO_LONG + message.removeprefix(_TOO_LONG)
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_error"}

    def build_error_event(self, status: StatusReply) -> StreamEvent:
        """Return an error as an event."""
        return StreamEvent(self.build_error(status), "error")


def _iter_blocks(reply: SpokenReply) -> Iterator[tuple[Json, list[tuple[float, Json]]]]:
    """Yield the start of each block, and its deltas with their times."""
    if reply.thinking:
        thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in split_chunks(reply.thinking)]
        signed = {"type": "signature_delta", "signature": "c2lnbmVk"}
        yield {"type": "thinking", "thinking": "", "signature": ""}, [(0.0, delta) for delta in [*thoughts, signed]]
    if reply.pieces:
        deltas = [(at, {"type": "text_delta", "text": piece}) for at, piece in reply.pieces]
        yield {"type": "text", "text": "", "citations": None}, deltas
    for call in reply.calls:
        pieces = ["", *split_chunks("" if call.arguments == {} else encode_arguments(call))]
        deltas = [(reply.end, {"type": "input_json_delta", "partial_json": piece}) for piece in pieces]
        yield {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}, deltas


def _build_event(data: Json, at: float = 0.0) -> StreamEvent:
    return StreamEvent(data, str(data["type"]), at)


def _build_message(reply: SpokenReply, content: list[Json], finish: str | None, usage: Json | None) -> Json:
    message = {
        "id": f"msg_{reply.number}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": content,
        "stop_reason": finish,
        "stop_sequence": None,
    }
    return message | ({"usage": usage} if usage is not None else {})


def _usage_to_json(usage: Usage) -> Json:
    """Return Anthropic's counts. Its input excludes cached tokens."""
    return {
        "input_tokens": usage.input - usage.cached - usage.written,
        "cache_creation_input_tokens": usage.written,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
    }


def _arguments_to_json(call: Call) -> object:
    """Return arguments as JSON, or invalid JSON of a script as its text."""
    if not isinstance(call.arguments, str):
        return dict(call.arguments)
    try:
        return json.loads(call.arguments)
    except ValueError:
        return call.arguments
