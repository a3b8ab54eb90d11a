"""Reader of a provider's stream that keeps every byte, for programs that pass a stream on."""

from __future__ import annotations

import re
from typing import NamedTuple, cast

from .._internal.json_bytes import parse_json
from ..errors import ModelError
from .reply_parser import Json, ReplyParser
from .sse import EventReader, ServerEvent

_MARKS = re.compile(rb'["\\{}\[\]]')
"""Bytes that matter between the items of an array."""


MAX_EVENT_BYTES = 64 * 2**20
"""Maximum bytes of one event. A longer one comes from a server that never stops."""


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

    def __init__(self, parser: ReplyParser, *, is_array: bool = False, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.parser = parser
        self.error: object = None
        """Error that the provider sent, as it wrote it. None means none."""
        self.flaw: str | None = None
        """First violation of the provider's format. None means none."""
        self._new_reader = ArrayReader if is_array else EventReader
        self._reader = self._new_reader()
        self._max_event_bytes = max_event_bytes
        self._pending_bytes = 0
        """Bytes that no event has yet, or a few more."""

    def feed(self, chunk: bytes) -> list[ReadEvent]:
        """Return the events that this chunk completes. An event that is too long is passed on in parts."""
        events = self._reader.feed(chunk)
        self._pending_bytes = len(chunk) if events else self._pending_bytes + len(chunk)
        if self._pending_bytes > self._max_event_bytes:
            self.flaw = self.flaw or f"an event has more than {self._max_event_bytes:,} bytes"
            events += self._reader.close()
            self._reader, self._pending_bytes = self._new_reader(), 0
        return [self._read(event) for event in events]

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

    __slots__ = ("_depth", "_in_text", "_raw", "_skip", "_start")

    def __init__(self) -> None:
        self._raw = bytearray()
        self._start: int | None = None
        """Place in `_raw` where an item has begun."""
        self._depth = 0
        self._in_text = False
        self._skip = 0
        """Bytes of the next chunk that belong to an escape."""

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Return the items completed by this chunk. Brackets and commas between items count to the next one."""
        events: list[ServerEvent] = []
        offset, done, skip = len(self._raw), 0, self._skip
        self._raw += chunk
        for mark in _MARKS.finditer(chunk):
            place, byte = mark.start(), mark[0]
            if place < skip:
                continue
            if self._in_text:
                skip = place + 2 if byte == b"\\" else skip
                self._in_text = byte != b'"'
            elif byte == b'"':
                self._in_text = True
            elif byte in b"{[":
                self._depth += 1
                self._start = offset + place if self._depth == 2 else self._start
            elif byte in b"}]":
                self._depth -= 1
                if self._depth == 1 and self._start is not None:
                    end = offset + place + 1
                    events.append(ServerEvent(bytes(self._raw[done:end]), bytes(self._raw[self._start : end]), ""))
                    done, self._start = end, None
        del self._raw[:done]
        self._start = None if self._start is None else self._start - done
        self._skip = max(0, skip - len(chunk))
        return events

    def close(self) -> list[ServerEvent]:
        """Return the closing bracket, or what was cut."""
        data = None if self._start is None else bytes(self._raw[self._start :])
        return [ServerEvent(bytes(self._raw), data, "")] if self._raw else []
