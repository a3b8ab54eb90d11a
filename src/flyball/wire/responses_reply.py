"""Parser for replies of OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..message import RESPONSES
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
from .responses_items import is_client_call, read_call

_INCOMPLETE = {"max_output_tokens": Finish.LENGTH, "content_filter": Finish.CONTENT_FILTER}
_ARGUMENT_DELTAS = frozenset({"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"})
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})


class ResponsesReplyParser(ReplyParser):
    """Parser for streamed items (added, deltas, done), or for one whole response."""

    def __init__(self, provider: str | None, on_text: Callable[[str], None] | None = None) -> None:
        super().__init__(provider, on_text)
        self._calls_by_index: dict[int, PartialCall] = {}
        self._streamed: set[int] = set()
        """Places of messages whose text came in deltas."""
        self._done: set[int] = set()

    def find_error(self, event: Json) -> object:
        """Return the error of an event or a whole response, or None."""
        if event.get("type") == "error":
            return event.get("error") or event
        response = event.get("response")
        return response.get("error") if isinstance(response, dict) else event.get("error")  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]

    def parse_event(self, event: Json) -> None:
        """Parse an event. Unknown kinds are ignored."""
        kind = expect_text(event.get("type"))
        if kind == "response.output_text.delta":
            self._streamed.add(_read_index(event))
            self.add_text(event.get("delta"))
        elif kind == "response.refusal.delta":
            self._streamed.add(_read_index(event))
            self.add_refusal(event.get("delta"))
        elif kind in _ARGUMENT_DELTAS:
            self.piece_count += 1
            self._find_call(_read_index(event)).add_arguments(event.get("delta"))
        elif kind == "response.output_item.added":
            self._start_item(_read_index(event), expect_dict(event.get("item"), "an item"))
        elif kind == "response.output_item.done":
            self._end_item(_read_index(event), expect_dict(event.get("item"), "an item"))
        elif kind in _ENDS:
            self.parse_reply(expect_dict(event.get("response"), "a response"))
            self.is_ended = True
        elif kind == "response.created":
            self._parse_header(expect_dict(event.get("response"), "a response"))
        elif kind.endswith(".delta"):
            self.piece_count += 1

    def parse_reply(self, reply: Json) -> None:
        """Parse a whole response, or what is still unknown of one at the end of its stream."""
        self._parse_header(reply)
        if reply.get("usage") is not None:
            self.set_usage(reply["usage"])
        for index, item in enumerate(expect_list(reply.get("output"), "output")):
            self._end_item(index, expect_dict(item, "an item"))
        status = reply.get("status", "completed" if "output" in reply else None)
        if status == "completed":
            self.finish = Finish.STOP
        elif status == "incomplete":
            reason = expect_text(expect_dict(reply.get("incomplete_details"), "details").get("reason"))
            self.finish, self.detail = _INCOMPLETE.get(reason, Finish.LENGTH), reason
        elif status in ("failed", "cancelled"):
            raise malformed_reply(f"its status is {status}")

    def _parse_header(self, response: Json) -> None:
        self.id = self.id or expect_text(response.get("id")) or None
        self.model = self.model or expect_text(response.get("model")) or None

    def _find_call(self, index: int) -> PartialCall:
        call = self._calls_by_index.get(index)
        if call is None:
            call = self._calls_by_index[index] = PartialCall()
            self.calls.append(call)
        return call

    def _start_item(self, index: int, item: Json) -> None:
        if is_client_call(item):
            self.piece_count += 1
            call = self._find_call(index)
            call.id, call.name = call.id or expect_text(item["call_id"]), call.name or _read_name(item)

    def _end_item(self, index: int, item: Json) -> None:
        """Take over an item, once. Its final form counts, not the sum of its deltas."""
        if index in self._done:
            return
        self._done.add(index)
        self.piece_count += 1
        if is_client_call(item):
            call, arguments = self._find_call(index), read_call(item)[1]
            call.id, call.name = expect_text(item["call_id"]), _read_name(item)
            if item["type"] != "function_call":
                self.call_kinds[call.id] = item["type"]
            if arguments:
                call.set_arguments(arguments)
        elif (kind := expect_text(item.get("type", "message"))) == "message":
            if index not in self._streamed:
                self._add_content(item)
            self._keep_message(item)
        elif kind:
            place: Json = {"before": len(self.calls)} if self.calls or self.has_text else {}
            self.parts.append({"part": item, "shape": RESPONSES} | place)

    def _add_content(self, item: Json) -> None:
        for row in expect_list(item.get("content"), "content"):
            part = expect_dict(row, "a part")
            if part.get("type") == "refusal":
                self.add_refusal(part.get("refusal"))
            elif part.get("type") == "output_text":
                self.add_text(part.get("text"))

    def _keep_message(self, item: Json) -> None:
        """Keep keys of a message that the API wants back, such as the phase of an answer."""
        known = {"id", "type", "role", "status", "content"}
        extra: dict[str, Any] = {key: value for key, value in item.items() if key not in known and value is not None}
        if extra:
            self.parts.append({"part": {"type": "signature", "value": extra}, "shape": RESPONSES, "of": "text"})


def _read_name(item: Json) -> str:
    return expect_text(read_call(item)[0])


def _read_index(event: Json) -> int:
    index = event.get("output_index")
    if not isinstance(index, int):
        raise malformed_reply(f"the index of an item is a {type(index).__name__}")
    if not 0 <= index < MAX_INDEXES:
        raise malformed_reply("the index of an item is out of range")
    return index
