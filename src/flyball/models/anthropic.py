"""Anthropic's messages API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from ..message import ANTHROPIC
from ..request import Finish, Request
from ..wire.writer import PRIVATE_TYPES, write_anthropic
from .endpoint import Provider
from .http import HttpModel
from .model import OnText
from .reply import MAX_INDEXES, Json, PartialCall, ReplyParser, expect_dict, expect_list, expect_text, malformed_reply
from .structured import close_schema, describe_schema, sanitize_call_id, sanitize_tool_name

_FINISHES = {
    "end_turn": Finish.STOP,
    "stop_sequence": Finish.STOP,
    "max_tokens": Finish.LENGTH,
    "model_context_window_exceeded": Finish.LENGTH,
    "tool_use": Finish.CALLS,
    "refusal": Finish.CONTENT_FILTER,
}
_TOOL_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
_CONTINUATION_TEXT = "(The conversation continues.)"


class AnthropicModel(HttpModel):
    """Anthropic model.

    The key is `key=` or ANTHROPIC_API_KEY. With `url=` it is `key=` or FLYBALL_API_KEY.
    """

    _provider_spec: ClassVar[Provider] = Provider(
        name="anthropic",
        url="https://api.anthropic.com",
        url_variable="ANTHROPIC_BASE_URL",
        key_variable="ANTHROPIC_API_KEY",
        path="/v1/messages",
        max_output_tokens=8_192,
        headers={"anthropic-version": "2026-10-21"},
        max_output_elsewhere=8_192,
    )

    def _build_base_body(self, request: Request) -> Json:
        """Return the body of a messages request. The API requires `max_tokens`."""
        system, messages = write_anthropic(request.messages)
        max_tokens = request.max_output_tokens or self.max_output_tokens or self._endpoint.max_output_tokens
        body: Json = {
            "model": self.name,
            "max_tokens": max_tokens,
            "messages": _prepare_messages(messages, request.notices),
        }
        texts = [text for text in (request.instructions, system) if text]
        if request.tools:
            body["tools"] = [_format_tool(tool) for tool in request.tools]
            self._set_tool_choice(body)
        elif names := _collect_tool_names(messages):  # the API rejects calls of undeclared tools
            body["tools"] = [{"name": name, "input_schema": {"type": "object"}} for name in names]
            body["tool_choice"] = {"type": "none"}
        if request.output_schema:
            texts += _add_output_format(body, request.output_schema)
        if texts:
            body["system"] = "\n\n".join(texts)
        if self._stream:
            body["stream"] = True
        return body

    def _set_tool_choice(self, body: Json) -> None:
        options, choice = self._request_options, dict[str, Any]()
        if options.forced_tool is not None:
            choice = {"type": "tool", "name": options.forced_tool}
        elif options.tool_choice is not None:
            choice = {"type": _TOOL_CHOICES[options.tool_choice]}
        if options.parallel is not None and choice.get("type") != "none":
            choice = {"type": "auto", **choice, "disable_parallel_tool_use": not options.parallel}
        if choice:
            body["tool_choice"] = choice

    def create_parser(self, on_text: OnText | None = None) -> ReplyParser:
        """Return a parser for one reply."""
        return _AnthropicReplyParser(self.provider, on_text)


def _format_tool(tool: Mapping[str, Any]) -> Json:
    described = {"description": tool["description"]} if tool.get("description") else {}
    return {"name": tool["name"], **described, "input_schema": tool["parameters"]}


def _prepare_messages(messages: list[Json], notices: tuple[str, ...]) -> list[Json]:
    """Adapt messages to the API and append the notices.

    The first message becomes the user's, and ids and names get the characters that the API accepts.

    Messages with nothing but reasoning are left out, because the API rejects them. They arise when reasoning uses up
    the tokens of a reply.
    """
    messages = [message for message in messages if not _has_only_reasoning(message)]
    for message in messages:
        for block in _get_blocks(message):
            for key in ("id", "tool_use_id"):
                if key in block:
                    block[key] = sanitize_call_id(block[key])
            if block["type"] == "tool_use":
                block["name"] = sanitize_tool_name(block["name"])
    if messages and messages[0]["role"] != "user":
        messages.insert(0, {"role": "user", "content": _CONTINUATION_TEXT})
    if notices:
        notice_blocks = [{"type": "text", "text": notice} for notice in notices]
        if messages and messages[-1]["role"] == "user":
            messages[-1]["content"] = [*_get_blocks(messages[-1]), *notice_blocks]
        else:
            messages.append({"role": "user", "content": notice_blocks})
    return messages


def _get_blocks(message: Json) -> list[Json]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _has_only_reasoning(message: Json) -> bool:
    content = message["content"]
    return not isinstance(content, str) and all(block["type"] in PRIVATE_TYPES for block in content)


def _collect_tool_names(messages: Iterable[Json]) -> list[str]:
    """Return the names of the called tools, each once."""
    blocks = [block for message in messages for block in _get_blocks(message)]
    return list(dict.fromkeys(block["name"] for block in blocks if block["type"] == "tool_use"))


def _add_output_format(body: Json, schema: Mapping[str, Any]) -> list[str]:
    """Enforce the output schema, or return a prompt that asks for it."""
    enforced = close_schema(schema)
    if enforced is None:
        return [describe_schema(schema)]
    body["output_config"] = {"format": {"type": "json_schema", "schema": enforced}}
    return []


def _read_names(message: Json) -> tuple[str | None, str | None]:
    """Return the model and the id of a message."""
    return expect_text(message.get("model")) or None, expect_text(message.get("id")) or None


class _AnthropicReplyParser(ReplyParser):
    """Parser for streamed blocks (start, deltas, stop), or for one whole reply."""

    def __init__(self, provider: str | None, on_text: OnText | None = None) -> None:
        super().__init__(provider, on_text)
        self._open_blocks: dict[int, Json] = {}
        self._thoughts: dict[int, list[str]] = {}
        """Pieces of reasoning by block. They are joined only once, because there may be a hundred thousand."""
        self._initial_usage: Json = {}

    def parse_event(self, event: Json) -> None:
        """Parse an event. Unknown kinds are ignored, as the API demands."""
        match event.get("type"):
            case "message_start":
                message = expect_dict(event.get("message"), "a message")
                self.model, self.id = _read_names(message)
                self._initial_usage = expect_dict(message.get("usage"), "usage")
            case "content_block_start":
                block, index = self._start_block(expect_dict(event.get("content_block"), "a block")), _read_index(event)
                self._open_blocks[index], self._thoughts[index] = block, []
            case "content_block_delta":
                index = _read_index(event)
                block, thoughts = self._open_blocks.get(index, {}), self._thoughts.get(index, [])
                self._extend_block(block, thoughts, expect_dict(event.get("delta"), "a delta"))
            case "content_block_stop":
                index = _read_index(event)
                block, thoughts = self._open_blocks.pop(index, {}), self._thoughts.pop(index, [])
                if thoughts:
                    block["thinking"] = expect_text(block.get("thinking")) + "".join(thoughts)
                self._close_block(block)
            case "message_delta":
                self._add_usage(event.get("usage"))
                self._set_finish(expect_dict(event.get("delta"), "a delta").get("stop_reason"))
            case "message_stop":
                self.is_ended = True
            case _:
                pass

    def parse_reply(self, reply: Json) -> None:
        """Parse a reply that was not streamed."""
        self.model, self.id = _read_names(reply)
        self._add_usage(reply.get("usage"))
        for block in expect_list(reply.get("content"), "content"):
            self._close_block(self._start_block(expect_dict(block, "a block")))
        self._set_finish(reply.get("stop_reason"))

    def _add_usage(self, usage: object) -> None:
        """Set the usage of the whole reply.

        The last event may leave out the input counts, which came with the first event.
        """
        counts = {name: count for name, count in expect_dict(usage, "usage").items() if count is not None}
        if "output_tokens" in counts:
            self.set_usage({**self._initial_usage, **counts})

    def _start_block(self, block: Json) -> Json:
        match block.get("type"):
            case "text":
                self.add_text(block.get("text"))
            case "tool_use":
                self.piece_count += 1
                call = PartialCall(expect_text(block.get("id")), expect_text(block.get("name")))
                call.add_arguments(block.get("input") or None)
                self.calls.append(call)
                return {"type": "tool_use", "call": call}
            case _:
                self.piece_count += 1
                return dict(block)
        return {"type": "text"}

    def _extend_block(self, block: Json, thoughts: list[str], delta: Json) -> None:
        self.piece_count += 1
        match delta.get("type"):
            case "text_delta":
                self.add_text(delta.get("text"))
            case "input_json_delta" if "call" in block:
                block["call"].add_arguments(delta.get("partial_json"))
            case "thinking_delta":
                thoughts.append(expect_text(delta.get("thinking")))
            case "signature_delta":
                block["signature"] = expect_text(delta.get("signature"))
            case _:
                pass

    def _close_block(self, block: Json) -> None:
        """Keep a finished block of reasoning, because the API wants it back."""
        if block.get("type") in PRIVATE_TYPES:
            self.parts.append({"part": block, "shape": ANTHROPIC})

    def _set_finish(self, reason: object) -> None:
        if reason is not None:
            self.finish = _FINISHES.get(str(reason), Finish.STOP)


def _read_index(event: Json) -> int:
    index = event.get("index")
    if not isinstance(index, int):
        raise malformed_reply(f"the index of a block is a {type(index).__name__}")
    if not 0 <= index < MAX_INDEXES:
        raise malformed_reply("the index of a block is out of range")
    return index
