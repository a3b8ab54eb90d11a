"""The wire of Anthropic's messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from ...request import Call, Finish, Usage
from .faults import StatusReply
from .reply import Json, SpokenReply, StreamEvent, scraps, written

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
"""How this provider begins to say it; it has no code for it."""


class AnthropicWire:
    """Writes replies as messages and their events."""

    def whole(self, spoken: SpokenReply) -> Json:
        """A message."""
        blocks: list[Json] = []
        if spoken.thinking:
            blocks.append({"type": "thinking", "thinking": spoken.thinking, "signature": "c2lnbmVk"})
        if spoken.text:
            blocks.append({"type": "text", "text": spoken.text, "citations": None})
        blocks += [{"type": "tool_use", "id": one.id, "name": one.name, "input": _input(one)} for one in spoken.calls]
        usage = spoken.usage_json(_usage(spoken.usage or Usage()))
        return _message(spoken, blocks, spoken.finish_word(_FINISH), usage)

    def events(self, spoken: SpokenReply) -> Iterator[StreamEvent]:
        """The events, each with its name."""
        usage = spoken.usage or Usage()
        begun = spoken.usage_json(_usage(replace(usage, output=1, reasoning=0)))
        yield _event({"type": "message_start", "message": _message(spoken, [], None, begun)})
        yield _event({"type": "ping"})
        for index, (block, deltas) in enumerate(_blocks(spoken)):
            at = deltas[0][0] if deltas else spoken.end
            yield _event({"type": "content_block_start", "index": index, "content_block": block}, at)
            for at, delta in deltas:
                yield _event({"type": "content_block_delta", "index": index, "delta": delta}, at)
            yield _event({"type": "content_block_stop", "index": index}, at)
        delta = {"stop_reason": spoken.finish_word(_FINISH), "stop_sequence": None}
        done = spoken.usage_json(_usage(usage))
        told = {"usage": done} if done is not None else {}
        yield _event({"type": "message_delta", "delta": delta} | told, spoken.end)
        yield _event({"type": "message_stop"}, spoken.end)

    def error(self, status: StatusReply) -> Json:
        """The body of an answer that is an error."""
        kind = _ERRORS.get(status.status, "invalid_request_error" if status.status < 500 else "api_error")
        message = status.message or f"The server answers with status {status.status}."
        if status.code == "context_length_exceeded":
            message = _TOO_LONG + message.removeprefix(_TOO_LONG)
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_error"}

    def error_event(self, status: StatusReply) -> StreamEvent:
        """An event that is an error."""
        return StreamEvent(self.error(status), "error")


def _blocks(spoken: SpokenReply) -> Iterator[tuple[Json, list[tuple[float, Json]]]]:
    """Each block as it begins, and what is added to it when."""
    if spoken.thinking:
        thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in scraps(spoken.thinking)]
        signed = {"type": "signature_delta", "signature": "c2lnbmVk"}
        yield {"type": "thinking", "thinking": "", "signature": ""}, [(0.0, delta) for delta in [*thoughts, signed]]
    if spoken.pieces:
        deltas = [(at, {"type": "text_delta", "text": piece}) for at, piece in spoken.pieces]
        yield {"type": "text", "text": "", "citations": None}, deltas
    for call in spoken.calls:
        pieces = ["", *scraps("" if call.arguments == {} else written(call))]
        deltas = [(spoken.end, {"type": "input_json_delta", "partial_json": piece}) for piece in pieces]
        yield {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}, deltas


def _event(data: Json, at: float = 0.0) -> StreamEvent:
    return StreamEvent(data, str(data["type"]), at)


def _message(spoken: SpokenReply, content: list[Json], finish: str | None, usage: Json | None) -> Json:
    message = {
        "id": f"msg_{spoken.number}",
        "type": "message",
        "role": "assistant",
        "model": spoken.model,
        "content": content,
        "stop_reason": finish,
        "stop_sequence": None,
    }
    return message | ({"usage": usage} if usage is not None else {})


def _usage(usage: Usage) -> Json:
    """This provider's input is what was not cached."""
    return {
        "input_tokens": usage.input - usage.cached - usage.written,
        "cache_creation_input_tokens": usage.written,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
    }


def _input(call: Call) -> object:
    """Arguments in one piece are JSON and no text; what a script writes that is none goes as the text it is."""
    if not isinstance(call.arguments, str):
        return dict(call.arguments)
    try:
        return json.loads(call.arguments)
    except ValueError:
        return call.arguments
