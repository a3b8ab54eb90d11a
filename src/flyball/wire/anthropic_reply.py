"""Parser for replies of Anthropic's messages API."""

from __future__ import annotations

from collections.abc import Callable

from ..message import ANTHROPIC
from ..request import Finish
from .reply_parser import (
    MAX_INDEXES,
    Json,
    PartialCall,
    ReplyParser,
    expect_dict,
    expect_list,
    expect_text,
    malformed_reply,
)
from .writer import PRIVATE_TYPES

_FINISHES = {
    "end_turn": Finish.STOP,
    "stop_sequence": Finish.STOP,
    "max_tokens": Finish.LENGTH,
    "model_context_window_exceeded": Finish.LENGTH,
    "tool_use": Finish.CALLS,
    "refusal": Finish.CONTENT_FILTER,
}


class AnthropicReplyParser(ReplyParser):
    """Parser for streamed blocks (start, deltas, stop), or for one whole reply."""

    def __init__(self, provider: str | None, on_text: Callable[[str], None] | None = None) -> None:
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
        match expect_text(block.get("type")):
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


def _read_names(message: Json) -> tuple[str | None, str | None]:
    """Return the model and the id of a message."""
    return expect_text(message.get("model")) or None, expect_text(message.get("id")) or None


def _read_index(event: Json) -> int:
    index = event.get("index")
    if not isinstance(index, int):
        raise malformed_reply(f"the index of a block is a {type(index).__name__}")
    if not 0 <= index < MAX_INDEXES:
        raise malformed_reply("the index of a block is out of range")
    return index
