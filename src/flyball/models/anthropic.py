"""Anthropic's messages API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from ..message import ANTHROPIC
from ..request import Finish, Request
from ..wire.writer import PRIVATE, write_anthropic
from .endpoint import Provider
from .http import HttpModel
from .model import Tell
from .reply import MOST_INDEXES, Json, PartialCall, ReplyParser, dict_of, list_of, malformed, text_of
from .structured import call_id, closed, tool_name, wanted

_FINISHES = {
    "end_turn": Finish.STOP,
    "stop_sequence": Finish.STOP,
    "max_tokens": Finish.LENGTH,
    "model_context_window_exceeded": Finish.LENGTH,
    "tool_use": Finish.CALLS,
    "refusal": Finish.CONTENT_FILTER,
}
_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
_GOES_ON = "(The conversation goes on.)"


class AnthropicModel(HttpModel):
    """A model of Anthropic's. The key is `key=` or ANTHROPIC_API_KEY; with `url=`, `key=` or FLYBALL_API_KEY."""

    _house: ClassVar[Provider] = Provider(
        name="anthropic",
        url="https://api.anthropic.com",
        url_variable="ANTHROPIC_BASE_URL",
        key_variable="ANTHROPIC_API_KEY",
        path="/v1/messages",
        max_output_tokens=8_192,
        headers={"anthropic-version": "2026-10-21"},
        max_output_elsewhere=8_192,
    )

    def _body(self, request: Request) -> Json:
        """The request as this API wants it; it must always say how long the reply may be."""
        system, messages = write_anthropic(request.messages)
        most = request.max_output_tokens or self.max_output_tokens or self._address.max_output_tokens
        body: Json = {"model": self.name, "max_tokens": most, "messages": _completed(messages, request.notices)}
        texts = [text for text in (request.instructions, system) if text]
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
            self._choose(body)
        elif names := _called(messages):  # it takes no calls of tools that it is not told of
            body["tools"] = [{"name": name, "input_schema": {"type": "object"}} for name in names]
            body["tool_choice"] = {"type": "none"}
        if request.output_schema:
            texts += _form(body, request.output_schema)
        if texts:
            body["system"] = "\n\n".join(texts)
        if self._stream:
            body["stream"] = True
        return body

    def _choose(self, body: Json) -> None:
        wish, choice = self._wish, dict[str, Any]()
        if wish.forced_tool is not None:
            choice = {"type": "tool", "name": wish.forced_tool}
        elif wish.tool_choice is not None:
            choice = {"type": _CHOICES[wish.tool_choice]}
        if wish.parallel is not None and choice.get("type") != "none":
            choice = {"type": "auto", **choice, "disable_parallel_tool_use": not wish.parallel}
        if choice:
            body["tool_choice"] = choice

    def ear(self, tell: Tell | None = None) -> ReplyParser:
        """Something to hear a reply with."""
        return _AnthropicEar(self.provider, tell)


def _tool(tool: Mapping[str, Any]) -> Json:
    described = {"description": tool["description"]} if tool.get("description") else {}
    return {"name": tool["name"], **described, "input_schema": tool["parameters"]}


def _completed(messages: list[Json], notices: tuple[str, ...]) -> list[Json]:
    """The messages with the notices behind the newest, beginning with the user's, and with names that this API takes.

    Thoughts that led to nothing, as when they were as long as the reply might be, are left out: it takes none alone.
    """
    messages = [message for message in messages if not _only_thinks(message)]
    for message in messages:
        for block in _blocks(message):
            for key in ("id", "tool_use_id"):
                if key in block:
                    block[key] = call_id(block[key])
            if block["type"] == "tool_use":
                block["name"] = tool_name(block["name"])
    if messages and messages[0]["role"] != "user":
        messages.insert(0, {"role": "user", "content": _GOES_ON})
    if notices:
        said = [{"type": "text", "text": notice} for notice in notices]
        if messages and messages[-1]["role"] == "user":
            messages[-1]["content"] = [*_blocks(messages[-1]), *said]
        else:
            messages.append({"role": "user", "content": said})
    return messages


def _blocks(message: Json) -> list[Json]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _only_thinks(message: Json) -> bool:
    content = message["content"]
    return not isinstance(content, str) and all(block["type"] in PRIVATE for block in content)


