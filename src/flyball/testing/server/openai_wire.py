"""OpenAI's chat completions API, from the server's side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...request import Finish, Usage
from .faults import StatusReply
from .reply import CREATED, Json, SpokenReply, StreamEvent, encode_arguments, split_chunks

_FINISH = {
    Finish.STOP: "stop",
    Finish.CALLS: "tool_calls",
    Finish.LENGTH: "length",
    Finish.CONTENT_FILTER: "content_filter",
}
_ERRORS = {
    401: ("invalid_request_error", "invalid_api_key"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}


class OpenAIWire:
    """Encoder of replies as chat completions and their chunks."""

    def build_body(self, reply: SpokenReply) -> Json:
        """Return a chat completion."""
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": encode_arguments(call)}}
            for call in reply.calls
        ]
        message: Json = {"role": "assistant", "content": reply.text or None, "refusal": None}
        if reply.thinking:
            message["reasoning_content"] = reply.thinking
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.get_finish_reason(_FINISH)}
        usage = reply.build_usage(_usage_to_json(reply.usage or Usage()))
        return _build_completion(reply, "chat.completion", choice) | ({"usage": usage} if usage is not None else {})

    def iter_events(self, reply: SpokenReply) -> Iterator[StreamEvent]:
        """Yield the chunks of a completion, and the final `[DONE]`."""
        end = reply.end
        yield _build_chunk(reply, {"role": "assistant", "content": "" if reply.text else None, "refusal": None})
        for piece in split_chunks(reply.thinking):
            yield _build_chunk(reply, {"reasoning_content": piece})
        for at, piece in reply.pieces:
            yield _build_chunk(reply, {"content": piece}, at=at)
        for index, call in enumerate(reply.calls):
            opening = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
            yield _build_chunk(reply, {"tool_calls": [{"index": index} | opening]}, at=end)
            for part in split_chunks(encode_arguments(call)):
                yield _build_chunk(reply, {"tool_calls": [{"index": index, "function": {"arguments": part}}]}, at=end)
        yield _build_chunk(reply, {}, reply.get_finish_reason(_FINISH), at=end)
        usage = reply.build_usage(_usage_to_json(reply.usage or Usage()))
        if reply.includes_usage and usage is not None:
            yield StreamEvent(_build_completion(reply, "chat.completion.chunk") | {"usage": usage}, at=end)
        yield StreamEvent("[DONE]", at=end)

    def build_error(self, status: StatusReply) -> Json:
        """Return the body of an error response."""
        default = ("invalid_request_error", None) if status.status < 500 else ("server_error", None)
        kind, code = _ERRORS.get(status.status, default)
        message = status.message or f"The server answers with status {status.status}."
        return {"error": {"message": message, "type": kind, "param": None, "code": status.code or code}}

    def build_error_event(self, status: StatusReply) -> StreamEvent:
        """Return an error as a chunk."""
        return StreamEvent(self.build_error(status))


def _build_completion(reply: SpokenReply, kind: str, *choices: Json) -> Json:
    return {
        "id": f"chatcmpl-{reply.number}",
        "object": kind,
        "created": CREATED,
        "model": reply.model,
        "choices": [*choices],
    }


def _build_chunk(reply: SpokenReply, delta: Json, finish: str | None = None, *, at: float = 0.0) -> StreamEvent:
    choice: dict[str, Any] = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    usage = {"usage": None} if reply.includes_usage else {}
    return StreamEvent(_build_completion(reply, "chat.completion.chunk", choice) | usage, at=at)


def _usage_to_json(usage: Usage) -> Json:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": usage.written},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
