"""Server-sent events: parse a byte stream, however it was chunked, and keep its bytes."""

from __future__ import annotations

from typing import NamedTuple


class ServerEvent(NamedTuple):
    """Event of a stream, with the bytes that it came in."""

    raw: bytes
    """All its lines, with the empty line that ends it. The events of a stream joined are the stream."""
    data: bytes | None
    """Its data. None means that it has none, such as a comment that keeps the connection alive."""
    name: str
    """Its kind, or ""."""


class EventReader:
    """Parser for events. Ids and comments are only kept as bytes."""

    __slots__ = ("_data", "_name", "_raw", "_rest")

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        """Pieces of the incomplete line. A list, so that a line without end is not copied with each chunk."""
        self._raw: list[bytes] = []
        self._data: list[bytes] = []
        self._name = b""

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Return the events completed by this chunk.

        A line may end with LF, CR LF or CR, even across chunks.
        """
        pending = self._rest
        pending.append(chunk)
        if b"\n" not in chunk and b"\r" not in b"".join(pending[-2:]):
            return []
        lines = b"".join(pending).splitlines(keepends=True)
        self._rest = [] if lines[-1].endswith(b"\n") else [lines.pop()]
        return self._read_events(lines)

    def close(self) -> list[ServerEvent]:
        """Return the last event, if its final empty line is missing."""
        pending, self._rest = b"".join(self._rest), []
        events = self._read_events(pending.splitlines(keepends=True))
        return [*events, self._end_event()] if self._raw else events

    def _read_events(self, lines: list[bytes]) -> list[ServerEvent]:
        events: list[ServerEvent] = []
        for line in lines:
            self._raw.append(line)
            text = line.rstrip(b"\r\n")
            if not text:
                events.append(self._end_event())
            elif text.startswith(b"data:"):
                self._data.append(text[6:] if text.startswith(b"data: ") else text[5:])
            elif text.startswith(b"event:"):
                self._name = text[6:].strip()
        return events

    def _end_event(self) -> ServerEvent:
        data = b"\n".join(self._data) if self._data else None
        name = self._name.decode("utf-8", "replace") if self._name else ""
        event = ServerEvent(b"".join(self._raw), data, name)
        self._raw, self._data, self._name = [], [], b""
        return event
