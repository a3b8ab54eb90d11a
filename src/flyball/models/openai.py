"""OpenAI's chat completions API, which many other servers offer too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ..request import Finish, Request
from ..wire.writer import write_openai
from .endpoint import Provider
from .http import HttpModel
from .model import OnText
from .reply import MAX_INDEXES, Json, PartialCall, ReplyParser, expect_dict, expect_list, expect_text
from .structured import close_schema, describe_schema, is_strict_schema, sanitize_call_id, sanitize_tool_name

_FINISHES = {
    "stop": Finish.STOP,
    "length": Finish.LENGTH,
    "tool_calls": Finish.CALLS,
    "function_call": Finish.CALLS,
    "content_filter": Finish.CONTENT_FILTER,
}


class OpenAIModel(HttpModel):
    """OpenAI model, or with `url=` a model of any compatible server.

    The key is `key=` or OPENAI_API_KEY. With `url=` it is `key=` or FLYBALL_API_KEY, and may be missing.
    """

    _provider_spec: ClassVar[Provider] = Provider(
        name="openai",
        url="https://api.openai.com/v1",
        url_variable="OPENAI_BASE_URL",
        key_variable="OPENAI_API_KEY",
        path="/chat/completions",
        max_output_tokens=16_384,
        headers={},
        max_output_elsewhere=4_096,
    )

    def _build_base_body(self, request: Request) -> Json:
        """Return the body of a chat completions request."""
        output_format = _build_output_format(request.output_schema) if request.output_schema else None
        body: Json = {"model": self.name, "messages": _build_messages(request, output_format)}
        if request.tools:
            body["tools"] = [{"type": "function", "function": dict(tool)} for tool in request.tools]
            self._set_tool_choice(body)
        if isinstance(output_format, dict):
            body["response_format"] = {"type": "json_schema", "json_schema": output_format}
        if request.max_output_tokens is not None:
            # Compatible servers know the older name.
            body["max_completion_tokens" if self._endpoint.is_official else "max_tokens"] = request.max_output_tokens
        if self._stream:
            body["stream"] = True
            body["stream_options"] = {"include_usage": True}
        return body

    def _set_tool_choice(self, body: Json) -> None:
        options = self._request_options
        if options.forced_tool is not None:
            body["tool_choice"] = {"type": "function", "function": {"name": options.forced_tool}}
        elif options.tool_choice is not None:
            body["tool_choice"] = options.tool_choice
        if options.parallel is not None:
            body["parallel_tool_calls"] = options.parallel

    def create_parser(self, on_text: OnText | None = None) -> ReplyParser:
        """Return a parser for one reply."""
        return _OpenAIReplyParser(self.provider, on_text)


def _build_output_format(schema: Mapping[str, Any]) -> Json | str:
    """Return an enforced format, or a prompt that asks for it.

    The API refuses a schema that is not an object, so such a schema is described in words.
    """
    enforced = close_schema(schema)
    if enforced is not None and is_strict_schema(enforced):
        return {"name": "answer", "schema": enforced, "strict": True}
    return (
        {"name": "answer", "schema": schema, "strict": False}
        if schema.get("type") == "object"
        else describe_schema(schema)
    )


def _build_messages(request: Request, output_format: Json | str | None) -> list[Json]:
    texts = [text for text in (request.instructions, output_format) if text and isinstance(text, str)]
    head: list[Json] = [{"role": "system", "content": "\n\n".join(texts)}] if texts else []
    tail: list[Json] = [{"role": "user", "content": notice} for notice in request.notices]
    messages = write_openai(request.messages)
    for message in messages:
        if message["role"] == "tool":  # other formats need the tool's name; this API has no such field
            message.pop("name", None)
            message["tool_call_id"] = sanitize_call_id(message["tool_call_id"])
        for call in message.get("tool_calls", ()):
            call["id"], function = sanitize_call_id(call["id"]), call["function"]
            function["name"] = sanitize_tool_name(function["name"])
    return [*head, *messages, *tail]


class _OpenAIReplyParser(ReplyParser):
    """Parser for chunks with a `delta`, or for one reply with a `message`."""

    def __init__(self, provider: str | None, on_text: OnText | None = None) -> None:
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
        self.add_text(message.get("refusal"))
        if message.get("reasoning_content") or message.get("reasoning"):
            self.piece_count += 1
        for piece in expect_list(message.get("tool_calls"), "tool_calls"):
            self.piece_count += 1
            self._add_call_piece(expect_dict(piece, "a tool call"))

    def _add_call_piece(self, piece: Json) -> None:
        """Start a call, or extend one.

        Some servers leave out the index, or send 0 with every call.
        """
        function = expect_dict(piece.get("function"), "a function")
        index, id, name = piece.get("index"), expect_text(piece.get("id")), expect_text(function.get("name"))
        index = index if isinstance(index, int) and 0 <= index < MAX_INDEXES else None
        call = None if index is None else self._calls_by_index.get(index)
        if call is None or (id and call.id and id != call.id):
            call = PartialCall()
            self.calls.append(call)
            if index is not None:
                self._calls_by_index[index] = call
        call.id, call.name = call.id or id, call.name or name
        call.add_arguments(function.get("arguments"))

    def _set_finish(self, reason: object) -> None:
        if reason is not None:
            self.finish = _FINISHES.get(str(reason), Finish.STOP)
