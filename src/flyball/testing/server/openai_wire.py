"""The wire of OpenAI's chat completions, as its servers and the many that copy them write it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...request import Finish, Usage
from .faults import StatusReply
from .reply import CREATED, Json, SpokenReply, StreamEvent, scraps, written

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
    """Writes replies as chat completions and their chunks."""

    def whole(self, spoken: SpokenReply) -> Json:
        """A chat completion."""
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": written(call)}}
            for call in spoken.calls
        ]
        message: Json = {"role": "assistant", "content": spoken.text or None, "refusal": None}
        if spoken.thinking:
            message["reasoning_content"] = spoken.thinking
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": spoken.finish_word(_FINISH)}
        usage = spoken.usage_json(_usage(spoken.usage or Usage()))
        return _top(spoken, "chat.completion", choice) | ({"usage": usage} if usage is not None else {})

    def events(self, spoken: SpokenReply) -> Iterator[StreamEvent]:
        """The chunks, and the word that ends them."""
        end = spoken.end
        yield _chunk(spoken, {"role": "assistant", "content": "" if spoken.text else None, "refusal": None})
        for piece in scraps(spoken.thinking):
            yield _chunk(spoken, {"reasoning_content": piece})
        for at, piece in spoken.pieces:
            yield _chunk(spoken, {"content": piece}, at=at)
        for index, call in enumerate(spoken.calls):
            opening = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
            yield _chunk(spoken, {"tool_calls": [{"index": index} | opening]}, at=end)
            for scrap in scraps(written(call)):
                yield _chunk(spoken, {"tool_calls": [{"index": index, "function": {"arguments": scrap}}]}, at=end)
        yield _chunk(spoken, {}, spoken.finish_word(_FINISH), at=end)
        usage = spoken.usage_json(_usage(spoken.usage or Usage()))
        if spoken.tells_usage and usage is not None:
            yield StreamEvent(_top(spoken, "chat.completion.chunk") | {"usage": usage}, at=end)
        yield StreamEvent("[DONE]", at=end)

    def error(self, status: StatusReply) -> Json:
        """The body of an answer that is an error."""
        usual = ("invalid_request_error", None) if status.status < 500 else ("server_error", None)
        kind, code = _ERRORS.get(status.status, usual)
        message = status.message or f"The server answers with status {status.status}."
        return {"error": {"message": message, "type": kind, "param": None, "code": status.code or code}}

    def error_event(self, status: StatusReply) -> StreamEvent:
        """A chunk that is an error."""
        return StreamEvent(self.error(status))


def _top(spoken: SpokenReply, kind: str, *choices: Json) -> Json:
    return {
        "id": f"chatcmpl-{spoken.number}",
        "object": kind,
        "created": CREATED,
        "model": spoken.model,
        "choices": [*choices],
    }


def _chunk(spoken: SpokenReply, delta: Json, finish: str | None = None, *, at: float = 0.0) -> StreamEvent:
    choice: dict[str, Any] = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    nothing = {"usage": None} if spoken.tells_usage else {}
    return StreamEvent(_top(spoken, "chat.completion.chunk", choice) | nothing, at=at)


def _usage(usage: Usage) -> Json:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": usage.written},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