def _called(messages: Iterable[Json]) -> list[str]:
    """The names of the tools that were called, each once."""
    blocks = [block for message in messages for block in _blocks(message)]
    return list(dict.fromkeys(block["name"] for block in blocks if block["type"] == "tool_use"))


def _form(body: Json, schema: Mapping[str, Any]) -> list[str]:
    """Have the form of the answer enforced; where that cannot be, the words that ask for it."""
    enforced = closed(schema)
    if enforced is None:
        return [wanted(schema)]
    body["output_config"] = {"format": {"type": "json_schema", "schema": enforced}}
    return []


def _place(event: Json) -> int:
    index = event.get("index")
    if not isinstance(index, int):
        raise malformed(f"a {type(index).__name__} as the index of a block")
    if not 0 <= index < MOST_INDEXES:
        raise malformed("an index of a block that no reply can have")
    return index


class _AnthropicEar(ReplyParser):
    """Hears blocks, each with a start, deltas and a stop; or one reply with all its blocks."""

    def __init__(self, provider: str | None, tell: Tell | None = None) -> None:
        super().__init__(provider, tell)
        self._open: dict[int, Json] = {}
        self._thoughts: dict[int, list[str]] = {}
        """Pieces of reasoning, by block. They are joined once: there may be a hundred thousand."""
        self._used: Json = {}

    def hear(self, event: Json) -> None:
        """Take an event; kinds that nobody knows yet are left aside, as this API asks of its readers."""
        match event.get("type"):
            case "message_start":
                message = dict_of(event.get("message"), "a message")
                self.model = text_of(message.get("model")) or None
                self._used = dict_of(message.get("usage"), "usage")
            case "content_block_start":
                self._open[_place(event)] = self._begun(dict_of(event.get("content_block"), "a block"))
                self._thoughts[_place(event)] = []
            case "content_block_delta":
                block, thoughts = self._open.get(_place(event), {}), self._thoughts.get(_place(event), [])
                self._went_on(block, thoughts, dict_of(event.get("delta"), "a delta"))
            case "content_block_stop":
                block, thoughts = self._open.pop(_place(event), {}), self._thoughts.pop(_place(event), [])
                if thoughts:
                    block["thinking"] = text_of(block.get("thinking")) + "".join(thoughts)
                self._closed(block)
            case "message_delta":
                self._spent(event.get("usage"))
                self._finished(dict_of(event.get("delta"), "a delta").get("stop_reason"))
            case "message_stop":
                self.ended = True
            case _:
                pass

    def hear_whole(self, reply: Json) -> None:
        """Take a reply."""
        self.model = text_of(reply.get("model")) or None
        self._spent(reply.get("usage"))
        for block in list_of(reply.get("content"), "content"):
            self._closed(self._begun(dict_of(block, "a block")))
        self._finished(reply.get("stop_reason"))

    def _spent(self, usage: object) -> None:
        """The counts of the whole reply; the last event may leave out those of the input, which came with the first."""
        counts = {name: count for name, count in dict_of(usage, "usage").items() if count is not None}
        if "output_tokens" in counts:
            self.use({**self._used, **counts})

    def _begun(self, block: Json) -> Json:
        match block.get("type"):
            case "text":
                self.say(block.get("text"))
            case "tool_use":
                self.pieces += 1
                call = PartialCall(text_of(block.get("id")), text_of(block.get("name")))
                call.hear(block.get("input") or None)
                self.calls.append(call)
                return {"type": "tool_use", "call": call}
            case _:
                self.pieces += 1
                return dict(block)
        return {"type": "text"}

    def _went_on(self, block: Json, thoughts: list[str], delta: Json) -> None:
        self.pieces += 1
        match delta.get("type"):
            case "text_delta":
                self.say(delta.get("text"))
            case "input_json_delta" if "call" in block:
                block["call"].hear(delta.get("partial_json"))
            case "thinking_delta":
                thoughts.append(text_of(delta.get("thinking")))
            case "signature_delta":
                block["signature"] = text_of(delta.get("signature"))
            case _:
                pass

    def _closed(self, block: Json) -> None:
        """A block is whole; of those that are neither text nor call, the provider wants the reasoning back."""
        if block.get("type") in PRIVATE:
            self.parts.append({"part": block, "shape": ANTHROPIC})

    def _finished(self, reason: object) -> None:
        if reason is not None:
            self.finish = _FINISHES.get(str(reason), Finish.STOP)
