"""Reader of a provider's stream that keeps every byte, for programs that pass a stream on."""

from __future__ import annotations

from typing import NamedTuple, cast

from .._internal.json_bytes import parse_json
from ..errors import ModelError
from .reply_parser import Json, ReplyParser
from .sse import EventReader, ServerEvent


class ReadEvent(NamedTuple):
    """Event of a stream: its bytes, and what they mean."""

    raw: bytes
    """The bytes to pass on. The events of a stream joined are the stream."""
    json: Json | None
    """Its data. None means that it has none, such as a comment or the end mark, or that it is not a JSON object."""
    name: str = ""


class StreamReader:
    """Parser of a stream, fed with bytes however they are cut.

    `parser` has what was received so far: text, calls, usage, finish. Unlike a model it does not fail: an event that is
    not understood is passed on, and noted in `flaw`.
    """

    def __init__(self, parser: ReplyParser, *, is_array: bool = False) -> None:
        self.parser = parser
        self.error: object = None
        """Error that the provider sent, as it wrote it. None means none."""
        self.flaw: str | None = None
        """First violation of the provider's format. None means none."""
        self._reader = ArrayReader() if is_array else EventReader()

    def feed(self, chunk: bytes) -> list[ReadEvent]:
        """Return the events that this chunk completes."""
        return [self._read(event) for event in self._reader.feed(chunk)]

    def close(self) -> list[ReadEvent]:
        """Return what is left at the end of the stream."""
        return [self._read(event) for event in self._reader.close()]

    def _read(self, event: ServerEvent) -> ReadEvent:
        if event.data is None:
            return ReadEvent(event.raw, None, event.name)
        if event.data.strip() == b"[DONE]":
            self.parser.is_ended = True
            return ReadEvent(event.raw, None, event.name)
        try:
            value = parse_json(event.data)
        except (ValueError, RecursionError):
            self.flaw = self.flaw or "an event is not complete JSON"
            return ReadEvent(event.raw, None, event.name)
        if not isinstance(value, dict):
            self.flaw = self.flaw or "an event is not a JSON object"
            return ReadEvent(event.raw, None, event.name)
        data = cast("Json", value)
        error = self.parser.find_error(data)
        if error:
            self.error = self.error or error
        else:
            try:
                self.parser.parse_event(data)
            except ModelError as flaw:
                self.flaw = self.flaw or flaw.message
        return ReadEvent(event.raw, data, event.name)


class ArrayReader:
    """Parser for the items of one JSON array, as Gemini streams without `alt=sse`."""

    __slots__ = ("_depth", "_escaped", "_in_text", "_item", "_raw")

    def __init__(self) -> None:
        self._raw = bytearray()
        self._item = bytearray()
        self._depth = 0
        self._in_text = self._escaped = False

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Return the items completed by this chunk. Brackets and commas between items count to the next one."""
        events: list[ServerEvent] = []
        for place in range(len(chunk)):
            byte = chunk[place : place + 1]
            self._raw += byte
            if self._depth > 1 or (self._depth == 1 and byte == b"{"):
                self._item += byte
            if self._in_text:
                self._in_text = self._escaped or byte != b'"'
                self._escaped = byte == b"\\" and not self._escaped
            elif byte == b'"':
                self._in_text = True
            elif byte in (b"{", b"["):
                self._depth += 1
            elif byte in (b"}", b"]"):
                self._depth -= 1
                if self._depth == 1 and self._item:
                    events.append(ServerEvent(bytes(self._raw), bytes(self._item), ""))
                    self._raw, self._item = bytearray(), bytearray()
        return events

    def close(self) -> list[ServerEvent]:
        """Return the closing bracket, or what was cut."""
        return [ServerEvent(bytes(self._raw), bytes(self._item) or None, "")] if self._raw else []
